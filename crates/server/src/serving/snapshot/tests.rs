use stele_ground::Bytes;

use super::*;

fn names(alarms: &[Alarm]) -> Vec<&str> {
    alarms.iter().map(|alarm| alarm.name.as_str()).collect()
}

#[test]
fn what_several_drives_say_is_one_alarm_of_its_name() {
    let alarm = |name: &str, message: &str| Alarm { name: name.to_owned(), message: message.to_owned() };
    let told = by_name(vec![alarm("drive-missing", "one"), alarm("clock", "set"), alarm("drive-missing", "two")]);
    assert_eq!(names(&told), ["drive-missing", "clock"]);
    assert_eq!(told[0].message, "one (and 1 more)");
}

#[test]
fn the_room_of_the_catalog_is_in_the_metrics() {
    let catalog = stele_catalog::Status {
        commits: 0,
        batches: 0,
        checkpoints: 0,
        journal_used: Bytes(0),
        journal: Bytes(0),
        overlay: Bytes(0),
        laid_out: Bytes(0),
        area: Bytes(208 << 20),
        free: Bytes(10 << 20),
        reserve: Bytes(8 << 20),
        full: false,
        stopped: false,
    };
    let room = catalog_room(&catalog).map(|(name, _, value)| (name, value as u64));
    let series = |name: &str, value: u64| (name.to_owned(), value);
    assert_eq!(room, [series("stele_catalog_size_bytes", 208 << 20), series("stele_catalog_free_bytes", 10 << 20)]);
}

fn status() -> StatusView {
    serde_json::from_value(serde_json::json!({
        "pool": "", "name": "", "epoch": 1, "state": "ok", "drives": [], "raw_bytes": 0, "used_bytes": 0, "spare_bytes": 0, "spare_used_bytes": 0,
        "log_used_bytes": 0, "log_size_bytes": 0, "dirty_bytes": 0, "rebuild": null, "copy_back": null, "scrub": null, "moving": null, "removed": [], "scrubs_finished": 0,
        "scrub_damage_found": 0, "scrub_damage_repaired": 0, "lost_stripes": 0, "rebuilt": 0, "repaired": 0, "alarms": [],
        "standing": [], "counters": {}
    }))
    .unwrap()
}

/// Prometheus keeps one value of a series.
#[test]
fn drives_that_were_missing_at_the_start_have_series_of_their_own() {
    let drive = |number: u32, path: &str| {
        serde_json::from_value(serde_json::json!({
            "drive": number, "identity": "", "path": path, "enclosure": 1, "health": "missing", "size_bytes": 0,
            "used_bytes": 0, "read_errors": 0, "write_errors": 0, "digest_errors": 0, "repaired": 0, "note": ""
        }))
        .unwrap()
    };
    let drives = vec![drive(0, "/d/0"), drive(2, ""), drive(3, "")];
    let labels: Vec<String> =
        of(&StatusView { drives, ..status() }).drives.into_iter().map(|drive| drive.drive).collect();
    assert_eq!(labels, ["/d/0", "drive 2", "drive 3"]);
}

#[test]
fn a_state_that_nobody_has_read_for_long_is_none() {
    let latest = Latest::default();
    latest.state.lock().unwrap().snapshot.health = Health::Healthy;
    let read = latest.state.lock().unwrap().at;
    assert_eq!(latest.at(read + AGE_MAX).health, Health::Healthy);
    let late = latest.at(read + AGE_MAX + EVERY);
    assert_eq!((late.health, late.size), (Health::Down, 0));
    assert!(late.more.iter().any(|(name, ..)| name == "stele_start_time_seconds"));
}

/// Nothing else tells it by mail: all other alarms come from a status.
#[test]
fn a_pool_without_a_status_is_an_alarm_that_begins_once() {
    let mut look = Look::default();
    let stood = StandingView {
        kind: "drive-missing".to_owned(),
        subject: "drive 1".to_owned(),
        since: 5,
        message: String::new(),
        done: String::new(),
        next: String::new(),
    };
    look.last = ("pool".to_owned(), vec![stood]);
    let kinds = |standing: &[StandingView]| standing.iter().map(|alarm| alarm.kind.clone()).collect::<Vec<_>>();
    let mut begun = 0;
    for now in 10..13 {
        let standing = look.standing_silent("no answer within 10 s", now);
        assert_eq!(kinds(&standing), ["drive-missing", "pool-silent"], "what stood has not ended");
        assert_eq!(standing[1].since, 10);
        assert!(standing[1].message.ends_with("no answer within 10 s") && standing[1].next.contains("dmesg"));
        begun += look.begun.look(&standing).len();
    }
    assert_eq!(begun, 1, "the log tells it once");
}

#[tokio::test]
async fn a_status_ends_the_alarm_about_a_silent_pool() {
    let scene = crate::node::testing::Scene::new("silent");
    let (latest, mut look) = (Latest::default(), Look::default());
    latest.refresh(&scene.node, &mut look).await;
    let down = look.tell_silent(&scene.node, "the drives hang");
    assert_eq!((down.health, names(&down.alarms)), (Health::Down, vec!["pool-silent"]));
    assert_eq!(scene.node.alarms().last().map(|alarm| alarm.kind.clone()).as_deref(), Some("pool-silent"));
    latest.refresh(&scene.node, &mut look).await;
    let now = latest.at(Instant::now());
    assert!(!names(&now.alarms).contains(&"pool-silent") && now.health != Health::Down, "{:?}", now.alarms);
    assert_eq!(look.silent_since, None);
}

#[test]
fn spare_space_that_holds_rebuilt_strips_is_not_subtracted_twice() {
    let status = StatusView { raw: 1000, used: 400, spare: 100, spare_used: 60, ..status() };
    assert_eq!(of(&status).free, 560);
}

#[test]
fn scrubbed_bytes_add_up_over_passes() {
    let mut status = status();
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
    // No sample saw the end of the first pass; of the second pass, the samples saw only the first
    // five bytes.
    assert_eq!(seen, [0, 10, 60, 100, 105, 207]);
}
