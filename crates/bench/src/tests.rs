use super::*;

#[test]
fn options_that_do_not_fit_a_bench_are_refused() {
    for (line, expected) in [
        ("./x bench archive --versions 5000", None),
        ("./x bench codes --versions 5000", Some("--versions is for the bench archive, not for codes")),
        ("./x bench rebuild --write-docs", None),
        ("./x bench codes --write-docs", Some("codes writes no page; --write-docs is for block, rebuild, streams")),
    ] {
        let arguments = Arguments::try_parse_from(line.split(' ').skip(1)).unwrap();
        let name = arguments.name.clone().unwrap();
        assert_eq!(misfit(&name, &arguments).as_deref(), expected, "{line}");
    }
    assert!(Arguments::try_parse_from(["./x bench", "block", "--write-docs", "--case", "read"]).is_err());
    for other in [["--write-docs"].as_slice(), &["--versions", "5000"]] {
        let line = ["./x bench", "archive", "--before", "older"].iter().chain(other);
        assert!(Arguments::try_parse_from(line).is_err(), "{other:?}");
    }
}

#[test]
fn each_bench_with_a_page_is_listed_and_its_page_exists() {
    for name in WITH_PAGES {
        assert!(BENCHES.iter().any(|(listed, ..)| *listed == name), "{name}");
        let page = format!("{}/../../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        assert!(text.contains(&format!("./x bench {name} --write-docs")), "{page} does not name its command");
    }
}

/// docs/marks.md names a command for each target: it must exist.
#[test]
fn each_bench_that_the_page_of_targets_names_is_there() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/marks.md");
    let text = std::fs::read_to_string(page).unwrap_or_default();
    let named: Vec<&str> = text.split("./x bench ").skip(1).filter_map(|rest| rest.split([' ', '`']).next()).collect();
    assert!(named.len() > 20, "{page} names {} benches", named.len());
    for name in named {
        assert!(BENCHES.iter().any(|(listed, ..)| *listed == name), "{page}: there is no bench '{name}'");
    }
}
