//! `stele catalog rebuild`: makes the catalog anew from the data volume alone.

use serde::Serialize;
use stele_archive::RebuildReport;

use crate::cli::show::Catalog;
use crate::commands::{confirm, print_json};
use crate::config::{Config, Site};
use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;
use crate::seat::alone;

#[derive(Serialize)]
struct View<'a> {
    #[serde(flatten)]
    report: &'a RebuildReport,
    /// The volume that carries the catalog now.
    catalog_volume: &'a str,
    /// The old catalog was written over, for want of room beside it.
    in_place: bool,
}

pub async fn run(site: &Site, json: bool, command: Catalog) -> Outcome<()> {
    let Catalog::Rebuild { yes, force } = command;
    alone(site).await?;
    let config = Config::read(&site.config_path)?;
    if !yes {
        confirm("Replace the catalog by one that is filled from the data volume?", "--yes")?;
    }
    let (node, rebuilt) = Node::rebuild_catalog(site, config, force).await?;
    node.close().await?;
    let report = &rebuilt.report;
    if json {
        print_json(&View { report, catalog_volume: &rebuilt.volume, in_place: rebuilt.in_place })?;
    } else {
        println!(
            "Rebuilt from {} segments and {} records: {} buckets, {} versions, {} delete markers, {} access keys, {} audit records.",
            report.segments,
            report.records,
            report.buckets,
            report.versions,
            report.delete_markers,
            report.access_keys,
            report.audit_records
        );
        if rebuilt.in_place {
            println!("The pool had no room for a second catalog; volume '{}' was written over.", rebuilt.volume);
        } else {
            println!("The catalog is on volume '{}' now; the old volume is gone.", rebuilt.volume);
        }
        if report.unclaimed_keys > 0 {
            println!(
                "{} keys belong to writes that were never acknowledged, or to damaged records.",
                report.unclaimed_keys
            );
        }
        for finding in &report.findings {
            println!("  {finding}");
        }
    }
    if report.findings.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Kind::Damaged, format!("{} places could not be read", report.findings.len()))
        .next("run `stele pool scrub --wait`; return missing drives if there are any, and rebuild again with --force"))
}
