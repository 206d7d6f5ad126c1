//! Signed heads of the audit log: sent to every configured place on schedule, and compared with the
//! log at start.
//!
//! A pool that was rolled back as a whole looks sound from inside, because all its volumes come
//! from the same moment. A head sent elsewhere is not rolled back with it. Before the archive is
//! opened for writing, its log is compared with this store's newest head in each place. If a head
//! is newer, or of another history, the archive is opened read-only.
//!
//! The places are directories, a bucket of another S3 server, and a witness.
//!
//! Failure model: a place that cannot be read in time raises an alarm only, since a network share
//! may be away. A file that this store did not sign is ignored. An attacker who removes the heads
//! from every place can hide that the pool was rolled back.

mod bucket;
mod findings;
pub mod witness;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use stele_archive::{Archive, HeadVerdict, SignedHead};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::Node;
use super::volumes::Trouble;
use crate::config::{Config, Site};
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::files;
use crate::witness::Countersigned;

pub use bucket::HeadBucket;
pub use findings::{HeadFinding, HeadFindings, Looking};
use witness::WitnessClient;

/// The trouble of a pool that is older than one of its own heads.
pub(super) const ROLLED_BACK: &str = "rolled-back";

/// Time for all places together to show their heads, at a start and to commands.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a file with a head. A head has about 500.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Heads of one place: one an hour for a hundred years. A place with more cannot be compared.
const HEADS_MAX: usize = 1_000_000;
/// Heads of a bucket that a rebuild looks at: what counts is the newest one of this store.
const REBUILD_HEADS: usize = 16;
/// Alarms about single files of one place. The others are counted.
const STRANGE_TOLD: usize = 5;

/// The directories that heads are sent to.
pub fn places(site: &Site, config: &Config) -> Vec<PathBuf> {
    let also = &config.archive.heads_also;
    std::iter::once(&config.archive.heads).chain(also).map(|place| site.path(place)).collect()
}

/// A place that keeps heads, and their time stamps beside them. Its calls may hang.
pub trait Keeper: Send + Sync {
    fn name(&self) -> String;

    /// Keeps a head durably.
    fn write(&self, head: &SignedHead) -> Outcome<()>;

    /// Keeps the time stamp of a head, if exactly this head is there.
    fn write_stamp(&self, head: &SignedHead, reply: &[u8]) -> Outcome<()>;

    /// Keeps a head that a witness countersigned.
    fn write_countersigned(&self, made: &Countersigned) -> Outcome<()>;
}

/// The file of a countersigned head: its name and its text. The witness's time is in the name,
/// since a head of as many records may be countersigned again.
fn countersigned_file(made: &Countersigned) -> (String, String) {
    let time: String = made.time.chars().filter(char::is_ascii_alphanumeric).collect();
    let text = format!("{}\n", serde_json::to_string(made).unwrap_or_default());
    (format!("{:020}-{time}.witness", made.head.records), text)
}

impl Keeper for PathBuf {
    fn name(&self) -> String {
        self.display().to_string()
    }

    fn write(&self, head: &SignedHead) -> Outcome<()> {
        write(self, head)
    }

    fn write_stamp(&self, head: &SignedHead, reply: &[u8]) -> Outcome<()> {
        write_stamp(self, head, reply)
    }

    fn write_countersigned(&self, made: &Countersigned) -> Outcome<()> {
        let (name, text) = countersigned_file(made);
        files::replace_among_others(&self.join(name), text.as_bytes())
    }
}

/// The outcome of a comparison with the places of heads.
#[derive(Default)]
pub struct Compared {
    /// A head that the log does not contain.
    pub trouble: Option<Trouble>,
    /// Places that could not be read, and files that are not heads of this store as it writes them.
    pub unasked: Vec<HeadFinding>,
}

