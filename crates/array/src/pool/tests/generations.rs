//! Generations: no slot ever has the same one twice, also where the row that it is in has been
//! freed and its number used again.

use std::cell::RefCell;
use std::rc::Rc;

use stele_ground::{Duration, VolumeId};

use crate::formats::map::Home;
use crate::model::Command;
use crate::model::place::{SlotId, StripeKey};
use crate::testing::{Fixture, pattern, spec};

/// The slots of the volume's stripes, with their generations.
fn slots(fixture: &mut Fixture, volume: VolumeId, stripes: u64) -> Vec<(SlotId, u64)> {
    let engine = Rc::clone(&fixture.pool.serving().expect("open").engine);
    let slots = Rc::new(RefCell::new(Vec::new()));
    let (io, found) = (engine.io.clone(), Rc::clone(&slots));
    io.spawn(async move {
        let of = engine.look(|core| core.volumes.get(volume)).expect("a volume");
        for stripe in 0..stripes {
            let Ok(Home::Slot(slot)) = engine.home(StripeKey { volume, stripe }).await else { continue };
            let head = engine.slot_head(&of.shape, slot).await.expect("an entry");
            found.borrow_mut().push((slot, head.generation));
        }
    });
    fixture.pass(Duration::from_millis(100));
    slots.take()
}

#[test]
fn a_row_number_used_again_meets_none_of_its_former_generations() {
    for crash in [false, true] {
        let mut fixture = Fixture::new(5, 5, 6);
        let mut highest = 0;
        let mut used: Vec<SlotId> = Vec::new();
        let mut again = 0;
        for round in 0..4 {
            let volume = fixture.create_volume(spec("a", "2+1", 1 << 20)).id;
            fixture.write(volume, 0, &pattern(round, 1 << 20)).expect("written");
            fixture.command(Command::Checkpoint).expect("a checkpoint");
            let now = slots(&mut fixture, volume, 32);
            assert_eq!(now.len(), 32, "crash {crash}, round {round}");
            for (slot, generation) in &now {
                assert!(*generation > highest, "crash {crash}, round {round}: {slot} has {generation} after {highest}");
                again += u64::from(used.contains(slot));
            }
            highest = now.iter().map(|(_, generation)| *generation).max().unwrap_or(0).max(highest);
            used.extend(now.iter().map(|(slot, _)| *slot));
            fixture.command(Command::DeleteVolume { name: "a".into() }).expect("deleted");
            fixture.pass(Duration::from_secs(60));
            fixture.command(Command::Checkpoint).expect("a checkpoint");
            if crash {
                fixture.crash().expect("opened");
            }
        }
        assert!(again > 0, "no number of a row was used again");
    }
}
