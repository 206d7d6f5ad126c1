//! Acts on drives during a time without a writable audit log: the catalog did not open, does not
//! belong to the data volume, or was set back. What an older log got would be lost with it. Each
//! act is kept durably in a file of the data directory before it is carried out. The next opening
//! for writing records the acts.
//!
//! Failure model: a line that a crash cut off takes no later act with it, since the next one begins
//! a line of its own. An act that cannot be kept whole is refused, and its line taken back. An act
//! that is kept while others are being recorded is recorded too, before the file goes. One process
//! records each act once, also where the file cannot be removed; a restart between the record and
//! the removal records an act twice. A user who can write to the data directory can remove or add
//! acts, as SEMANTICS/retention.md says. A full file refuses further acts.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use stele_archive::{Archive, Paired};

use super::{Node, READ_ONLY};
use crate::api::Actor;
use crate::failure::{Failure, Kind, Outcome, io_failure};

const NAME: &str = "unrecorded-acts";
/// Enough for some thousand acts.
const LENGTH_MAX: u64 = 1 << 20;

/// The file of one data directory.
pub struct Unrecorded {
    path: PathBuf,
    /// Bytes of the file whose acts this process has recorded.
    recorded: AtomicUsize,
    /// Held while the file gets an act, and while it goes: no act comes in between.
    turn: Mutex<()>,
}

#[derive(Serialize, Deserialize)]
struct Act {
    /// Seconds since 1970 on the system's clock.
    at: u64,
    uid: u32,
    detail: String,
    refused: Option<String>,
}

impl Unrecorded {
    pub fn of(dir: &Path) -> Unrecorded {
        Unrecorded { path: dir.join(NAME), recorded: AtomicUsize::new(0), turn: Mutex::default() }
    }

    /// Keeps an act. The act is durable when this returns.
    pub fn keep(&self, actor: &Actor, detail: &str, refused: Option<String>) -> Outcome<()> {
        let path = &self.path;
        let failed = |error: &std::io::Error| io_failure("keep a record in", path, error);
        let act = Act { at: super::wall_clock(), uid: actor.uid, detail: detail.to_owned(), refused };
        let line = serde_json::to_string(&act)
            .map_err(|error| Failure::failed(format!("cannot write an act as JSON: {error}")))?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = OpenOptions::new().create(true).read(true).append(true).open(path);
        let mut file = opened.map_err(|error| failed(&error))?;
        let length = file.metadata().map_err(|error| failed(&error))?.len();
        if length == 0 {
            self.recorded.store(0, Ordering::Relaxed);
        }
        if length > LENGTH_MAX {
            return Err(Failure::new(
                Kind::Refused,
                format!("{} is full of acts that no audit log has", path.display()),
            )
            .next("start the server: it records them"));
        }
        let start = if ends_a_line(&file, length).map_err(|error| failed(&error))? { "" } else { "\n" };
        let written = file.write_all(format!("{start}{line}\n").as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = written {
            // The act is refused: what there is of its line must not be recorded.
            let _ = file.set_len(length).and_then(|()| file.sync_all());
            return Err(failed(&error));
        }
        match path.parent().filter(|_| length == 0) {
            Some(dir) => File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| failed(&error)),
            None => Ok(()),
        }
    }

    /// Records the kept acts in an archive that is open for writing. One call at a time.
    pub async fn record(&self, archive: &Archive) -> Outcome<()> {
        loop {
            for left in self.left()? {
                let caller = Actor { uid: left.uid }.caller();
                archive.audit_administration(&caller, &left.detail, left.refused.as_deref()).await?;
                self.recorded.fetch_add(left.length, Ordering::Relaxed);
            }
            if self.settle(|path| fs::remove_file(path)) {
                return Ok(());
            }
        }
    }

