use super::*;
use stele_lab::report::chart::{Axis, Chart, Series};
use stele_lab::report::document::{Entry, Place, Table, Text};

fn document(rows: usize) -> Document {
    let mut document = Document::new("Rates (of \\ all)", "20 November 2026");
    document.section("Summary");
    document.paragraph(
        Text::from("The last is ").cell_as(&Place::new(format!("row {}", rows - 1), "rate"), " a second").say("."),
    );
    let points = (1..50).map(|x| (f64::from(x), f64::from(x * x))).collect();
    let series = vec![Series { name: "one".into(), points, marked: true }];
    document.chart(Chart::lines("Rates", Axis::linear("x"), Axis::linear("y"), series));
    document.part("In full");
    let mut table = Table::new("All rates").left("name", "name of the row").right("rate", "accesses/s");
    for row in 0..rows {
        table.row(format!("row {row}"), vec![Entry::text(format!("number {row}")), Entry::number(row as f64)]);
    }
    document.table(table);
    document.code("stele lab run\n  --on x");
    document.note("Beware.");
    document
}

/// With a question mark for each byte that is not ASCII, so that offsets stay.
fn ascii(file: &[u8]) -> String {
    file.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect()
}

fn count(file: &[u8], what: &str) -> usize {
    file.windows(what.len()).filter(|part| *part == what.as_bytes()).count()
}

#[test]
fn a_long_table_goes_on_over_pages_under_its_head() {
    let file = file(&document(200)).unwrap();
    let pages = count(&file, "/Type /Page ");
    assert!((4..=8).contains(&pages), "{pages} pages");
    // The first page has room for little more than its chart.
    let heads = count(&file, "(name of the row)");
    assert!(heads >= pages - 1 && heads <= pages, "{heads} heads on {pages} pages");
    for row in 0..200 {
        assert_eq!(count(&file, &format!("(number {row})")), 1, "row {row}");
    }
    assert_eq!(count(&file, &format!("(1 / {pages})")), 1);
    assert_eq!(
        count(&file, "(Rates \\(of \\\\ all\\))"),
        1 + pages,
        "the title, and it again at the foot of each page"
    );
}

#[test]
fn every_object_begins_where_the_table_at_the_end_says() {
    let file = file(&document(60)).unwrap();
    let text = ascii(&file);
    let begin: usize = text.rsplit("startxref\n").next().unwrap().lines().next().unwrap().parse().unwrap();
    let table = &text[begin..];
    let places: Vec<usize> =
        table.lines().skip(2).filter(|line| line.ends_with(" n ")).map(|line| line[..10].parse().unwrap()).collect();
    assert!(places.len() > 10);
    for (number, place) in places.iter().enumerate() {
        assert!(text[*place..].starts_with(&format!("{} 0 obj\n", number + 1)), "object {}", number + 1);
    }
    let lengths = text.split("/Length ").skip(1);
    for part in lengths {
        let length: usize = part.split(' ').next().unwrap().parse().unwrap();
        let body = part.split_once("stream\n").unwrap().1;
        assert!(body[length..].starts_with("\nendstream"));
    }
}

#[test]
fn a_figure_in_a_sentence_leads_to_its_place_in_the_table() {
    let file = file(&document(100)).unwrap();
    let text = ascii(&file);
    assert!(text.contains("(99.0) Tj") && text.contains("(second) Tj"));
    let links: Vec<&str> = text.split("/Subtype /Link").skip(1).collect();
    assert_eq!(links.len(), 3, "of the figure, 'a' and 'second'");
    let page = |link: &str| link.split("/Dest [").nth(1).unwrap().split(' ').next().unwrap().parse::<usize>().unwrap();
    let kids = text.split("/Kids [").nth(1).unwrap().split(']').next().unwrap();
    let last = kids.trim().split(" 0 R").filter(|kid| !kid.is_empty()).last().unwrap().trim().parse::<usize>().unwrap();
    assert_eq!(page(links[0]), last, "{kids}");
}

#[test]
fn what_is_wider_than_the_page_is_broken_and_not_cut() {
    let mut document = Document::new("Wide", "");
    let long = "Q".repeat(700);
    document.code(long.clone());
    document.paragraph(long.clone());
    let mut table = (0..14).fold(Table::new(""), |table, n| table.left(&format!("c{n}"), "a title"));
    table.row("row", (0..14).map(|_| Entry::text(long.clone())).collect());
    document.table(table);
    let file = file(&document).unwrap();
    assert_eq!(count(&file, "Q"), 700 * 16);
}

#[test]
fn a_heading_stands_on_the_page_of_what_follows_it() {
    for lines in 0..60 {
        let mut document = Document::new("Headings", "");
        document.list((0..lines).map(|line| format!("line {line}")));
        document.section("Heading");
        document.part("Parting");
        let series = vec![Series { name: "one".into(), points: vec![(1.0, 1.0), (2.0, 2.0)], marked: true }];
        document.chart(Chart::lines("Charting", Axis::linear("x"), Axis::linear("y"), series));
        let sheets = laid_out(&document).unwrap().sheets;
        let page = |what: &str| sheets.iter().position(|sheet| count(&sheet.content, what) > 0).unwrap();
        let all = ["(Heading)", "(Parting)", "(Charting)"].map(page);
        assert!(all.iter().all(|page| *page == all[0]), "behind {lines} lines: pages {all:?}");
    }
}

#[test]
fn a_small_table_stands_on_one_page_with_its_heading() {
    for lines in 0..60 {
        let mut document = Document::new("Tables", "");
        document.list((0..lines).map(|line| format!("line {line}")));
        document.part("Parting");
        let mut table = Table::new("Caption").left("name", "name");
        for row in 0..15 {
            table.row(format!("row {row}"), vec![Entry::text(format!("number {row}"))]);
        }
        document.table(table);
        let sheets = laid_out(&document).unwrap().sheets;
        let on = |what: &str| sheets.iter().filter(|sheet| count(&sheet.content, what) > 0).count();
        let page = |what: &str| sheets.iter().position(|sheet| count(&sheet.content, what) > 0).unwrap();
        assert_eq!(on("(name)"), 1, "behind {lines} lines");
        let all = ["(Parting)", "(Caption)", "(number 0)", "(number 14)"].map(page);
        assert!(all.iter().all(|page| *page == all[0]), "behind {lines} lines: pages {all:?}");
    }
}
