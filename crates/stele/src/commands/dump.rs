//! `stele drive dump`: reads a drive without its pool, after FORMAT/drive.md, FORMAT/table.md and
//! FORMAT/log.md.
//!
//! It takes no lock and writes nothing. It therefore works on a drive in use (a torn copy then
//! shows as damaged), and on a drive whose pool does not open.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Serialize;
use stele_array::anchor::{Anchor, SLOT};
use stele_array::label::codec::{Label, NoLabel};
use stele_array::label::{ANCHOR_AT, LABEL_SIZE, LOG_AT, places};
use stele_array::log::group::{self, Header};
use stele_ground::calendar::moment;
use stele_ground::{Bytes, Shown, counted};
use stele_media::{Buffer, Shared};
use stele_server::failure::{Failure, Kind, Outcome, io_failure};

use crate::commands::print_json;
use crate::output::{Align, Table};

/// Largest number of groups shown; a log in use may never seem to end.
const GROUPS_MAX: usize = 100_000;

#[derive(Serialize)]
struct Dump {
    path: PathBuf,
    size: u64,
    labels: Vec<LabelView>,
    pool: Option<PoolView>,
    anchors: Vec<AnchorView>,
    log: Option<LogView>,
}

#[derive(Serialize)]
struct LabelView {
    copy: u32,
    at: u64,
    /// `valid`, `blank`, `damaged` or `too-new`.
    state: &'static str,
    sequence: Option<u64>,
    epoch: Option<u64>,
}

/// Taken from the newest valid label.
#[derive(Serialize)]
struct PoolView {
    pool: String,
    /// Shards that divide the drive. What follows is of the first.
    shards: u16,
    name: String,
    created: String,
    epoch: u64,
    /// Of this drive: the highest epoch announced to it, and the epoch up to which its data is
    /// complete.
    promised: u64,
    complete: u64,
    /// The newest epoch that may have been in force before the current one.
    settled: u64,
    /// Openings that overrode the quorum, without a majority of drives.
    overrides: Vec<String>,
    drive: u16,
    unit: u64,
    log: u64,
    spare_drives: u32,
    tolerates: u32,
    protected: bool,
    clean: bool,
    growing: bool,
    features: [u64; 3],
    drives: Vec<MemberView>,
    log_epochs: Vec<EpochView>,
}

#[derive(Serialize)]
struct MemberView {
    drive: usize,
    identity: String,
    enclosure: u32,
    size: u64,
    state: String,
}

#[derive(Serialize)]
struct EpochView {
    epoch: u64,
    first_group: u64,
    members: Vec<u16>,
}

#[derive(Serialize)]
struct AnchorView {
    slot: u64,
    at: u64,
    valid: bool,
    sequence: Option<u64>,
    epoch: Option<u64>,
    replay_lsn: Option<u64>,
    replay_group: Option<u64>,
    rows: Option<usize>,
}

#[derive(Serialize)]
pub(crate) struct LogView {
    /// The last group is complete and has a record that this binary does not know.
    #[serde(skip)]
    pub unknown: bool,
    pub member: bool,
    from_group: u64,
    groups: usize,
    bytes: u64,
    first_lsn: Option<u64>,
    last_lsn: Option<u64>,
    watermark: Option<u64>,
    records: BTreeMap<&'static str, u64>,
}

pub fn run(json: bool, path: &Path) -> Outcome<()> {
    let dump = look(path)?;
    if json {
        print_json(&dump)?;
    } else {
        print!("{}", render(&dump));
    }
    if dump.pool.is_none() {
        return Err(Failure::new(Kind::Missing, format!("{} carries no valid label of a pool", path.display()))
            .next("if it should, its other copies are damaged too: replace the drive with `stele pool replace`"));
    }
    Ok(())
}

/// Reads pieces of the drive, or of a shard's part of it; beyond the drive's end they are empty.
pub(crate) struct Reader<'a> {
    file: File,
    path: &'a Path,
    /// Where the part begins that places count from.
    start: u64,
}

impl<'a> Reader<'a> {
    /// Opens the drive; also returns its size.
    pub fn open(path: &'a Path) -> Outcome<(Reader<'a>, u64)> {
        stele_server::named::refuse_other_kind(path)?;
        let mut file = File::open(path).map_err(|error| io_failure("open", path, &error))?;
        let size = file.seek(SeekFrom::End(0)).map_err(|error| io_failure("measure", path, &error))?;
        Ok((Reader { file, path, start: 0 }, size))
    }

    /// Counts places from the start of a shard's part from now on.
    pub fn count_from(&mut self, start: u64) {
        self.start = start;
    }

    pub fn read(&mut self, at: u64, length: u64) -> Outcome<Shared> {
        let mut bytes = Vec::new();
        self.file
            .seek(SeekFrom::Start(self.start.saturating_add(at)))
            .and_then(|_| (&mut self.file).take(length).read_to_end(&mut bytes))
            .map_err(|error| io_failure("read", self.path, &error))?;
        Ok(Buffer::copy_of(&bytes).freeze())
    }
}