    /// The kept acts that this process has not recorded yet.
    fn left(&self) -> Outcome<Vec<Left>> {
        // Of an act that is being kept there may be a part of its line.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes.map_err(|error| io_failure("read", &self.path, &error))?,
        };
        let recorded = self.recorded.load(Ordering::Relaxed);
        let left = bytes.get(recorded..).unwrap_or_else(|| {
            // A shorter file is another one.
            self.recorded.store(0, Ordering::Relaxed);
            &bytes
        });
        Ok(left.split_inclusive(|byte| *byte == b'\n').map(Left::of).collect())
    }

    /// Forgets the file where everything in it is in the log. False: an act has come since.
    fn settle(&self, remove: impl FnOnce(&Path) -> std::io::Result<()>) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let length = match fs::metadata(&self.path) {
            // A file system that is mounted read-only refuses to remove even what is not there.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.recorded.store(0, Ordering::Relaxed);
                return true;
            }
            about => about.map_or(0, |about| about.len()),
        };
        if length > self.recorded.load(Ordering::Relaxed) as u64 {
            return false;
        }
        match remove(&self.path) {
            Ok(()) => self.recorded.store(0, Ordering::Relaxed),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.recorded.store(0, Ordering::Relaxed),
            Err(error) => tracing::warn!(
                "the acts in {} are recorded, but it cannot be removed ({error}); remove it, or the next start records them \
                 again",
                self.path.display()
            ),
        }
        true
    }
}

impl Node {
    /// Whether the archive's audit log is the newest of its store. An older one takes no records:
    /// they would be lost when that comes back.
    pub(super) fn has_newest_log(&self, archive: &Archive) -> bool {
        archive.paired() == Paired::Yes && self.trouble().is_none_or(|trouble| trouble.kind == READ_ONLY)
    }
}

/// A line of the file, as the audit log is to have it.
struct Left {
    length: usize,
    uid: u32,
    detail: String,
    refused: Option<String>,
}

impl Left {
    /// A line that a crash cut off, perhaps within a character, belongs to an act that never began.
    fn of(line: &[u8]) -> Left {
        let length = line.len();
        match serde_json::from_str::<Act>(String::from_utf8_lossy(line).trim_end()) {
            Ok(Act { at, uid, detail, refused }) => {
                Left { length, uid, detail: format!("while no log was open, at {at}: {detail}"), refused }
            }
            Err(_) => {
                let detail = format!("while no log was open: an unreadable line of {NAME}");
                Left { length, uid: super::own_uid(), detail, refused: None }
            }
        }
    }
}

