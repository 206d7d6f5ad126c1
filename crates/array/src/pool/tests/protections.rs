//! Each protection of a whole pool is taken away in turn, and a workload that is fine with it must
//! notice. (Log, table and the reuse of slots have such tests of their own beside them.)

use std::panic::{AssertUnwindSafe, catch_unwind};

use stele_ground::{Duration, VolumeId};
use stele_media::{Buffer, Completion, Op, Priority, Request};

use super::KIB;
use crate::drives::label::LOG_AT;
use crate::model::mutation::{Mutation, Mutations};
use crate::model::{Action, Command, DigestUnit, DriveHealth, Event, OpenOptions, VolumeSpec, WriteMode};
use crate::pool::State;
use crate::testing::drives::End;
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const STRIPE: usize = 64 * KIB;

/// A workload under a seed, with protections taken away: false when something is wrong at its end.
type Workload = fn(Mutations, u64) -> bool;

#[test]
fn each_protection_is_needed() {
    let table: &[(&str, Workload, u64, &[Mutation])] = &[
        ("damage on a drive", damage, 2, &[Mutation::ReadDigest]),
        ("whole stripes, then a power cut", whole_stripes, 12, &[Mutation::SlotFlush, Mutation::SlotReuse]),
        ("write-through, then a power cut", write_through, 12, &[Mutation::StripFlush]),
        ("destages of many stripes, then a power cut", destaged, 4, &[Mutation::StripFlush]),
        ("writes that need no task, then a power cut", at_once, 4, &[Mutation::AtOnce]),
        ("a power cut in a destage", cut_destage, 120, &[Mutation::RedoOrder, Mutation::RedoImages]),
        ("a power cut before the first of several groups", many_groups, 4, &[Mutation::LogOrder]),
        ("names of what was just written, then a power cut", names, 60, &[Mutation::WriteOrder]),
        ("a flush behind what is ordered, then a power cut", flushed, 4, &[Mutation::OrderedFlush]),
        ("a power cut in writes that are to be whole", whole_writes, 60, &[Mutation::WholeGroup]),
        ("a power cut after creation", created, 20, &[Mutation::LabelFlush]),
        ("memory that changes by itself", memory, 2, &[Mutation::MemoryDigest]),
        ("two halves of a pool", two_halves, 4, &[Mutation::LabelMajority]),
    ];
    for (name, workload, seeds, protections) in table {
        let fine = |mutations: Mutations, seed| {
            matches!(catch_unwind(AssertUnwindSafe(|| workload(mutations, seed))), Ok(true))
        };
        for seed in 0..*seeds {
            assert!(fine(Mutations::default(), seed), "{name}, seed {seed}: wrong with every protection in place");
        }
        for protection in *protections {
            let noticed = (0..*seeds).any(|seed| !fine(Mutations::default().with(*protection), seed));
            assert!(noticed, "{name}: {protection:?} was taken away and nothing noticed");
        }
    }
}

fn reopened(fixture: &mut Fixture) {
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
}

/// The power goes; with every protection back, the volume holds what the model says.
fn holds_after_a_cut(mut fixture: Fixture, volume: VolumeId, model: &[u8]) -> bool {
    fixture.mutations = Mutations::default();
    if fixture.crash().is_err() || fixture.read(volume, 0, model.len()).is_ok_and(|read| read != model) {
        return false;
    }
    // From the drives too: replay fills the cache.
    reopened(&mut fixture);
    fixture.read(volume, 0, model.len()).is_ok_and(|read| read == model)
}

fn damage(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(6, 6, seed);
    let model = pattern(seed, 1 << 20);
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    fixture.write(volume, 0, &model).expect("written");
    reopened(&mut fixture);
    fixture.test_drives.damage(2, 12 << 20, 8 << 20);
    fixture.pool.set_mutations(mutations);
    fixture.read(volume, 0, 1 << 20).is_ok_and(|read| read == model)
}

/// More drives than log members, so that the log's own flushes do not cover the strips.
fn whole_stripes(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(12, 6, seed);
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    fixture.pool.set_mutations(mutations);
    let model = pattern(seed, 1 << 20);
    for (number, data) in model.chunks(STRIPE).enumerate() {
        fixture.write(volume, (number * STRIPE) as u64, data).expect("written");
    }
    fixture.test_drives.cut_bare();
    holds_after_a_cut(fixture, volume, &model)
}

