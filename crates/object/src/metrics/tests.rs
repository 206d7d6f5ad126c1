//! The contents of a scrape; every series in it must be documented.

use super::*;

fn full() -> String {
    let metrics = Metrics::default();
    metrics.answered(Operation::PutObject, 200, Duration::from_micros(700));
    metrics.answered(Operation::PutObject, 200, Duration::from_secs(90));
    metrics.answered(Operation::PutObject, 303, Duration::from_micros(700));
    metrics.answered(Operation::GetObject, 418, Duration::from_micros(100));
    metrics.received(4096);
    let drive = DriveSample { drive: "a\"b".into(), online: true, ..DriveSample::default() };
    let snapshot = Snapshot {
        health: Health::Degraded,
        drives: vec![drive],
        alarms: vec![Alarm { name: "drive-lost".into(), message: "replace \"d3\"".into() }],
        rebuild: Some((5, 10, Some(3))),
        targets: vec![TargetSample { target: "hook".into(), pending: 7, dropped: 9 }],
        ..Snapshot::default()
    };
    metrics.render(Some(&snapshot))
}

#[test]
fn counts_come_out_in_the_exposition_format() {
    let text = full();
    for line in [
        "stele_s3_requests_total{operation=\"PutObject\",status=\"200\"} 2",
        // A form may redirect.
        "stele_s3_requests_total{operation=\"PutObject\",status=\"303\"} 1",
        "stele_s3_requests_total{operation=\"GetObject\",status=\"400\"} 1",
        "stele_s3_request_seconds_bucket{operation=\"PutObject\",le=\"0.0005\"} 0",
        "stele_s3_request_seconds_bucket{operation=\"PutObject\",le=\"0.001\"} 2",
        "stele_s3_request_seconds_bucket{operation=\"PutObject\",le=\"+Inf\"} 3",
        "stele_s3_request_seconds_count{operation=\"PutObject\"} 3",
        "stele_s3_request_seconds_bucket{operation=\"GetObject\",le=\"0.0001\"} 1",
        "stele_s3_received_bytes_total 4096",
        "stele_pool_health 1",
        "stele_drive_online{drive=\"a\\\"b\",enclosure=\"\"} 1",
        "stele_drive_state{drive=\"a\\\"b\",enclosure=\"\",state=\"\"} 1",
        "stele_alarm{alarm=\"drive-lost\"} 1",
        "stele_rebuild_seconds_left 3",
        "stele_notifications_pending{target=\"hook\"} 7",
        "stele_notifications_dropped_total{target=\"hook\"} 9",
    ] {
        assert!(text.lines().any(|found| found == line), "missing: {line}\n{text}");
    }
}

/// Prometheus would take a zero for a counter that began anew, and add all of it up once more.
#[test]
fn a_pool_that_is_down_has_no_counters() {
    let alarm = Alarm { name: "pool-silent".into(), message: "no answer".into() };
    let snapshot = |health| Snapshot {
        health,
        alarms: vec![alarm.clone()],
        alarms_came: vec![("pool-silent".into(), 1)],
        ..Snapshot::default()
    };
    let text = |health| Metrics::default().render(Some(&snapshot(health)));
    let unknown = ["stele_repaired_total", "stele_scrubbed_bytes_total", "stele_pool_free_bytes", "stele_versions"];
    for name in unknown {
        assert!(text(Health::ReadOnly).contains(name) && !text(Health::Down).contains(name), "{name}");
    }
    for line in
        ["stele_pool_health 3", "stele_alarm{alarm=\"pool-silent\"} 1", "stele_alarms_total{alarm=\"pool-silent\"} 1"]
    {
        assert!(text(Health::Down).lines().any(|found| found == line), "{line}");
    }
}

/// Prometheus adds up a counter within one series.
#[test]
fn a_counter_of_a_drive_goes_on_in_its_series_when_its_state_changes() {
    let series = |state: &str| -> Vec<String> {
        let drive = DriveSample { drive: "d".into(), state: state.into(), read_errors: 3, ..DriveSample::default() };
        let text = Metrics::default().render(Some(&Snapshot { drives: vec![drive], ..Snapshot::default() }));
        let counters = text.lines().filter(|line| line.starts_with("stele_drive_") && line.contains("_total{"));
        counters.map(str::to_owned).collect()
    };
    assert_eq!(series("healthy").len(), 3);
    assert_eq!(series("healthy"), series("suspect"));
}

#[test]
fn every_series_has_help_and_is_documented() {
    let text = full();
    let document = include_str!("../../../../SEMANTICS/object.md");
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 20);
    for name in names {
        assert!(document.contains(&format!("`{name}`")), "{name} is not in SEMANTICS/object.md");
    }
    let helps = text.lines().filter(|line| line.starts_with("# HELP")).count();
    let types = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(helps, types);
}

#[test]
fn health_is_one_json_object() {
    let snapshot =
        Snapshot { alarms: vec![Alarm { name: "clock".into(), message: "set\n\"it\"".into() }], ..Snapshot::default() };
    assert_eq!(
        snapshot.health_json(),
        "{\"health\":\"healthy\",\"drives\":0,\"drives_online\":0,\"rebuilding\":false,\"alarms\":[{\"alarm\":\"clock\",\"message\":\"set\\n\\\"it\\\"\"}]}\n"
    );
}
