use std::time::{Duration, Instant};

use stele_archive::mutation::{Mutation, Mutations};

use super::*;

/// Histories in a run of all tests, and steps in each.
const HISTORIES: u64 = 15;
const STEPS: u64 = 24;

fn run(seed: u64, steps: u64, without: Mutations) -> Result<(), Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let failed = |failure: crate::failure::Failure| Violation(format!("no pool: {failure}"));
        let mut world = World::new(seed, without).await.map_err(failed)?;
        for _ in 0..steps {
            world.step().await?;
        }
        world.settle().await
    })
}

/// The protection that `STELE_WITHOUT` names is taken away, as for the array's tests.
fn without() -> Mutations {
    match std::env::var("STELE_WITHOUT") {
        Ok(name) => {
            Mutations::default().with(Mutation::named(&name).unwrap_or_else(|| panic!("no protection '{name}'")))
        }
        Err(_) => Mutations::default(),
    }
}

/// `STELE_ADMIN_SECONDS` has it go on for so long; `STELE_ADMIN_SEED` runs one history.
#[test]
fn no_history_of_an_administrator_breaks_a_promise() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("STELE_ADMIN_SEED") {
        return run(seed, STEPS, without()).unwrap_or_else(|Violation(what)| panic!("seed {seed}: {what}"));
    }
    let (begun, seconds) = (Instant::now(), number("STELE_ADMIN_SECONDS"));
    for seed in 0.. {
        let done = match seconds {
            Some(seconds) => begun.elapsed() >= Duration::from_secs(seconds),
            None => seed >= HISTORIES,
        };
        if done {
            println!("{seed} histories of {STEPS} steps in {:?}", begun.elapsed());
            return;
        }
        run(seed, STEPS, without())
            .unwrap_or_else(|Violation(what)| panic!("seed {seed}: {what}\nagain with STELE_ADMIN_SEED={seed}"));
    }
}
