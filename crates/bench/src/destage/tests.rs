use std::collections::BTreeMap;

use stele_ground::BLOCK;
use stele_media::Buffer;

use super::hard::{Command, Job};
use super::memory::in_place::read_block;
use super::space::{NONE, Run, Space, Stream};
use super::*;

/// Small enough that every place is used again many times, on drives that lose what was not
/// flushed.
const SMALL: Sizes = Sizes { volume: 4 * MIB, log: MIB, clean: MIB / 4, dirty: MIB / 2, drive: MemoryDrive::volatile };
const MIRROR: Layout = Layout { k: 1, m: 1, drives: 4, strip: 16, row: 2, turns: false };
const PARITY: Layout = Layout { k: 4, m: 2, drives: 7, strip: 4, row: 2, turns: false };

fn block_of(number: u64) -> Shared {
    let mut buffer = Buffer::zeroed(BLOCK);
    Dice::new(number).fill(&mut buffer);
    buffer.freeze()
}

fn in_place_on<D: Destage>(layout: Layout, destage: D) -> Running<D> {
    let stripes = (SMALL.volume / PAGE).div_ceil(layout.stripe());
    let mut store = MemoryPool::new(layout, stripes, in_place::words(&layout, stripes), SMALL);
    in_place::begin(&mut store, stripes);
    Running::new(store, destage, SMALL)
}

fn relocated_on(layout: Layout, choice: Choice) -> Running<Relocate> {
    let plan = relocate::Room { full: 0.7, choice, parcels: 3 };
    let destage = Relocate::new(&layout, SMALL.volume / PAGE, plan);
    Running::new(MemoryPool::new(layout, destage.space().parcels(), 1024, SMALL), destage, SMALL)
}

/// Writes at random, cuts the power, and compares what is read with what was written.
fn write_and_compare<D: Destage>(running: &mut Running<D>, skew: Skew) -> BTreeMap<u64, u64> {
    let mut hosts = Writers::new(3, SMALL.volume / PAGE, skew);
    let mut newest = BTreeMap::new();
    for round in 0..400u64 {
        let group: Vec<(u64, Shared)> = (0..16)
            .map(|number| {
                let block = hosts.draw();
                newest.insert(block, round * 16 + number + 1);
                (block, block_of(round * 16 + number + 1))
            })
            .collect();
        running.write(&group);
    }
    running.drain();
    running.store.drives.cut_power();
    let mut read = vec![0; SMALL.volume as usize];
    for first in (0..SMALL.volume / PAGE).step_by(64) {
        running.read(first, 64, &mut read[first as usize * BLOCK..][..64 * BLOCK]);
    }
    for (block, data) in (0..).zip(read.chunks_exact(BLOCK)) {
        let expected = newest.get(&block).map_or_else(|| Shared::from(vec![0; BLOCK]), |number| block_of(*number));
        assert!(data == &expected[..], "block {block} is not what was written last");
    }
    newest
}

#[test]
fn each_prototype_returns_what_was_written_last() {
    for layout in [MIRROR, PARITY] {
        for skew in [Skew::Uniform, Skew::Hot] {
            write_and_compare(&mut in_place_on(layout, Today::default()), skew);
            for stripes in [1, 8, 64] {
                write_and_compare(&mut in_place_on(layout, Batch::new(&layout, SMALL.volume / PAGE, stripes)), skew);
            }
            for choice in [Choice::Greedy, Choice::CostBenefit] {
                let mut running = relocated_on(layout, choice);
                write_and_compare(&mut running, skew);
                let moved = running.destage.space().moved;
                assert!(moved > 200, "the cleaner moved {moved} blocks only");
            }
        }
    }
}

#[test]
fn parity_in_place_is_that_of_the_data() {
    let layout = PARITY;
    let stripes = SMALL.volume / PAGE / layout.stripe();
    let compare = |store: &mut MemoryPool| {
        for (stripe, at) in (0..stripes).flat_map(|stripe| (0..layout.strip).map(move |at| (stripe, at))) {
            let strips: Vec<Buffer> = (0..layout.width()).map(|strip| read_block(store, stripe, strip, at)).collect();
            let data: Vec<&[u8]> = strips[..layout.k].iter().map(|strip| &strip[..]).collect();
            let mut parity = vec![vec![0; BLOCK]; layout.m];
            let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|parity| &mut parity[..]).collect();
            store.coder.encode(&data, &mut outputs);
            assert!(parity.iter().zip(&strips[layout.k..]).all(|(one, other)| one[..] == other[..]), "stripe {stripe}");
        }
    };
    let mut today = in_place_on(layout, Today::default());
    write_and_compare(&mut today, Skew::Uniform);
    compare(&mut today.store);
    let mut batch = in_place_on(layout, Batch::new(&layout, SMALL.volume / PAGE, 8));
    write_and_compare(&mut batch, Skew::Uniform);
    compare(&mut batch.store);
}

/// Without the log's records of the map, and after the power was cut.
#[test]
fn the_map_is_made_again_from_the_owners() {
    for layout in [MIRROR, PARITY] {
        let mut running = relocated_on(layout, Choice::Greedy);
        let newest = write_and_compare(&mut running, Skew::Hot);
        let recovered = running.destage.recovered(&mut running.store);
        for block in 0..(SMALL.volume / PAGE) as u32 {
            let place = running.destage.space().place_of(block);
            assert_eq!(recovered[block as usize], place, "block {block}");
            assert_eq!(place == NONE, !newest.contains_key(&u64::from(block)), "block {block}");
        }
    }
}

