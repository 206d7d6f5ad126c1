use super::*;

/// From a fresh clone: a bench that starts a server finds no `stele` beside it unless it was built.
#[test]
fn what_starts_servers_has_the_program_built_beside_it() {
    for (package, line, expected) in [
        ("stele-demo", "", true),
        ("stele-demo", "--help", false),
        ("stele-bench", "s3", true),
        ("stele-bench", "backup --rounds 1", true),
        ("stele-bench", "large", true),
        ("stele-bench", "--json block", true),
        ("stele-bench", "--case read file", true),
        ("stele-bench", "codes --json", false),
        ("stele-bench", "block --help", false),
        ("stele-bench", "", false),
        ("stele-sim", "--drives 3600", true),
        ("stele-sim", "--json --drives", true),
        ("stele-sim", "--seeds 5", false),
        ("stele-mutants", "--list", false),
    ] {
        let rest: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        assert_eq!(starts_servers(package, &rest), expected, "{package} {line}");
    }
}

/// The benches are those whose files use a served pool or a server; the list here follows them.
#[test]
fn each_bench_that_uses_a_server_is_known_to_start_one() {
    let folder = root_of_tests().join("crates/bench/src");
    let benches = ["archive", "array", "backup", "block", "catalog", "codes", "digests", "file", "lab", "large"];
    for bench in benches.into_iter().chain(["rebuild", "s3", "streams"]) {
        let mut files = vec![folder.join(format!("{bench}.rs"))];
        let inside = std::fs::read_dir(folder.join(bench)).into_iter().flatten().flatten();
        files.extend(inside.map(|entry| entry.path()));
        let uses = |text: String| {
            ["served::Node", "served::{Guarded, Node", "server::Server"].iter().any(|w| text.contains(w))
        };
        let needs = files.iter().any(|file| uses(std::fs::read_to_string(file).unwrap_or_default()));
        assert_eq!(starts_servers("stele-bench", &[bench.into()]), needs, "{bench}");
    }
}

fn root_of_tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_campaign_is_in_the_help() {
    for campaign in ["--admin", "--block", "--days", "--files", "--objects"] {
        assert!(CAMPAIGNS.contains(&format!("./x soak {campaign}")), "{campaign}");
    }
    for (line, expected) in [("--help", true), ("--days -h", true), ("--days 3", false), ("", false)] {
        let rest: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        assert_eq!(asks_for_help(&rest), expected, "{line}");
    }
}

#[test]
fn a_fixture_that_is_kept_is_not_written_over() {
    let root = root_of_tests();
    let kept = Path::new("crates/stele/tests/formats/pool-1.tar.xz");
    assert!(new_fixture(&root, kept).unwrap_err().contains("is never made again"));
    let new = Path::new("crates/stele/tests/formats/pool-of-no-version.tar.xz");
    assert_eq!(new_fixture(&root, new), Ok(root.join(new)));
}
