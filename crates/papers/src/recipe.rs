//! Recipes: each repeats the measurements of one of the published papers, and writes that paper
//! again for the new results.
//!
//! A recipe's plan in virtual time follows from its name and from the quick option, and from
//! nothing else. A stopped result can therefore be resumed, and the same plan gives the same
//! digits, file and page. On real storage the plan follows from the job and from the kinds of
//! targets.

use stele_ground::Duration;

use stele_lab::error::LabError;
use stele_lab::job::{Axes, JobCell, RecipePart};
use stele_lab::live::content::Content;
use stele_lab::live::run::{Load, Of, Setup, Timing};
use stele_lab::modelled::run::QueryPlan;
use stele_lab::modelled::{LogPlace, Maker, Query};

pub mod dr550;
pub mod ds4500;
pub mod fc8;
pub mod gnr_tsm;
pub mod live;
pub mod page;
pub mod set_up;
pub mod snia_pts;
pub mod spc1_like;

/// An entry in the list of recipes.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub name: &'static str,
    pub about: &'static str,
}

pub const RECIPES: [Recipe; 6] = [
    Recipe {
        name: "ds4500",
        about: "RAID-5 and RAID-10 over 20 to 180 drives at a mean response of 20 ms: tables 1 to 8, charts 1 to 12",
    },
    Recipe {
        name: "dr550",
        about: "100 files, random and sequential, 512 bytes to 8 KiB, 1 to 32 threads, cache on and off",
    },
    Recipe { name: "gnr-tsm", about: "backup, restore and mixed streams by sessions and servers" },
    Recipe { name: "fc8", about: "accesses from cache at queue depths of 16 and 32, and both directions at once" },
    Recipe {
        name: "snia-pts",
        about: "solid state storage by the SNIA's rules: write saturation, IOPS, throughput and latency in rounds",
    },
    Recipe {
        name: "spc1-like",
        about: "a ramp of loads up to the highest rate at 30 ms, repeated, in the manner of SPC-1; no SPC result",
    },
];

/// The questions of a recipe for modelled arrays, in their order.
#[derive(Clone, Debug)]
pub struct Plan {
    pub cells: Vec<(JobCell, QueryPlan)>,
    /// The measurements of the whole recipe that the plan leaves out.
    pub left_out: Vec<String>,
}

/// The plan of a recipe in virtual time.
pub fn plan(part: &RecipePart) -> Result<Plan, LabError> {
    match part.name.as_str() {
        "ds4500" => ds4500::plan(part.quick),
        "dr550" => dr550::plan(part.quick),
        "gnr-tsm" => gnr_tsm::plan(part.quick),
        "fc8" => Err(fc8::not_in_virtual_time()),
        "snia-pts" => Err(snia_pts::not_in_virtual_time()),
        "spc1-like" => Err(spc1_like::not_in_virtual_time()),
        other => Err(unknown(other)),
    }
}

/// An error that lists the known recipes if it is none of them.
pub fn known(part: &RecipePart) -> Result<(), LabError> {
    match RECIPES.iter().any(|recipe| recipe.name == part.name) {
        true => Ok(()),
        false => Err(unknown(&part.name)),
    }
}

fn unknown(name: &str) -> LabError {
    let names: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
    LabError::Missing(format!("recipe '{name}': there is none of that name; there are {}", names.join(", ")))
}

/// A planned question as a cell of a result file, with all distinguishing axes.
fn cell_of(planned: &QueryPlan) -> JobCell {
    let array = planned.array;
    let mut axes: Axes = vec![
        ("array".into(), array.maker.name().into()),
        ("raid".into(), array.level.number().to_string()),
        ("drives".into(), array.drives.to_string()),
        ("cache".into(), if array.cached { "on" } else { "off" }.into()),
        ("stroke".into(), array.stroke.to_string()),
    ];
    if array.log == LogPlace::Drives {
        axes.push(("log".into(), "drives".into()));
    }
    if let Maker::SteleOn(count) = array.maker {
        axes.push(("processors".into(), count.to_string()));
    }
    axes.push(("workload".into(), planned.spec.name.clone()));
    let (goal, load) = match &planned.ask {
        Query::Highest { goal, .. } => (Some(*goal), goal.start),
        Query::Loads(loads) => (None, loads.first().copied().unwrap_or(1)),
    };
    let setup = Setup {
        spec: planned.spec.clone(),
        alignment: planned.alignment,
        load: Load::Outstanding(u32::try_from(load).unwrap_or(u32::MAX)),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: Timing { warm_up: Duration(0), round: Duration(0), least: Duration(0), most: Duration(0) },
        content: Content::default(),
        of: Of::Data,
        seed: array.seed(&planned.spec),
    };
    JobCell { axes, setup, goal, objective: None, precondition: None, buffered: false }
}

/// The cost of a question, in accesses of the profile: a pool's are ten to twenty times as
/// expensive.
pub fn cost(planned: &QueryPlan) -> f64 {
    let (start, probes) = match &planned.ask {
        Query::Highest { goal, curve } => (goal.start, if *curve { 10.0 } else { 4.0 }),
        Query::Loads(loads) => (loads.iter().copied().max().unwrap_or(1), loads.len() as f64),
    };
    let round = planned.effort.round.max(2 * start) as f64;
    let each = match planned.array.maker {
        Maker::Ds4500 => 1.0,
        _ if planned.array.cached => 30.0,
        _ => 15.0,
    };
    round * 7.0 * probes * each
}

/// The paper of a recipe's results, beside the published figures or alone.
pub fn paper(order: page::Order<'_>) -> Result<stele_lab::report::document::Document, LabError> {
    match order.part.name.as_str() {
        "ds4500" if !page::is_virtual(order.recorded) => ds4500::live::document(order),
        "ds4500" => ds4500::paper::document(order),
        "dr550" => dr550::paper::document(order),
        "gnr-tsm" => gnr_tsm::paper::document(order),
        "fc8" => fc8::paper::document(order),
        "snia-pts" => snia_pts::paper::document(order),
        "spc1-like" => spc1_like::paper::document(order),
        other => Err(unknown(other)),
    }
}

#[cfg(test)]
pub mod tests;
