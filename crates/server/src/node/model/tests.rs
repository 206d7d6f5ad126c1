use std::time::{Duration, Instant};

use stele_archive::mutation::{Mutation, Mutations};

use super::*;

/// Number of histories in a test run, and of steps in each.
const HISTORIES: u64 = 15;
const STEPS: u64 = 24;

fn run(seed: u64, steps: u64, without: Mutations) -> Result<(), Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let failed = |failure: crate::failure::Failure| Violation(format!("no pool: {failure}"));
        let mut world = World::new(seed, without, DRIVE).await.map_err(failed)?;
        for _ in 0..steps {
            world.step().await?;
        }
        world.settle().await
    })
}

fn play(about: Mutation, variant: u64, without: Mutations) -> Result<(), Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let failed = |failure: crate::failure::Failure| Violation(format!("no pool: {failure}"));
        // Spare space for catalogs that a rebuild keeps.
        World::new(variant, without, 2 * DRIVE).await.map_err(failed)?.play(about, variant).await
    })
}

#[test]
fn the_script_of_each_protection_ends_well_with_it() {
    for about in Mutation::ALL {
        // The test without protections runs every pair; a few suffice here.
        for variant in 0..scripts::variants(about).min(3) {
            play(about, variant, Mutations::default())
                .unwrap_or_else(|Violation(what)| panic!("{about:?}, variant {variant}: {what}"));
        }
    }
}

#[test]
fn without_a_protection_its_script_breaks_a_promise() {
    let missed = |about: &Mutation| {
        let without = Mutations::default().with(*about);
        // Every new pool places its records anew, so chance decides which drives hide which record.
        let variants = (0..TRIES).flat_map(|_| 0..scripts::variants(*about));
        let (begun, mut tries) = (Instant::now(), 0);
        let found = variants.inspect(|_| tries += 1).find_map(|variant| play(*about, variant, without).err());
        if let Some(Violation(what)) = &found {
            let first = what.lines().next().unwrap_or_default();
            println!("{about:?}, try {tries} after {:?}: {first}", begun.elapsed());
        }
        found.is_none()
    };
    let missed: Vec<Mutation> = Mutation::ALL.into_iter().filter(missed).collect();
    assert!(missed.is_empty(), "nothing goes wrong without {missed:?}");
}

/// The protection to remove, named by `STELE_WITHOUT`, as in the array's tests.
fn without() -> Mutations {
    match std::env::var("STELE_WITHOUT") {
        Ok(name) => {
            Mutations::default().with(Mutation::named(&name).unwrap_or_else(|| panic!("no protection '{name}'")))
        }
        Err(_) => Mutations::default(),
    }
}

/// Number of times that all variants of a script run until one breaks a promise. Most do so within
/// two; three were once not enough.
const TRIES: usize = 12;

/// 50: stele.toml names a drive that has left the pool, and a rebuild missed it.
const BROKE: &[u64] = &[50];

#[test]
fn the_histories_that_broke_a_promise_end_well() {
    for seed in BROKE {
        run(*seed, STEPS, Mutations::default()).unwrap_or_else(|Violation(what)| panic!("seed {seed}: {what}"));
    }
}

/// `STELE_ADMIN_SECONDS` sets the duration and `STELE_ADMIN_SEED` the first seed; the seed alone
/// runs that history only.
#[test]
fn no_history_of_an_administrator_breaks_a_promise() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (begun, seconds, first) = (Instant::now(), number("STELE_ADMIN_SECONDS"), number("STELE_ADMIN_SEED"));
    if let (None, Some(seed)) = (seconds, first) {
        return run(seed, STEPS, without()).unwrap_or_else(|Violation(what)| panic!("seed {seed}: {what}"));
    }
    for seed in first.unwrap_or(0).. {
        let done = match seconds {
            Some(seconds) => begun.elapsed() >= Duration::from_secs(seconds),
            None => seed >= HISTORIES,
        };
        if done {
            println!("{} histories of {STEPS} steps in {:?}", seed - first.unwrap_or(0), begun.elapsed());
            return;
        }
        run(seed, STEPS, without())
            .unwrap_or_else(|Violation(what)| panic!("seed {seed}: {what}\nagain with STELE_ADMIN_SEED={seed}"));
    }
}
