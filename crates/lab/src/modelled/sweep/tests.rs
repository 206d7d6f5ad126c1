use super::*;

fn job(text: &str, words: &[&str]) -> Result<Vec<(JobCell, QueryPlan)>, LabError> {
    let mut job = Job::parse(text)?;
    let mut part = job.modelled.take().unwrap_or_default();
    part.set(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())?;
    cells(&job, &part)
}

#[test]
fn every_list_of_an_array_is_an_axis_before_those_of_the_workload() {
    let text = "[workload]\nname = ['oltp_4k', 'oltp_8k']\n[load]\noutstanding = 30\n[virtual]\nraid = [5, 10]\n";
    let all = job(text, &["drives=20,60", "cache=off"]).unwrap();
    assert_eq!(all.len(), 8);
    let (cell, planned) = &all[3];
    assert_eq!(cell.name(), "drives 20, raid 10, workload oltp_8k");
    assert_eq!((planned.array.drives, planned.array.level, planned.array.cached), (20, Level::Raid10, false));
    assert!(matches!(&planned.ask, Query::Loads(loads) if loads == &[30]));
    let one = job("[search]\nresponse = '5ms'\n", &["array=ds4500"]).unwrap();
    let Query::Highest { goal, .. } = &one[0].1.ask else { panic!("{one:?}") };
    assert_eq!((goal.response, goal.load_max), (stele_ground::Duration::from_millis(5), OUTSTANDING_MAX));
}

#[test]
fn what_has_no_meaning_in_virtual_time_is_an_error_that_names_it() {
    for (text, words, says) in [
        ("on = 'null'", &["drives=20"][..], "leave out on"),
        ("[time]\nleast = '5s'", &[], "leave out time"),
        ("[load]\nrate = 5.0", &[], "load.rate"),
        ("[load]\npause = '1ms'", &[], "load.pause"),
        ("", &["drives"], "drives=20,60"),
        ("", &["drives=many"], "like 20,60,100"),
        ("", &["raid=4"], "5, 6 or 10"),
        ("", &["cache=maybe"], "on,off"),
        ("", &["spindles=4"], "array, drives, raid, cache and stroke"),
        ("", &["array=hp"], "stele, or ds4500"),
        ("", &["drives=3"], "12 at least"),
        ("[virtual]\nspindles = 4", &[], "spindles"),
    ] {
        let why = job(text, words).unwrap_err().to_string();
        assert!(why.contains(says), "{text} {words:?}: {why}");
    }
}
