//! Pools of version 0.1.0, whose slots have CRC-32C: they are read, and what is written to them moves away from it.

use std::cell::RefCell;
use std::rc::Rc;

use stele_ground::{Duration, VolumeId};

use crate::Command;
use crate::cache::StripeKey;
use crate::mutation::{Mutation, Mutations};
use crate::testing::{Bed, pattern, spec};
use crate::volumes::entry::DigestKind;
use crate::volumes::map::Home;

/// How the digests of the volume's stripes are made.
fn kinds(bed: &mut Bed, volume: VolumeId, stripes: u64) -> Vec<DigestKind> {
    let engine = Rc::clone(&bed.pool.serving().expect("open").engine);
    let kinds = Rc::new(RefCell::new(Vec::new()));
    let (io, found) = (engine.io.clone(), Rc::clone(&kinds));
    io.spawn(async move {
        let of = engine.volumes.get(volume).expect("a volume");
        for stripe in 0..stripes {
            let Ok(Home::Slot(slot)) = engine.home(StripeKey { volume, stripe }).await else { continue };
            let head = engine.slot_head(&of.shape, slot).await.expect("an entry");
            found.borrow_mut().push(head.digests);
        }
    });
    bed.pass(Duration::from_millis(100));
    kinds.take()
}

#[test]
fn a_stripe_with_former_digests_moves_when_it_is_written() {
    for code in ["2+1", "mirror-3"] {
        let mut bed = Bed::new(5, 5, 4);
        bed.mutations = Mutations::default().with(Mutation::StrongDigest);
        bed.crash().expect("opened");
        let volume = bed.create_volume(spec("a", code, 96 << 10)).id;
        let stripes = if code == "2+1" { 3 } else { 6 };
        let mut expected = pattern(1, 96 << 10);
        bed.write(volume, 0, &expected).expect("written");
        bed.command(Command::Checkpoint).expect("a checkpoint");
        assert_eq!(kinds(&mut bed, volume, stripes), vec![DigestKind::Crc32c; stripes as usize], "{code}");
        bed.mutations = Mutations::default();
        bed.crash().expect("opened by this version");
        assert!(bed.read(volume, 0, 96 << 10).expect("read") == expected, "{code}");
        assert_eq!(bed.scrub(), (0, 0), "{code}");
        let changed = pattern(2, 4096);
        bed.write(volume, 4096, &changed).expect("written");
        bed.command(Command::Checkpoint).expect("destaged");
        expected[4096..8192].copy_from_slice(&changed);
        let now = kinds(&mut bed, volume, stripes);
        assert_eq!((now[0], now[1]), (DigestKind::Xxh3, DigestKind::Crc32c), "{code}: only what was written");
        bed.crash().expect("opened again");
        assert_eq!(kinds(&mut bed, volume, stripes), now, "{code}");
        assert!(bed.read(volume, 0, 96 << 10).expect("read") == expected, "{code}");
        assert_eq!(bed.scrub(), (0, 0), "{code}");
    }
}
