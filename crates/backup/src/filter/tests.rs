use super::*;

#[test]
fn patterns_match_as_in_restic() {
    let check = |patterns: &[&str], path: &str, excluded: bool| {
        let mut filter = Filter::default();
        patterns.iter().for_each(|pattern| filter.add(pattern, false).unwrap());
        assert_eq!(filter.excludes(path.as_bytes()), excluded, "{patterns:?} {path}");
    };
    check(&[], "a", false);
    check(&["*.o"], "src/main.o", true);
    check(&["*.o"], "src/main.c", false);
    check(&["*.o"], "src/.o", true);
    check(&["foo"], "a/foo", true);
    check(&["foo"], "a/food", false);
    check(&["foo/bar"], "x/foo/bar", true);
    check(&["foo/bar"], "foo/x/bar", false);
    check(&["foo/**/bar"], "foo/bar", true);
    check(&["foo/**/bar"], "foo/x/y/bar", true);
    check(&["/home/*/tmp"], "home/a/tmp", true);
    check(&["/home/*/tmp"], "x/home/a/tmp", false);
    check(&["/home/*/tmp"], "home/a/b/tmp", false);
    check(&["*", "!keep"], "keep", false);
    check(&["*", "!keep"], "other", true);
    check(&["!keep", "*"], "keep", true);
    check(&["f?o[0-9]"], "foo7", true);
    check(&["f?o[!0-9]"], "foo7", false);
    check(&["f?o[^0-9]"], "foox", true);
    check(&["[]x]"], "]", true);
    check(&["a\\*b"], "a*b", true);
    check(&["a\\*b"], "axb", false);
    check(&["\\[draft*"], "[draft] a", true);
    check(&["\\[draft*"], "draft a", false);
    check(&["[a-c][0-9]\\["], "b7[", true);
    check(&["./foo"], "a/foo", true);
    check(&["/./home/./a"], "home/a", true);
    check(&["/./home/./a"], "x/home/a", false);
    check(&["*", "!./keep"], "keep", false);
    check(&[".foo"], ".foo", true);
    check(&["a*b*c"], "aXbXbXc", true);
    check(&["a*b*c"], "aXbXbX", false);
}

#[test]
fn patterns_without_case_and_from_files() {
    let mut filter = Filter::default();
    filter.add_lines("# objects\n\n *.ISO \n", true).unwrap();
    assert!(filter.excludes(b"x/Disk.iso"));
    assert!(!filter.excludes(b"# objects"));
    filter.add("\u{c4}RZTE*", true).unwrap();
    assert!(filter.excludes("x/\u{c4}RZTE 2026".as_bytes()), "not even the same name matched");
    assert!(filter.excludes("\u{c4}rzte".as_bytes()));
    filter.add("K\u{130}", true).unwrap();
    assert!(filter.excludes("k\u{130}".as_bytes()));
    filter.add("[A-C]?", true).unwrap();
    assert!(filter.excludes(b"b\xff") && filter.excludes(b"Bx"));
    for wrong in ["", "/", "!", ".", "./", "a[b", "a[b]c[d", "a\\[b[c", &"x".repeat(5000)] {
        assert!(filter.add(wrong, false).is_err(), "{wrong:?}");
    }
}

/// It would match nothing, and what it names would be stored.
#[test]
fn a_pattern_with_two_dots_is_refused() {
    for wrong in ["../foo", "/home/../tmp", "a/..", "!../keep", ".."] {
        let Err(BackupError::Invalid(told)) = Filter::default().add(wrong, false) else { panic!("{wrong}") };
        assert!(told.starts_with(&format!("pattern '{wrong}': no path")), "{told}");
    }
    let mut filter = Filter::default();
    filter.add("..foo", false).unwrap();
    filter.add("a..b/...", false).unwrap();
    assert!(filter.excludes(b"x/..foo") && filter.excludes(b"a..b/..."));
}

#[test]
fn a_pattern_has_any_bytes_that_a_name_has() {
    let mut filter = Filter::default();
    filter.add_lines(b"n\xffx\r\n# \xff\n*.\xfe", false).unwrap();
    assert!(filter.excludes(b"a/n\xffx") && filter.excludes(b"b.\xfe"));
    assert!(!filter.excludes("n\u{fffd}x".as_bytes()) && !filter.excludes(b"# \xff"));
    let Err(BackupError::Invalid(told)) = filter.add(b"[\xff", false) else { panic!("an open class") };
    assert!(told.contains("'[\u{fffd}'"), "{told}");
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_pattern() {
    let mut filter = Filter::default();
    filter.add_lines("\u{feff}/home/tmp\r\n*.o\r\n", false).unwrap();
    assert!(filter.excludes(b"home/tmp") && filter.excludes(b"a.o"));
    // Behind the beginning it is one of a name.
    filter.add_lines("x\n\u{feff}y\n", false).unwrap();
    assert!(!filter.excludes(b"y"));
}

#[test]
fn no_pattern_takes_exponential_time() {
    let mut filter = Filter::default();
    filter.add("a*".repeat(500), false).unwrap();
    filter.add("**/a/".repeat(200), false).unwrap();
    assert!(!filter.excludes("a".repeat(499).as_bytes()));
    assert!(!filter.excludes("a/".repeat(199).as_bytes()));
}
