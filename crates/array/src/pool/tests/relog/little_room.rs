//! Stripes that cannot be destaged, and a log with little room left.

use std::rc::Rc;

use stele_ground::Bytes;

use super::*;
use crate::durable::log::{Purpose, Reservation};
use crate::model::place::{Lsn, StripeKey};

/// Two drives are away, and what a third has is damaged: enough of each stripe answers for it to
/// take writes, and none can be destaged.
fn stuck_scene(size: usize) -> Scene {
    let mut scene = scene_of(10, 1, size, DigestUnit::Block);
    scene.fixture.test_drives.damage(5, 12 << 20, 48 << 20);
    scene.lose(&[1, 4]);
    scene
}

impl Scene {
    /// Writes to each stripe, one after the other. Answers in what words some were refused.
    fn write_each(&mut self, inside: usize, length: usize) -> Vec<String> {
        let mut refused = Vec::new();
        for at in (inside..self.model.len()).step_by(STRIPE) {
            match self.write_at(at, length) {
                Ok(()) => {}
                Err(NoAnswer::Media(error)) => refused.push(error.message.to_string()),
                Err(other) => panic!("at {at}: {other:?}"),
            }
        }
        refused
    }

    fn write_at(&mut self, at: usize, length: usize) -> Result<(), NoAnswer> {
        let piece = pattern((at + length) as u64, length);
        self.fixture.write(self.data, at as u64, &piece)?;
        self.model[at..at + length].copy_from_slice(&piece);
        Ok(())
    }

    fn key(&self, stripe: u64) -> StripeKey {
        StripeKey { volume: self.data, stripe }
    }

    /// Takes of the log what leaves so much to relogging.
    fn leave(&self, room: u64) -> Reservation {
        let log = &self.fixture.engine().log;
        let size = log.size().0;
        let taken = log.used().0 + log.reserved().0 + room;
        log.try_reserve(size - size / 64 - taken, Purpose::Checkpoint).expect("there is more room")
    }

    /// Relogs what is stuck, and answers the oldest record that is needed before and after.
    fn relog(&mut self) -> (Lsn, Lsn) {
        let own = self.fixture.engine();
        let before = own.oldest_needed();
        let task = Rc::clone(&own);
        own.io.spawn(async move { task.relog_stuck().await.expect("relogged") });
        self.fixture.run_operations(20);
        (before, own.oldest_needed())
    }
}

#[test]
fn a_stripe_that_waits_takes_writes_until_too_many_wait() {
    let mut scene = stuck_scene(8 << 20);
    assert_eq!(scene.write_each(0, 4 * KIB), [""; 0]);
    scene.fixture.pass(Duration::from_secs(10));
    assert!(scene.counted().1 > 0, "nothing waits");
    assert_eq!(scene.write_each(8 * KIB, 4 * KIB), [""; 0]);
    let refused: Vec<_> = (1..4).flat_map(|part| scene.write_each(part * 32 * KIB, 28 * KIB)).collect();
    assert!(!refused.is_empty() && refused.len() < 190, "{}", refused.len());
    assert!(refused.iter().all(|error| error.contains("wait in the log already")), "{refused:?}");
}

/// Writes of less than a block wait in the log as whole blocks do.
#[test]
fn too_many_parts_of_blocks_do_not_wait_and_other_volumes_go_on() {
    let mut scene = scene_of(10, 1, 128 * KIB, DigestUnit::Block);
    let sectors = VolumeSpec { block: Bytes(512), ..spec("sectors", "8+2", 8 << 20) };
    scene.data = scene.fixture.create_volume(sectors).id;
    scene.model = pattern(3, 8 << 20);
    scene.fixture.write(scene.data, 0, &scene.model).expect("written");
    scene.fixture.command(Command::Checkpoint).expect("a checkpoint");
    scene.fixture.test_drives.damage(5, 12 << 20, 48 << 20);
    scene.lose(&[1, 4]);
    let mut refused = Vec::new();
    for at in (512..scene.model.len()).step_by(4 * KIB) {
        if let Err(NoAnswer::Media(error)) = scene.write_at(at, KIB) {
            refused.push(error.message.to_string());
        }
    }
    let full = refused.iter().filter(|error| error.contains("wait in the log already")).count();
    assert!(full > 0, "{} of 2048: {:?}", refused.len(), refused.first());
    scene.mirror_goes_on("what waits is bounded");
}

#[test]
fn a_log_full_of_what_waits_refuses_writes_at_once_and_says_why() {
    let mut scene = stuck_scene(16 << 20);
    let refused = scene.write_each(0, 60 * KIB);
    assert!(!refused.is_empty() && refused.len() < 100, "{}", refused.len());
    let before = scene.fixture.test_drives.now();
    let refused = scene.write_each(0, 60 * KIB);
    assert!(scene.fixture.test_drives.now().since(before) < Duration::from_secs(10));
    assert!(
        refused.iter().any(|error| error.contains("full of writes to stripes that cannot be changed")),
        "{refused:?}"
    );
}

