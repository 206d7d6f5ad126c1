use super::*;

#[test]
fn columns_line_up_whatever_their_cells_hold() {
    let mut table = Table::new(&[("drive", Align::Left), ("size", Align::Right)]);
    table.row(vec!["a-long-name".into(), "1".into()]);
    table.row(vec!["\u{1b}[32mb\u{1b}[0m".into(), "1000".into()]);
    assert_eq!(table.render(), "drive        size\na-long-name     1\n\u{1b}[32mb\u{1b}[0m            1000\n");
}

#[test]
fn wide_and_joined_letters_take_their_columns_of_a_terminal() {
    let mut table = Table::new(&[("volume", Align::Left), ("size", Align::Right)]);
    for name in ["\u{6f22}\u{5b57}\u{5bb9}\u{91cf}", "u\u{308}bung", "plain"] {
        table.row(vec![name.into(), "1 GiB".into()]);
    }
    let text = table.render();
    let rows = "volume     size\n\u{6f22}\u{5b57}\u{5bb9}\u{91cf}  1 GiB\nu\u{308}bung     1 GiB\nplain     1 GiB\n";
    assert_eq!(text, rows);
    let cut = elided("\u{6f22}\u{5b57}\u{5bb9}\u{91cf}\u{6f22}\u{5b57}\u{5bb9}\u{91cf}", 9);
    assert!(width(&cut) <= 9 && cut.starts_with('\u{6f22}') && cut.ends_with('\u{91cf}'), "{cut}");
}

#[test]
fn spans_read_as_people_write_them() {
    assert_eq!(span(59), "59 s");
    assert_eq!(span(3_725), "1 h 2 min");
    assert_eq!(bar(1, 2), "[##########..........]");
    assert_eq!(bar(0, 0), "[....................]");
}

#[test]
fn a_table_fits_eighty_columns_whatever_its_texts_are() {
    let mut table = Table::new(&[("n", Align::Right), ("path", Align::Left), ("note", Align::Left)]);
    let path = format!("/dev/disk/by-id/{}-part1", "x".repeat(90));
    table.row(vec!["1".into(), path, "short".into()]);
    table.row(vec!["2".into(), "/dev/sda".into(), "y".repeat(70)]);
    let text = table.render();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("-part1") && text.contains("/dev/disk") && text.contains("/dev/sda"), "{text}");
}

#[test]
fn what_people_copy_into_commands_is_never_cut() {
    let mut table = Table::new(&[("access key", Align::Whole), ("name", Align::Left), ("created", Align::Whole)]);
    // It is wider than the text that is cut.
    let (key, time) = ("STELE7QK2M5X4R9VWB3C/of-a-class-and-a-bucket", "2026-11-24T02:30:00Z");
    table.row(vec![key.into(), "n".repeat(24), time.into()]);
    let text = table.render();
    assert!(text.contains(key) && text.contains(time) && text.contains('\u{2026}'), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_table_that_cannot_fit_becomes_records() {
    let heads = ["bucket", "versioning", "retention", "versions", "bytes", "quota", "unfinished", "protection"];
    let mut table = Table::new(&heads.map(|head| (head, Align::Whole)));
    table.row((0..8).map(|column| format!("a-value-{column}")).collect());
    table.row((0..8).map(|column| if column == 5 { String::new() } else { format!("other-{column}") }).collect());
    let text = table.render();
    assert!(text.starts_with("bucket      a-value-0\nversioning  a-value-1\n"), "{text}");
    assert!(text.contains("protection  a-value-7\n\nbucket      other-0\n") && !text.contains("other-5"), "{text}");
    assert_eq!(text.matches("quota").count(), 1, "{text}");
}
