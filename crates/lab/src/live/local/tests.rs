use super::*;

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
        let mark = Mark { filled, checked, ratios };
        assert_eq!(Mark::parse(text), Some(mark), "{text}");
        if ratios.is_some() || checked.is_none() {
            assert_eq!(Mark::parse(&mark.text()), Some(mark), "{text}");
        }
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
