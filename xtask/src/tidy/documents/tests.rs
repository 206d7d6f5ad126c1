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
fn pages_of_figures_are_documents_too() {
    let pages = ["README.md", "docs/block.md", "docs/papers/README.md", "docs/runbooks/moving.md", "FORMAT/log.md"];
    assert!(pages.into_iter().all(is_one));
    assert!(!["docs/stack.svg", "crates/lab/notes.md", "x"].into_iter().any(is_one));
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

/// A limit in a document is that of the code: a change of one finds the other here.
#[test]
fn limits_in_documents_are_those_of_the_code() {
    let array = "crates/array/src";
    for (source, constant, document, words) in [
        ("volumes/ahead/streams.rs", "STREAMS_MAX: usize = 512;", "SEMANTICS/array.md", "that are known | 512 |"),
        ("volumes/ahead/streams.rs", "STREAMS_MAX: usize = 512;", "SEMANTICS/array.md", "Up to 512 readers"),
        ("upkeep/rebuild/breadth.rs", "ROWS_MAX: usize = 128;", "ARCHITECTURE.md", "up to 128 rows at once"),
        ("upkeep/rebuild/breadth.rs", "ROWS_MAX: usize = 128;", "SEMANTICS/array.md", "drives, up to 128,"),
        ("upkeep/rebuild/breadth.rs", "ROWS_TO_DRIVE: usize = 4;", "SEMANTICS/array.md", "At most four rows at once"),
        (
            "upkeep/rebuild/breadth.rs",
            "MEMORY_OF_DRIVE: u64 = 64 << 20;",
            "SEMANTICS/array.md",
            "64 MiB for each drive",
        ),
        ("upkeep/rebuild.rs", "RATE_WITH_HOSTS: u64 = 128 << 20;", "ARCHITECTURE.md", "(128 MiB a second by default)"),
        ("upkeep/rebuild.rs", "RATE_FLOOR: u64 = 64 << 20;", "ARCHITECTURE.md", "at least 64 MiB a second"),
        (
            "upkeep/scrub.rs",
            "PERIOD: Duration = Duration::from_secs(14 * 24 * 3600);",
            "SEMANTICS/array.md",
            "once in 14 days",
        ),
        ("state/admission.rs", "HOSTS_MAX: u64 = 16 << 10;", "SEMANTICS/array.md", "under way | 16,384 |"),
        ("state/repairing.rs", "REPAIRS_MAX: usize = 64 << 10;", "SEMANTICS/array.md", "waiting for repair | 65,536 |"),
        ("layers.rs", "LAYERS_MAX: usize = 64;", "SEMANTICS/array.md", "layers on one another | 64 |"),
        ("pool/recovery.rs", "AT_ONCE: usize = 1024;", "SEMANTICS/array.md", "those that 1,024 changes need"),
        (
            "durable/log/space.rs",
            "PATIENCE: Duration = Duration::from_secs(120);",
            "SEMANTICS/array.md",
            "two minutes without any",
        ),
        ("members/growth.rs", "DRIVES_MAX: usize = 512;", "SEMANTICS/array.md", "at most 512 in its life"),
        (
            "hosts/atomic.rs",
            "ATOMIC_WRITE_MAX: Bytes = Bytes(1 << 20);",
            "SEMANTICS/array.md",
            "of at most 1 MiB in blocks",
        ),
    ] {
        let read = |path: &str| {
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path));
            text.unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let source = format!("{array}/{source}");
        assert!(read(&source).contains(constant), "{source} has no '{constant}': change {document} too");
        assert!(read(document).contains(words), "{document} has no '{words}', as {source} says: {constant}");
    }
}
