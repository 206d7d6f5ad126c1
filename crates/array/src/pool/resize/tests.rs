//! Volumes that become larger or smaller, with writes under way, snapshots and power cuts.

use stele_ground::{Bytes, VolumeId};
use stele_media::{Op, Priority, Request};

use crate::model::{ArrayError, Command, Event, Reply, VolumeSpec};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

fn resize(fixture: &mut Fixture, name: &str, size: u64) -> Result<(), NoAnswer> {
    fixture.command(Command::ResizeVolume { name: name.into(), size: Bytes(size) }).map(drop)
}

fn size(fixture: &mut Fixture) -> u64 {
    let Ok(Reply::Volumes(volumes)) = fixture.command(Command::ListVolumes) else { panic!("no list") };
    volumes[0].spec.size.0
}

/// The text of a refusal.
fn refusal(answer: Result<(), NoAnswer>) -> String {
    match answer {
        Err(NoAnswer::Array(ArrayError::Refused(text))) => text,
        other => panic!("{other:?}"),
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn a_volume_becomes_smaller_as_far_as_its_end_is_free() {
    let mut fixture = Fixture::new(6, 6, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 8 * MIB)).id;
    let data = pattern(1, 3 << 20);
    fixture.write(volume, 0, &data).expect("written");
    // Once in the log alone, and once on the drives.
    for checkpoint in [false, true] {
        if checkpoint {
            fixture.command(Command::Checkpoint).expect("a checkpoint");
        }
        let text = refusal(resize(&mut fixture, "a", 2 * MIB));
        assert!(text.contains("can become 3 MiB (3145728 bytes)"), "{text}");
        assert_eq!(size(&mut fixture), 8 * MIB);
    }
    resize(&mut fixture, "a", 3 * MIB).expect("nothing is behind it");
    assert!(fixture.write(volume, 3 * MIB, &data[..4096]).is_err(), "that is behind its end");
    assert!(fixture.read(volume, 3 * MIB - 4096, 8192).is_err());
    fixture.discard(volume, 2 * MIB, MIB).expect("discarded");
    resize(&mut fixture, "a", 2 * MIB).expect("it was discarded");
    for time in ["at once", "after a power cut"] {
        assert_eq!(size(&mut fixture), 2 * MIB, "{time}");
        assert!(fixture.read(volume, 0, 2 << 20).expect("read") == data[..2 << 20], "{time}");
        fixture.crash().expect("opened");
    }
    resize(&mut fixture, "a", 4 * MIB).expect("larger again");
    assert!(is_zero(&fixture.read(volume, 2 * MIB, 2 << 20).expect("read")));
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn a_new_end_within_a_stripe_has_zeros_behind_it() {
    let mut fixture = Fixture::new(6, 6, 2);
    let volume = fixture.create_volume(spec("a", "2+1", MIB)).id;
    // A stripe has 32 KiB.
    fixture.write(volume, 0, &pattern(1, 32 << 10)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let text = refusal(resize(&mut fixture, "a", 16 * KIB));
    assert!(text.contains("can become 32 KiB"), "{text}");
    for checkpoint in [false, true] {
        let end = if checkpoint { 16 * KIB } else { 24 * KIB };
        fixture.discard(volume, end, 32 * KIB - end).expect("discarded");
        if checkpoint {
            fixture.command(Command::Checkpoint).expect("a checkpoint");
        }
        let text = refusal(resize(&mut fixture, "a", 8 * KIB));
        assert!(text.contains(&format!("can become {}", Bytes(end))), "{text}");
        resize(&mut fixture, "a", end).expect("zeros are behind it");
        resize(&mut fixture, "a", MIB).expect("larger");
        let found = fixture.read(volume, 0, 1 << 20).expect("read");
        assert!(found[..end as usize] == pattern(1, 32 << 10)[..end as usize]);
        assert!(is_zero(&found[end as usize..]));
    }
}

#[test]
fn a_volume_stays_as_large_while_a_snapshot_or_an_owner_needs_it() {
    let mut fixture = Fixture::new(6, 6, 3);
    fixture.create_volume(spec("a", "2+1", 8 * MIB));
    let snapshot =
        |volume: &str, name: &str| Command::SnapshotVolume { volume: volume.into(), name: name.into(), made: 1 };
    fixture.command(snapshot("a", "then")).expect("taken");
    fixture.command(Command::CloneSnapshot { snapshot: "then".into(), name: "b".into() }).expect("cloned");
    for name in ["a", "b"] {
        let text = refusal(resize(&mut fixture, name, MIB));
        assert!(text.contains("delete its snapshots first"), "{text}");
    }
    let text = refusal(resize(&mut fixture, "then", MIB));
    assert!(text.contains("stays as it is"), "{text}");
    for name in ["b", "then"] {
        fixture.command(Command::DeleteVolume { name: name.into() }).expect("deleted");
    }
    fixture.idle();
    resize(&mut fixture, "a", MIB).expect("it stands alone again");
    fixture.create_volume(VolumeSpec { owner: Some("archive".into()), ..spec("owned", "2+1", 8 * MIB) });
    let text = refusal(resize(&mut fixture, "owned", MIB));
    assert!(text.contains("its owner sees to its size"), "{text}");
}

/// The slots that were promised to the end are free for others.
#[test]
fn a_fully_allocated_volume_gives_room_back() {
    let mut fixture = Fixture::new(4, 4, 4);
    let whole = |name: &str, size: u64| VolumeSpec { fully_allocated: true, ..spec(name, "2+1", size) };
    let room = |fixture: &mut Fixture| {
        let status = fixture.status();
        status.codes.iter().map(|code| code.free.0).sum::<u64>()
    };
    let volume = fixture.create_volume(whole("a", 32 * MIB)).id;
    fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    let unpromised = |fixture: &Fixture| {
        let engine = fixture.engine();
        let class = engine.look(|core| core.volumes.get(volume)).expect("the volume").class;
        engine.look(|core| core.space.unpromised(class))
    };
    let before = (unpromised(&fixture), room(&mut fixture));
    resize(&mut fixture, "a", 8 * MIB).expect("smaller");
    assert_eq!(unpromised(&fixture), before.0 + 24 * 32, "a stripe has 32 KiB");
    fixture.crash().expect("opened");
    assert_eq!(unpromised(&fixture), before.0 + 24 * 32);
    resize(&mut fixture, "a", 32 * MIB).expect("there is room");
    assert_eq!((unpromised(&fixture), room(&mut fixture)), before);
}

/// It was checked against the former size, and waited while the volume became smaller.
#[test]
fn a_write_that_waits_while_a_volume_becomes_smaller_is_refused() {
    let mut fixture = Fixture::new(6, 6, 5);
    let volume = fixture.create_volume(spec("a", "2+1", 8 * MIB)).id;
    let engine = fixture.engine();
    let handle = engine.look(|core| core.volumes.get(volume)).and_then(|layer| layer.handle()).expect("a handle");
    let requests = |tag: u64, op: Op| Request { tag, op, priority: Priority::Host, deadline: None };
    let write = |at: u64| Op::Write { at, data: vec![pattern(2, 4096).into()], fua: false };
    let mut waiting = Box::pin(handle.stop_writes());
    let stopped = futures_util::FutureExt::now_or_never(&mut waiting).expect("no write is under way");
    let events = [
        Event::Submit { volume, request: requests(1 << 40, write(4 * MIB)) },
        Event::SubmitOrdered { volume, request: requests(2 << 40, write(4 * MIB)) },
        Event::SubmitAtomic { volume, request: requests(3 << 40, write(4 * MIB)) },
        Event::Submit { volume, request: requests(4 << 40, Op::Zero { at: 4 * MIB, length: 4096 }) },
    ];
    // As a command that shrinks does, with the volume's writes stopped.
    events.into_iter().for_each(|event| fixture.pool.event(event));
    fixture.pass(stele_ground::Duration::from_millis(1));
    let layer = engine.look(|core| core.volumes.get(volume)).expect("the volume");
    layer.change_spec(|spec| spec.size = Bytes(2 * MIB));
    drop(stopped);
    fixture.idle();
    assert!(engine.look(|core| core.cache.dirty_stripes_of(VolumeId(volume.0))).is_empty(), "behind its end");
    assert_eq!(layer.mapped(), 0);
    layer.change_spec(|spec| spec.size = Bytes(8 * MIB));
    assert!(is_zero(&fixture.read(volume, 4 * MIB, 4096).expect("read")));
}

/// Whole stripes on their way to the drives are neither in the map nor dirty.
#[test]
fn a_volume_that_becomes_smaller_waits_for_writes_under_way() {
    let mut fixture = Fixture::new(6, 6, 7);
    let volume = fixture.create_volume(spec("a", "2+1", 8 * MIB)).id;
    let data = pattern(2, 1 << 20);
    fixture.test_drives.held = Some(12 << 20..64 << 20);
    let op = Op::Write { at: 4 * MIB, data: vec![data.clone().into()], fua: false };
    let request = Request { tag: 1 << 40, op, priority: Priority::Host, deadline: None };
    fixture.pool.event(Event::Submit { volume, request });
    fixture.pass(stele_ground::Duration::from_millis(1));
    let layer = fixture.engine().look(|core| core.volumes.get(volume)).expect("the volume");
    assert_eq!((layer.mapped(), fixture.status().dirty), (0, Bytes(0)), "it is on its way");
    fixture.begin_command(Command::ResizeVolume { name: "a".into(), size: Bytes(2 * MIB) });
    fixture.pass(stele_ground::Duration::from_millis(20));
    fixture.test_drives.held = None;
    fixture.idle();
    assert_eq!(size(&mut fixture), 8 * MIB, "the write came first");
    assert!(fixture.read(volume, 4 * MIB, 1 << 20).expect("read") == data);
}

#[test]
fn power_cuts_anywhere_in_a_change_of_size_leave_the_former_or_the_new_one() {
    let mut seen = [false; 2];
    for (seed, cut) in (0..8).flat_map(|seed| (0..12).map(move |cut| (seed, cut))) {
        let mut fixture = Fixture::new(4, 4, seed);
        let volume = fixture.create_volume(spec("a", "2+1", 2 * MIB)).id;
        let data = pattern(1, 1 << 20);
        fixture.write(volume, 0, &data).expect("written");
        fixture.write(volume, MIB, &data).expect("written");
        fixture.discard(volume, MIB, MIB).expect("discarded");
        fixture.begin_command(Command::ResizeVolume { name: "a".into(), size: Bytes(MIB) });
        fixture.run_operations(cut);
        fixture.crash().expect("opened");
        let now = size(&mut fixture);
        assert!(now == MIB || now == 2 * MIB, "{now} bytes after {cut} operations, seed {seed}");
        seen[usize::from(now == MIB)] = true;
        assert!(fixture.read(volume, 0, 1 << 20).expect("read") == data, "{cut}");
        resize(&mut fixture, "a", 2 * MIB).expect("it may grow");
        assert!(is_zero(&fixture.read(volume, MIB, 1 << 20).expect("read")), "{cut}");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        assert_eq!(fixture.scrub(), (0, 0), "{cut}");
    }
    assert_eq!(seen, [true; 2], "cuts came before and after it");
}
