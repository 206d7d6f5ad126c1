use stele_server::api::pool::{CodeView, ObjectsView};

use super::*;

const TIB: u64 = 1 << 40;

pub fn drive(number: u32) -> DriveView {
    DriveView {
        smart: None,
        drive: number,
        identity: String::new(),
        path: format!("/dev/disk/by-id/ata-WDC_WD120EFBX-68B0EN0_D7GX{number:08}"),
        serial: Some(format!("D7GX{number:08}")),
        by_id: Some(format!("/dev/disk/by-id/ata-WDC_WD120EFBX-68B0EN0_D7GX{number:08}")),
        enclosure: number / 4,
        health: "healthy".to_owned(),
        leaving: Some(false),
        size: 12 * TIB,
        used: 11 * TIB,
        read_errors: 1000,
        write_errors: 0,
        digest_errors: 23,
        repaired: 1023,
        note: String::new(),
        since: None,
        done: String::new(),
        next: String::new(),
        alarm: String::new(),
    }
}

pub fn full() -> StatusView {
    let mut status: StatusView = serde_json::from_value(serde_json::json!({
        "pool": "", "name": "archive", "epoch": 1, "state": "damaged", "drives": [], "raw_bytes": 288 * TIB,
        "used_bytes": 270 * TIB,
        "spare_bytes": 24 * TIB, "spare_used_bytes": 12 * TIB, "log_used_bytes": 1u64 << 30,
        "log_size_bytes": 1u64 << 32, "dirty_bytes": 1 << 20, "rebuild": null,
        "copy_back": null, "scrub": null, "moving": null, "removed": [], "scrubs_finished": 3, "scrub_damage_found": 10_000,
        "scrub_damage_repaired": 10_000, "lost_stripes": 1036, "unreadable_stripes": 2645, "exposed_stripes": 123_456,
        "rebuilt": 1_000_000, "repaired": 1_000_000, "alarms": [], "standing": [], "counters": {}
    }))
    .unwrap();
    status.drives = (0..24).map(drive).collect();
    let code = |code: &str| CodeView {
        code: code.to_owned(),
        strip: 65536,
        volumes: 12,
        snapshots: if code == "8+2" { 12 } else { 0 },
        promised: 211 * TIB,
        allocated: 123 * TIB + (1 << 39),
        free: 99 * TIB + (1 << 39),
    };
    status.space = SpaceView {
        codes: vec![code("mirror-4"), code("8+2")],
        promised_raw: 300 * TIB,
        overpromised_raw: 36 * TIB,
        objects: Some(ObjectsView { size: 211 * TIB, live: 123 * TIB, free: 88 * TIB, full_percent: 59 }),
    };
    status
}

#[test]
fn a_full_pool_is_shown_in_eighty_columns() {
    let text = render(&full());
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    for words in [
        "36 TiB more than fits beside spare space",
        "59 % full",
        "room for",
        "2645 stripes cannot be read, 1036",
        "stele affected",
        "D7GX00000023",
    ] {
        assert!(text.contains(words), "'{words}' is missing:\n{text}");
    }
}

#[test]
fn the_lines_of_the_head_begin_below_each_other() {
    let mut status = full();
    (status.scrub_damage_found, status.exposed_stripes, status.crowded_stripes) = (1, 1, 1);
    let text = render(&status);
    let head: Vec<&str> = text.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    // The longest name is that of a code.
    assert!(head.iter().any(|line| line.starts_with("  mirror-4 123.5 TiB stored in 12 volumes")), "{text}");
    for line in &head {
        assert!(line.get(10..11) == Some(" ") && line.get(11..12) != Some(" "), "{line}");
    }
    for words in [
        "12 volumes of 211 TiB, 12 snapshots; 99.5 TiB more fit",
        "found 1 damaged place and",
        "1 stripe does not",
        "; 1 moves",
    ] {
        assert!(text.contains(words), "'{words}' is missing:\n{text}");
    }
}

#[test]
fn a_drive_without_a_number_is_named_by_its_path() {
    let mut status = full();
    status.drives.truncate(3);
    let new = DriveView { path: "/dev/new".to_owned(), note: "not all shards have it".to_owned(), ..drive(3) };
    let smart = serde_json::from_value(serde_json::json!({ "passed": true })).unwrap();
    status.drives.push(DriveView { drive: stele_array::NOT_A_MEMBER, smart: Some(smart), ..new });
    let text = render(&status);
    assert!(text.contains("/dev/new: not all shards have it"), "{text}");
    assert!(!text.contains(&stele_array::NOT_A_MEMBER.to_string()), "{text}");
}
