use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stele_lab::modelled::run::{QueryPlan, run};
use stele_lab::modelled::{Effort, LogPlace, Maker, Query};
use stele_lab::raid::Level;

use super::*;
use stele_lab::error::LabError;
use stele_lab::workload;

const TINY: Effort = Effort { round: 100, probes_max: 2 };

fn array(maker: Maker, level: Level, cached: bool) -> Array {
    Array { maker, level, drives: 20, cached, stroke: 8, log: LogPlace::Memory }
}

fn planned(array: Array, loads: &[u64]) -> QueryPlan {
    let spec = workload::named("oltp_8k").unwrap();
    QueryPlan {
        array,
        spec,
        alignment: Alignment::Request,
        ask: Query::Loads(loads.to_vec()),
        effort: TINY,
        streams: 1,
    }
}

fn rates(plan: &[QueryPlan], threads: usize) -> Vec<u64> {
    let mut rates = Vec::new();
    let ended = run(plan, &published, threads, &AtomicBool::new(false), &mut |at, answer| {
        assert_eq!(at, rates.len(), "answers come in the order of the plan");
        rates.push(answer.runs[0].probe.rate.to_bits());
        Ok(())
    });
    assert!(ended.unwrap());
    rates
}

#[test]
fn answers_do_not_depend_on_threads_or_on_what_else_is_asked() {
    let plan: Vec<QueryPlan> =
        [(Maker::Stele, false), (Maker::Stele, true), (Maker::Ds4500, false), (Maker::Ds4500, true)]
            .map(|(maker, cached)| planned(array(maker, Level::Raid5, cached), &[16]))
            .to_vec();
    let all = rates(&plan, 1);
    assert_eq!(rates(&plan, 3), all);
    assert_eq!(rates(&plan[1..2], 1), all[1..2], "the second one alone");
    assert!(all.iter().enumerate().all(|(at, rate)| !all[..at].contains(rate)), "four arrays, four answers: {all:?}");
}

#[test]
fn a_plan_that_is_stopped_hands_over_what_came_first_and_says_so() {
    let plan: Vec<QueryPlan> =
        (1..400).map(|load| planned(array(Maker::Ds4500, Level::Raid10, false), &[load])).collect();
    let (stop, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ended = run(&plan, &published, 2, &stop, &mut |at, _| {
        assert_eq!(at, seen.fetch_add(1, Ordering::Relaxed), "without gaps");
        stop.store(true, Ordering::Relaxed);
        Ok(())
    });
    assert!(!ended.unwrap());
    assert!((1..399).contains(&seen.into_inner()));
    let failed = run(&plan, &published, 2, &AtomicBool::new(false), &mut |_, _| Err(LabError::Full("no room".into())));
    assert_eq!(failed.unwrap_err(), LabError::Full("no room".into()));
}

#[test]
fn a_probe_ends_when_it_is_stopped_and_not_when_it_is_done() {
    let spec = workload::named("random_read_8k").unwrap();
    let array = array(Maker::Ds4500, Level::Raid5, false);
    let mut running = profile(&array, Machine::PUBLISHED, &spec, Alignment::Request);
    let looks = AtomicUsize::new(0);
    let endless = Length { warm_up: u64::MAX, round: 100, rounds_max: 12 };
    let stopped = running.measure(8, endless, &|| looks.fetch_add(1, Ordering::Relaxed) < 10);
    assert_eq!(stopped.unwrap_err(), "stopped");
}

#[test]
fn a_busy_array_says_what_was_busy() {
    let spec = workload::named("random_read_8k").unwrap();
    let mut running =
        profile(&array(Maker::Ds4500, Level::Raid5, false), Machine::PUBLISHED, &spec, Alignment::Request);
    let alone = running.measure(1, TINY.length(1), &|| true).unwrap().rounds[0].busy;
    let full = running.measure(200, TINY.length(200), &|| true).unwrap().rounds[0].busy;
    assert!(alone.drives < 0.1 && alone.busiest_drive < 0.5, "one access keeps one of twenty drives busy: {alone:?}");
    assert!(full.drives > 0.9 && full.busiest_drive > 0.98, "{full:?}");
    assert!(full.controllers.unwrap() > 4.0 * alone.controllers.unwrap(), "{alone:?} {full:?}");
}
