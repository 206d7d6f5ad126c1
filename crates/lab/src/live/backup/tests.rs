use std::collections::BTreeMap;

use super::*;
use crate::live::read_back::read_back;
use crate::live::run::{Load, Of, Round, Setup, Timing, run};
use crate::workload::Alignment;
use stele_ground::Duration;

/// What a repository of the test does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Some objects of a place that has one are answered and not saved.
    Loses,
    /// The snapshots of a run lack its objects.
    ForgetsAtSettling,
    RefusesSettling,
    /// It has room for 20 objects.
    IsFull,
}

#[derive(Default)]
struct Stored {
    kept: BTreeMap<ObjectId, Vec<u8>>,
    /// In no snapshot yet.
    fresh: BTreeMap<ObjectId, Vec<u8>>,
    passing: usize,
    sessions: usize,
    settled: usize,
    removed: bool,
    closed: bool,
}

struct Fake {
    fault: Fault,
    stored: Arc<Mutex<Stored>>,
}

struct Talk(Fault, Arc<Mutex<Stored>>);

impl Repository for Fake {
    fn session(&self) -> Result<Box<dyn Session>, LabError> {
        self.stored.lock().unwrap().sessions += 1;
        Ok(Box::new(Talk(self.fault, Arc::clone(&self.stored))))
    }

    fn settle(&self) -> Result<(), LabError> {
        let mut stored = self.stored.lock().unwrap();
        assert_eq!(stored.sessions, 0, "all sessions have ended");
        stored.settled += 1;
        let fresh = std::mem::take(&mut stored.fresh);
        match (self.fault, stored.settled) {
            (Fault::ForgetsAtSettling, 2..) => {}
            (Fault::RefusesSettling, 2..) => return Err(LabError::Failed("no room for a snapshot".into())),
            _ => stored.kept.extend(fresh),
        }
        Ok(())
    }

    fn remove(&self) -> Result<(), LabError> {
        self.stored.lock().unwrap().removed = true;
        Ok(())
    }

    fn keep(&self) -> Result<(), LabError> {
        self.stored.lock().unwrap().closed = true;
        Ok(())
    }

    fn description(&self) -> String {
        "a fake".into()
    }
}

impl Session for Talk {
    fn save(&mut self, place: ObjectId, is_kept: bool, content: &[u8]) -> Result<(), LabError> {
        let mut stored = self.1.lock().unwrap();
        if self.0 == Fault::IsFull && stored.fresh.len() + stored.kept.len() + stored.passing > 20 {
            return Err(LabError::Full("no space left".into()));
        }
        let loses = self.0 == Fault::Loses && content.get(8).is_some_and(|byte| byte % 5 == 0);
        match is_kept {
            true if loses && stored.kept.contains_key(&place) => {}
            true => drop(stored.fresh.insert(place, content.to_vec())),
            false => stored.passing += 1,
        }
        Ok(())
    }

    fn restore(&mut self, place: ObjectId, into: &mut [u8]) -> Result<(), LabError> {
        let stored = self.1.lock().unwrap();
        let found = stored.fresh.get(&place).or_else(|| stored.kept.get(&place));
        let never = || LabError::Missing(format!("{place:?} was never saved"));
        into.copy_from_slice(found.ok_or_else(never)?);
        Ok(())
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.1.lock().unwrap().sessions -= 1;
    }
}

const LENGTH: u64 = 8192;

fn opened(fault: Fault, content: Content) -> (Ready, Arc<Mutex<Stored>>) {
    let stored = Arc::new(Mutex::new(Stored::default()));
    let repository = Arc::new(Fake { fault, stored: Arc::clone(&stored) });
    let opening = Opening { files: 16, writes: true, content, step: LENGTH, longest: LENGTH, ..Opening::default() };
    let address = "backup:/nowhere".parse().unwrap();
    let length = checked(&address, opening).unwrap();
    (open_with(&address, repository, opening, length).unwrap(), stored)
}

fn setup(content: Content, read: u8) -> Setup {
    let long = Duration::from_secs(60);
    Setup {
        spec: AccessSpec { name: "test".into(), random: Some(100), read: Some(read), sizes: vec![(LENGTH, 100)] },
        alignment: Alignment::Request,
        load: Load::Outstanding(4),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: Timing { warm_up: Duration(0), round: Duration::from_millis(10), least: long, most: long },
        content,
        of: Of::Data,
        seed: 5,
    }
}

fn measured(ready: &Ready, setup: &Setup) -> Result<(), LabError> {
    let mut made = 0;
    run(ready, setup, &mut |_: i64, round: &Round| {
        made += round.read.count() + round.write.count();
        made < 300
    })
    .map(drop)
}

const VERIFIED: Content = Content { seed: 1, compress_percent: 100, dedupe_percent: 100, verify: true };

