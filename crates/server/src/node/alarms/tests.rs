use super::*;

fn alarm(drive: u32, message: &str) -> AlarmView {
    AlarmView {
        at: 1_700_000_000,
        severity: "warning".into(),
        kind: "drive-failed".into(),
        drive: Some(drive),
        since: Some(1_699_999_000),
        message: message.into(),
        next: format!("stele pool replace {drive} PATH"),
    }
}

#[test]
fn a_server_finds_the_alarms_of_the_one_before_it_one_json_object_a_line() {
    let dir = std::env::temp_dir().join(format!("stele-alarms-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let first = Alarms::of_server(&dir);
    (0..150).for_each(|drive| first.keep(alarm(drive, "50 reads failed")));
    drop(first);
    let file = dir.join("alarms.jsonl");
    let text = std::fs::read_to_string(&file).expect("the file");
    let line: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    for field in ["kind", "severity", "drive", "since", "message", "next"] {
        assert!(line.get(field).is_some(), "{line} lacks {field}");
    }
    // A crash cut the last line off, within a character.
    std::fs::write(&file, [text.as_bytes(), b"{\"at\":17\xc3"].concat()).expect("written");
    let second = Alarms::of_server(&dir);
    let read = second.list();
    assert_eq!((read.len(), read[0].drive, read[98].drive), (99, Some(51), Some(149)));
    // The next alarm begins a line of its own.
    second.keep(alarm(150, "50 reads failed"));
    drop(second);
    let third = Alarms::of_server(&dir).list();
    assert_eq!((third.len(), third.last().and_then(|alarm| alarm.drive)), (99, Some(150)));
    std::fs::remove_dir_all(&dir).expect("removed");
}
