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
fn scrubbed_bytes_add_up_over_passes() {
    let mut status: StatusView = serde_json::from_value(serde_json::json!({
        "pool": "", "name": "", "epoch": 1, "state": "ok", "drives": [], "raw_bytes": 0, "used_bytes": 0, "spare_bytes": 0, "spare_used_bytes": 0,
        "log_used_bytes": 0, "log_size_bytes": 0, "dirty_bytes": 0, "rebuild": null, "copy_back": null, "scrub": null, "moving": null, "removed": [], "scrubs_finished": 0,
        "scrub_damage_found": 0, "scrub_damage_repaired": 0, "lost_stripes": 0, "rebuilt": 0, "repaired": 0, "alarms": [],
        "standing": [], "counters": {}
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
    // No sample saw the end of the first pass; of the second pass, the samples saw only the first five bytes.
    assert_eq!(seen, [0, 10, 60, 100, 105, 207]);
}
