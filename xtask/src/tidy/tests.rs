use super::*;

fn check(name: &str, text: &str, expected: &[&str]) {
    let mut faults = Vec::new();
    if name.ends_with(".rs") {
        source::check(name, text, &mut faults);
    } else {
        floors::check(name, text, &mut faults);
    }
    assert_eq!(faults.len(), expected.len(), "{name}: {text}: {faults:?}");
    for (fault, part) in faults.iter().zip(expected) {
        assert!(fault.contains(part), "{fault} lacks {part}");
    }
}

#[test]
fn each_rule_for_sources_finds_its_fault() {
    let block = "unsafe { x() }";
    for (name, text, expected) in [
        ("crates/array/src/a.rs", "fn f() {}\n".repeat(601).as_str(), &["601 lines"][..]),
        ("crates/array/src/a.rs", "todo!()", &["unfinished"]),
        ("crates/array/src/a.rs", "// ok for now.", &["announces"]),
        ("crates/array/src/a.rs", "    #[ignore]", &["ignored"]),
        ("crates/array/src/a.rs", "let t = Instant::now();", &["a.rs:1: Instant::now in a deterministic crate"]),
        ("crates/array/src/a.rs", "// Instant::now is not called", &[]),
        ("crates/array/src/a/tests.rs", "let t = Instant::now();", &[]),
        ("crates/array/src/a.rs", "use std::collections::HashMap;\ntype A = HashMap<u8, u8, FixedState>;", &[]),
        ("crates/array/src/a.rs", "type A = HashMap<u8, u8>;", &["fixed hasher"]),
        ("crates/object/src/a.rs", "let t = Instant::now();", &[]),
        ("crates/object/src/a/tests.rs", "tokio::time::sleep(x).await", &["wall clock"]),
        ("crates/object/src/a/tests.rs", "#[tokio::test(start_paused = true)]\ntokio::time::sleep(x).await", &[]),
        ("crates/object/src/a.rs", "#![allow(unsafe_code)]", &["unsafe code is for"]),
        ("crates/codes/src/kernel/gfni.rs", "#![allow(unsafe_code)]", &[]),
        ("crates/codes/src/kernel/gfni.rs", block, &["SAFETY"]),
        ("crates/codes/src/kernel/gfni.rs", "// SAFETY: reason\nunsafe { x() }", &[]),
        ("crates/stele/src/a.rs", "pub(crate) struct PoolManager;", &["'Manager'"]),
        ("crates/stele/src/a.rs", "struct Pool;", &[]),
        (
            "crates/array/src/a.rs",
            "a.locks.exclusive(v, s).await;\nself.log.reserve(1, p)",
            &["a.rs:2: a stripe is held"],
        ),
        ("crates/array/src/a.rs", "a.locks.exclusive(v, s).await;\n}\nfn b() {\nself.log.reserve(1, p)", &[]),
        ("crates/array/src/a.rs", "a.locks.shared(v, s).await;\nself.room_while_held(k, 1)", &[]),
    ] {
        check(name, text, expected);
    }
}

#[test]
fn dependencies_point_down() {
    let array = "crates/array/Cargo.toml";
    check(array, "[dependencies]\nstele-codes.workspace = true\nstele-media.workspace = true", &[]);
    check(array, "[dependencies]\nstele-catalog.workspace = true", &["array may not use catalog"]);
    check(array, "[dev-dependencies]\nstele-sim.workspace = true", &[]);
    check("crates/new/Cargo.toml", "", &["has no floor"]);
}

#[test]
fn a_public_type_has_its_name_alone_in_its_crate() {
    let found = |files: &[(&str, &str)]| {
        let (mut types, mut faults) = (names::PublicTypes::default(), Vec::new());
        files.iter().for_each(|(name, text)| types.check(name, text, &mut faults));
        faults
    };
    let (a, b) = ("crates/array/src/a.rs", "crates/array/src/b.rs");
    let faults = found(&[(a, "pub struct Pool;"), (b, "\n    pub enum Pool<'a> {")]);
    assert!(faults.len() == 1 && faults[0].starts_with("crates/array/src/b.rs:2: 'Pool'"), "{faults:?}");
    assert!(faults[0].contains("crates/array/src/a.rs:1"), "{faults:?}");
    for (name, text) in [
        ("crates/media/src/b.rs", "pub struct Pool;"),
        ("crates/array/src/b/tests.rs", "pub struct Pool;"),
        ("crates/array/examples/b.rs", "pub struct Pool;"),
        (b, "struct Pool;"),
        (b, "pub struct PoolView;"),
        (b, "pub use a::Pool;"),
    ] {
        assert_eq!(found(&[(a, "pub struct Pool;"), (name, text)]), Vec::<String>::new(), "{name}: {text}");
    }
}

#[test]
fn the_second_verifier_stays_as_short_as_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let name = "contrib/verify-proof.py";
    let text = std::fs::read_to_string(root.join(name)).unwrap();
    let mut faults = Vec::new();
    check_length(name, &text, &mut faults);
    assert_eq!(faults, Vec::<String>::new());
    check_length(name, &"pass\n".repeat(300), &mut faults);
    assert!(faults.len() == 1 && faults[0].contains("300 lines"), "{faults:?}");
}

/// The suite applies these rules to the repository in a step of its own; this test only checks that
/// they find it.
#[test]
fn the_repository_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    assert!(tracked(root).iter().any(|path| path == Path::new("Cargo.toml")));
}
