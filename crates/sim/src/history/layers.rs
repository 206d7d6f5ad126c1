//! Events on volumes besides writes: snapshots, clones, rollbacks, and their end. Its own dice
//! decide, so that the rest of a history is the same with and without them.

use crate::oracle::Violation;
use crate::system::System;
use crate::world::World;

/// Largest number of volumes and snapshots in a history, for its speed.
const HOSTS_MAX: usize = 9;

/// Causes a random event on a volume, after a step of the history.
pub fn befall<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let (volumes, snapshots): (Vec<String>, Vec<String>) = {
        let names = |snapshot: bool| {
            world.hosts.iter().filter(|(_, host)| host.reads_only == snapshot).map(|(name, _)| name.clone()).collect()
        };
        (names(false), names(true))
    };
    let crowded = world.hosts.len() >= HOSTS_MAX;
    let roll = world.layer_dice.below(12);
    let volume = world.layer_dice.pick(&volumes).cloned();
    let snapshot = world.layer_dice.pick(&snapshots).cloned();
    match (roll, volume, snapshot) {
        (0..=3, Some(volume), _) if !crowded => world.snapshot(&volume),
        (4 | 5, _, Some(snapshot)) if !crowded => world.clone_snapshot(&snapshot),
        (6 | 7, _, Some(snapshot)) => world.roll_back(&snapshot),
        (8 | 9, _, Some(snapshot)) => world.delete_volume(&snapshot),
        (9, Some(volume), _) if crowded => world.delete_volume(&volume),
        _ => Ok(()),
    }
}
