//! `stele catalog rebuild`.
use crate::cli::show::Catalog;
use crate::config::Site;
use crate::failure::{Failure, Outcome};

pub async fn run(_site: &Site, _json: bool, _command: Catalog) -> Outcome<()> {
    Err(Failure::failed("being built"))
}
