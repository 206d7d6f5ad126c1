//! Histories in named steps: for each protection, the shortest history that needs it. With all
//! protections, every script passes. Without its protection, the script or one of its variants
//! fails. Random histories reach most of these cases only after hours.

use stele_archive::mutation::Mutation;

use super::{Checked, DRIVES, World};
use crate::node::rebuild::RebuildOptions;

const FORCE: RebuildOptions = RebuildOptions { force: true, accept_losses: false };
const LOSSES: RebuildOptions = RebuildOptions { force: true, accept_losses: true };

/// Pairs of drives that are detached together.
pub const PAIRS: u64 = (DRIVES * (DRIVES - 1) / 2) as u64;

/// Number of variants of a script.
pub fn variants(about: Mutation) -> u64 {
    match about {
        Mutation::Doubt => 2 * PAIRS,
        Mutation::UnreadableSegments => PAIRS,
        _ => 1,
    }
}

fn pair(variant: u64) -> Vec<u32> {
    let pairs = (0..DRIVES).flat_map(|one| (one + 1..DRIVES).map(move |other| vec![one, other]));
    pairs.into_iter().nth((variant % PAIRS) as usize).unwrap_or_default()
}

impl World {
    pub async fn play(&mut self, about: Mutation, variant: u64) -> Checked {
        self.put_some().await?;
        match about {
            Mutation::Owners => {
                // Look for the catalog on the data volume; a rebuild must repair that.
                self.name_volumes((self.names.1.clone(), self.names.1.clone())).await?;
                self.rebuild_asking(FORCE, false).await?;
            }
            Mutation::Pairing => {
                // The heads sent elsewhere would reveal it, too.
                self.remove_heads().await?;
                self.copy_catalog().await?;
                self.put_catalog_back().await?;
            }
            Mutation::Losses => {
                self.take_these(pair(variant)).await?;
                self.rebuild_asking(FORCE, false).await?;
            }
            Mutation::Doubt => {
                self.short_and_raised().await?;
                self.take_these(pair(variant)).await?;
                self.rebuild_asking(LOSSES, false).await?;
            }
            Mutation::UnreadableSegments => {
                // Write several segments, so that one can lose its header while the store's
                // identity stays readable.
                for _ in 0..14 {
                    let _ = self.put_for(3650, false, 5 << 20).await;
                }
                self.take_these(pair(variant)).await?;
                self.rebuild_asking(LOSSES, false).await?;
                self.put_some().await?;
                self.let_time_pass().await?;
            }
            Mutation::KeepUntilDone => self.break_off_at(1).await?,
            Mutation::Heads => {
                self.copy_pool().await?;
                self.put_pool_back().await?;
            }
            Mutation::Gaps => {
                self.let_time_pass().await?;
                self.rebuild_asking(FORCE, true).await?;
            }
        }
        self.check_all().await?;
        self.settle().await
    }

    /// Records retained for minutes, whose retention later notes extend. Each note lies in another
    /// stripe, far behind its record, so that most pairs of drives hide the last note of some
    /// record.
    async fn short_and_raised(&mut self) -> Checked {
        let first = self.records.len();
        for _ in 0..4 {
            let _ = self.put_for(0, false, 100_000).await;
        }
        self.let_time_pass_slowly();
        for at in first..self.records.len() {
            for _ in 0..4 {
                let _ = self.put_for(3650, false, 200_000).await;
            }
            self.raise(at..at + 1).await?;
        }
        for _ in 0..4 {
            let _ = self.put_for(3650, false, 200_000).await;
        }
        self.let_time_pass().await
    }

    /// A time shorter than the first retention, so that no version expires before its retention is
    /// extended.
    fn let_time_pass_slowly(&self) {
        self.pass(100_000);
    }
}
