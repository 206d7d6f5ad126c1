use stele_array::Pool;

use super::*;
use crate::pool_world::{PoolWorld, Wanted};
use crate::run::guarded;

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

/// A small version of the volume that `stele up` makes.
const CATALOG: Wanted = Wanted {
    name: "catalog",
    code: "mirror-3",
    size: Bytes(48 * MIB),
    strip: Bytes(64 * KIB),
    digest: stele_array::DigestUnit::Block,
};

#[test]
fn the_catalog_survives_power_cuts_on_a_pool() {
    let mut coverage = Coverage::default();
    for seed in 0..6 {
        // Once each, as the B-tree's library writes its pages in an order that no seed decides.
        let once = || {
            let pool = PoolWorld::<Pool>::new(seed, 5, Bytes(96 * MIB), &[CATALOG], seed % 2 == 1).expect("a pool");
            let verdict = guarded(|| run(&pool, seed, 5));
            stage::strike();
            match verdict {
                Ok(more) => (more, pool.coverage()),
                Err(violation) => panic!("seed {seed}: {violation}\n{}", pool.tail().join("\n")),
            }
        };
        let (of_catalog, of_pool) = once();
        coverage.merge(&of_catalog);
        coverage.merge(&of_pool);
    }
    for name in ["catalog crashes in a commit", "catalog comparisons", "fault Leave"] {
        assert!(coverage.of(name) > 0, "never happened: {name}\n{coverage}");
    }
}
