//! The share that a call names.

use std::sync::Arc;

use stele_file::share::Share;
use stele_file::share::registry::ShareRow;
use stele_ground::names_in_row;

use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;
use crate::node::shares::failed;

pub(super) fn row_of(node: &Node, name: &str) -> Outcome<ShareRow> {
    let registry = node.registry()?;
    if let Some(row) = registry.get(name).map_err(failed)? {
        return Ok(row);
    }
    let known: Vec<String> = registry.list().map_err(failed)?.into_iter().map(|(name, _)| name).collect();
    let next = match known.is_empty() {
        true => "there is no share; make one with `stele share create`".to_owned(),
        false => format!("the shares here: {}", names_in_row(&known, "stele share list")),
    };
    Err(Failure::missing(format!("no share is called '{name}'")).next(next))
}

/// The open share, or why it is not open.
pub(super) fn open(node: &Node, name: &str) -> Outcome<Arc<Share>> {
    row_of(node, name)?;
    match node.shares.get(name) {
        Some(share) => Ok(share),
        None => Err(not_open(node, name)?),
    }
}

/// Why a share is not open. One that nothing keeps closed is about to open.
fn not_open(node: &Node, name: &str) -> Outcome<Failure> {
    if node.archive()?.is_read_only() {
        return Ok(Failure::new(Kind::Damaged, format!("the share '{name}' is not open")).next(
            "only a running server whose store takes changes opens shares; `stele pool status` shows its state",
        ));
    }
    let unopened = node.shares.unopened.list().into_iter().find(|(other, _)| other == name);
    Ok(match unopened {
        Some((_, why)) => Failure::new(Kind::Damaged, why)
            .next("`stele pool status` shows the alarm; the server tries the share again within a minute"),
        None => Failure::new(Kind::Busy, format!("the share '{name}' is being opened"))
            .next("try again in a moment; a share of many files takes seconds"),
    })
}