/// Compares the log with the newest head of each place. The places are read at the same time, and
/// together they have [`PATIENCE`]: a share that hangs is one that could not be read.
pub async fn compare(site: &Site, config: &Config, archive: &Archive, looking: &Looking) -> Outcome<Compared> {
    let until = Instant::now() + PATIENCE;
    let mut compared = Compared::default();
    let directory = |place: PathBuf| (Shown::begin(&place, list, looking), place);
    let mut shown: Vec<(Shown, PathBuf)> = places(site, config).into_iter().map(directory).collect();
    if let Some(bucket) = HeadBucket::of(site, config)? {
        let place = PathBuf::from(bucket.name());
        shown.push((Shown::on_a_thread(looking, move || bucket.found()), place));
    }
    if let Some(witness) = WitnessClient::of(site, config)? {
        match archive.audit_head().await {
            Ok(head) => shown.push(witness.shown(head.store)),
            Err(error) => {
                let message = format!("{} was not asked: {error}", witness.name());
                compared.unasked.push(HeadFinding::new(witness.name(), message));
            }
        }
    }
    for (shown, place) in shown {
        judge(&mut compared, &place, shown, until, |head| Ok(archive.compare_head(head)?)).await?;
    }
    Ok(compared)
}

impl Node {
    /// Compares the log with the heads in all places, and notes what they reveal.
    pub(super) async fn compare_heads(&self, site: &Site, archive: &Archive) -> Outcome<()> {
        let compared = compare(site, &self.config, archive, &self.head_findings.looking()).await?;
        let news = self.head_findings.note_compared(compared.unasked);
        news.iter().for_each(|found| self.note_alarm("heads", &found.message));
        compared.trouble.into_iter().for_each(|trouble| self.note_trouble(trouble));
        Ok(())
    }

    /// The same before a command without a server changes something, which an older pool would
    /// lose. Commands that only read wait for no place.
    pub async fn compare_before_change(&self, site: &Site) {
        let Some(archive) = self.archive.as_ref().filter(|_| self.trouble().is_none()) else { return };
        if let Err(failure) = self.compare_heads(site, archive).await {
            // An act on drives may repair what keeps the heads from being compared.
            self.head_findings.note_compared(vec![HeadFinding::new("archive", failure.error.clone())]);
            self.note_alarm("heads", &failure.error);
        }
        if !self.has_newest_log(archive) {
            archive.keep_refusals_out();
        }
    }
}

/// Judges the files of a place, newest name first, until one is a head that the log contains. Only
/// a head under the name that this store gives it ends the search: a file that another writer added
/// under a greater number hides no other.
async fn judge(
    compared: &mut Compared,
    place: &Path,
    mut shown: Shown,
    until: Instant,
    verdict: impl Fn(&SignedHead) -> Outcome<HeadVerdict>,
) -> Outcome<()> {
    let mut strange = Vec::new();
    loop {
        let (head, path) = match timeout_at(until, shown.next()).await {
            Ok(Ok(Some(found))) => found,
            Ok(Ok(None)) => break,
            Ok(Err(failure)) => {
                compared.unasked.push(HeadFinding::new(place.display(), failure.error));
                break;
            }
            Err(_) => {
                compared.unasked.push(HeadFinding::new(place.display(), late(place).error));
                break;
            }
        };
        let Some(head) = head else {
            strange.push(HeadFinding::new(path.display(), format!("{} is not a signed head", path.display())));
            continue;
        };
        let is_named = number(&path) == Some(head.records);
        let verdict = verdict(&head)?;
        if !is_named && !matches!(verdict, HeadVerdict::Foreign(_)) {
            let records = head.records;
            let message = format!("{} is a head of {records} records under another name", path.display());
            strange.push(HeadFinding::new(path.display(), message));
        }
        let message = match verdict {
            HeadVerdict::Contained if is_named => break,
            HeadVerdict::Contained | HeadVerdict::Lost => continue,
            HeadVerdict::Foreign(finding) => {
                strange.push(HeadFinding::new(path.display(), format!("{}: {finding}", path.display())));
                continue;
            }
            HeadVerdict::Newer { theirs, ours } => format!(
                "{} was signed at record {theirs} of the audit log, which ends at {ours}: the place is newer, this pool \
                 was set back",
                path.display()
            ),
            HeadVerdict::Other { records } => format!(
                "{} was signed at record {records} of another log than this one: the pool is of another history",
                path.display()
            ),
        };
        let next = "keep this pool as it is, and return all drives together, as they were in the newer state; if they \
                    are gone for good, `stele catalog rebuild --force --accept-losses` goes on from here and holds \
                    everything until two officers decide";
        compared.trouble.get_or_insert(Trouble { kind: ROLLED_BACK, message, next: next.to_owned() });
        break;
    }
    let more = strange.len().saturating_sub(STRANGE_TOLD);
    compared.unasked.extend(strange.into_iter().take(STRANGE_TOLD));
    if more > 0 {
        let message = format!("{} has {more} more files that are no heads of this store", place.display());
        compared.unasked.push(HeadFinding::new(place.display(), message));
    }
    Ok(())
}