#[test]
#[should_panic(expected = "does not verify")]
fn a_changed_byte_on_a_drive_is_noticed() {
    let mut running = relocated_on(PARITY, Choice::Greedy);
    write_and_compare(&mut running, Skew::Uniform);
    let (stripe, strip, at) = PARITY.of(u64::from(running.destage.space().place_of(0)));
    let (drive, byte) = PARITY.place(stripe, strip, at);
    running.store.drives.write(drive, byte, vec![block_of(0)], true);
    running.read(0, 1, &mut [0; BLOCK]);
}

fn small_space() -> Space {
    Space::new(100, 8, 2, 0.3, 1, Choice::Greedy)
}

/// Beside a simple twin: each block has one place, and no place has two.
#[test]
fn the_space_gives_no_place_twice() {
    let (mut space, mut dice, mut holds) = (small_space(), Dice::new(1), BTreeMap::<u32, u32>::new());
    let mut put = |space: &mut Space, stream, blocks: Vec<u32>| {
        let Run { first, parcels } = space.take(stream, 1).unwrap();
        assert_eq!(parcels, 1);
        space.settle(first, blocks.iter().copied());
        holds.retain(|_, block| !blocks.contains(block));
        for (at, block) in blocks.into_iter().enumerate() {
            let place = space.place_of(block);
            assert_eq!(place, first * 8 + 1 + at as u32);
            assert_eq!(holds.insert(place, block), None, "place {place} was taken");
        }
        holds.clone()
    };
    for _ in 0..2000 {
        while space.is_short() {
            let Some(victim) = space.victim() else { break };
            let live: Vec<(u32, u32)> = space.live_in(victim).collect();
            for part in live.chunks(space.room()) {
                put(&mut space, Stream::Cleaner, part.iter().map(|(block, _)| *block).collect());
            }
            space.release(victim);
        }
        let mut blocks: Vec<u32> = (0..5).map(|_| dice.below(100) as u32).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let holds = put(&mut space, Stream::Hosts, blocks);
        for (place, block) in holds {
            assert_eq!(space.place_of(block), place, "block {block}");
        }
    }
}

#[test]
#[should_panic(expected = "is released with live blocks")]
fn a_segment_with_live_blocks_is_not_released() {
    let mut space = small_space();
    for first in [0, 7] {
        let run = space.take(Stream::Hosts, 1).unwrap();
        space.settle(run.first, first..first + 7);
    }
    let victim = space.victim().unwrap();
    space.release(victim);
}

#[test]
fn strips_of_a_stripe_lie_on_drives_of_their_own() {
    for layout in [MIRROR, PARITY, hard::layout(9, 1, 24), Layout { turns: true, ..hard::layout(8, 2, 12) }] {
        let mut places = std::collections::BTreeSet::new();
        for stripe in 0..300 {
            let drives: std::collections::BTreeSet<usize> =
                (0..layout.width()).map(|strip| layout.place(stripe, strip, 0).0).collect();
            assert_eq!(drives.len(), layout.width(), "stripe {stripe}");
            let new = (0..layout.width()).flat_map(|strip| (0..layout.strip).map(move |at| (strip, at)));
            assert!(new.map(|(strip, at)| layout.place(stripe, strip, at)).all(|place| places.insert(place)));
        }
    }
}

fn commands_of(path: Path, layout: Layout) -> Job {
    Plan::new(path, layout, 9000, 64, Skew::Uniform).next().expect("a full cache")
}

#[test]
fn commands_of_a_write_are_those_of_its_code() {
    let lengths = |job: &Job| job.stages.iter().map(Vec::len).collect::<Vec<usize>>();
    assert_eq!(lengths(&commands_of(Path::Profile, hard::layout(9, 1, 10))), [2, 2]);
    assert_eq!(lengths(&commands_of(Path::Profile, hard::layout(8, 2, 10))), [3, 3]);
    assert_eq!(lengths(&commands_of(Path::Profile, hard::layout(1, 1, 10))), [0, 2]);
    // All of it is one batch: with gaps, the same bytes take fewer commands.
    let batch =
        |read_gap, write_gap| commands_of(Path::Batch { stripes: 512, read_gap, write_gap }, hard::layout(9, 1, 10));
    let covers = |job: &Job, stage: usize, of: &Command| {
        job.stages[stage].iter().any(|command| {
            command.drive == of.drive && command.at <= of.at && of.at + of.length <= command.at + command.length
        })
    };
    let (plain, joined) = (batch(0, 0), batch(64 << 10, 0));
    assert_eq!((plain.blocks, joined.blocks), (64, 64));
    assert!(joined.stages[0].len() < plain.stages[0].len() && joined.stages[1] == plain.stages[1]);
    assert!(plain.stages[0].iter().all(|command| covers(&joined, 0, command)));
    assert!(batch(64 << 10, 64 << 10).stages[1].len() < plain.stages[1].len());
}

#[test]
fn virtual_runs_repeat_and_the_cleaner_keeps_up() {
    let measure = || {
        let path = Path::Relocate { full: 0.8, choice: Choice::Greedy };
        let layout = hard::layout(4, 1, 5);
        let mut plan = Plan::new(path, layout, 300_000, 4000, Skew::Uniform);
        let mut machine = Machine::new(5);
        plan.age(500_000);
        let wrote = hard::write(&mut plan, &mut machine, 20_000);
        hard::settle(&mut plan, &mut machine);
        // Every block is somewhere, and reads as one command or a part of one.
        let bytes: u64 = plan.read(0, 300_000).iter().map(|command| command.length).sum();
        assert_eq!(bytes, 300_000 * PAGE);
        (wrote.rate.to_bits(), wrote.amplification)
    };
    let (rate, amplification) = measure();
    assert_eq!(measure(), (rate, amplification));
    // Parity and owners take a quarter more; the rest is what the cleaner moves.
    assert!((1.5..4.0).contains(&amplification), "{amplification}");
}
