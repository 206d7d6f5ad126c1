use super::*;
use crate::job::Job;
use crate::live::target::{Opening, Target};

const SHORT: &str = "[time]\nround = '10ms'\nwarm-up = '10ms'\nleast = '100ms'\nmost = '100ms'\n";

fn null() -> Ready {
    Target::Null.open(Opening::default(), &mut |_, _| true).unwrap()
}

#[test]
fn tenants_run_at_once_for_the_same_time_and_each_is_judged_by_its_objective() {
    let tenants = "[[tenant]]\nname = 'a'\nload = { rate = 2000.0 }\nobjective = 'p99=10s'\n\
                   [[tenant]]\nname = 'b'\nload = { outstanding = 1, workers = 1 }\nobjective = 'mean=1ns'\n";
    let cells = Job::parse(&format!("{SHORT}{tenants}")).unwrap().cells().unwrap();
    let ready = null();
    let pairs: Vec<(&Ready, &JobCell)> = cells.iter().map(|cell| (&ready, cell)).collect();
    let mut seen = [0; 2];
    let found = together(&pairs, &AtomicBool::new(false), &mut |step| {
        seen[step.cell] += 1;
        true
    });
    let found: Vec<CellRecord> = found.into_iter().map(|one| one.unwrap().unwrap()).collect();
    assert_eq!((found[0].number, found[1].number), (0, 1));
    assert!(found.iter().all(|cell| cell.runs[0].rounds.len() == 10), "{found:?}");
    assert_eq!(seen, [11, 11], "the warm-up's round is seen, too");
    let kept = |cell: &CellRecord| cell.objective.as_ref().unwrap().is_kept();
    assert_eq!((kept(&found[0]), kept(&found[1])), (true, false), "{found:?}");
    assert!(found[1].runs[0].rounds.iter().all(|round| round.cpu_own == 0.0), "it is counted once");
}

#[test]
fn a_tenant_that_cannot_run_ends_the_others() {
    let tenants = "[[tenant]]\nname = 'a'\n[[tenant]]\nname = 'b'\nworkload = { access = '1000' }\n";
    let long = SHORT.replace("'100ms'", "'1h'");
    let cells = Job::parse(&format!("{long}{tenants}")).unwrap().cells().unwrap();
    let ready = null();
    let pairs: Vec<(&Ready, &JobCell)> = cells.iter().map(|cell| (&ready, cell)).collect();
    let found = together(&pairs, &AtomicBool::new(false), &mut |_| true);
    assert!(matches!(&found[1], Err(error) if error.to_string().contains("multiples of 512")), "{found:?}");
    assert!(matches!(&found[0], Ok(None)), "{found:?}");
}

#[test]
fn the_highest_rate_that_keeps_an_objective_is_kept_with_all_that_was_tried() {
    let search = "[search]\nobjective = 'mean=10s'\nrate-max = 4000\n[load]\nrate = 1000\n";
    let cells = Job::parse(&format!("{SHORT}{search}")).unwrap().cells().unwrap();
    let found = cell(&null(), 0, &cells[0], &AtomicBool::new(false), &mut |_| true).unwrap().unwrap();
    let answer = found.search.as_ref().unwrap();
    assert_eq!((answer.rate_asked, answer.beyond, answer.percentile), (Some(4000.0), None, None), "{answer:?}");
    assert_eq!(answer.open_end.as_deref(), Some("the objective was never missed"));
    let mut asked: Vec<f64> = found.runs.iter().filter_map(|run| run.rate_asked).collect();
    // On a machine that stands still for a moment a rate without an answer is measured again.
    assert!(asked.iter().filter(|rate| **rate == 4000.0).count() >= 2, "the answer is measured twice: {asked:?}");
    asked.dedup();
    assert_eq!(asked, [1000.0, 4000.0]);
    let none =
        Job::parse(&format!("{SHORT}[search]\nobjective = 'mean=1ns'\n[load]\nrate = 200")).unwrap().cells().unwrap();
    let found = cell(&null(), 0, &none[0], &AtomicBool::new(false), &mut |_| true).unwrap().unwrap();
    let answer = found.search.as_ref().unwrap();
    assert_eq!((answer.rate_asked, answer.rate, answer.steady), (None, 0.0, false), "{answer:?}");
    assert!(crate::report::remark(&found).contains("the objective was always missed"), "{found:?}");
}

#[test]
fn a_probe_without_an_answer_is_measured_again_before_it_is_believed() {
    let text = format!("{SHORT}[search]\nresponse = '20ms'\noutstanding-max = 64\n");
    let cells = Job::parse(&text).unwrap().cells().unwrap();
    let goal = cells[0].goal.unwrap();
    let searched = |hangs: bool| {
        let mut asked = Vec::new();
        let found = searched(0, &cells[0], goal, &mut |outstanding| {
            asked.push(outstanding);
            let mut run = crate::report::tests::run(outstanding, 1000.0, 5, true);
            if hangs || asked.iter().filter(|other| **other == outstanding).count() == 1 {
                run.rounds.iter_mut().for_each(|round| round.read = Default::default());
            }
            Ok(Some(run))
        });
        found.unwrap().unwrap()
    };
    let found = searched(false);
    assert_eq!(found.search.as_ref().unwrap().open_end.as_deref(), Some("the response was never exceeded"));
    assert!(found.runs.iter().all(|run| run.total().response.count() > 0), "{found:?}");
    let found = searched(true);
    assert_eq!(found.search.as_ref().unwrap().open_end.as_deref(), Some("the response was always exceeded"));
}
