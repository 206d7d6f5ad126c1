use super::*;

#[test]
fn columns_line_up_whatever_their_cells_hold() {
    let mut table = Table::new(&[("drive", Align::Left), ("size", Align::Right)]);
    table.row(vec!["a-long-name".into(), "1".into()]);
    table.row(vec!["\u{1b}[32mb\u{1b}[0m".into(), "1000".into()]);
    assert_eq!(table.render(), "drive        size\na-long-name     1\n\u{1b}[32mb\u{1b}[0m            1000\n");
}

#[test]
fn spans_read_as_people_write_them() {
    assert_eq!(span(59), "59 s");
    assert_eq!(span(3_725), "1 h 2 min");
    assert_eq!(bar(1, 2), "[##########..........]");
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
