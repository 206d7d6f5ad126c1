//! `stele upgrade check`: the stored version of every format, and whether this binary opens it. It
//! writes nothing.
//!
//! It reads labels, checkpoints and the log from the drives themselves; that takes no lock and
//! works on a pool that does not open. It asks the running server, whatever its version, for the
//! formats on volumes. Without a server it opens the pool read-only. FORMAT/compatibility.md has
//! the rules.

mod drives;
mod files;

use std::path::PathBuf;

use serde::Serialize;
use stele_array::checkpoint::ROOT_VERSION;
use stele_array::label::codec;
use stele_catalog::embedded::layout;
use stele_ground::{Shown, are, counted};
use stele_server::api::formats::{Formats, FormatsView, OnVolume, Stated};
use stele_server::config::{Config, Site};
use stele_server::connection::Connection;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::node::{Node, Opening};
use tokio::net::UnixStream;

use crate::commands::print_json;
use crate::output::{GREEN, RED, YELLOW, paint};

/// How this binary handles a format; the last variant is the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormatVerdict {
    /// It opens, and the version that wrote it opens the formats that this binary writes there.
    Good,
    /// It opens, and the first start writes a format that the version that wrote it does not open.
    Rewrites,
    /// It could not be read.
    Unknown,
    Damaged,
    /// A later version wrote it.
    Newer,
}

/// One format in one place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FormatFinding {
    /// A stable word, as FORMAT/compatibility.md lists it.
    pub format: &'static str,
    pub place: String,
    /// The version that is stored, in words; empty where none is known.
    pub found: String,
    /// The version that this binary writes.
    pub writes: String,
    pub verdict: FormatVerdict,
    /// The next step; empty if none is needed.
    pub next: String,
}

const AS_SERVER: &str = "run the command as root or as the user the server runs as";

const NEWER_NEXT: &str =
    "open it with the version that wrote it, or a later one; this binary refuses it and changes nothing";

impl FormatFinding {
    fn new(
        format: &'static str,
        place: impl Into<String>,
        found: impl Into<String>,
        writes: impl Into<String>,
    ) -> FormatFinding {
        let (place, found, writes) = (place.into(), found.into(), writes.into());
        FormatFinding { format, place, found, writes, verdict: FormatVerdict::Good, next: String::new() }
    }

    fn is(self, verdict: FormatVerdict, next: impl Into<String>) -> FormatFinding {
        FormatFinding { verdict, next: next.into(), ..self }
    }

    fn newer(self) -> FormatFinding {
        self.is(FormatVerdict::Newer, NEWER_NEXT)
    }
}

#[derive(Serialize)]
struct View<'a> {
    /// Version of this binary.
    version: &'static str,
    /// Version of the server that holds the drives; null without a server.
    server: Option<String>,
    verdict: FormatVerdict,
    formats: &'a [FormatFinding],
}

pub async fn check(site: &Site, json: bool) -> Outcome<()> {
    let (mut findings, config) = files::look(site)?;
    let (mut server, mut is_running) = (None, false);
    if let Some(config) = config {
        let running = running(site).await?;
        is_running = running.is_some();
        findings.extend(drives::look(&stele_server::node::places(site, &config)));
        match on_volumes(site, config, running).await {
            Ok((view, by_server)) => {
                server = by_server.then(|| view.version.clone());
                findings.extend(of_volumes(&view));
            }
            // The server takes no calls of this user.
            Err(failure) if is_running && failure.kind == Kind::Refused => return Err(failure),
            Err(failure) => findings.push(FormatFinding::new("catalog", "the pool's volumes", failure.error, "").is(
                FormatVerdict::Unknown,
                if failure.next.is_empty() { "see what else is said here" } else { &failure.next },
            )),
        }
    }
    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(FormatVerdict::Good);
    if json {
        let version = env!("CARGO_PKG_VERSION");
        print_json(&View { version, server, verdict: worst, formats: &findings })?;
    } else {
        print!("{}", render(&findings, server.as_deref(), is_running));
    }
    let count = findings.iter().filter(|finding| finding.verdict == worst).count() as u64;
    let formats = counted(count, "format");
    let told = |kind, what: String| Err(Failure::new(kind, what).next("follow the next step of each"));
    match worst {
        FormatVerdict::Newer => told(Kind::Refused, format!("{formats} {} newer than this binary", are(count))),
        FormatVerdict::Damaged => told(Kind::Damaged, format!("{formats} {} damaged", are(count))),
        FormatVerdict::Unknown => told(Kind::Damaged, format!("{formats} could not be looked at")),
        FormatVerdict::Rewrites => told(
            Kind::Failed,
            format!("the first start of this binary writes {formats} that the former one does not open"),
        ),
        FormatVerdict::Good => Ok(()),
    }
}

