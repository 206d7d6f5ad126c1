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
    let missing = |name: &str| Program {
        name: name.to_owned(),
        path: PathBuf::from("/nowhere").join(name),
        folder: PathBuf::from("/"),
    };
    let outcome = side_by_side(vec![missing("one"), missing("two"), missing("three")], 2);
    assert_eq!((outcome.passed, outcome.failed), (0, 3));
    assert!(outcome.shown.iter().any(|line| line == "Running three"), "{:?}", outcome.shown);
}

#[test]
fn a_program_that_ends_early_has_failed() {
    let program = Program { name: "well".to_owned(), path: PathBuf::from("true"), folder: PathBuf::from("/") };
    assert_eq!(side_by_side(vec![program], 1).failed, 1);
}
