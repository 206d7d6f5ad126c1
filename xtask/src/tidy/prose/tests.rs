use super::*;

fn check_text(text: &str, expected: &[&str]) {
    let mut faults = Vec::new();
    check("A.md", text, &mut faults);
    assert_eq!(faults.len(), expected.len(), "{text}: {faults:?}");
    for (fault, part) in faults.iter().zip(expected) {
        assert!(fault.contains(part), "{fault} lacks {part}");
    }
}

fn words(count: usize) -> String {
    vec!["word"; count].join(" ")
}

/// A paragraph with short lines.
fn wrapped(count: usize) -> String {
    vec!["word"; count].chunks(8).map(|line| line.join(" ")).collect::<Vec<String>>().join("\n")
}

#[test]
fn lines_of_prose_are_bounded() {
    let long = "x".repeat(101);
    check_text(&"x".repeat(100), &[]);
    check_text(&"é".repeat(100), &[]);
    check_text(&long, &["A.md:1: 101 columns"]);
    check_text(&format!("- {long}"), &["103 columns"]);
    check_text(&format!("a\n{long}"), &["A.md:2: "]);
    check_text(&format!("| {long} |"), &[]);
    check_text(&format!("# {long}"), &[]);
    check_text(&format!("    {long}"), &[]);
    check_text(&format!("```\n{long}\n```"), &[]);
    check_text(&format!("```\n```\n{long}"), &["A.md:3: 101 columns"]);
    check_text(&format!("see [this]({long})"), &[]);
}

#[test]
fn sentences_are_bounded() {
    check_text(&format!("{}.", wrapped(35)), &[]);
    check_text(&format!("Title:\n\n{}.", wrapped(36)), &["A.md:3: a sentence of 36 words"]);
    // The stop ends a sentence, at the end of a line or within it.
    check_text(&format!("{}. Word {}.", wrapped(30), wrapped(10)), &[]);
    check_text(&format!("{}.\nWord {}.", wrapped(30), wrapped(10)), &[]);
    check_text(&format!("{}. `word` {}.", wrapped(30), wrapped(10)), &[]);
    // An abbreviation does not end it, nor does a name with a stop in it.
    check_text(&format!("{} etc. word {}.", wrapped(30), wrapped(10)), &["a sentence of 42 words"]);
    check_text(&format!("{} a.rs {}.", wrapped(30), wrapped(10)), &["a sentence of 41 words"]);
    // Items, paragraphs, tables and code are separate.
    check_text(&format!("- {}\n- {}", words(15), words(15)), &[]);
    check_text(&format!("1. {}\n2. {}", words(15), words(15)), &[]);
    check_text(&format!("{}\n\n{}", wrapped(30), wrapped(10)), &[]);
    check_text(&format!("{}\n```\n{}\n```\n{}", wrapped(30), wrapped(90), wrapped(10)), &[]);
    check_text(&format!("| {} |", words(50)), &[]);
    // An indented line continues an item, however far it is indented; a span of code is one word.
    check_text(&format!("- {}\n     {}", words(18), words(18)), &["a sentence of 36 words"]);
    check_text(&format!("{}\n`one two three four five`.", wrapped(34)), &[]);
}

#[test]
fn riddles_are_named() {
    check_text("Whoever asks is told.", &["A.md:1: 'whoever'"]);
    check_text("The rest is for\nsomebody, else.", &["A.md:2: 'somebody'"]);
    check_text("This is that\nwhich was.", &["'that which'"]);
    check_text("What nobody waits for.", &["'what nobody'", "'nobody'"]);
    check_text("The user `nobody` is not a riddle.", &[]);
    check_text("    whoever\n", &[]);
}

#[test]
fn the_list_names_files_and_folders() {
    assert!(is_kept("ARCHITECTURE.md"));
    assert!(is_kept("docs/decisions/001-a.md"));
    assert!(!is_kept("docs/decisions/picture.svg"));
    assert!(!is_kept("crates/ARCHITECTURE.md"));
    assert!(!is_kept("NOTES.md"));
}

/// Other checks read paths and commands line by line.
#[test]
fn spans_of_code_stay_on_a_line() {
    check_text("Ask `stele\npool status` for it.", &["A.md:1: a span of code", "A.md:2: a span of code"]);
    check_text("Ask `stele pool status` for it.", &[]);
    check_text("```\n`\n```", &[]);
}

/// A missing path in the list would leave its rule without a document.
#[test]
fn every_document_of_the_list_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for kept in KEPT {
        assert!(root.join(kept).exists(), "{kept}");
    }
}

#[test]
fn comments_keep_the_rules_of_prose() {
    let found = |text: &str| {
        let mut faults = Vec::new();
        check_comments("a.rs", text, &mut faults);
        faults
    };
    let (long, words) = ("x".repeat(94), |count: usize| vec!["a"; count].join(" "));
    for (text, expected) in [
        (format!("    // {long}"), Some("a.rs:1: 101 columns")),
        (format!("   // {long}"), None),
        (format!("fn f() {{}} // {long}"), None),
        (format!("let text = \"{long}{long}\";"), None),
        (format!("/// {}.", words(36)), Some("a sentence of 36 words")),
        (format!("//! {}\n//! {}.", words(12), words(12)), None),
        // A line of code stands between two passages, also an attribute.
        (format!("/// {}\n#[test]\n// {}.", words(15), words(21)), None),
        (format!("// {}\n//\n// {}.", words(15), words(21)), None),
        (format!("// {}\n// {}.", words(15), words(21)), Some("a sentence of 36 words")),
        ("    // Nobody waits.".to_owned(), Some("'nobody'")),
        ("    // `nobody` waits.".to_owned(), None),
        ("/// ```\n/// somebody\n/// ```".to_owned(), None),
    ] {
        let faults = found(&text);
        assert_eq!(faults.len(), usize::from(expected.is_some()), "{text}: {faults:?}");
        assert!(expected.is_none_or(|part| faults[0].contains(part)), "{text}: {faults:?}");
    }
}