/// A file of a place, and the head in it, if it is one.
type Found = (Option<SignedHead>, PathBuf);

/// The files of a place, as a thread of their own reads them. A share that is away can hold a
/// thread for ever, so none that others wait for reads it. The thread ends when its receiver is
/// gone.
struct Shown(mpsc::Receiver<Outcome<Option<Found>>>);

impl Shown {
    fn begin(place: &Path, list: fn(&Path) -> Outcome<Vec<PathBuf>>, looking: &Looking) -> Shown {
        let place = place.to_owned();
        Shown::on_a_thread(looking, move || Ok(list(&place)?.into_iter().map(|path| Ok((read(&path), path)))))
    }

    fn on_a_thread<I: Iterator<Item = Outcome<Found>>>(
        looking: &Looking,
        open: impl FnOnce() -> Outcome<I> + Send + 'static,
    ) -> Shown {
        let (sender, receiver) = mpsc::channel(1);
        let (failed, looking) = (sender.clone(), Looking::clone(looking));
        let reading = std::thread::Builder::new().name("stele-heads".into()).spawn(move || {
            let _looking = looking;
            match open() {
                Ok(found) => {
                    let mut found = found.map(|found| found.map(Some)).chain([Ok(None)]);
                    // It ends early when the receiver is gone.
                    found.all(|found| sender.blocking_send(found).is_ok());
                }
                Err(failure) => drop(sender.blocking_send(Err(failure))),
            }
        });
        if let Err(error) = reading {
            let _ = failed.try_send(Err(Failure::failed(format!("no thread reads the signed heads: {error}"))));
        }
        Shown(receiver)
    }

    /// The next file; None at the end.
    async fn next(&mut self) -> Outcome<Option<Found>> {
        let broken = || Failure::failed("the thread that reads the signed heads ended");
        self.0.recv().await.unwrap_or_else(|| Err(broken()))
    }
}

/// The heads of each place, in the order of the places: a rebuild learns from them how far the log
/// reached.
pub fn all(places: &[PathBuf]) -> Vec<Outcome<Vec<SignedHead>>> {
    let heads = |place: &Path| Ok(list(place)?.iter().filter_map(|path| read(path)).collect());
    in_time(places, heads, PATIENCE)
        .into_iter()
        .zip(places)
        .map(|(heads, place)| heads.unwrap_or_else(|| Err(late(place))))
        .collect()
}

/// A place that did not answer within [`PATIENCE`].
pub fn late(place: &Path) -> Failure {
    Failure::new(Kind::Busy, format!("{} did not show its heads within {} s", place.display(), PATIENCE.as_secs()))
        .next("the share may hang: look at its server, or take it out of [archive] heads_also")
}

/// Looks at every place, each on a thread of its own, since a share that is away can hold a thread
/// for ever. All places together have `patience`. None: the place did not answer.
pub fn in_time<T: Send + 'static>(places: &[PathBuf], look: fn(&Path) -> T, patience: Duration) -> Vec<Option<T>> {
    let until = std::time::Instant::now() + patience;
    let asked = places.iter().map(|place| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let place = place.clone();
        let looking = std::thread::Builder::new().name("stele-heads".into());
        looking.spawn(move || drop(sender.send(look(&place)))).is_ok().then_some(receiver)
    });
    let asked: Vec<_> = asked.collect();
    let answer = |receiver: Option<std::sync::mpsc::Receiver<T>>| {
        receiver?.recv_timeout(until.saturating_duration_since(std::time::Instant::now())).ok()
    };
    asked.into_iter().map(answer).collect()
}

/// The newest heads of the bucket, for a rebuild. A bucket that does not answer in time is named in
/// the log.
pub async fn newest_in_bucket(site: &Site, config: &Config) -> Outcome<Vec<SignedHead>> {
    let Some(bucket) = HeadBucket::of(site, config)? else { return Ok(Vec::new()) };
    let (name, until) = (bucket.name(), Instant::now() + PATIENCE);
    let (mut shown, mut heads) = (Shown::on_a_thread(&Looking::default(), move || bucket.found()), Vec::new());
    while heads.len() < REBUILD_HEADS {
        match timeout_at(until, shown.next()).await {
            Ok(Ok(Some((head, _)))) => heads.extend(head),
            Ok(Ok(None)) => break,
            Ok(Err(failure)) => {
                tracing::warn!("the heads in {name} could not be read: {}", failure.error);
                break;
            }
            Err(_) => {
                tracing::warn!("{name} did not show its heads within {} s", PATIENCE.as_secs());
                break;
            }
        }
    }
    Ok(heads)
}

