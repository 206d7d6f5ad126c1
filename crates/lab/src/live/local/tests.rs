use super::*;
use crate::live::target::Target;

const WHEN: Left = Left::Changed(1_795_993_273_000_000_001);

#[test]
fn a_mark_is_read_as_it_was_written_also_by_former_versions() {
    for (text, filled, checked, ratios) in [
        ("0", 0, None, None),
        ("4096", 4096, None, None),
        ("4096 7", 4096, Some(7), None),
        ("4096 - 100 200", 4096, None, Some((100, 200))),
        ("4096 7 400 100", 4096, Some(7), Some((400, 100))),
        ("4096 7 400", 4096, Some(7), None),
        ("4096 7 400 x", 4096, Some(7), None),
    ] {
        let mark = Mark { filled, checked, ratios, left: Left::Unknown };
        assert_eq!(Mark::parse(text), Some(mark), "{text}");
        if ratios.is_some() || checked.is_none() {
            assert_eq!(Mark::parse(&mark.text()), Some(mark), "{text}");
        }
    }
    for (text, left) in [("4096 - 100 100 +", Left::InUse), ("4096 7 100 100 1795993273000000001", WHEN)] {
        let mark = Mark::parse(text).unwrap();
        assert_eq!((mark.left, mark.text().as_str()), (left, text));
    }
    for text in ["", "x", "-1", " 4096", "18446744073709551616"] {
        assert_eq!(Mark::parse(text), None, "{text}");
    }
    let (plain, checked) = (Content::default(), Content { verify: true, seed: 7, ..Content::default() });
    let serves = |text: &str, content: Content| Mark::parse(text).unwrap().serves(4096, content);
    assert!(serves("4096 - 100 100", plain) && serves("4096 7 100 100", plain));
    assert!(serves("4096 7 100 100", checked) && !serves("4096 8 100 100", checked));
    assert!(!serves("4096 7", checked) && !serves("4096", plain), "nobody knows how they compress");
    assert!(!serves("4095 - 100 100", plain) && !serves("4096 - 400 100", plain));
}

#[test]
fn what_others_wrote_into_a_file_of_the_laboratory_stays() {
    let path = std::env::temp_dir().join(format!("stele-lab-others-{}", std::process::id()));
    let opening = Opening { size: Some(Bytes(MIB)), writes: true, ..Opening::default() };
    let target = Target::Path(path.clone());
    let open = |opening: Opening| target.open(opening, &mut |_, _| true);
    open(opening).unwrap().remove().unwrap();
    // A second run, and one that is killed.
    open(opening).unwrap().remove().unwrap();
    drop(open(opening).unwrap());
    open(opening).unwrap().remove().unwrap();
    // `cp` keeps the file, and with it the mark.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"records", 0).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(5)).unwrap();
    for wanted in [opening, Opening { size: Some(Bytes(2 * MIB)), writes: false, ..opening }] {
        let refused = open(wanted).map(|ready| ready.size);
        assert!(matches!(&refused, Err(LabError::Refused(why)) if why.contains("another program")), "{refused:?}");
    }
    // A run that only reads may use it, and changes nothing of this.
    open(Opening { writes: false, ..opening }).unwrap().remove().unwrap();
    assert!(open(opening).is_err() && std::fs::read(&path).unwrap().starts_with(b"records"));
    open(Opening { destroy: true, ..opening }).unwrap().remove().unwrap();
    assert!(open(opening).is_ok());
    std::fs::remove_file(&path).unwrap();
}

