//! The share against the suite that every tree of files passes, and what a share alone has: a
//! cache, an archive behind it, retention, and power cuts.

mod append_only;
mod appending;
mod archiving;
mod autocommit;
mod behind;
mod bucket_rules;
mod bypass;
mod crashes;
mod giving;
mod held;
mod holds;
mod keeping;
mod leftovers;
mod many;
mod mounted;
mod named;
mod nameless;
mod nfs4;
mod objects;
mod rebuilt;
mod removal;
mod retention;
mod scale;
mod scarce;
mod sparse;
mod stage;
mod uploads;
mod warming;

use stage::Stage;

use crate::MemoryFiles;
use crate::share::Caching;
use crate::suite::compare::compare;
use crate::suite::conforms;

#[tokio::test(start_paused = true)]
async fn a_share_conforms_to_posix() {
    let count = conforms(async || Stage::new(1).share().await).await;
    assert!(count > 50, "{count} checks ran");
}

#[tokio::test(start_paused = true)]
async fn a_share_agrees_with_the_tree_in_memory() {
    for seed in 0..40 {
        let mut stage = Stage::new(seed);
        if seed % 2 == 1 {
            stage.settings.caching = Caching::Off;
        }
        let share = stage.share().await;
        let clock = stage.clone();
        let memory = MemoryFiles::new(move || clock.moment());
        compare(&*share, &memory, seed, 400).await;
    }
}