fn ends_a_line(file: &File, length: u64) -> std::io::Result<bool> {
    let mut last = *b"\n";
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::volumes::Trouble;
    use crate::node::{PAIRING, heads};
    use crate::serving::services;

    #[test]
    fn a_line_that_a_crash_cut_off_takes_no_later_act_with_it() {
        let dir = std::env::temp_dir().join(format!("stele-unrecorded-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(NAME);
        fs::write(&path, b"{\"at\":1,\"detail\":\"cut \xc3").unwrap();
        let acts = Unrecorded::of(&dir);
        for detail in ["pool/replace drive 3", "pool/add"] {
            acts.keep(&Actor { uid: 1000 }, detail, None).unwrap();
        }
        let text = fs::read(&path).unwrap();
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let read = |line: &[u8]| serde_json::from_slice::<Act>(line).ok().map(|act| (act.uid, act.detail));
        assert_eq!(lines.len(), 4);
        assert_eq!(read(lines[0]), None);
        assert_eq!(read(lines[1]), Some((1000, "pool/replace drive 3".to_owned())));
        assert_eq!(read(lines[2]), Some((1000, "pool/add".to_owned())));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_act_is_recorded_once_although_its_file_cannot_be_removed() {
        let dir = std::env::temp_dir().join(format!("stele-unrecorded-once-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let acts = Unrecorded::of(&dir);
        let mut told = Vec::new();
        let mut record = |remove: &dyn Fn() -> std::io::Result<()>| {
            for left in acts.left().unwrap() {
                told.push(left.detail.rsplit(": ").next().unwrap_or_default().to_owned());
                acts.recorded.fetch_add(left.length, Ordering::Relaxed);
            }
            assert!(acts.settle(|_| remove()), "nothing came meanwhile");
        };
        let stuck = || Err(std::io::ErrorKind::ReadOnlyFilesystem.into());
        acts.keep(&Actor { uid: 1000 }, "first", None).unwrap();
        record(&stuck);
        acts.keep(&Actor { uid: 1000 }, "second", None).unwrap();
        record(&stuck);
        record(&stuck);
        // An operator removes it. What comes then may be longer than what was recorded.
        fs::remove_file(dir.join(NAME)).unwrap();
        let third = "third".repeat(100);
        acts.keep(&Actor { uid: 1000 }, &third, None).unwrap();
        record(&|| fs::remove_file(dir.join(NAME)));
        record(&stuck);
        assert_eq!(told, ["first", "second", &third]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn no_file_of_acts_is_removed_where_there_is_none() {
        let acts = Unrecorded::of(&std::env::temp_dir().join(format!("stele-no-acts-{}", std::process::id())));
        assert!(acts.settle(|path| panic!("{} is not there", path.display())));
    }

    #[test]
    fn an_act_that_is_kept_while_others_are_recorded_does_not_go_with_the_file() {
        let dir = std::env::temp_dir().join(format!("stele-unrecorded-meanwhile-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let acts = Unrecorded::of(&dir);
        let keep = |detail: &str| acts.keep(&Actor { uid: 1000 }, detail, None).unwrap();
        let record = || -> Vec<String> {
            let left = acts.left().unwrap();
            acts.recorded.fetch_add(left.iter().map(|left| left.length).sum(), Ordering::Relaxed);
            left.into_iter().map(|left| left.detail.rsplit(": ").next().unwrap_or_default().to_owned()).collect()
        };
        keep("first");
        assert_eq!(record(), ["first"]);
        // The archive took changes again meanwhile, and this act had found it for reading only.
        keep("second");
        assert!(!acts.settle(|path| fs::remove_file(path)), "an act is left");
        assert_eq!(record(), ["second"]);
        assert!(acts.settle(|path| fs::remove_file(path)) && !dir.join(NAME).exists());
        assert!(acts.settle(|path| fs::remove_file(path)), "a file that is gone is settled");
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Records in the older log would take the places of those of the newer one, and be lost when
    /// that comes back.
    #[tokio::test(flavor = "multi_thread")]
    async fn acts_on_a_pool_that_was_set_back_do_not_go_into_its_older_log() {
        let node = services::tests::node(&Default::default()).await;
        let records = async || node.archive().unwrap().audit_head().await.unwrap().records;
        for (kind, is_kept) in [(READ_ONLY, false), (heads::ROLLED_BACK, true), (PAIRING, true), ("volume-names", true)]
        {
            node.set_trouble(Some(Trouble { kind, message: String::new(), next: String::new() }));
            let before = records().await;
            let audited = node.audit(&Actor { uid: 0 }, "pool/replace", "drive 3", None).await;
            // This node has no directory, so what was to be kept is refused.
            let kept = audited.is_err_and(|failure| failure.error.contains(NAME));
            assert_eq!((kept, records().await > before), (is_kept, !is_kept), "{kind}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn refusals_on_a_pool_that_was_set_back_do_not_go_into_its_log() {
        for (kind, is_recorded) in
            [(READ_ONLY, true), (heads::ROLLED_BACK, false), (PAIRING, false), ("volume-names", false)]
        {
            let mut node = std::sync::Arc::into_inner(services::tests::node(&Default::default()).await).unwrap();
            node.set_trouble(Some(Trouble { kind, message: String::new(), next: String::new() }));
            let archive = node.archive().unwrap().clone();
            node.set_archive(archive.clone());
            let records = async || archive.audit_head().await.unwrap().records;
            let before = records().await;
            let caller = Actor { uid: 1000 }.caller();
            archive.audit_refusal(&caller, "GET", "/bucket/key", "wrong signature").await.unwrap();
            assert_eq!(records().await > before, is_recorded, "{kind}");
        }
    }
}
