use super::*;

fn document(text: Text) -> Document {
    let mut document = Document::new("Two arrays", "a test");
    let mut table = Table::new("Rates").left("array", "array").right("rate", "accesses/s").right("note", "");
    table.row("old", vec![Entry::text("old"), Entry::number(2351.0), Entry::absent()]);
    table.row("new", vec![Entry::text("new"), Entry::number(5432.0), Entry::text("ours")]);
    document.paragraph(text);
    document.table(table);
    document
}

fn said(text: Text) -> Result<String, String> {
    let document = document(text.clone());
    let sound = document.check().map_err(|error| error.to_string())?;
    let spans = sound.spans(&text).into_iter().map(|said| match said {
        Said::Plain(text) | Said::Code(text) | Said::Figure(text, _) => text,
    });
    Ok(spans.collect())
}

#[test]
fn a_sentence_says_what_stands_in_the_table() {
    let (new, old) = (Place::new("new", "rate"), Place::new("old", "rate"));
    for (text, wanted) in [
        (Text::from("It does ").cell_as(&new, " a second").say("."), "It does 5,432 a second."),
        (Text::default().ratio_shown(&new, &old), "5,432 / 2,351 = 2.31"),
        (Text::default().change(&old, &new), "-57 %"),
        (Text::default().cell(&Place::new("new", "note")), "ours"),
    ] {
        assert_eq!(said(text).unwrap(), wanted);
    }
}

#[test]
fn a_sentence_about_a_place_that_is_not_there_is_an_error_that_names_it() {
    for (text, why) in [
        (Text::default().cell(&Place::new("newest", "rate")), "row 'newest', column 'rate', which is not there"),
        (Text::default().cell(&Place::new("new", "bytes")), "row 'new', column 'bytes', which is not there"),
        (Text::default().ratio(&Place::new("new", "note"), &Place::new("old", "rate")), "'ours', which is no figure"),
    ] {
        let found = said(text).unwrap_err();
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn rows_of_one_name_and_rows_that_do_not_fit_their_columns_are_errors() {
    let mut twice = document(Text::default());
    let again = twice.blocks.last().cloned().unwrap();
    twice.blocks.push(again);
    assert!(twice.check().err().unwrap().to_string().contains("two places are called 'old-array'"));
    let mut short = document(Text::default());
    if let Some(Block::Table(table)) = short.blocks.last_mut() {
        table.row("third", vec![Entry::absent()]);
    }
    assert!(short.check().err().unwrap().to_string().contains("row 'third' has 1 entries for 3 columns"));
}

#[test]
fn multipliers_are_ratios_to_their_base() {
    let values = [("8 %".to_owned(), 5000.0), ("100 %".to_owned(), 4000.0)];
    let table = Table::of_multipliers("Stroke", "share of the drive", "stroke", &values, 1);
    let texts: Vec<&str> = table.rows.iter().map(|row| row.entries[2].text.as_str()).collect();
    assert_eq!(texts, ["1.25", "1.00"]);
}
