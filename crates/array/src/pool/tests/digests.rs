//! Pools of version 0.1.0, whose slots have CRC-32C: they are read, and what is written to them
//! moves away from it.

use std::cell::RefCell;
use std::rc::Rc;

use stele_ground::digest::crc32c;
use stele_ground::{Duration, VolumeId};

use crate::formats::entry::DigestKind;
use crate::formats::map::Home;
use crate::model::mutation::{Mutation, Mutations};
use crate::model::place::StripeKey;
use crate::model::{Command, VolumeSpec};
use crate::testing::{Fixture, pattern, spec};

/// How the digests of the volume's stripes are made.
fn kinds(fixture: &mut Fixture, volume: VolumeId, stripes: u64) -> Vec<DigestKind> {
    let engine = Rc::clone(&fixture.pool.serving().expect("open").engine);
    let kinds = Rc::new(RefCell::new(Vec::new()));
    let (io, found) = (engine.io.clone(), Rc::clone(&kinds));
    io.spawn(async move {
        let of = engine.look(|core| core.volumes.get(volume)).expect("a volume");
        for stripe in 0..stripes {
            let Ok(Home::Slot(slot)) = engine.home(StripeKey { volume, stripe }).await else { continue };
            let head = engine.slot_head(&of.shape, slot).await.expect("an entry");
            found.borrow_mut().push(head.digests);
        }
    });
    fixture.pass(Duration::from_millis(100));
    kinds.take()
}

#[test]
fn a_stripe_with_former_digests_moves_when_it_is_written() {
    for code in ["2+1", "mirror-3"] {
        let mut fixture = Fixture::new(5, 5, 4);
        fixture.mutations = Mutations::default().with(Mutation::StrongDigest);
        fixture.crash().expect("opened");
        let volume = fixture.create_volume(spec("a", code, 96 << 10)).id;
        let stripes = if code == "2+1" { 3 } else { 6 };
        let mut expected = pattern(1, 96 << 10);
        fixture.write(volume, 0, &expected).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        assert_eq!(kinds(&mut fixture, volume, stripes), vec![DigestKind::Crc32c; stripes as usize], "{code}");
        fixture.mutations = Mutations::default();
        fixture.crash().expect("opened by this version");
        assert!(fixture.read(volume, 0, 96 << 10).expect("read") == expected, "{code}");
        assert_eq!(fixture.scrub(), (0, 0), "{code}");
        let changed = pattern(2, 4096);
        fixture.write(volume, 4096, &changed).expect("written");
        fixture.command(Command::Checkpoint).expect("destaged");
        expected[4096..8192].copy_from_slice(&changed);
        let now = kinds(&mut fixture, volume, stripes);
        assert_eq!((now[0], now[1]), (DigestKind::Xxh3, DigestKind::Crc32c), "{code}: only what was written");
        fixture.crash().expect("opened again");
        assert_eq!(kinds(&mut fixture, volume, stripes), now, "{code}");
        assert!(fixture.read(volume, 0, 96 << 10).expect("read") == expected, "{code}");
        assert_eq!(fixture.scrub(), (0, 0), "{code}");
    }
}

/// A block that ends with its own CRC-32C, as some file systems make them: all such blocks have the
/// same CRC-32C.
fn sealed(seed: u64) -> Vec<u8> {
    let mut block = pattern(seed, 4092);
    block.extend(crc32c(&block).to_le_bytes());
    block
}

#[test]
fn writes_that_no_digest_shows_are_not_undone_by_a_rebuild() {
    const BLOCK: usize = 4096;
    for (code, moment) in ["2+1", "mirror-3"].into_iter().flat_map(|code| (0..40).map(move |moment| (code, moment))) {
        let size = 2 << 20;
        let mut fixture = Fixture::new(6, 6, 4);
        fixture.mutations = Mutations::default().with(Mutation::StrongDigest);
        fixture.crash().expect("opened");
        // The archive's volume is written in place, whatever its digests are.
        let volume = fixture
            .create_volume(VolumeSpec { owner: Some("archive".into()), ..spec("archive", code, size as u64) })
            .id;
        let mut data: Vec<u8> = (0..size / BLOCK).flat_map(|at| sealed(at as u64)).collect();
        fixture.write(volume, 0, &data).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.mutations = Mutations::default();
        fixture.crash().expect("opened by this version");
        fixture.pull(&[0]);
        fixture.run_operations(moment * 3);
        for at in (0..data.len()).step_by(4 * BLOCK) {
            let block = sealed(1_000_000 + moment * 1000 + at as u64);
            fixture.write(volume, at as u64, &block).expect("written");
            data[at..at + BLOCK].copy_from_slice(&block);
        }
        fixture.command(Command::Checkpoint).expect("destaged");
        fixture.idle();
        assert_eq!(kinds(&mut fixture, volume, 8), vec![DigestKind::Crc32c; 8], "{code}: written in place");
        assert_eq!(fixture.scrub(), (0, 0), "{code}, after {moment}");
        fixture.pull(&[1]);
        assert!(fixture.read(volume, 0, size).expect("read") == data, "{code}, after {moment}: an older version");
    }
}
