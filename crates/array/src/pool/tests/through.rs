//! Write-through: when an operation is answered its strips are on their drives, and the log is not
//! needed for it.

use std::rc::Rc;

use stele_ground::{BLOCK, Bytes};
use stele_media::{Buffer, Op, Priority, Request};

use super::KIB;
use crate::model::place::BlockKey;
use crate::model::{Action, ArrayError, Command, DigestUnit, Event, VolumeSpec, WriteMode};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Write,
    Zero,
    Discard,
}

#[test]
fn an_answered_operation_of_a_write_through_volume_is_on_its_strips() {
    use Kind::{Discard, Write, Zero};
    let stripe = 64 * KIB;
    let cases = [
        ("a small write", Write, 8192, 4096),
        ("an unaligned write", Write, stripe + 512, 1024),
        ("a whole stripe", Write, 2 * stripe, stripe),
        ("a write over a border", Write, 3 * stripe - 4096, 8192),
        ("zeroing a part", Zero, 4 * stripe + 4096, 8192),
        ("zeroing an unaligned part", Zero, 5 * stripe + 512, 9216),
        ("zeroing over borders", Zero, 7 * stripe - 8192, 2 * stripe),
        ("discarding a part", Discard, 9 * stripe + 4096, 8192),
        ("discarding over borders", Discard, 11 * stripe - 4096, 2 * stripe + 8192),
    ];
    for digest in [DigestUnit::Block, DigestUnit::Strip] {
        let mut fixture = Fixture::new(8, 8, 50);
        let size = 1 << 20;
        let shape = VolumeSpec { mode: WriteMode::WriteThrough, block: Bytes(512), digest, ..spec("a", "4+2", size) };
        let volume = fixture.create_volume(shape).id;
        let mut model = pattern(1, size as usize);
        fixture.write(volume, 0, &model).expect("written");
        for (case, kind, at, length) in cases {
            let new = match kind {
                Write => pattern(at as u64, length),
                Zero | Discard => vec![0; length],
            };
            model[at..at + length].copy_from_slice(&new);
            let op = match kind {
                Write => Op::Write { at: at as u64, data: vec![Buffer::copy_of(&new).freeze()], fua: false },
                Zero => Op::Zero { at: at as u64, length: length as u64 },
                Discard => Op::Discard { at: at as u64, length: length as u64 },
            };
            let (_, answers) = fixture.submit_all(volume, vec![op]);
            assert_eq!(answers.into_iter().flatten().next().expect("answered").1, Ok(()), "{case}");
            // What is read now comes from the strips, and from what of them was flushed.
            let engine = Rc::clone(&fixture.pool.serving().expect("open").engine);
            assert_eq!(engine.look(|core| core.cache.dirty_bytes()), 0, "{case}: it waits in the log");
            for block in 0..size / 4096 {
                engine.step(|core| core.cache.drop_clean(BlockKey { volume, block }));
            }
            assert_eq!(engine.look(|core| core.redo.bytes()), 0, "{case}");
            fixture.test_drives.drop_unflushed();
            assert!(
                fixture.read(volume, 0, size as usize).expect("read") == model,
                "{case}: the strips do not hold it"
            );
        }
    }
}

/// Eight writers, each of which writes its next block of the same stripe when its last one is
/// answered. They begin one after another, so that each comes while the destage for another is
/// under way.
#[test]
fn writers_of_one_stripe_share_its_destages() {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 120;
    for code in ["4+2", "mirror-2"] {
        let mut fixture = Fixture::new(8, 8, 53);
        let shape = VolumeSpec { mode: WriteMode::WriteThrough, strip: Bytes(64 << 10), ..spec("a", code, 1 << 20) };
        let volume = fixture.create_volume(shape).id;
        fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
        let engine = Rc::clone(&fixture.pool.serving().expect("open").engine);
        let before = engine.count.destages.get();
        let block = |number: u64| number % 16;
        let (mut begun, mut answered) = (0, 0);
        let mut answers = Vec::new();
        while answered < WRITES {
            if begun < WRITES && begun - answered < WRITERS {
                let data = vec![Buffer::copy_of(&pattern(begun, BLOCK)).freeze()];
                let op = Op::Write { at: block(begun) * BLOCK as u64, data, fua: false };
                let request = Request { tag: begun, op, priority: Priority::Host, deadline: None };
                fixture.pool.event(Event::Submit { volume, request });
                begun += 1;
            }
            let mut left = 3;
            fixture.test_drives.run_pool(&mut fixture.pool, &mut answers, |_, _| {
                left -= 1;
                left < 0
            });
            for answer in answers.drain(..) {
                let Action::Finished { completion, .. } = answer else { continue };
                assert_eq!(completion.result, Ok(()), "{code}");
                answered += 1;
                // No other write to the block is under way.
                let key = BlockKey { volume, block: block(completion.tag) };
                let waits = engine.look(|core| core.cache.dirty(key).is_some());
                assert!(!waits, "{code}: write {} is answered and waits in the log", completion.tag);
            }
        }
        let destages = engine.count.destages.get() - before;
        assert!(destages * 3 <= WRITES, "{code}: {destages} destages for {WRITES} writes");
    }
}

#[test]
fn a_volume_acknowledges_as_it_was_told_last_also_after_opening() {
    let mut fixture = Fixture::new(8, 8, 51);
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    let reads =
        |fixture: &mut Fixture| fixture.pool.serving().expect("open").engine.look(|core| core.cache.dirty_bytes());
    let set =
        |fixture: &mut Fixture, mode| fixture.command(Command::SetVolume { name: "a".into(), read_ahead: None, mode });
    fixture.write(volume, 0, &pattern(1, 4096)).expect("written");
    assert_eq!(reads(&mut fixture), 4096, "in the log");
    set(&mut fixture, Some(WriteMode::WriteThrough)).expect("set");
    set(&mut fixture, None).expect("nothing to set");
    fixture.crash().expect("opened");
    fixture.write(volume, 0, &pattern(2, 4096)).expect("written");
    assert_eq!(reads(&mut fixture), 0, "on the strips");
    set(&mut fixture, Some(WriteMode::WriteBack)).expect("set");
    fixture.write(volume, 0, &pattern(3, 4096)).expect("written");
    assert_eq!(reads(&mut fixture), 4096, "in the log again");
    let spec = VolumeSpec { owner: Some("somebody".into()), ..spec("a2", "4+2", 1 << 20) };
    fixture.create_volume(spec);
    let owned = Command::SetVolume { name: "a2".into(), read_ahead: None, mode: Some(WriteMode::Volatile) };
    assert!(matches!(fixture.command(owned), Err(NoAnswer::Array(ArrayError::Refused(_)))));
}

#[test]
fn a_forced_write_of_a_volatile_volume_is_durable_when_it_is_answered() {
    let mut fixture = Fixture::new(8, 8, 52);
    let shape = VolumeSpec { mode: WriteMode::Volatile, ..spec("a", "4+2", 1 << 20) };
    let volume = fixture.create_volume(shape).id;
    for (round, at) in [0u64, 8 * 4096, 100 * 4096].into_iter().enumerate() {
        let data = pattern(round as u64 + 1, 4096);
        let op = Op::Write { at, data: vec![Buffer::copy_of(&data).freeze()], fua: true };
        let (_, answers) = fixture.submit_all(volume, vec![op]);
        assert_eq!(answers.into_iter().flatten().next().expect("answered").1, Ok(()));
        fixture.crash().expect("opened");
        assert!(fixture.read(volume, at, 4096).expect("read") == data, "the write at {at} was lost");
    }
}