fn look(path: &Path) -> Outcome<Dump> {
    let (mut reader, size) = Reader::open(path)?;
    let mut labels = Vec::new();
    let mut newest: Option<Label> = None;
    for (copy, at) in (0..).zip(places(size)) {
        let found = Label::decode(&reader.read(at, LABEL_SIZE)?);
        let state = match &found {
            Ok(_) => "valid",
            Err(NoLabel::Blank) => "blank",
            Err(NoLabel::Damaged) => "damaged",
            Err(NoLabel::TooNew(_) | NoLabel::OtherFormat(_)) => "too-new",
        };
        let label = found.ok();
        let (sequence, epoch) = label.as_ref().map(|label| (label.sequence, label.configuration.epoch)).unzip();
        labels.push(LabelView { copy, at, state, sequence, epoch });
        // The last shard's labels are at the drive's end; what follows shows the first shard.
        let first = label.as_ref().filter(|label| label.configuration.shard.is_first());
        if first.is_some_and(|label| newest.as_ref().is_none_or(|best| label.sequence > best.sequence)) {
            newest = label;
        }
    }
    let mut anchors = Vec::new();
    let mut best: Option<Anchor> = None;
    for slot in 0..2 {
        let at = ANCHOR_AT + slot * SLOT;
        let anchor = Anchor::decode(&reader.read(at, SLOT)?);
        anchors.push(AnchorView {
            slot,
            at,
            valid: anchor.is_some(),
            sequence: anchor.as_ref().map(|anchor| anchor.sequence),
            epoch: anchor.as_ref().map(|anchor| anchor.epoch),
            replay_lsn: anchor.as_ref().map(|anchor| anchor.replay.lsn.0),
            replay_group: anchor.as_ref().map(|anchor| anchor.replay.group),
            rows: anchor.as_ref().map(|anchor| anchor.rows.len()),
        });
        if anchor.as_ref().is_some_and(|anchor| {
            best.as_ref().is_none_or(|best| (anchor.epoch, anchor.sequence) > (best.epoch, best.sequence))
        }) {
            best = anchor;
        }
    }
    let log = match (&newest, &best) {
        (Some(label), Some(anchor)) => Some(walk(&mut reader, label, anchor)?),
        _ => None,
    };
    let pool = newest.map(pool);
    Ok(Dump { path: path.to_owned(), size, labels, pool, anchors, log })
}

fn pool(label: Label) -> PoolView {
    let (drive, configuration) = (label.number.0, label.configuration);
    PoolView {
        pool: configuration.whole_pool().to_string(),
        shards: configuration.shard.count,
        name: configuration.name,
        created: moment(configuration.created),
        epoch: configuration.epoch,
        promised: label.promised,
        complete: label.complete,
        settled: configuration.settled,
        overrides: configuration.overrides.iter().map(|id| format!("{id:016x}")).collect(),
        drive,
        unit: configuration.unit_size.0,
        log: configuration.log_size.0,
        spare_drives: configuration.spare_drives,
        tolerates: configuration.tolerates,
        protected: configuration.protected,
        clean: configuration.clean,
        growing: configuration.growing,
        features: [
            configuration.features.compatible,
            configuration.features.read_only_compatible,
            configuration.features.incompatible,
        ],
        drives: configuration
            .drives
            .iter()
            .enumerate()
            .map(|(drive, entry)| MemberView {
                drive,
                identity: entry.identity.to_string(),
                enclosure: entry.enclosure,
                size: entry.size.0,
                state: match entry.leaving {
                    true => format!("{:?}, leaving", entry.state).to_ascii_lowercase(),
                    false => format!("{:?}", entry.state).to_ascii_lowercase(),
                },
            })
            .collect(),
        log_epochs: configuration
            .log
            .iter()
            .map(|epoch| EpochView {
                epoch: epoch.epoch,
                first_group: epoch.first_group,
                members: epoch.members.iter().map(|member| member.0).collect(),
            })
            .collect(),
    }
}