fn write_through(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(12, 6, seed);
    let volume = fixture.create_volume(VolumeSpec { mode: WriteMode::WriteThrough, ..spec("a", "4+2", 1 << 20) }).id;
    let mut model = pattern(seed, 1 << 20);
    fixture.write(volume, 0, &model).expect("written");
    reopened(&mut fixture);
    fixture.pool.set_mutations(mutations);
    for number in 0..16 {
        let (at, new) = (number * STRIPE + number * 4 * KIB, pattern(number as u64, 4 * KIB));
        fixture.write(volume, at as u64, &new).expect("written");
        model[at..at + new.len()].copy_from_slice(&new);
    }
    holds_after_a_cut(fixture, volume, &model)
}

/// The log forgets what was destaged once it has told so.
fn destaged(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(12, 6, seed);
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    let mut model = pattern(seed, 1 << 20);
    fixture.write(volume, 0, &model).expect("written");
    reopened(&mut fixture);
    for number in 0..16 {
        let (at, new) = (number * STRIPE + number * 4 * KIB, pattern(number as u64, 4 * KIB));
        fixture.write(volume, at as u64, &new).expect("written");
        model[at..at + new.len()].copy_from_slice(&new);
    }
    fixture.pool.set_mutations(mutations);
    fixture.pass(Duration::from_secs(10));
    let count = &fixture.engine().count;
    assert!(count.batched.get() > 0, "{} destages, and none in a batch", count.destages.get());
    fixture.test_drives.cut_bare();
    holds_after_a_cut(fixture, volume, &model)
}

/// Of stripes that are mapped, no write waits for anything before it is in the log.
fn at_once(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(8, 8, seed);
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    let mut model = pattern(seed, 1 << 20);
    fixture.write(volume, 0, &model).expect("written");
    fixture.pool.set_mutations(mutations);
    for number in 0..8 {
        let (at, new) = (number * STRIPE + 4 * KIB, pattern(number as u64, 4 * KIB));
        fixture.write(volume, at as u64, &new).expect("written");
        model[at..at + new.len()].copy_from_slice(&new);
    }
    fixture.test_drives.cut_bare();
    holds_after_a_cut(fixture, volume, &model)
}

/// Where one digest covers a strip, a torn destage takes blocks with it that no host was writing.
fn cut_destage(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(8, 8, seed);
    let volume = fixture.create_volume(VolumeSpec { digest: DigestUnit::Strip, ..spec("a", "4+2", 1 << 20) }).id;
    let mut model = pattern(seed, 1 << 20);
    fixture.write(volume, 0, &model).expect("written");
    reopened(&mut fixture);
    for number in 0..8 {
        let (at, new) = (number * STRIPE + number * 4 * KIB, pattern(number as u64, 4 * KIB));
        fixture.write(volume, at as u64, &new).expect("written");
        model[at..at + new.len()].copy_from_slice(&new);
    }
    fixture.pool.set_mutations(mutations);
    fixture.test_drives.cut_at = Some(fixture.test_drives.operations + seed * 2);
    assert!(matches!(fixture.command(Command::Checkpoint), Ok(_) | Err(NoAnswer::PowerCut)));
    holds_after_a_cut(fixture, volume, &model)
}

/// Writes at once that fill several groups, the first of which reaches no drive before the power
/// goes.
fn many_groups(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(8, 8, seed);
    let volume = fixture.create_volume(spec("a", "3+1", 4 << 20)).id;
    let (stripe, length) = (48 * KIB, 20 * KIB);
    let data = |number: u64| pattern(seed << 8 | number, length);
    // With slots and pages at hand all of them depart in one moment.
    fixture.write(volume, 0, &pattern(seed, 4 << 20)).expect("written");
    fixture.pass(Duration::from_millis(500));
    fixture.pool.set_mutations(mutations);
    for number in 0..48 {
        let op =
            Op::Write { at: number * stripe as u64, data: vec![Buffer::copy_of(&data(number)).freeze()], fua: false };
        let request = Request { tag: number, op, priority: Priority::Host, deadline: None };
        fixture.pool.event(Event::Submit { volume, request });
    }
    let newest = super::sealed::groups(&fixture, 0).into_iter().max_by_key(|(_, header)| header.sequence);
    fixture.test_drives.held = newest.map(|(at, header)| LOG_AT + at + header.total()).map(|at| at..at + 1);
    let mut answers = Vec::new();
    let end = fixture.test_drives.now() + Duration::from_millis(50);
    fixture.test_drives.run_pool_until(&mut fixture.pool, &mut answers, end);
    fixture.mutations = Mutations::default();
    if fixture.crash().is_err() {
        return false;
    }
    answers.iter().all(|answer| match answer {
        Action::Finished { completion: Completion { tag, result: Ok(()), .. }, .. } => {
            fixture.read(volume, tag * stripe as u64, length).is_ok_and(|read| read == data(*tag))
        }
        _ => false,
    })
}

