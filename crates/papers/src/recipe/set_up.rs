//! Diagrams of configurations: those of the published machines, from the facts that their papers
//! state, and those of modelled arrays, from their parameters.

use crate::ds4500::profile::Machine;
use crate::published;
use stele_ground::Bytes;
use stele_lab::modelled::MEMORY;
use stele_lab::report::diagram::{Component, Diagram};

/// A printed fact; a word instead of it if its paper does not state it.
fn fact(source: &str, system: &str, property: &str) -> String {
    published::fact(source, system, property).unwrap_or_else(|| "not stated".into())
}

/// The two hosts, the two controllers and the drives of the DS4500 paper.
pub fn ds4500() -> Diagram {
    let of = |system: &str, property: &str| fact("ds4500-vs-ds4400", system, property);
    let host = |system: &str| {
        Component::new(format!("host: IBM {}", of(system, "model")))
            .fact(format!("{} Xeon processors of {} GHz", of(system, "processors"), of(system, "processor_clock")))
            .fact(format!("{} MB of memory", of(system, "memory")))
            .fact(format!("{} adapters {}", of("hosts", "hbas_per_host"), of("hosts", "hba")))
    };
    let controllers = Component::new(format!("DS4500: {} controllers", of("ds4500", "controllers")))
        .fact(format!(
            "{} MB of cache each, mirroring {}",
            of("ds4500", "cache_per_controller"),
            of("arrays", "cache_mirroring")
        ))
        .fact(format!(
            "arrays of {} drives, segments of {}",
            of("arrays", "drives_per_array"),
            of("arrays", "segment")
        ));
    let measured = published::facts("ds4500-vs-ds4400", "backend", "hdds_measured").join(", ");
    let drives = Component::new(format!("{measured} drives"))
        .fact(format!("of {} GB at {} rpm", of("backend", "drive_capacity"), of("backend", "drive_speed")))
        .fact(format!("{} enclosures {}", of("backend", "enclosures"), "EXP700"))
        .fact(format!("{} % of the capacity in use", of("arrays", "capacity_used")));
    Diagram::new("The published configuration: DS4500")
        .row(vec![host("host_a"), host("host_b")], "Fibre Channel")
        .row(vec![controllers], "Fibre Channel loops")
        .row(vec![drives], "")
}

/// The client, the gateway, the archive server and the storage of the DR550 paper.
pub fn dr550() -> Diagram {
    let of = |system: &str, property: &str| fact("dr550-fsg", system, property);
    Diagram::new("The published configuration: DR550 with its File System Gateway")
        .row(
            vec![
                Component::new(of("tool", "client"))
                    .fact(format!("FFSB {}", of("tool", "name_version")))
                    .fact(format!("{} files of {} MB", of("tool", "files_per_run"), of("tool", "file_size"))),
            ],
            format!("NFS, {} Gbit/s", of("fsg", "customer_network").replace(" Gbps Ethernet", "")),
        )
        .row(
            vec![
                Component::new(format!("File System Gateway {}", of("fsg", "model")))
                    .fact(format!("{} Xeon of {} GHz", of("fsg", "processor_cores"), of("fsg", "processor_clock")))
                    .fact(format!("{} GB of memory", of("fsg", "memory"))),
            ],
            "Ethernet",
        )
        .row(vec![Component::new("archive server (SSAM)").fact(of("ssam_server", "model"))], {
            format!("{} x {} Gbit/s Fibre Channel", of("storage", "fc_lines"), of("storage", "fc_line_rate"))
        })
        .row(
            vec![
                Component::new(format!("{}: {} drives", of("storage", "model"), of("storage", "drives_total")))
                    .fact(format!("{} of {} GB", of("storage", "drive_type"), of("storage", "drive_capacity")))
                    .fact("write cache enabled and mirrored"),
            ],
            "",
        )
}

/// The backup servers, the GNR servers and the drives of the paper on backup.
pub fn gnr_tsm() -> Diagram {
    let of = |system: &str, property: &str| fact("gnr-tsm-40gbe", system, property);
    let link = |system: &str| format!("{} Gbit/s each", of(system, "link_per_server"));
    let server = |number: u32| {
        Component::new(format!("backup server {number} (TSM)"))
            .fact(format!("clients' data {}", of("tsm_servers", "client_data")))
    };
    let group = |number: u32| {
        Component::new(format!("recovery group {number}")).fact(format!("{} drives", of("gnr", "disks_per_group")))
    };
    Diagram::new("The published configuration: TSM on GPFS Native RAID")
        .row(vec![server(1), server(2)], link("tsm_servers"))
        .row(
            vec![Component::new("GNR server 1"), Component::new("GNR server 2")],
            format!("{} drives", of("gnr", "drives")),
        )
        .row(vec![group(1), group(2)], "")
}

/// The host, the switch and the arrays of the Fibre Channel paper.
pub fn fc8() -> Diagram {
    let of = |system: &str, property: &str| fact("fc8-end-to-end", system, property);
    let array = |number: u32| {
        Component::new(format!("DS5300 number {number}"))
            .fact("two controllers, a port of 8 Gbit/s each")
            .fact(of("storage", "cache_hits"))
    };
    Diagram::new("The published configuration: 8 Gbit/s from end to end")
        .row(
            vec![
                Component::new(format!("host: IBM {}", of("host", "model")))
                    .fact(format!(
                        "{} at {} GHz, {} GB of memory",
                        of("host", "processors"),
                        of("host", "processor_clock"),
                        of("host", "memory")
                    ))
                    .fact(of("host", "hba")),
            ],
            "one port, 8 Gbit/s",
        )
        .row(vec![Component::new(format!("switch {}", of("switch", "model")))], "four ports, 8 Gbit/s each")
        .row(vec![array(1), array(2)], "")
}

/// Stele's array code on modelled drives: the code of its volumes, and the number of drives as it
/// is to be said.
pub fn modelled(code: &str, drives: &str, stroke: u8) -> Diagram {
    let drive = Machine::PUBLISHED.drive;
    Diagram::new("What was measured: Stele's array code on modelled drives, in virtual time")
        .row(vec![Component::new("load generator").fact("a closed loop, no processor time")], "no network is modelled")
        .row(
            vec![
                Component::new(format!("Stele's array code, {code}"))
                    .fact(format!("log in {} of memory where writes are cached, four replicas", Bytes(MEMORY)))
                    .fact("reads are not cached"),
            ],
            "one command window for each drive",
        )
        .row(
            vec![
                Component::new(format!("{drives} modelled drives"))
                    .fact(format!(
                        "of {:.1} GB (sold as 18.2 GB) at 15,000 rpm, average seek {}",
                        (drive.sectors * 512) as f64 / 1e9,
                        drive.seek_average
                    ))
                    .fact(format!("{stroke} % of each in use")),
            ],
            "",
        )
}

#[cfg(test)]
mod tests;
