use super::*;

fn check(line: &str, program: &str, expected: &[&str]) {
    let found: Vec<String> = commands_named(line, program).iter().map(|words| words.join(" ")).collect();
    assert_eq!(found, expected, "{line}");
}

#[test]
fn commands_are_found_in_blocks_and_quotes() {
    check("    stele pool status             drives by enclosure", "stele", &["pool status"]);
    check("    target/release/stele up --dir ./d", "stele", &["up --dir ./d"]);
    check("run `stele audit verify`, then `stele why B/K`", "stele", &["audit verify", "why B/K"]);
    check("    stele key create|list [--json]", "stele", &["key create --json", "key list --json"]);
    check("    ./x soak --seeds 9   # many", "./x", &["soak --seeds 9"]);
    check("stele stands on drives", "stele", &[]);
    check("`steles` and `./xy`", "./x", &[]);
}

#[test]
fn paths_are_found_in_quotes_and_links() {
    assert_eq!(
        paths("see `FORMAT/codes.md`, `a/b` and ![x](docs/stack.svg)"),
        ["FORMAT/codes.md", "docs/stack.svg", "FORMAT/codes.md"]
    );
    assert_eq!(paths("as OPERATIONS.md. says; [site](https://example.org)"), ["OPERATIONS.md"]);
    assert_eq!(paths("`crates/*/src` and `1/2`"), ["crates/*/src"]);
}

#[test]
fn what_is_not_there_is_a_fault() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = [PathBuf::from("FORMAT/a.md")];
    let mut faults = Vec::new();
    let text = "`xtask/no` and ./src/x.md\n`./x fly` `./x test`\n`FORMAT/*.md` `FORMAT/*.rs`";
    super::check(root, "README.md", text, &files, &mut faults);
    assert_eq!(
        faults,
        [
            "README.md:1: there is no xtask/no",
            "README.md:1: there is no ./src/x.md",
            "README.md:2: ./x has no command 'fly'",
            "README.md:3: there is no FORMAT/*.rs",
        ]
    );
}

#[test]
fn commands_are_found_in_fences_too() {
    for (line, named) in [
        ("    stele pool status", 1),
        ("$ stele pool status", 1),
        ("$ cp a b", 0),
        ("stele pool status", 0),
        ("see `stele why X`", 1),
    ] {
        assert_eq!(super::commands_named(line, "stele").len(), named, "{line}");
    }
}
