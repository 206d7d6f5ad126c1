use super::*;

/// A message of cargo, shortened in its targets and files.
const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///src/crates/codes#stele-codes@0.1.0","manifest_path":"/src/crates/codes/Cargo.toml","target":{"kind":["lib"],"name":"stele_codes","test":true},"profile":{"opt_level":"3","debuginfo":0,"test":true},"features":["default"],"filenames":[],"executable":"/src/target/release/deps/stele_codes-0a1b","fresh":true}"#;

#[test]
fn cargo_names_the_test_programs() {
    let found = program(MESSAGE).unwrap();
    assert_eq!(found.name, "stele_codes");
    assert_eq!(found.path, Path::new("/src/target/release/deps/stele_codes-0a1b"));
    assert_eq!(found.folder, Path::new("/src/crates/codes"));
}

#[test]
fn what_is_no_test_program_is_none() {
    assert_eq!(program(&MESSAGE.replace(r#""test":true},"features""#, r#""test":false},"features""#)), None);
    assert_eq!(program(&MESSAGE.replace(r#""/src/target/release/deps/stele_codes-0a1b""#, "null")), None);
    assert_eq!(program(r#"{"reason":"build-finished","success":true}"#), None);
    assert_eq!(program("   Compiling stele-codes v0.1.0"), None);
}

#[test]
fn every_program_runs_and_counts() {
    let missing = ["one", "two", "three"].map(|name| at(name, &format!("/nowhere/{name}")));
    let outcome = side_by_side(missing.to_vec(), 2, None);
    assert_eq!((outcome.passed, outcome.failed), (0, 3));
    assert!(outcome.shown.iter().any(|line| line == "Running three"), "{:?}", outcome.shown);
}

#[test]
fn a_program_that_ends_early_has_failed() {
    assert_eq!(side_by_side(vec![at("well", "true")], 1, None).failed, 1);
}

#[test]
fn the_files_of_a_program_are_in_memory_unless_it_tests_drives() {
    let scratch = Scratch::of(std::env::temp_dir().join(format!("xtask-units-{}", std::process::id()))).unwrap();
    let chosen = |name: &str| temporary(&Program { name: name.to_owned(), ..at("well", "true") }, Some(&scratch));
    assert_eq!(chosen("rest"), Some(scratch.path()));
    assert_eq!((chosen("days"), temporary(&at("well", "true"), None)), (None, None));
}

/// A program in the root directory.
fn at(name: &str, path: &str) -> Program {
    Program { name: name.to_owned(), path: PathBuf::from(path), folder: PathBuf::from("/"), tests: None }
}

#[test]
fn a_split_program_runs_every_test_once_by_module() {
    let listed = ["backup::a_backup_is_checked: test", "up::down: test", "backup::two::at_once: test", "alone: test"];
    let lines: Vec<String> = listed.iter().chain(&["up: benchmark"]).map(|line| (*line).to_owned()).collect();
    let found = by_module(&lines);
    assert_eq!(found["backup"], ["backup::a_backup_is_checked", "backup::two::at_once"]);
    assert_eq!((&found["up"][..], &found["alone"][..]), (&["up::down".to_owned()][..], &["alone".to_owned()][..]));
    assert_eq!(found.len(), 3);
    // `up` must not run those of `backup`.
    let up = Program { tests: Some(found["up"].clone()), ..at("up", "program") };
    let arguments: Vec<_> = command(&up).get_args().map(|argument| argument.to_owned()).collect();
    assert_eq!(arguments[2..], ["program", "--exact", "up::down"]);
}

#[test]
fn a_split_program_that_lists_nothing_is_an_error() {
    assert!(modules(at("program", "true")).unwrap_err().contains("does not list its tests"));
    assert!(modules(at("program", "false")).is_err());
    assert_eq!(modules(at("stele_codes", "true")), Ok(vec![at("stele_codes", "true")]));
}
