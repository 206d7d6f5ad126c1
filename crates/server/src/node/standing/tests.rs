use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stele_archive::store::NoGuard;
use stele_archive::{Caller, Foundation, MasterKey, Options, Reading, Surroundings, Timestamp};
use stele_catalog::MemoryCatalog;
use stele_ground::{Instant, MIB};

use super::*;

/// A machine whose clock the test sets, in milliseconds after a fixed day.
#[derive(Default)]
struct Machine(AtomicU64, AtomicU64);

impl Surroundings for Machine {
    fn now(&self) -> Reading {
        let wall = Timestamp(1_800_000_000_000 + self.0.load(Relaxed));
        Reading { monotonic: Instant(self.1.fetch_add(1_000_000, Relaxed)), wall }
    }

    fn entropy(&self, into: &mut [u8]) {
        crate::node::surroundings::System::default().entropy(into);
    }
}

fn names(alarms: &[StandingView]) -> Vec<&str> {
    alarms.iter().map(|alarm| alarm.kind.as_str()).collect()
}

#[tokio::test]
async fn a_clock_that_jumped_stands_as_an_alarm_until_somebody_has_looked() {
    let machine = Arc::new(Machine::default());
    let foundation = Foundation {
        catalog: Arc::new(MemoryCatalog::new()),
        data: stele_media::serve_memory(Bytes(64 * MIB)).unwrap(),
        surroundings: machine.clone(),
        guard: Arc::new(NoGuard),
        master: MasterKey::generate(&*machine),
    };
    let options = Options { segment: Bytes(MIB), ..Options::default() };
    let archive = Archive::create(foundation, options).await.unwrap();
    assert!(names(&of_archive(&archive, None)).is_empty());
    machine.0.store(365 * 86_400_000, Relaxed);
    let alarms = of_archive(&archive, None);
    assert_eq!(names(&alarms), ["clock"]);
    assert!(alarms[0].next.contains("stele clock accept"), "{}", alarms[0].next);
    archive.accept_clock(&Caller::local(0)).await.unwrap();
    assert!(names(&of_archive(&archive, None)).is_empty());
}

#[test]
fn an_alarm_of_the_archive_is_logged_with_its_next_step() {
    let alarms = crate::node::alarms::Alarms::default();
    for kind in [AlarmKind::Clock, AlarmKind::Expiration, AlarmKind::Damage] {
        let (_, next) = reaction(kind);
        alarms.warn("kind", "message", next);
        let told = alarms.list().pop().map(|alarm| alarm.next).unwrap_or_default();
        assert!(told == next && told.contains("`stele "), "{kind:?}: {told}");
    }
}

#[test]
fn what_stands_is_dated_when_it_is_first_noticed_and_anew_when_it_comes_back() {
    let noticed = Noticed::default();
    let look = |kinds: &[(&str, &str)], now: u64| -> Vec<u64> {
        let mut standing: Vec<StandingView> =
            kinds.iter().map(|(kind, subject)| alarm(kind, subject, String::new(), "", "")).collect();
        noticed.date(&mut standing, now);
        standing.iter().map(|alarm| alarm.since).collect()
    };
    assert_eq!(look(&[("drive-missing", "drive 1")], 10), [10]);
    assert_eq!(look(&[("drive-missing", "drive 1"), ("drive-missing", "drive 2")], 20), [10, 20]);
    assert_eq!(look(&[("drive-missing", "drive 2")], 30), [20]);
    assert_eq!(look(&[("drive-missing", "drive 1")], 40), [40]);
}

#[test]
fn a_nearly_full_file_system_beneath_drives_stands_as_an_alarm() {
    let of = |free: u64| FileSystem {
        drives: vec!["/srv/a.img".into()],
        size: Bytes(1000 * MIB),
        needed: Bytes(900 * MIB),
        free: Bytes(free * MIB),
    };
    assert!(of_file_system(&of(60)).is_none() && of_file_system(&of(950)).is_none());
    let told = of_file_system(&of(40)).expect("an alarm");
    assert!(crate::node::alarms::KINDS.contains(&&*told.kind), "{told:?}");
    assert_eq!(told.message, "the file system beneath drive /srv/a.img has 40 MiB free, and it may still need 900 MiB");
}

