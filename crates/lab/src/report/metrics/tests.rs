use super::*;

#[test]
fn text_that_is_cut_or_wrapped_fits_and_says_all_of_its_words() {
    let text =
        "The response of an access is the time from its intended start to aVeryLongWordWithoutAnyBlankInIt’s reading";
    for wide in [40.0, 77.0, 150.0, 4000.0] {
        let lines = wrapped(Face::Plain, 10.0, text, wide);
        assert!(lines.iter().all(|line| width(Face::Plain, 10.0, line) <= wide), "{lines:?}");
        let letters = |text: &str| text.chars().filter(|letter| *letter != ' ').collect::<String>();
        assert_eq!(letters(&lines.concat()), letters(text));
        assert!(width(Face::Bold, 10.0, &cut(Face::Bold, 10.0, text, wide)) <= wide);
    }
}

#[test]
fn letters_are_those_of_the_code_page_or_written_another_way() {
    assert_eq!(encoded("± 1 “µ” ≤ × 漢"), b"\xb1 1 \x93\xb5\x94 <= \xd7 ?");
    // Of Adobe's metrics: "Stele 20 ms" in Helvetica.
    assert_eq!(width(Face::Plain, 1000.0, "Stele"), f64::from(667 + 278 + 556 + 222 + 556));
    assert_eq!(width(Face::Code, 10.0, "Stele"), 30.0);
}