/// What writes beside it would be reported as damage.
#[test]
fn a_run_that_checks_its_reads_keeps_writers_off_its_file() {
    for place in [std::env::temp_dir(), "/dev/shm".into()] {
        let path = place.join(format!("stele-lab-kept-off-{}", std::process::id()));
        let content = Content { verify: true, ..Content::default() };
        let opening = Opening { size: Some(Bytes(MIB)), writes: true, ..Opening::default() };
        let target = Target::Path(path.clone());
        let open = |opening: Opening| target.open(opening, &mut |_, _| true);
        let refused = |opening: Opening| {
            let found = open(opening).map(|ready| ready.size);
            assert!(matches!(&found, Err(LabError::Refused(why)) if why.contains("in use by another")), "{found:?}");
        };
        // While it is filled, too.
        let mut tried = false;
        let checked = target.open(Opening { content, ..opening }, &mut |_, _| {
            refused(Opening { destroy: true, ..opening });
            tried = true;
            true
        });
        let checked = checked.unwrap();
        assert!(tried);
        refused(opening);
        refused(Opening { content, destroy: true, ..opening });
        drop(open(Opening { writes: false, ..opening }).unwrap());
        checked.remove().unwrap();
        open(opening).unwrap().remove().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_device_that_may_only_be_read_is_refused_before_a_write() {
    let devices = std::env::temp_dir().join(format!("stele-lab-devices-{}", std::process::id()));
    // Any device will do whose number is known.
    let null = File::open("/dev/null").unwrap();
    std::fs::create_dir_all(devices.join("1:3")).unwrap();
    let refused = [None, Some("0\n"), Some("1\n")].map(|text| {
        if let Some(text) = text {
            std::fs::write(devices.join("1:3/ro"), text).unwrap();
        }
        refuse_read_only(&null, Path::new("/dev/x"), &devices)
    });
    std::fs::remove_dir_all(&devices).unwrap();
    let only_read = LabError::Refused("/dev/x: may only be read".into());
    assert_eq!(refused, [Ok(()), Ok(()), Err(only_read)]);
}

#[test]
fn an_empty_file_is_not_filled_without_a_size() {
    let path = std::env::temp_dir().join(format!("stele-lab-empty-{}", std::process::id()));
    std::fs::write(&path, b"").unwrap();
    let said = |size, writes| {
        let opening = Opening { size, writes, ..Opening::default() };
        Target::Path(path.clone()).open(opening, &mut |_, _| true).unwrap_err().to_string()
    };
    let (write, read) = (said(None, true), said(Some(Bytes(MIB)), false));
    std::fs::remove_file(&path).unwrap();
    assert!(write.contains("is empty; say how large"), "{write}");
    assert!(read.contains("is empty, and is not filled"), "{read}");
}

#[test]
fn a_file_that_cannot_fit_is_refused_before_anything_is_written() {
    let path = std::env::temp_dir().join(format!("stele-lab-room-{}", std::process::id()));
    let opening = Opening { size: Some(Bytes(1 << 60)), writes: true, ..Opening::default() };
    for target in [Target::Path(path.clone()), Target::Directory(path.clone())] {
        let opened = target.open(opening, &mut |_, _| -> bool { panic!("something was written") });
        let refused = opened.map(|ready| ready.size);
        assert!(matches!(&refused, Err(LabError::Full(why)) if why.contains("has room for")), "{refused:?}");
        assert!(!path.exists(), "{target}");
    }
}

#[test]
fn a_file_is_flushed_while_it_is_filled() {
    let path = Path::new("/dev/shm").join(format!("stele-lab-flushed-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).unwrap();
    let mut lengths = Vec::new();
    let mut flush = |file: &File| file.metadata().map(|found| lengths.push(found.len()));
    let size = Bytes(5 * MIB);
    let filled = write_parts(&file, &path, size, (Content::default(), None), (2 * MIB, &mut flush), &mut |_, _| true);
    let length = file.metadata().unwrap().len();
    drop(std::fs::remove_file(&path));
    assert_eq!((filled, length, lengths), (Ok(()), 5 * MIB, vec![2 * MIB, 4 * MIB]));
    assert!(FLUSHED.is_multiple_of(MIB), "progress is looked at behind each MiB");
}

/// Looked at, and not opened for writing.
#[test]
fn a_file_of_the_system_is_not_written_over_whatever_is_said() {
    for destroy in [false, true] {
        let refused = may_write(Path::new("/etc/passwd"), destroy);
        assert!(matches!(&refused, Err(LabError::Refused(why)) if why.contains("never written over")), "{refused:?}");
    }
}
