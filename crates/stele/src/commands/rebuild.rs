//! `stele catalog rebuild`: makes the catalog anew from the data volume alone.

use stele_archive::{Archive, RebuildReport};

use crate::cli::show::Catalog;
use crate::commands::{confirm, print_json};
use crate::config::{Config, Site};
use crate::failure::{Failure, Kind, Outcome};
use crate::node::{Node, Opening, create};
use crate::seat::alone;

pub async fn run(site: &Site, json: bool, command: Catalog) -> Outcome<()> {
    let Catalog::Rebuild { yes } = command;
    alone(site).await?;
    let config = Config::read(&site.config_path)?;
    if !yes {
        confirm("Wipe the catalog volume and fill it from the data volume?", "--yes")?;
    }
    let (node, report) = Node::rebuild_catalog(site, config).await?;
    node.close().await?;
    if json {
        print_json(&report)?;
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
        .next("run `stele pool scrub --wait`; return missing drives if there are any, and rebuild again"))
}

impl Node {
    /// Opens the pool, makes a fresh catalog, and fills it.
    pub async fn rebuild_catalog(site: &Site, config: Config) -> Outcome<(Node, RebuildReport)> {
        let mut node = Node::open_pool(site, config, Opening::for_server()).await?;
        let rebuilt = fill(site, &mut node).await;
        match rebuilt {
            Ok(report) => Ok((node, report)),
            Err(failure) => {
                let _ = node.close().await;
                Err(failure)
            }
        }
    }
}

async fn fill(site: &Site, node: &mut Node) -> Outcome<RebuildReport> {
    let (catalog, data) = node
        .archive_volumes()
        .await?
        .ok_or_else(|| Failure::missing("this pool has no archive: its catalog and data volumes were never made"))?;
    create::format_catalog(&node.pool, &catalog).await?;
    let foundation = node.foundation(site, &catalog, &data).await?;
    let (archive, report) = Archive::rebuild(foundation, create::archive_options(false)).await?;
    node.set_archive(archive);
    Ok(report)
}
