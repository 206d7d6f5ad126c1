use super::*;

#[test]
fn the_catalog_survives_power_cuts_on_a_drive() {
    let mut coverage = Coverage::default();
    for seed in 0..16 {
        let carrier = DriveCarrier::new(Bytes(64 * MIB), Bytes(if seed % 2 == 0 { 512 } else { 4096 }), seed);
        match run(&carrier, seed, 8) {
            Ok(more) => coverage.merge(&more),
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
        stage::strike();
    }
    for name in ["catalog crashes in a commit", "catalog crashes while opening", "catalog commits found after a crash"]
    {
        assert!(coverage.of(name) > 0, "never happened: {name}\n{coverage}");
    }
}

#[test]
fn a_drive_that_falls_back_is_noticed() {
    let caught = (0..4).any(|seed| {
        let verdict = run(&DriveCarrier::falling_back(Bytes(64 * MIB), Bytes(4096), seed), seed, 8);
        stage::strike();
        verdict.is_err()
    });
    assert!(caught);
}
