use super::run::{QueryPlan, arrange};
use super::*;
use crate::workload;

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

#[test]
fn neighbours_in_an_arranged_plan_ask_different_pools_and_the_largest_come_first() {
    let mut plan = Vec::new();
    for level in [Level::Raid5, Level::Raid10] {
        for drives in [20, 60] {
            for cached in [false, true] {
                plan.push(planned(Array { drives, ..array(Maker::Stele, level, cached) }, &[1]));
            }
        }
    }
    arrange(&mut plan, |planned| planned);
    let places: Vec<(u32, Level)> = plan.iter().map(|planned| (planned.array.drives, planned.array.level)).collect();
    let both = |drives| [(drives, Level::Raid5), (drives, Level::Raid10)];
    assert_eq!(places, [both(60), both(60), both(20), both(20)].concat());
}

#[test]
fn arrays_that_cannot_be_built_are_refused_with_what_can() {
    let whole = array(Maker::Ds4500, Level::Raid5, true);
    assert!(whole.check().is_ok());
    for (array, says) in [
        (Array { drives: 25, ..whole }, "arrays of ten"),
        (Array { maker: Maker::Stele, drives: 11, ..whole }, "12 at least"),
        (Array { drives: 5000, ..whole }, "at most 500"),
        (Array { stroke: 95, ..whole }, "from 1 to 90"),
    ] {
        let why = array.check().unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    }
}
