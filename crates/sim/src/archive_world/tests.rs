use stele_array::mutation::{Mutation, Mutations};
use stele_array::{Action, Attached, CreateOptions, DigestUnit, Event, OpenOptions, Pool, State};

use super::*;
use crate::pool_world::Wanted;
use crate::run::guarded;

const CATALOG: Wanted = Wanted {
    name: "catalog",
    code: "mirror-3",
    size: Bytes(48 * MIB),
    strip: Bytes(64 * KIB),
    digest: DigestUnit::Block,
};
const DATA: Wanted =
    Wanted { name: "data", code: "4+2", size: Bytes(48 * MIB), strip: Bytes(16 * KIB), digest: DigestUnit::Block };

/// A pool that reports a write as ordered before it is.
struct Hasty(Pool);

impl Hasty {
    fn of(mut pool: Pool) -> Hasty {
        pool.set_mutations(Mutations::default().with(Mutation::WriteOrder));
        Hasty(pool)
    }
}

impl System for Hasty {
    fn create(options: CreateOptions, open: OpenOptions, drives: Vec<Attached>, now: Instant) -> Hasty {
        Hasty::of(Pool::create(options, open, drives, now))
    }
    fn open(options: OpenOptions, drives: Vec<Attached>, now: Instant) -> Hasty {
        Hasty::of(Pool::open(options, drives, now))
    }
    fn event(&mut self, event: Event) {
        self.0.event(event);
    }
    fn run(&mut self, now: Instant) {
        self.0.run(now);
    }
    fn actions(&mut self, out: &mut Vec<Action>) {
        self.0.actions(out);
    }
    fn next_wake(&self) -> Option<Instant> {
        self.0.next_wake()
    }
    fn state(&self) -> &State {
        self.0.state()
    }
}

/// Whether the seed passes, with its coverage.
fn passes<S: System + 'static>(seed: u64) -> Result<Coverage, String> {
    let pool = PoolWorld::<S>::new(seed, 7, Bytes(96 * MIB), &[CATALOG, DATA], seed % 3 == 1).expect("a pool");
    let verdict = guarded(|| run(&pool, seed, 6));
    stage::strike();
    let mut coverage = verdict.map_err(|violation| format!("seed {seed}: {violation}\n{}", pool.tail().join("\n")))?;
    coverage.merge(&pool.coverage());
    Ok(coverage)
}

/// A few seeds, or those that `STELE_ARCHIVE_WORLD` names:
/// `STELE_ARCHIVE_WORLD=1377,2000..2400 ./x t sim world`.
fn chosen() -> Vec<u64> {
    let Ok(text) = std::env::var("STELE_ARCHIVE_WORLD") else { return (0..24).collect() };
    let number =
        |text: &str| text.trim().parse::<u64>().unwrap_or_else(|_| panic!("STELE_ARCHIVE_WORLD: '{text}' is no seed"));
    text.split(',')
        .flat_map(|part| match part.split_once("..") {
            Some((from, to)) => number(from)..number(to),
            None => number(part)..number(part) + 1,
        })
        .collect()
}

#[test]
fn nothing_is_in_the_catalog_without_its_content_after_a_power_cut() {
    let mut coverage = Coverage::default();
    let mut failures = Vec::new();
    for seed in chosen() {
        match passes::<Pool>(seed) {
            Ok(seen) => coverage.merge(&seen),
            Err(failure) => failures.push(failure),
        }
    }
    assert!(failures.is_empty(), "{} seeds failed\n{}", failures.len(), failures.join("\n"));
    for name in
        ["ordered writes", "puts acknowledged", "objects found after a crash", "objects not found after a crash"]
    {
        assert!(coverage.of(name) > 0, "never happened: {name}\n{coverage}");
    }
}

#[test]
fn a_catalog_that_overtakes_its_content_is_caught() {
    assert!((0..24).any(|seed| passes::<Hasty>(seed).is_err()), "nothing noticed");
}
