use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stele_archive::store::NoGuard;
use stele_archive::{Caller, Foundation, MasterKey, Options, Reading, Surroundings, Timestamp};
use stele_catalog::MemoryCatalog;
use stele_ground::{Instant, MIB};

use super::*;

/// A machine whose clock is set by the test, in milliseconds beyond some day.
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

fn names(alarms: &[Alarm]) -> Vec<&str> {
    alarms.iter().map(|alarm| alarm.name.as_str()).collect()
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
    assert!(names(&of_archive(&archive)).is_empty());
    machine.0.store(365 * 86_400_000, Relaxed);
    let alarms = of_archive(&archive);
    assert_eq!(names(&alarms), ["clock"]);
    assert!(alarms[0].message.contains("stele clock accept"), "{}", alarms[0].message);
    archive.accept_clock(&Caller::local(0)).await.unwrap();
    assert!(names(&of_archive(&archive)).is_empty());
}

#[test]
fn what_several_drives_say_is_one_alarm_of_its_name() {
    let alarm = |name: &str, message: &str| Alarm { name: name.to_owned(), message: message.to_owned() };
    let told = by_name(vec![alarm("drive-missing", "one"), alarm("clock", "set"), alarm("drive-missing", "two")]);
    assert_eq!(names(&told), ["drive-missing", "clock"]);
    assert_eq!(told[0].message, "one (and 1 more)");
}

#[test]
fn scrubbed_bytes_add_up_over_passes() {
    let mut status: StatusView = serde_json::from_value(serde_json::json!({
        "pool": "", "name": "", "epoch": 1, "state": "ok", "drives": [], "raw": 0, "used": 0, "spare": 0, "spare_used": 0,
        "log_used": 0, "log_size": 0, "dirty": 0, "rebuild": null, "copy_back": null, "scrub": null, "scrubs_finished": 0,
        "scrub_damage_found": 0, "scrub_damage_repaired": 0, "lost_stripes": 0, "rebuilt": 0, "repaired": 0, "alarms": [],
        "counters": []
    }))
    .unwrap();
    let mut scrubbed = Scrubbed::default();
    let mut look = |done: Option<u64>, finished: u64| {
        status.scrub = done.map(|done| crate::api::pool::ProgressView {
            done,
            total: 100,
            rate: 0,
            seconds_left: None,
            seconds_running: 0,
        });
        status.scrubs_finished = finished;
        scrubbed.add(&status)
    };
    let seen = [look(None, 0), look(Some(10), 0), look(Some(60), 0), look(None, 1), look(Some(5), 1), look(Some(7), 2)];
    // The end of the first pass was not seen, and the second passed unseen but for its first five.
    assert_eq!(seen, [0, 10, 60, 100, 105, 207]);
}