/// The socket of the server that runs. Without permission nothing is known of a server.
async fn running(site: &Site) -> Outcome<Option<PathBuf>> {
    let socket = site.socket();
    match UnixStream::connect(&socket).await {
        Ok(_) => Ok(Some(socket)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(io_failure("talk to the server at", &socket, &error).next(AS_SERVER))
        }
        Err(_) => Ok(None),
    }
}

/// The formats on the volumes, and whether a server reported them.
async fn on_volumes(site: &Site, config: Config, running: Option<PathBuf>) -> Outcome<(FormatsView, bool)> {
    if let Some(socket) = running {
        return Ok((Connection::Server(socket).exact(Formats {}).await?, true));
    }
    let opening = Opening { read_only: true, ..Opening::for_command() };
    let node = Node::open_pool(site, config, opening).await?;
    let view = Connection::Drives(Box::new(node), site.clone());
    let found = view.exact(Formats {}).await;
    view.leave().await?;
    Ok((found?, false))
}

fn of_volumes(view: &FormatsView) -> Vec<FormatFinding> {
    let stated = [
        ("catalog", &view.catalog, layout::VERSION),
        ("b-tree", &view.tree, layout::TREE_VERSION.into()),
        ("archive", &view.archive, stele_archive::inspect::STORE_FORMAT),
        ("segments", &view.segments, stele_archive::inspect::SEGMENT_FORMAT),
    ];
    stated.into_iter().filter_map(|(format, found, own)| Some(of_volume(format, found.as_ref()?, own))).collect()
}

fn of_volume(format: &'static str, found: &OnVolume, own: u32) -> FormatFinding {
    let word = |stated: &Stated| match stated.features {
        0 => format!("version {}", stated.version),
        features => format!("version {} with features {features:#x}", stated.version),
    };
    let words: Vec<String> = found.stated.iter().map(word).collect();
    let place = format!("volume {}", found.volume);
    let finding = FormatFinding::new(format, place, words.join(", "), format!("version {own}"));
    if found.stated.iter().any(|stated| stated.version > own || stated.features != 0) {
        return finding.newer();
    }
    match (found.stated.is_empty(), found.damaged) {
        (true, 1..) => {
            let next =
                "`stele pool status` says whether drives are missing; `stele catalog rebuild` makes a catalog anew";
            finding.is(FormatVerdict::Damaged, next)
        }
        // An empty store has no segment in use; one of two copies suffices.
        _ => finding,
    }
}

/// The label's version, in words.
fn label(stamp: codec::Stamp) -> String {
    let more = match stamp.read_only_compatible {
        0 => String::new(),
        features => format!(", read-only features {features:#x}"),
    };
    format!("format {}, features {:#x}{more}", stamp.format, stamp.incompatible)
}

/// The label's version that this binary writes, in words.
fn own_label() -> String {
    label(codec::Stamp { format: codec::FORMAT, incompatible: codec::WRITTEN, read_only_compatible: 0 })
}

fn own_tables() -> String {
    format!("version {ROOT_VERSION}")
}

fn render(findings: &[FormatFinding], server: Option<&str>, is_running: bool) -> String {
    let beside = match server {
        Some(version) => format!("beside a server of version {version}"),
        None if is_running => "beside a server that does not say its version".to_owned(),
        None => "and no server".to_owned(),
    };
    let mut text = format!("stele {}, {beside}\n", env!("CARGO_PKG_VERSION"));
    for FormatFinding { format, place, found, writes, verdict, next } in findings {
        let word = match verdict {
            FormatVerdict::Good => paint("good    ", GREEN),
            FormatVerdict::Rewrites => paint("rewrites", YELLOW),
            FormatVerdict::Unknown => paint("unknown ", YELLOW),
            FormatVerdict::Damaged => paint("damaged ", RED),
            FormatVerdict::Newer => paint("newer   ", RED),
        };
        let found = if found.is_empty() { "none" } else { found.as_str() };
        let writes = if writes.is_empty() { String::new() } else { format!("; this binary writes {writes}") };
        text.push_str(&format!("{word}  {format:<13} {}: {}{writes}\n", Shown(place), Shown(found)));
        if !next.is_empty() {
            text.push_str(&format!("{:25}next: {}\n", "", Shown(next)));
        }
    }
    text
}
