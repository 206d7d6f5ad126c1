//! The paper of 8 Gbps Fibre Channel from end to end: small accesses at queue depths of 16 and 32,
//! and 256 KiB in both directions at once.
//!
//! Every access in the paper was answered from the controllers' caches. Modelled drives have no
//! processor, no link and no comparable cache. Virtual time offers no comparison, and refuses the
//! recipe.

use super::live::{self, Asked};
use crate::published;
use stele_lab::error::LabError;
use stele_lab::job::{Job, processors};
use stele_lab::record::{CellRecord, Recorded};
use stele_lab::workload::{self, AccessSpec};

pub mod paper;

/// The paper does not state the share of reads with both directions busy at once; its throughputs
/// are nearly equal.
const DUPLEX_READ: u8 = 50;
const DUPLEX: &str = "fc8_full_duplex_256k";

pub fn not_in_virtual_time() -> LabError {
    LabError::Usage(
        "recipe 'fc8': every access of this paper was answered from a cache, and virtual time counts neither processors nor links: \
         modelled drives have nothing to show; measure a target with --on, like --on nbd://HOST/EXPORT"
            .into(),
    )
}

/// One row of Table 1 or 2: its access specification, and the number of outstanding accesses.
fn rows() -> Vec<(String, u32)> {
    let small = published::cached().into_iter().map(|row| {
        let size = if row.size < 1024 { format!("{}b", row.size) } else { format!("{}k", row.size >> 10) };
        let kind = match row.read {
            0 => "write".to_owned(),
            100 => "read".to_owned(),
            read => format!("rw{read}"),
        };
        (format!("fc8_{kind}_{size}"), row.depth)
    });
    small.chain(published::duplex().into_iter().map(|row| (DUPLEX.to_owned(), row.depth))).collect()
}

fn spec(name: &str) -> Result<AccessSpec, LabError> {
    let spec = workload::named(name);
    let spec = spec.ok_or_else(|| LabError::Missing(format!("there is no access specification '{name}'")))?;
    Ok(AccessSpec { read: spec.read.or(Some(DUPLEX_READ)), ..spec })
}

/// All nine rows; a quick run has them too, and is shorter.
pub fn live(job: &Job) -> Result<Vec<Asked>, LabError> {
    let cell = |(name, depth): (String, u32)| {
        let axes = vec![("workload".to_owned(), name.clone()), ("outstanding".to_owned(), depth.to_string())];
        let cell = live::cell(job, spec(&name)?, (depth, processors()), None, axes)?;
        Ok(Asked { cell, buffered: false, targets: 0..1 })
    };
    rows().into_iter().map(cell).collect()
}

/// The cell of a row.
fn found<'a>(recorded: &'a Recorded, (name, depth): &(String, u32)) -> Option<&'a CellRecord> {
    let depth = depth.to_string();
    let matches = |cell: &&CellRecord| {
        cell.workload == *name && cell.axis("outstanding") == Some(depth.as_str()) && !cell.runs.is_empty()
    };
    recorded.cells.iter().find(matches)
}

#[cfg(test)]
mod tests;
