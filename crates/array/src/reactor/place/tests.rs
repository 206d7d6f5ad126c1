use super::*;

#[test]
fn drives_are_written_as_path_and_enclosure() {
    let check = |text: &str, path: &str, enclosure| {
        assert_eq!(DrivePlace::parse(text), Ok(DrivePlace { path: path.into(), enclosure }), "{text}");
    };
    check("/dev/sda", "/dev/sda", None);
    check("/dev/sda@3", "/dev/sda", Some(3));
    check(" drives/a.img@0 ", "drives/a.img", Some(0));
    check("/mnt/me@home/a", "/mnt/me@home/a", None);
    check("/mnt/me@home/a@7", "/mnt/me@home/a", Some(7));
    check("/mnt/a@7@", "/mnt/a@7", None);
    for wrong in ["", "@3", "@", "a@99999999999"] {
        assert!(matches!(DrivePlace::parse(wrong), Err(ArrayError::Invalid(_))), "{wrong}");
    }
}

#[test]
fn a_list_is_whole_and_names_each_drive_once() {
    let list = "# shelf one\n/dev/a@1\n  /dev/b@1  # the new one\n\n/dev/c#d@2\n";
    let places = DrivePlace::parse_list(list).expect("a list");
    assert_eq!(places, [DrivePlace::new("/dev/a", 1), DrivePlace::new("/dev/b", 1), DrivePlace::new("/dev/c#d", 2)]);
    let check = |list: &str, word: &str| {
        let error = DrivePlace::parse_list(list).expect_err("must be refused").to_string();
        assert!(error.contains(word), "`{error}` should say `{word}`");
    };
    check("", "no drives");
    check("# only words\n", "no drives");
    check("/dev/a\n/dev/b\n/dev/a\n", "twice");
    check("/tmp\n/tmp/../tmp\n", "twice");
    check("/dev/a@1\n/dev/b\n", "/dev/b has none");
    check("/dev/a\n/dev/b@1\n", "/dev/a has none");
}

#[test]
fn identities_differ() {
    let [first, second] = [fresh_identity().expect("drawn"), fresh_identity().expect("drawn")];
    assert_ne!(first, second);
}

/// Drives may come later than the server starts, which then tries again.
#[test]
fn a_pool_without_any_drive_is_degraded_and_not_missing() {
    let away = DrivePlace::parse_list("/nowhere/a\n/nowhere/b\n/nowhere/c\n").expect("a list");
    for read_only in [false, true] {
        let error = open_files(&away, read_only).err().expect("no drive is there");
        assert!(matches!(&error, ArrayError::Degraded(text) if text.contains("/nowhere/c")), "{error:?}");
    }
}
