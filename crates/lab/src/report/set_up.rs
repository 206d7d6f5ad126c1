//! The diagram of what was measured, drawn from the head of its record.

use stele_ground::Bytes;

use super::chosen;
use super::diagram::{Component, Diagram};
use crate::environment::said;
use crate::record::Recorded;

/// Hosts of a run that are drawn one by one.
const HOSTS_MAX: usize = 4;

/// The generators above, the targets below; `beside` are targets that were measured together with
/// the first.
pub fn set_up(recorded: &Recorded, beside: &[String]) -> Diagram {
    let head = &recorded.head;
    let known = |name: &str| head.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    // Targets that were measured together are kept as hosts, but one machine drives them.
    let cells = if beside.is_empty() { recorded.cells.as_slice() } else { &[] };
    let mut hosts: Vec<&str> = cells.iter().flat_map(|cell| &cell.hosts).map(|host| host.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let generators = match hosts.as_slice() {
        [] => {
            let processors = known("processors").map_or(String::new(), |count| format!("{count} x "));
            let processor = known("processor").map_or(String::new(), |name| format!("{processors}{name}"));
            vec![
                Component::new("generator: this machine")
                    .fact(processor)
                    .fact(known("memory").map_or(String::new(), |memory| format!("memory {}", said(memory))))
                    .fact(known("kernel").map_or(String::new(), |kernel| format!("kernel {kernel}")))
                    .fact(load_of(recorded)),
            ]
        }
        few if few.len() <= HOSTS_MAX => few.iter().map(|host| Component::new(format!("generator {host}"))).collect(),
        many => vec![Component::new(format!("{} generators", many.len())).fact(many.join(", "))],
    };
    let targets = std::iter::once(&head.target).chain(head.against.as_ref()).chain(beside);
    let mut parts: Vec<Component> = targets.map(|target| Component::new(target.as_str())).collect();
    if let Some(first) = parts.first_mut() {
        let used = Bytes(head.target_bytes);
        let of = known("device size").map_or(String::new(), |size| format!(" of {size}"));
        let device: Vec<&str> =
            ["device", "firmware", "revision", "serial"].iter().filter_map(|name| known(name)).collect();
        let described = first.clone().fact(head.reached.as_str()).fact(format!("{used}{of} in use"));
        *first = described.fact(device.join(", "));
    }
    Diagram::new("What was measured").row(generators, way_to(&head.target)).row(parts, "")
}

/// The largest load of all cells.
fn load_of(recorded: &Recorded) -> String {
    let runs = || recorded.cells.iter().filter_map(chosen);
    let workers = runs().map(|run| run.workers).max().unwrap_or(0);
    let outstanding = runs().filter_map(|run| run.outstanding).max();
    let rate = runs().filter_map(|run| run.rate_asked).fold(0.0, f64::max);
    let threads = if workers == 1 { "1 thread".to_owned() } else { format!("up to {workers} threads") };
    match outstanding {
        Some(1) => format!("{threads}, 1 access outstanding"),
        Some(count) => format!("{threads}, up to {count} accesses outstanding"),
        None if rate > 0.0 => format!("{threads}, up to {rate:.0} accesses a second"),
        None => String::new(),
    }
}

/// How accesses come to a target, from its address.
fn way_to(target: &str) -> &'static str {
    let scheme = target.split([':', '+']).next().unwrap_or_default();
    match scheme {
        "nbd" => "NBD",
        "iscsi" => "iSCSI",
        "nfs" => "NFS",
        "s3" => "S3 over HTTP",
        "volume" => "calls in the same process",
        "null" => "no way: every access is answered at once",
        "backup" => "the code of backups",
        "dir" => "system calls on files",
        _ => "system calls",
    }
}

#[cfg(test)]
mod tests;