/// Drives help where the configuration and the largest size leave room to grow, and only there.
#[test]
fn low_space_names_drives_where_they_help() {
    let drives_help = |text: &str| text.contains("`stele pool add`") && !text.contains("do not help");
    for (data_max, help) in [(None, true), (Some(50), false), (Some(100), false), (Some(101), true), (Some(500), true)]
    {
        let told = more_segments(100, MIB, data_max.map(|segments| Bytes(segments * MIB)));
        assert_eq!((drives_help(told), told.contains("data_max")), (help, !help), "{data_max:?}: {told}");
    }
    for (area, help) in [(Bytes(100 * MIB), true), (Bytes(CATALOG_MAX.0 - 16 * MIB), false)] {
        let told = of_catalog(&stele_catalog::Status { area, journal: Bytes(16 * MIB), full: true, ..small() });
        let told = told.map(|alarm| alarm.next).unwrap_or_default();
        assert_eq!(drives_help(&told), help, "{area}: {told}");
    }
}

/// The pool may have room and drives again: without an alarm nothing told that changes are refused.
#[test]
fn a_catalog_that_has_stopped_stands_as_an_alarm() {
    assert!(of_stopped_catalog(&small()).is_none());
    let told = of_stopped_catalog(&stele_catalog::Status { stopped: true, ..small() }).expect("an alarm");
    assert!(crate::node::alarms::KINDS.contains(&&*told.kind), "{told:?}");
    assert!(told.done.contains("changes are refused") && told.next.contains("start the server again"), "{told:?}");
    assert_eq!(begun::BegunAlarms::default().look(&[told]).len(), 1, "and the log tells it once");
}

/// A catalog that holds nothing.
fn small() -> stele_catalog::Status {
    stele_catalog::Status {
        commits: 0,
        batches: 0,
        checkpoints: 0,
        journal_used: Bytes(0),
        journal: Bytes(0),
        overlay: Bytes(0),
        laid_out: Bytes(0),
        area: Bytes(0),
        free: Bytes(0),
        reserve: Bytes(0),
        full: false,
        stopped: false,
    }
}

/// Such a drive has no number.
#[test]
fn a_drive_that_some_shards_have_is_named_by_its_path() {
    let drive = |number: u32| -> DriveView {
        serde_json::from_value(serde_json::json!({
            "drive": number, "identity": "09090909090909090909090909090909", "path": "/dev/new", "enclosure": 1,
            "health": "healthy", "size_bytes": 1, "used_bytes": 0, "read_errors": 0, "write_errors": 0,
            "digest_errors": 0, "repaired": 0, "note": "", "smart": { "passed": false },
        }))
        .unwrap()
    };
    let alarm = of_smart(&drive(stele_array::NOT_A_MEMBER)).unwrap();
    assert_eq!((alarm.subject.as_str(), alarm.message.contains("/dev/new says")), ("/dev/new", true), "{alarm:?}");
    let all = format!("{alarm:?}");
    assert!(!all.contains(&stele_array::NOT_A_MEMBER.to_string()) && !all.contains("pool replace"), "{all}");
    let alarm = of_smart(&drive(3)).unwrap();
    assert_eq!((alarm.subject.as_str(), alarm.next.as_str()), ("drive 3", "stele pool replace 3 PATH"));
}

/// Its message says who accepts it, and where that is switched off, that no one does any more.
#[test]
fn a_frozen_clock_is_not_said_to_wait_for_an_operator() {
    let (done, next) = reaction(AlarmKind::Clock);
    assert!(!done.contains("operator") && next.contains("whom the message names"), "{done}; {next}");
}
