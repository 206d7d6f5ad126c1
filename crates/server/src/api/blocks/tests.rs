use std::sync::Barrier;

use super::*;
use crate::node::testing::volume;

/// As if the restore had been silent for so long.
fn silent(restores: &Restores, by: Duration) {
    let mut held = restores.0.lock().unwrap();
    held.values_mut().for_each(|held| held.last = held.last.checked_sub(by).unwrap());
}

#[test]
fn a_restore_that_trims_for_long_keeps_its_volume() {
    let restores = Restores::default();
    restores.hold(volume("vm", None), 7).unwrap();
    let preparing = restores.preparing(7);
    silent(&restores, 2 * SILENCE_MAX);
    assert!(restores.check("vm").is_err(), "an export would have been let in");
    assert!(restores.hold(volume("vm", None), 8).is_err());
    assert!(restores.of(7).is_ok());
    // From its end on the first write has the usual time.
    silent(&restores, 2 * SILENCE_MAX);
    drop(preparing);
    assert!(restores.check("vm").is_err());
    silent(&restores, SILENCE_MAX);
    assert!(restores.check("vm").is_ok());
    assert!(restores.of(7).is_err(), "the restore that lapsed would have gone on");
    assert!(restores.hold(volume("vm", None), 8).is_ok());
}

#[test]
fn of_many_restores_at_once_one_gets_the_volume() {
    for _ in 0..200 {
        let (restores, barrier) = (Restores::default(), Barrier::new(4));
        let held = std::thread::scope(|scope| {
            let hold = |token| {
                let (restores, barrier) = (&restores, &barrier);
                scope.spawn(move || {
                    let status = volume("vm", None);
                    barrier.wait();
                    restores.hold(status, token).is_ok()
                })
            };
            let threads: Vec<_> = (0..4).map(hold).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|held| *held).count()
        });
        assert_eq!(held, 1);
    }
}

#[test]
fn a_restore_that_fails_behind_its_snapshot_names_the_way_back() {
    let failure = unfinished("vm", "vm-before-restore-7", &Failure::new(Kind::Full, "no space"));
    assert_eq!((failure.kind, failure.error.as_str()), (Kind::Full, "volume 'vm' is incomplete: no space"));
    assert!(failure.next.contains("`stele volume rollback vm vm-before-restore-7`"), "{failure}");
}

/// The same refusal meets a backup and a restore.
#[test]
fn a_volume_with_an_owner_is_neither_saved_nor_restored() {
    let data = volume("data", Some("archive"));
    let refused = find(&[volume("vm", None), data], "data").unwrap_err();
    assert_eq!(refused.kind, Kind::Refused);
    assert!(refused.error.contains("neither saved nor restored"), "{refused}");
    assert!(refused.next.contains("restore into a volume of its own"), "{refused}");
}
