//! `stele catalog rebuild`: builds the catalog again from the data volume alone.
//! `stele catalog release`: an officer asks to end the matter `rebuild`, which a rebuild with
//! losses began.

use std::path::Path;

use serde::Serialize;
use stele_archive::RebuildReport;
use stele_ground::{Shown, counted};
use stele_server::api::approval::CatalogRelease;
use stele_server::config::{Config, Site};
use stele_server::connection::{alone, read_officer};
use stele_server::failure::{Failure, Kind, Outcome};
use stele_server::node::Node;
use stele_server::node::rebuild::RebuildOptions;

use crate::cli::show::Catalog;
use crate::commands::approve::asked;
use crate::commands::archive::ask;
use crate::commands::{confirm, print_json};

#[derive(Serialize)]
struct View<'a> {
    #[serde(flatten)]
    report: &'a RebuildReport,
    /// The volume that now carries the catalog.
    catalog_volume: &'a str,
    /// Volumes with earlier catalogs, kept because the rebuild had losses, or one was out of reach.
    kept: &'a [String],
}

pub async fn run(site: &Site, json: bool, command: Catalog) -> Outcome<()> {
    let (yes, ask) = match command {
        Catalog::Rebuild { yes, force, accept_losses } => (yes, RebuildOptions { force, accept_losses }),
        Catalog::Release { officer } => return release(site, json, &officer).await,
    };
    alone(site).await?;
    let config = Config::read(&site.config_path)?;
    if !yes {
        confirm("Replace the catalog by one that is filled from the data volume?", "--yes")?;
    }
    let (node, rebuilt) = Node::rebuild_catalog(site, config, ask).await?;
    node.close().await?;
    let report = &rebuilt.report;
    if json {
        print_json(&View { report, catalog_volume: &rebuilt.volume, kept: &rebuilt.kept })?;
    } else {
        println!(
            "Rebuilt from {} and {}: {}, {}, {}, {}, {}.",
            counted(report.segments, "segment"),
            counted(report.records, "record"),
            counted(report.buckets, "bucket"),
            counted(report.versions, "version"),
            counted(report.delete_markers, "delete marker"),
            counted(report.access_keys, "access key"),
            counted(report.audit_records, "audit record")
        );
        println!("The catalog is on volume '{}' now.", rebuilt.volume);
        if !rebuilt.kept.is_empty() {
            let why = if report.losses.is_empty() { "it was out of reach" } else { "something was lost" };
            println!("Kept, since {why}: {}.", Shown(&rebuilt.kept.join(", ")));
        }
        if report.unclaimed_keys > 0 {
            println!(
                "Found besides: {} of writes that were never acknowledged, or of damaged records.",
                counted(report.unclaimed_keys, "key")
            );
        }
        if let Some(why) = &report.frozen {
            println!("Expiration is frozen: {}.", Shown(why));
            println!("Check the system clock, start the server, and accept the alarm: `stele clock accept`.");
        }
        for finding in &report.findings {
            println!("  {}", Shown(finding));
        }
    }
    if !report.losses.is_empty() {
        let error = format!(
            "{} lost: all that existed is held under the matter `rebuild`, and its access keys are suspended",
            counted(report.losses.len() as u64, "place")
        );
        let next =
            "return the drives and rebuild again with --force, or let two officers decide: `stele catalog release`";
        return Err(Failure::new(Kind::Damaged, error).next(next));
    }
    if report.findings.is_empty() {
        return Ok(());
    }
    let places = counted(report.findings.len() as u64, "place");
    Err(Failure::new(Kind::Damaged, format!("{places} could not be read"))
        .next("run `stele pool scrub --wait`; return missing drives if there are any, and rebuild again with --force"))
}

async fn release(site: &Site, json: bool, officer: &Path) -> Outcome<()> {
    let officer = read_officer(officer)?;
    asked(json, &ask(site, CatalogRelease { officer }).await?)
}