/// The files of a place, newest name first; before them files whose names state no number. A place
/// that does not exist yet has none.
fn list(place: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = match fs::read_dir(place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| io_failure("read the signed heads in", place, &error))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| io_failure("read the signed heads in", place, &error))?.path();
        if path.extension().is_some_and(|extension| extension == "head") {
            files.push(path);
        }
        if files.len() > HEADS_MAX {
            return Err(Failure::failed(format!("{} holds more than {HEADS_MAX} heads", place.display()))
                .next("move the oldest ones to another directory"));
        }
    }
    Ok(in_order(files))
}

/// Newest name first; before them those that state no number.
fn in_order(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut files: Vec<_> = files.into_iter().map(|path| (number(&path).unwrap_or(u64::MAX), path)).collect();
    files.sort_unstable_by(|one, other| other.cmp(one));
    files.into_iter().map(|(_, path)| path).collect()
}

/// The number of records that a file's name states, as [`write`] makes names.
fn number(path: &Path) -> Option<u64> {
    let name = path.file_stem()?.to_str()?;
    let digits = name.split_once('-').map_or(name, |(digits, _)| digits);
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Other people may write in a place: a link, a pipe or an endless file is not a head.
fn read(path: &Path) -> Option<SignedHead> {
    serde_json::from_str(read_text(path)?.trim()).ok()
}

fn read_text(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(HEAD_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The bytes of a head's file, which time stamps are about: its JSON and a line break.
pub fn text(head: &SignedHead) -> String {
    format!("{}\n", serde_json::to_string(head).unwrap_or_default())
}

/// The names that a head may have in a place: the second one is for another history at that number.
fn names(head: &SignedHead) -> [String; 2] {
    let link = head.link.get(..8).unwrap_or_default();
    [format!("{:020}.head", head.records), format!("{:020}-{link}.head", head.records)]
}

/// Whether both heads end the same log, and this store signed the one that is there. They may
/// differ in their times.
fn is_same(there: &SignedHead, head: &SignedHead) -> bool {
    let key = stele_archive::public_key(format!("{}\n", head.public_key).as_bytes());
    let is_signed = key.is_ok_and(|key| stele_archive::check_head(there, &key).is_ok());
    is_signed && (there.records, &there.link, &there.root) == (head.records, &head.link, &head.root)
}

/// Writes `DIR/00000000000000001234.head` atomically and durably. The number of records is the
/// name, so that names sort. A head of another history at that number, from before a rebuild, is
/// kept. Other people may write in the directory, so no link there is followed. A head with a time
/// stamp is kept too: the stamp is about its bytes, and the earlier time proves more.
pub fn write(dir: &Path, head: &SignedHead) -> Outcome<()> {
    fs::create_dir_all(dir).map_err(|error| io_failure("make", dir, &error))?;
    let [mut path, other] = names(head).map(|name| dir.join(name));
    let mut there = read(&path);
    if there.as_ref().is_some_and(|there| there.link != head.link) {
        path = other;
        there = read(&path);
    }
    if there.is_some_and(|there| is_same(&there, head)) && stamp_of(&path).exists() {
        return Ok(());
    }
    files::replace_among_others(&path, text(head).as_bytes())
}

/// The file with the time stamp of a head.
pub fn stamp_of(head: &Path) -> PathBuf {
    head.with_extension("tsr")
}

/// Writes the time stamp beside the head that it is about. A directory that kept another head of
/// that log keeps the stamp of that one.
fn write_stamp(dir: &Path, head: &SignedHead, reply: &[u8]) -> Outcome<()> {
    let text = text(head);
    let mut paths = names(head).into_iter().map(|name| dir.join(name));
    match paths.find(|path| read_text(path).as_ref() == Some(&text)) {
        Some(path) => files::replace_among_others(&stamp_of(&path), reply),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
