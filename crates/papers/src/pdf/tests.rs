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
    let sheets = laid_out(&document).unwrap().sheets;
    assert_eq!(sheets.iter().map(|sheet| count(&sheet.content, "Q")).sum::<usize>(), 700 * 16);
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

/// A number of two bytes, or of four, at this place of a font's file.
fn word(data: &[u8], at: usize) -> usize {
    usize::from(data[at]) << 8 | usize::from(data[at + 1])
}

fn long(data: &[u8], at: usize) -> usize {
    word(data, at) << 16 | word(data, at + 2)
}

fn table_of(data: &[u8], name: &[u8; 4]) -> usize {
    let entry = (0..word(data, 4)).map(|number| 12 + 16 * number).find(|at| &data[*at..*at + 4] == name).unwrap();
    long(data, entry + 8)
}

/// The number of a letter's shape, from the table of Unicode segments.
fn shape_of(data: &[u8], letter: char) -> usize {
    let cmap = table_of(data, b"cmap");
    let of_windows = |entry: &usize| (word(data, *entry), word(data, entry + 2)) == (3, 1);
    let entry = (0..word(data, cmap + 2)).map(|number| cmap + 4 + 8 * number).find(of_windows).unwrap();
    let at = cmap + long(data, entry + 4);
    let (twice, code) = (word(data, at + 6), letter as usize);
    let segment = (0..twice).step_by(2).find(|segment| word(data, at + 14 + segment) >= code).unwrap();
    let (start, delta) = (word(data, at + 16 + twice + segment), word(data, at + 16 + 2 * twice + segment));
    let place = at + 16 + 3 * twice + segment;
    match word(data, place) {
        _ if start > code => 0,
        0 => (code + delta) % 65_536,
        offset => (word(data, place + offset + 2 * (code - start)) + delta) % 65_536,
    }
}

#[test]
fn fonts_are_embedded_and_as_wide_as_their_letters() {
    use stele_lab::report::metrics::{encoded, width_of};
    let file = file(&document(5)).unwrap();
    assert_eq!((count(&file, "/FontFile2"), count(&file, "/Type /FontDescriptor")), (3, 3));
    assert_eq!((count(&file, "/Subtype /TrueType"), count(&file, "/Subtype /Type1")), (3, 0));
    for font in &font::FONTS {
        let data = font.data;
        let (units, metrics) = (word(data, table_of(data, b"head") + 18), table_of(data, b"hmtx"));
        let count = word(data, table_of(data, b"hhea") + 34);
        for letter in (' '..='~').chain('\u{a0}'..='\u{ff}').chain("…‘’“”•–—™€".chars()) {
            let shape = shape_of(data, letter);
            assert!(shape > 0, "'{letter}' is missing");
            let wide = word(data, metrics + 4 * shape.min(count - 1)) as f64 * 1000.0 / units as f64;
            let [byte] = encoded(&letter.to_string())[..] else { panic!("'{letter}' is no single byte") };
            let said = f64::from(width_of(font.face, byte));
            assert!((wide - said).abs() <= 1.0, "'{letter}' is {wide} wide, and said to be {said}");
        }
    }
}

fn lines(title: &str) -> Chart {
    let series = |n: u32| Series {
        name: format!("series {n}"),
        points: (1..9).map(|x| (f64::from(x), f64::from(x * n))).collect(),
        marked: true,
    };
    Chart::lines(title, Axis::linear("x"), Axis::linear("y"), vec![series(1), series(2)])
}

#[test]
fn pages_have_no_gaps() {
    let words = "Every figure is the highest load that an array sustains at a mean response of 20 ms. ".repeat(5);
    for shift in (0..40).step_by(5) {
        let mut document = Document::new("Gaps", "");
        document.list((0..shift).map(|line| format!("line {line}")));
        for section in 0..6 {
            document.section(format!("Section {section}"));
            for part in 0..3 {
                document.part(format!("Part {part}"));
                document.paragraph(words.clone());
                document.chart(lines(&format!("Chart {section}-{part}")));
                let mut table = Table::new("Caption").left("name", "name");
                (0..6).for_each(|row| {
                    table.row(format!("{section} {part} {row}"), vec![Entry::text("text")]);
                });
                document.table(table);
                if part == 1 {
                    document.chart(lines("First of two"));
                    document.chart(lines("Second of two"));
                }
                document.paragraph(words.clone());
            }
        }
        let layout = laid_out(&document).unwrap();
        let used = |y: &f64| (y - TOP) / (BOTTOM - TOP);
        let worst = layout.ends.iter().map(used).fold(1.0, f64::min);
        assert!(worst > 0.7, "behind {shift} lines a page is used to {:.0} % only", worst * 100.0);
        let drawn = |what: &str| layout.sheets.iter().map(|sheet| count(&sheet.content, what)).sum::<usize>();
        for section in 0..6 {
            for part in 0..3 {
                assert_eq!(drawn(&format!("(Chart {section}-{part})")), 1, "behind {shift} lines");
            }
        }
        assert_eq!((drawn("(First of two)"), drawn("(Second of two)")), (6, 6));
    }
}

#[test]
fn contents_name_the_page_of_each_section() {
    let mut document = Document::new("Contents of it", "");
    document.byline = Some("Jane Roe, 24 November 2026".into());
    for section in 0..5 {
        document.section(format!("Section {section}"));
        document.list((0..30).map(|line| format!("line {line}")));
    }
    let layout = laid_out(&document).unwrap();
    let (first, pages) = (layout.sheets[0].content.clone(), layout.sheets.len());
    assert_eq!((count(&first, "(Contents)"), count(&first, "(Jane Roe, 24 November 2026)")), (1, 1));
    let page = |section: usize| {
        let title = format!("(Section {section})");
        layout.sheets.iter().rposition(|sheet| count(&sheet.content, &title) > 0).unwrap() + 1
    };
    assert!(page(4) > 2 && page(4) == pages, "{pages}");
    assert!((1..5).all(|section| count(&first, &format!("({}) Tj", page(section))) > 0));
    assert_eq!(layout.sheets[0].links.len(), 5);
    assert!(layout.sheets[0].links.iter().all(|link| layout.places.contains_key(&link.to)));
}