/// Follows the chain of groups from the replay start that the newest anchor names.
pub(crate) fn walk(reader: &mut Reader<'_>, label: &Label, anchor: &Anchor) -> Outcome<LogView> {
    let ring = label.configuration.log_size.0;
    let member = label.configuration.log.iter().any(|epoch| epoch.members.contains(&label.number));
    let mut view = LogView {
        unknown: false,
        member,
        from_group: anchor.replay.group,
        groups: 0,
        bytes: 0,
        first_lsn: None,
        last_lsn: None,
        watermark: None,
        records: BTreeMap::new(),
    };
    let (mut offset, mut previous, mut sequence) = (anchor.replay.offset, anchor.replay.previous, anchor.replay.group);
    while member && view.groups < GROUPS_MAX {
        // A group that does not fit before the end of the ring begins at the ring's start.
        let Some((header, records)) = [offset, 0].into_iter().find_map(|at| {
            let head = reader.read(LOG_AT + at, group::HEADER as u64).ok()?;
            let header = Header::decode(&head)?;
            let follows = header.sequence == sequence && header.previous == previous && at + header.total() <= ring;
            let whole = follows.then(|| reader.read(LOG_AT + at, header.total()).ok()).flatten()?;
            let Some(records) = group::records(&header, &whole) else {
                view.unknown |= group::is_whole(&header, &whole);
                return None;
            };
            offset = at;
            Some((header, records))
        }) else {
            break;
        };
        view.groups += 1;
        view.bytes += header.total();
        view.first_lsn.get_or_insert(header.first.0);
        view.last_lsn = Some(header.first.0 + u64::from(header.count).saturating_sub(1));
        view.watermark = Some(header.watermark);
        for record in &records {
            *view.records.entry(record.name()).or_default() += 1;
        }
        offset = (offset + header.total()) % ring.max(1);
        previous = header.crc;
        sequence += 1;
    }
    Ok(view)
}

fn shown(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn render(dump: &Dump) -> String {
    let mut text = format!("{}, {}\n\n", dump.path.display(), Bytes(dump.size));
    let mut table = Table::new(&[
        ("label copy", Align::Right),
        ("at", Align::Right),
        ("state", Align::Left),
        ("sequence", Align::Right),
        ("epoch", Align::Right),
    ]);
    for label in &dump.labels {
        table.row(vec![
            label.copy.to_string(),
            label.at.to_string(),
            label.state.to_owned(),
            shown(label.sequence),
            shown(label.epoch),
        ]);
    }
    text.push_str(&table.render());
    if let Some(pool) = &dump.pool {
        text.push_str(&format!(
            "\nDrive {} of pool {} ({})\n  made       {}\n  epoch      {}, {}{}\n  agreement  announced {}, complete as of {}, settled {}, {}\n  allocation {} units, {} of log, {} of spare space\n  features   {:x} compatible, {:x} read-only compatible, {:x} incompatible\n\n",
            pool.drive,
            Shown(&pool.name),
            pool.pool,
            pool.created,
            pool.epoch,
            if pool.clean { "closed in order" } else { "open, or not closed in order" },
            match (pool.protected, pool.growing) {
                (false, false) => "",
                (true, false) => ", holds retained records",
                (false, true) => ", growing",
                (true, true) => ", holds retained records, growing",
            },
            pool.promised,
            pool.complete,
            pool.settled,
            counted(pool.overrides.len() as u64, "override"),
            Bytes(pool.unit),
            Bytes(pool.log),
            counted(pool.spare_drives.into(), "drive"),
            pool.features[0],
            pool.features[1],
            pool.features[2],
        ));
        let mut table = Table::new(&[
            ("drive", Align::Right),
            ("identity", Align::Left),
            ("enclosure", Align::Right),
            ("size", Align::Right),
            ("state", Align::Left),
        ]);
        for drive in &pool.drives {
            table.row(vec![
                drive.drive.to_string(),
                drive.identity.clone(),
                drive.enclosure.to_string(),
                Bytes(drive.size).to_string(),
                drive.state.clone(),
            ]);
        }
        text.push_str(&table.render());
        for epoch in &pool.log_epochs {
            let members: Vec<String> = epoch.members.iter().map(u16::to_string).collect();
            text.push_str(&format!(
                "log epoch {} from group {} on drives {}\n",
                epoch.epoch,
                epoch.first_group,
                members.join(", ")
            ));
        }
    }
    text.push('\n');
    for anchor in &dump.anchors {
        let state = if anchor.valid {
            format!(
                "sequence {}, replay from LSN {} in group {}, {} of table pages",
                shown(anchor.sequence),
                shown(anchor.replay_lsn),
                shown(anchor.replay_group),
                counted(anchor.rows.unwrap_or(0) as u64, "row")
            )
        } else {
            "empty or damaged".to_owned()
        };
        text.push_str(&format!("anchor {} at {}: {state}\n", anchor.slot, anchor.at));
    }
    if let Some(log) = &dump.log {
        if log.member {
            text.push_str(&format!(
                "log: {} from group {}, {}, LSN {} to {}, watermark {}\n",
                counted(log.groups as u64, "group"),
                log.from_group,
                Bytes(log.bytes),
                shown(log.first_lsn),
                shown(log.last_lsn),
                shown(log.watermark)
            ));
            for (name, count) in &log.records {
                text.push_str(&format!("  {count:>8} {name}\n"));
            }
        } else {
            text.push_str("log: this drive is no log member\n");
        }
    }
    text
}