/// Writes over many stripes, some of them whole ones, and the power goes in one: all of it is there
/// or nothing of it.
fn whole_writes(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(8, 8, seed);
    let volume = fixture.create_volume(spec("a", "4+2", 2 << 20)).id;
    fixture.pool.set_mutations(mutations);
    fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 1 + seed * 7);
    let (mut model, mut torn) = (vec![0; 2 << 20], vec![0; 2 << 20]);
    for number in 0.. {
        let length = [1 << 20, 4 * KIB, 100 * KIB, 700 * KIB][number as usize % 4];
        let at = ((seed * 4 + number * 20) % 1000) as usize * KIB;
        torn.clone_from(&model);
        torn[at..at + length].copy_from_slice(&pattern(seed << 8 | number, length));
        match fixture.write_atomic(volume, at as u64, &torn[at..at + length]) {
            Ok(()) => model.clone_from(&torn),
            Err(NoAnswer::PowerCut) => break,
            Err(other) => panic!("{other:?}"),
        }
    }
    fixture.mutations = Mutations::default();
    if fixture.crash().is_err() {
        return false;
    }
    let wrong = |read: &[u8]| read != model && read != torn;
    !fixture.read(volume, 0, model.len()).is_ok_and(|read| wrong(&read)) && fixture.scrub() == (0, 0)
}

fn created(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::blank(6, 6, seed, OpenOptions { seed, ..OpenOptions::default() });
    fixture.pool.set_mutations(mutations);
    fixture.settle().expect("created");
    fixture.crash().is_ok()
        && *fixture.pool.state() == State::Ready { read_only: false }
        && fixture.status().drives.iter().all(|drive| drive.health == DriveHealth::Healthy)
}

/// Three of five drives go while writes come; later only those three are there.
fn two_halves(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(5, 5, seed);
    let volume = fixture.create_volume(spec("a", "mirror-2", 1 << 20)).id;
    let old = pattern(seed, 1 << 20);
    fixture.write(volume, 0, &old).expect("written");
    reopened(&mut fixture);
    fixture.pool.set_mutations(mutations);
    fixture.pull(&[2, 3, 4]);
    let new = pattern(seed + 100, 4 * KIB);
    let written: Vec<u64> = (0..64).map(|number| number * 16 * KIB as u64).collect();
    let written: Vec<u64> = written.into_iter().filter(|at| fixture.write(volume, *at, &new).is_ok()).collect();
    for drive in 0..5 {
        fixture.test_drives.drives[drive].gone = drive < 2;
    }
    fixture.mutations = Mutations::default();
    if fixture.crash().is_err() {
        // Loud: nothing old is shown as current.
        return true;
    }
    written.iter().all(|at| !fixture.read(volume, *at, 4 * KIB).is_ok_and(|read| read != new))
}

/// What waits to be destaged changes in memory.
fn memory(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(8, 8, seed);
    fixture.mutations = mutations;
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    reopened(&mut fixture);
    let model = pattern(seed, 40 * KIB);
    fixture.write(volume, 0, &model).expect("written");
    let spoilt = (0..4).all(|which| fixture.pool.spoil_memory(2 * which, 100 * which as usize));
    spoilt && fixture.read(volume, 0, model.len()).is_ok_and(|read| read == model)
}

