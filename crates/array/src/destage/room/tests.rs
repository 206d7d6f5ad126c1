//! Who may use the last room of a full log.

use std::cell::Cell;
use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::{Duration, VolumeId};

use crate::durable::log::{Purpose, Reservation};
use crate::engine::Engine;
use crate::model::place::{Lsn, StripeKey};
use crate::model::{ArrayError, Command};
use crate::runtime::sync::StripeGuard;
use crate::testing::{Fixture, pattern, spec};

/// A pool whose log is full for all but checkpoints. It is kept by stripe 0 of a volume with a
/// snapshot, and then by one of another volume; both are held, so that it stays so.
struct Full {
    fixture: Fixture,
    engine: Rc<Engine>,
    keeper: StripeKey,
    /// What would keep it then.
    next: StripeKey,
    _taken: Reservation,
    _held: [StripeGuard; 2],
}

fn full() -> Full {
    let mut fixture = Fixture::new(6, 3, 1);
    let data = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    let other = fixture.create_volume(spec("other", "4+2", 1 << 20)).id;
    fixture.write(data, 0, &pattern(1, 1 << 20)).expect("written");
    let snapshot = Command::SnapshotVolume { volume: "a".into(), name: "s".into(), made: 0 };
    fixture.command(snapshot).expect("a snapshot");
    fixture.command(Command::CloneSnapshot { snapshot: "s".into(), name: "clone".into() }).expect("a clone");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.write(data, 0, &pattern(2, 4096)).expect("written");
    fixture.write(other, 0, &pattern(3, 4096)).expect("written");
    let engine = fixture.engine();
    let mut oldest = engine.look(|core| core.cache.by_age().map(|(_, key)| key).collect::<Vec<_>>()).into_iter();
    let [keeper, next] = [(); 2].map(|()| oldest.next().expect("a dirty stripe"));
    let held = [keeper, next].map(|key| engine.locks.try_exclusive(key.volume, key.stripe).expect("free"));
    let log = &engine.log;
    let size = log.size().0;
    let free = size - (size / 32).max(16 << 10) - log.used().0 - log.reserved().0;
    let taken = log.try_reserve(free, Purpose::Checkpoint).expect("there is more room");
    Full { fixture, keeper, next, _taken: taken, _held: held, engine }
}

impl Full {
    fn layer(&self, name: &str) -> VolumeId {
        self.engine.look(|core| core.volumes.named(name)).unwrap_or_else(|| panic!("no volume {name}")).id
    }

    /// The layer below that of the stripe that keeps the log.
    fn below(&self) -> VolumeId {
        self.engine.layers_from(self.keeper.volume)[1]
    }

    /// Whether the work is done within some seconds.
    fn is_done(&mut self, work: impl Future<Output = Result<(), ArrayError>> + 'static) -> bool {
        let done = Rc::new(Cell::new(false));
        let told = Rc::clone(&done);
        self.engine.io.spawn(async move {
            work.await.expect("done");
            told.set(true);
        });
        self.fixture.pass(Duration::from_secs(5));
        done.get()
    }

    fn gets_room(&mut self, volume: VolumeId, stripe: u64) -> bool {
        let engine = Rc::clone(&self.engine);
        let held = StripeKey { volume, stripe };
        self.is_done(async move { engine.room_while_held(held, engine.log.cost_of(64)).await.map(drop) })
    }
}

#[test]
fn the_last_room_is_for_stripes_that_the_log_waits_for() {
    let mut full = full();
    let (keeper, below) = (full.keeper, full.below());
    assert_eq!(keeper.stripe, 0);
    assert!(full.gets_room(keeper.volume, 0), "the stripe that keeps the log");
    assert!(full.gets_room(below, 0), "what shows through it");
    let clone = full.layer("clone");
    assert!(full.gets_room(clone, 0), "a destage into it may hold what shows through both");
    for (volume, stripe) in [(keeper.volume, 1), (below, 1), (full.next.volume, 0)] {
        assert!(!full.gets_room(volume, stripe), "{volume}: {stripe}");
    }
}

#[test]
fn a_stripe_below_what_keeps_a_full_log_can_be_listed_as_lost_and_given_up() {
    let mut full = full();
    let below = full.engine.volume(full.below()).expect("the layer");
    let (engine, volume) = (Rc::clone(&full.engine), Rc::clone(&below));
    let listed = full.is_done(async move {
        let of = engine.locate(&volume, 0).await?.expect("it has a slot");
        engine.record_lost(&of, Strips::of([0])).await
    });
    assert!(listed);
    let engine = Rc::clone(&full.engine);
    let given_up = full.is_done(async move {
        let home = engine.home(StripeKey { volume: below.id, stripe: 0 }).await?;
        engine.unmap_locked(&below, 0, u64::MAX, home, false).await.map(drop)
    });
    assert!(given_up);
}

#[test]
fn a_task_that_waits_for_room_looks_again_whether_the_log_waits_for_it() {
    let mut full = full();
    let (engine, got) = (Rc::clone(&full.engine), Rc::new(Cell::new(false)));
    let (keeper, next, told) = (full.keeper, full.next, Rc::clone(&got));
    engine.io.clone().spawn(async move {
        let _room = engine.room_while_held(next, engine.log.cost_of(64)).await.expect("room");
        told.set(true);
    });
    full.fixture.pass(Duration::from_secs(5));
    assert!(!got.get(), "the log waits for another stripe");
    full.engine.step(|core| core.cache.drop_dirty(keeper, Lsn(u64::MAX)));
    assert_eq!(full.engine.keeper_of_log(), Some(next));
    full.fixture.pass(Duration::from_millis(200));
    assert!(got.get());
}
