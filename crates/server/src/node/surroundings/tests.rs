use super::*;

#[test]
fn a_moment_reads_the_same_until_the_clock_is_set() {
    const SECOND: i128 = 1_000_000_000;
    let mut kept = None;
    // The two clocks are never read at the same instant.
    for measured in [100 * SECOND, 100 * SECOND + 7, 100 * SECOND - 40_000, 101 * SECOND] {
        kept = Some(steady(kept, measured));
        assert_eq!(kept, Some(100 * SECOND));
    }
    assert_eq!(steady(kept, 4_000 * SECOND), 4_000 * SECOND);
    let moment = stele_media::system::now();
    let first = wall_at(moment);
    assert!((0..1_000).all(|_| wall_at(moment) == first));
}

#[test]
fn other_programs_get_no_secret_of_the_environment() {
    // Cargo sets this one for every test.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let output = program("env").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("PATH=") && !text.contains("CARGO_MANIFEST_DIR"), "{text}");
}

#[test]
fn the_memory_of_a_server_reaches_no_core_dump() {
    hide_memory();
    assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    // The owner of a process's entry under /proc is root now; its user is the same.
    assert_eq!(own_uid(), rustix::process::geteuid().as_raw());
}