#[test]
fn what_finds_no_room_as_a_whole_is_relogged_in_parts() {
    let mut scene = stuck_scene(1 << 20);
    (0..20).for_each(|block| scene.write_at(block * 4 * KIB, 4 * KIB).expect("written"));
    (0..3).for_each(|_| scene.mirror_goes_on("filled"));
    scene.fixture.command(Command::Checkpoint).expect("a checkpoint");
    let own = scene.fixture.engine();
    let dirty = own.look(|core| core.cache.dirty_of(scene.key(0)));
    assert!(dirty.len() == 20 && own.is_stuck(scene.key(0)), "{}", dirty.len());
    let taken = scene.leave(60 << 10);
    let (_, after) = scene.relog();
    // As much as there was room for, and the oldest of it.
    assert!(after > dirty[10].1.lsn && after < own.log.next_lsn(), "{after:?}");
    drop(taken);
    drop(own);
    scene.fixture.crash().expect("opened");
    let read = scene.fixture.read(scene.data, 0, 80 * KIB).expect("read");
    assert!(read == scene.model[..80 * KIB]);
}

/// What relogging may use is taken. The oldest block of all gets what checkpoints have beside it.
#[test]
fn the_oldest_block_is_relogged_with_the_last_room_there_is() {
    let mut scene = stuck_scene(1 << 20);
    (0..20).for_each(|block| scene.write_at(block * 4 * KIB, 4 * KIB).expect("written"));
    (0..3).for_each(|_| scene.mirror_goes_on("filled"));
    scene.fixture.command(Command::Checkpoint).expect("a checkpoint");
    let own = scene.fixture.engine();
    assert!(own.is_stuck(scene.key(0)) && own.keeper_of_log() == Some(scene.key(0)));
    let taken = scene.leave(0);
    let (before, after) = scene.relog();
    assert!(after > before, "nothing can be trimmed: {before:?}");
    drop((taken, own));
    scene.fixture.crash().expect("opened");
    let read = scene.fixture.read(scene.data, 0, 80 * KIB).expect("read");
    assert!(read == scene.model[..80 * KIB]);
}

/// A stripe whose images three drives went away from, while it was written to again, and between
/// that another stripe.
fn owed_scene(again: bool) -> (Scene, Vec<usize>) {
    let mut scene = scene_of(10, 1, 128 * KIB, DigestUnit::Block);
    let large = VolumeSpec { strip: Bytes(64 << 10), ..spec("large", "8+2", 4 << 20) };
    scene.data = scene.fixture.create_volume(large).id;
    scene.model = pattern(3, 4 << 20);
    scene.fixture.write(scene.data, 0, &scene.model).expect("written");
    scene.fixture.command(Command::Checkpoint).expect("a checkpoint");
    scene.write_at(0, 100 * KIB).expect("written");
    scene.fixture.test_drives.held = Some(12 << 20..62 << 20);
    scene.fixture.begin_command(Command::Checkpoint);
    for _ in 0..1000 {
        if scene.counted().2 == 0 {
            scene.fixture.run_operations(1);
        }
    }
    assert!(scene.counted().2 > 0, "no images");
    scene.fixture.run_operations(20);
    if again {
        scene.write_at(512 * KIB, 160 * KIB).expect("written");
        scene.write_at(0, 100 * KIB).expect("written");
    }
    (0..2).for_each(|_| scene.mirror_goes_on("filled"));
    let own = scene.fixture.engine();
    let of_the_log = own.log.members().0;
    let others = (0..10).filter(|drive| of_the_log.iter().all(|member| usize::from(member.0) != *drive));
    let away: Vec<usize> = others.take(3).collect();
    scene.lose(&away);
    scene.fixture.test_drives.held = None;
    scene.fixture.pass(Duration::from_secs(1));
    let _ = scene.fixture.command(Command::Checkpoint);
    assert!(own.is_stuck(scene.key(0)) && own.is_stuck(scene.key(1)) == again);
    (scene, away)
}

#[test]
fn the_oldest_images_are_relogged_with_the_last_room_there_is() {
    let (mut scene, away) = owed_scene(false);
    let taken = scene.leave(270 << 10);
    let (before, after) = scene.relog();
    assert!(after > before, "nothing can be trimmed");
    drop(taken);
    scene.give_back(&away, "relogged");
}

#[test]
fn images_that_are_older_than_any_block_are_relogged_first() {
    let (mut scene, away) = owed_scene(true);
    let own = scene.fixture.engine();
    // What is dirty of the stripe finds room, and its images do not.
    let taken = scene.leave(110 << 10);
    let (before, after) = scene.relog();
    assert_eq!(before, after);
    drop(taken);
    let first = own.look(|core| core.cache.by_age().next());
    assert!(first.is_some_and(|(_, key)| key == scene.key(1)), "{first:?}");
    // They find it before a stripe whose blocks are older than its own.
    let taken = scene.leave(240 << 10);
    let (before, after) = scene.relog();
    assert!(after > before, "nothing can be trimmed");
    drop((taken, own));
    scene.give_back(&away, "relogged");
}