/// Contents on one volume, and the name of each on another as soon as the content is ordered: no
/// name without its content.
fn names(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(8, 8, seed);
    let contents = fixture.create_volume(spec("contents", "4+2", 2 << 20)).id;
    let names = fixture.create_volume(spec("names", "mirror-3", 1 << 20)).id;
    reopened(&mut fixture);
    // Names have their pages at hand, contents have to wait for theirs.
    fixture.write(names, 0, &pattern(seed, 4 * KIB)).expect("written");
    fixture.pool.set_mutations(mutations);
    fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 1 + seed * 3);
    // Some go through the log, some to slots of their own.
    let content = |number: u64| pattern(seed << 8 | number, if number.is_multiple_of(3) { STRIPE } else { 8 * KIB });
    let name = |number: u64| pattern(seed << 8 | number | 1 << 32, 4 * KIB);
    let write = |volume, number: u64, tag: u64, at: usize, data: Vec<u8>, ordered: bool| {
        let op = Op::Write { at: number * at as u64, data: vec![Buffer::copy_of(&data).freeze()], fua: true };
        let request = Request { tag, op, priority: Priority::Host, deadline: None };
        if ordered { Event::SubmitOrdered { volume, request } } else { Event::Submit { volume, request } }
    };
    for number in 0..8 {
        fixture.pool.event(write(contents, number, number, STRIPE, content(number), true));
    }
    let (mut answers, mut seen) = (Vec::new(), 0);
    while let End::Idle =
        fixture.test_drives.run_pool(&mut fixture.pool, &mut answers, |answers, _| answers.len() > seen)
        && answers.len() > seen
    {
        for answer in &answers[seen..] {
            if let Action::Ordered { tag, .. } = answer {
                fixture.pool.event(write(names, *tag, 100 + tag, 4 * KIB, name(*tag), false));
            }
        }
        seen = answers.len();
    }
    fixture.mutations = Mutations::default();
    if fixture.crash().is_err() {
        return false;
    }
    let acknowledged = |tag: u64| {
        let done = |answer: &Action| matches!(answer, Action::Finished { completion, .. } if completion.tag == tag && completion.result.is_ok());
        answers.iter().any(done)
    };
    (0..8u64).all(|number| {
        let (at, wanted) = (number * STRIPE as u64, content(number));
        let has_name = fixture.read(names, number * 4096, 4 * KIB).is_ok_and(|read| read == name(number));
        let has_content = fixture.read(contents, at, wanted.len()).is_ok_and(|read| read == wanted);
        (has_content || !has_name)
            && (has_name || !acknowledged(100 + number))
            && (has_content || !acknowledged(number))
    })
}

/// Writes that are acknowledged as soon as they are ordered, and a flush behind them: when that is
/// answered, a power cut takes none of them.
fn flushed(mutations: Mutations, seed: u64) -> bool {
    let mut fixture = Fixture::new(8, 8, seed);
    let volume = fixture.create_volume(spec("a", "4+2", 2 << 20)).id;
    reopened(&mut fixture);
    fixture.pool.set_mutations(mutations);
    let content = |number: u64| pattern(seed << 8 | number, 8 * KIB);
    let request = |tag, op| Request { tag, op, priority: Priority::Host, deadline: None };
    for number in 0..8 {
        let data = vec![Buffer::copy_of(&content(number)).freeze()];
        let op = Op::Write { at: number * STRIPE as u64, data, fua: false };
        fixture.pool.event(Event::SubmitOrdered { volume, request: request(number, op) });
    }
    let mut answers = Vec::new();
    let is_ordered = |answer: &&Action| matches!(answer, Action::Ordered { .. });
    let all = |answers: &[Action]| answers.iter().filter(is_ordered).count() == 8;
    fixture.test_drives.run_pool(&mut fixture.pool, &mut answers, |answers, _| all(answers));
    fixture.pool.event(Event::Submit { volume, request: request(100, Op::Flush) });
    let is_flush = |answer: &Action| matches!(answer, Action::Finished { completion, .. } if completion.tag == 100 && completion.result.is_ok());
    fixture.test_drives.run_pool(&mut fixture.pool, &mut answers, |answers, _| answers.iter().any(is_flush));
    fixture.mutations = Mutations::default();
    all(&answers)
        && answers.iter().any(is_flush)
        && fixture.crash().is_ok()
        && (0..8u64).all(|number| {
            let wanted = content(number);
            fixture.read(volume, number * STRIPE as u64, wanted.len()).is_ok_and(|read| read == wanted)
        })
}
