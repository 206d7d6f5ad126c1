use std::os::unix::fs::symlink;

use super::*;

/// A line as the sender writes it, as far as a file's beginning counts.
fn line(text: &str) -> String {
    format!("{}\"{text}\"", BEGINNINGS[0])
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("stele-events-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn a_full_file_turns_and_a_cut_line_is_ended() {
    let folder = folder("turn");
    let path = folder.join("events.jsonl");
    let mut file = EventFile::with_limit(path.clone(), 140);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let [first, second, third, fourth] = ["first", "second", "third", "fourth"].map(line);
    std::fs::write(&path, "{\"Rec").expect("a file");
    file.append(&[first.clone(), second.clone()]).expect("a line");
    let before = format!("{{\"Rec\n{first}\n{second}\n");
    assert_eq!(read("events.jsonl"), before);
    assert!(before.len() < 140 && before.len() + third.len() > 140, "the third line fills the file");
    file.append(std::slice::from_ref(&third)).expect("a line");
    file.append(std::slice::from_ref(&fourth)).expect("a line");
    assert_eq!(read("events.jsonl"), format!("{fourth}\n"));
    assert_eq!(read("events.jsonl.1"), format!("{before}{third}\n"));
    for number in 0..40 {
        let long = line(&format!("a line that fills a half of the file by itself, more or less: {number}"));
        file.append(&[long]).expect("a line");
    }
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 9);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn no_link_pipe_or_other_file_is_written() {
    let folder = folder("foreign");
    let (link, other, real) = (folder.join("link"), folder.join("other"), folder.join("real"));
    std::fs::write(&real, "{}\n").expect("a file");
    std::fs::write(&other, "[pool]\n").expect("a file");
    symlink(&real, &link).expect("a link");
    let pipe = folder.join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    for (path, why) in [(&link, "symbolic link"), (&pipe, "no regular file"), (&other, "does not begin")] {
        let refused = EventFile::with_limit(path.clone(), 1).append(&["{}".into()]);
        let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(why), "{}: {said}", path.display());
    }
    assert_eq!(std::fs::read(&real).expect("the file"), b"{}\n");
    assert_eq!(std::fs::read(&other).expect("the file"), b"[pool]\n");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 4, "nothing turned");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// Such as a signed head, counters, a key or alarms: each begins with `{`.
#[test]
fn no_other_file_of_json_is_written() {
    let folder = folder("json");
    let path = folder.join("other");
    let cut = format!("{{\n{}", line("after a cut"));
    for other in
        ["{}\n", "{\n  \"versions\": 1\n}\n", "{\"store\":\"x\",\"records\":7}", "{\"Records\":[]}\n", "\n{}\n"]
    {
        std::fs::write(&path, other).expect("a file");
        let refused = EventFile::new(path.clone()).append(&[line("event")]).expect_err(other).to_string();
        assert!(refused.contains("does not begin with an event"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), other);
    }
    for own in [line("event").as_str(), "{\"Service\":\"Amaz", cut.as_str()] {
        std::fs::write(&path, own).expect("a file");
        EventFile::new(path.clone()).append(&[line("event")]).expect(own);
    }
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn the_folder_is_forced_to_disk_once_and_after_each_turn() {
    let folder = folder("named");
    // The file is there already: an earlier process may have made it and ended before it forced the
    // folder.
    std::fs::write(folder.join("events"), line("first") + "\n").expect("a file");
    let mut file = EventFile::with_limit(folder.join("events"), 8);
    assert!(file.named.is_none());
    file.append(&[line("second")]).expect("a line");
    assert!(file.named.is_some());
    file.turn().expect("a turn");
    assert!(file.named.is_none());
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// The name of a new file is not on disk before its folder is: a crash would take its events, which
/// the catalog has no more.
#[test]
fn a_file_that_logrotate_took_away_is_made_anew_and_named() {
    let folder = folder("rotated");
    let path = folder.join("events");
    let mut file = EventFile::new(path.clone());
    file.append(&[line("first")]).expect("a line");
    let first = file.named;
    std::fs::rename(&path, folder.join("events-20270115")).expect("a rotation");
    file.append(&[line("second")]).expect("a line");
    assert!(file.named.is_some() && file.named != first, "the folder was forced to disk for the new file");
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), line("second") + "\n");
    // An empty file, as `create` of logrotate leaves it, is new as well, whatever its number.
    file.named = first;
    std::fs::File::create(&path).expect("an empty file");
    file.append(&[line("third")]).expect("a line");
    assert_ne!(file.named, first);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}
