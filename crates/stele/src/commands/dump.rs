//! `stele drive dump`.
use crate::cli::show::Drive;
use crate::failure::{Failure, Outcome};

pub fn run(_json: bool, _command: Drive) -> Outcome<()> {
    Err(Failure::failed("being built"))
}