#[test]
fn an_address_names_a_place_and_a_password() {
    let parsed = |text: &str| text.parse::<BackupAddress>().map(|address| (address.place.clone(), address.to_string()));
    for (text, place, shown) in [
        ("backup://host/bucket", "s3://host:443/bucket", "backup://host:443/bucket"),
        ("backup+http://h:9000/b/p/q/", "s3+http://h:9000/b/p/q", "backup+http://h:9000/b/p/q"),
        ("backup:/srv/repo", "/srv/repo", "backup:/srv/repo"),
        ("backup:s3", "s3", "backup:s3"),
        ("backup://h:1/b?password-file=/root/p", "s3://h:1/b", "backup://h:1/b?password-file=/root/p"),
    ] {
        assert_eq!(parsed(text).unwrap(), (place.to_owned(), shown.to_owned()), "{text}");
        assert_eq!(parsed(shown).unwrap(), (place.to_owned(), shown.to_owned()), "{shown}");
    }
    for bad in [
        "backup:",
        "backup://host",
        "backup://host/",
        "backup://h//b",
        "backup:///b",
        "backup+ftp://h/b",
        "backup:/srv?x=1",
        "backup://h/b?password-file=",
        "backup://h/b c",
    ] {
        assert!(matches!(parsed(bad), Err(LabError::Usage(_))), "{bad}");
    }
}

#[test]
fn sessions_save_and_restore_and_all_is_settled_behind_a_run() {
    for (read, content) in
        [(0, Content::default()), (100, Content::default()), (50, Content::default()), (50, VERIFIED)]
    {
        let (ready, stored) = opened(Fault::None, content);
        measured(&ready, &setup(content, read)).unwrap();
        let found = stored.lock().unwrap();
        assert_eq!(found.settled, if read == 0 { 1 } else { 2 }, "once prepared, once measured");
        assert_eq!(found.kept.len(), if read == 0 { 0 } else { 16 });
        assert_eq!(found.passing > 0, read < 100 && !content.verify, "what is not checked takes no place");
        drop(found);
        if content.verify {
            let read = read_back(&ready, content, &mut |_, _| true).unwrap().unwrap();
            assert!(read.bytes == 16 * LENGTH && read.wrong.is_none(), "{read:?}");
        }
        ready.remove().unwrap();
        drop(ready);
        let found = stored.lock().unwrap();
        assert!(found.removed && !found.closed);
    }
    let (ready, stored) = opened(Fault::None, VERIFIED);
    drop(ready);
    assert!(!stored.lock().unwrap().removed && stored.lock().unwrap().closed, "what is kept is closed");
}

#[test]
fn what_a_repository_loses_is_found() {
    let (ready, _) = opened(Fault::Loses, VERIFIED);
    let error = measured(&ready, &setup(VERIFIED, 50)).unwrap_err().to_string();
    assert!(error.contains("acknowledged is lost"), "{error}");
    let (ready, _) = opened(Fault::ForgetsAtSettling, VERIFIED);
    measured(&ready, &setup(VERIFIED, 50)).unwrap();
    let read = read_back(&ready, VERIFIED, &mut |_, _| true).unwrap().unwrap();
    assert!(!read.wrong.is_none(), "the snapshots lack what the run saved");
    let (ready, _) = opened(Fault::RefusesSettling, Content::default());
    let error = measured(&ready, &setup(Content::default(), 50)).unwrap_err().to_string();
    assert!(error.contains("no room for a snapshot"), "{error}");
}

/// Its exit code is that of a full target, whether a run or what precedes it fills it.
#[test]
fn a_repository_that_is_full_ends_a_run_as_full() {
    let (ready, _) = opened(Fault::IsFull, Content::default());
    let error = measured(&ready, &setup(Content::default(), 0)).unwrap_err();
    assert!(matches!(&error, LabError::Full(text) if text.contains("no space left")), "{error:?}");
    let opening = Opening { files: 64, writes: true, step: LENGTH, longest: LENGTH, ..Opening::default() };
    let repository = Arc::new(Fake { fault: Fault::IsFull, stored: Arc::default() });
    let ready = open_with(&"backup:/nowhere".parse().unwrap(), repository, opening, LENGTH).unwrap();
    let error = measured(&ready, &setup(Content::default(), 100)).unwrap_err();
    assert!(matches!(&error, LabError::Full(_)), "{error:?}");
}

#[test]
fn objects_have_one_length_where_they_are_checked() {
    let address = "backup:/nowhere".parse().unwrap();
    let opening = Opening { content: VERIFIED, step: 4096, longest: 8192, ..Opening::default() };
    let error = checked(&address, opening).unwrap_err().to_string();
    assert!(error.contains("one length"), "{error}");
    let opening = Opening { step: 4096, longest: LENGTH_MAX + 4096, ..Opening::default() };
    assert!(checked(&address, opening).unwrap_err().to_string().contains("memory"));
}

#[test]
fn without_code_for_backups_nothing_is_opened() {
    let address = "backup:/nowhere".parse().unwrap();
    let error = open(&address, Opening::default()).unwrap_err().to_string();
    assert!(error.contains("no code for backups"), "{error}");
}
