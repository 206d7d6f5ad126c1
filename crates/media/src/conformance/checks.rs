//! The table of checks. Each check only lists operations; [`Probe`] verifies their results.

use super::{Check, Probe};
use crate::{Buffer, Op, Shared};

const MIB: u64 = 1 << 20;

pub const CHECKS: &[Check] = &[
    Check { claim: "a fresh drive reads as zeros", run: fresh },
    Check { claim: "a write is read back, at the start, in the middle and at the very end", run: read_after_write },
    Check { claim: "a write in pieces of any length and alignment arrives whole", run: pieces },
    Check { claim: "large and small transfers arrive whole", run: sizes },
    Check { claim: "neighbours of a write are untouched", run: neighbours },
    Check { claim: "zero zeroes, whatever was there", run: zero },
    Check { claim: "discard forgets", run: discard },
    Check { claim: "extents cover the range and never call data a hole", run: extents },
    Check { claim: "wrong requests are refused and touch nothing", run: invalid },
    Check { claim: "many operations in flight all come back once, with their buffers", run: many },
    Check { claim: "overlapping operations in flight leave blocks of either", run: overlapping },
    Check { claim: "random operations agree with the twin", run: random },
    Check { claim: "a completed flush keeps what had completed before it", run: flush },
    Check { claim: "a completed fua write is durable by itself", run: fua },
    Check { claim: "a flush promises nothing falsely while writes are in flight", run: flush_in_flight },
    Check { claim: "random operations survive power cuts as promised", run: power_cuts },
];

fn fresh(probe: &mut Probe) {
    probe.settle();
}

fn read_after_write(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    let end = probe.geometry.size.0;
    for at in [0, block, end / 2 / block * block, end - block] {
        for fua in [false, true] {
            let tag = probe.write(at, block, fua);
            probe.wait(tag);
            let tag = probe.read(at, block);
            probe.wait(tag);
        }
    }
    let tag = probe.write(end - 8 * block, 8 * block, false);
    probe.wait(tag);
    probe.settle();
}

fn pieces(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    let length = 64 * block;
    let mut cuts = vec![1, 2, 511, block as usize, block as usize + 1];
    for round in 0..8 {
        let tag = probe.write_pieces(round * length, length, round % 2 == 1, &cuts);
        probe.wait(tag);
        cuts = (0..round * 7).map(|_| probe.dice.below(length) as usize).collect();
        cuts.sort_unstable();
        cuts.dedup();
    }
    // More pieces than one system call takes.
    let cuts: Vec<usize> = (1..3000).map(|n| n * length as usize / 3000).collect();
    let tag = probe.write_pieces(9 * length, length, false, &cuts);
    probe.wait(tag);
    probe.settle();
}

fn sizes(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    let mut length = block;
    while length <= 2 * MIB {
        for length in [length, length + block] {
            let (write, read) = (probe.write(block, length, false), probe.read(0, 2 * MIB));
            probe.wait(write);
            probe.wait(read);
            let read = probe.read(0, length + 2 * block);
            probe.wait(read);
        }
        length *= 2;
    }
    probe.settle();
}

fn neighbours(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    let tag = probe.write(0, MIB, false);
    probe.wait(tag);
    for at in (block..MIB - block).step_by(7 * block as usize) {
        probe.write(at, block, false);
        probe.wait_to(8);
    }
    probe.settle();
}

fn zero(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    let tag = probe.write(0, 2 * MIB, false);
    probe.wait(tag);
    for (at, length) in
        [(0, block), (3 * block, block), (16 * block, 100 * block), (MIB, MIB / 2), (2 * MIB, MIB), (block, block)]
    {
        let tag = probe.zero(at, length);
        probe.wait(tag);
        let tag = probe.read(at / block * block, length);
        probe.wait(tag);
    }
    let tag = probe.write(MIB + 4 * block, block, false);
    probe.wait(tag);
    probe.settle();
}

fn discard(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    let tag = probe.write(0, 3 * MIB, false);
    probe.wait(tag);
    for (at, length) in [(0, block), (5 * block, 3 * block), (MIB, MIB), (2 * MIB + block, 9 * block), (3 * MIB, MIB)] {
        let tag = probe.discard(at, length);
        probe.wait(tag);
    }
    probe.settle();
    // Discarded space must accept writes like any other.
    let tag = probe.write(MIB + block, 4 * block, true);
    probe.wait(tag);
    probe.settle();
}

fn extents(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    let size = probe.geometry.size.0;
    let list = |probe: &mut Probe| {
        for (at, length) in [(0, size), (0, block), (size - block, block), (MIB - block, MIB)] {
            let tag = probe.extents(at, length);
            probe.wait(tag);
        }
    };
    list(probe);
    for _ in 0..20 {
        let (at, length) = probe.range(size, 32);
        let tag = match probe.dice.below(3) {
            0 => probe.zero(at, length),
            1 => probe.discard(at, length),
            _ => probe.write(at, length, false),
        };
        probe.wait(tag);
    }
    list(probe);
    probe.settle();
}

fn invalid(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    let size = probe.geometry.size.0;
    let tag = probe.write(0, MIB, true);
    probe.wait(tag);
    let wrong = [
        (size, block),
        (size - block, 2 * block),
        (u64::MAX / block * block, block),
        (u64::MAX - block + 1, block),
        (1, block),
        (block / 2, block),
        (0, block - 1),
        (0, block + 1),
        (block, 0),
        (u64::MAX, 1),
    ];
    for (at, length) in wrong {
        let data = vec![Shared::from(vec![0xEE; length as usize])];
        let buffer = Buffer::zeroed(length as usize);
        let ops = [
            Op::Read { at, buffer },
            Op::View { at, length, pieces: Vec::new() },
            Op::Write { at, data: data.clone(), fua: false },
            Op::Write { at, data, fua: true },
            Op::Zero { at, length },
            Op::Discard { at, length },
            Op::Extents { at, length, since: None, extents: Vec::new() },
        ];
        for op in ops {
            probe.refused(op);
        }
        probe.wait_all();
    }
    // A length beyond any memory, and a range whose end overflows.
    for length in [u64::MAX / block * block, size + block] {
        probe.refused(Op::Zero { at: block, length });
        probe.refused(Op::Discard { at: block, length });
        probe.refused(Op::Extents { at: 0, length, since: None, extents: Vec::new() });
    }
    probe.refused(Op::Write { at: 0, data: Vec::new(), fua: false });
    probe.wait_all();
    probe.settle();
}

fn many(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    let depth = probe.depth() as u64;
    for round in 0..8 {
        for n in 0..depth {
            let at = n * block;
            match (n + round) % 3 {
                0 => probe.read(at, block),
                1 => probe.write(at, block, n % 5 == 0),
                _ if n % 16 == 2 => probe.flush(),
                _ => probe.write(at, block, false),
            };
        }
        assert_eq!(probe.in_flight() as u64, depth);
        probe.wait_all();
    }
    probe.settle();
}

fn overlapping(probe: &mut Probe) {
    let depth = probe.depth();
    for _ in 0..400 {
        let (at, length) = probe.range(MIB / 4, 16);
        match probe.dice.below(10) {
            0 => probe.zero(at, length),
            1 => probe.discard(at, length),
            2..=4 => probe.read(at, length),
            _ => probe.write(at, length, false),
        };
        if probe.in_flight() >= depth {
            let left = probe.dice.below(depth as u64) as usize;
            probe.wait_to(left);
        }
    }
    probe.settle();
    probe.settle();
}

/// One random operation in a small span, so that operations overlap.
fn step(probe: &mut Probe) {
    let span = if probe.dice.one_in(4) { probe.geometry.size.0 } else { MIB };
    let blocks = if probe.dice.one_in(8) { 200 } else { 8 };
    let (at, length) = probe.range(span, blocks);
    match probe.dice.below(20) {
        0 => probe.zero(at, length),
        1 => probe.discard(at, length),
        2 => probe.extents(at, length),
        3 | 4 => probe.flush(),
        5..=9 => probe.read(at, length),
        10 => {
            let mut cuts: Vec<usize> = (0..3).map(|_| probe.dice.below(length) as usize).collect();
            cuts.sort_unstable();
            probe.write_pieces(at, length, false, &cuts)
        }
        11 => probe.write(at, length, true),
        _ => probe.write(at, length, false),
    };
}

fn random(probe: &mut Probe) {
    let depth = probe.depth() as u64;
    for round in 0..1500 {
        step(probe);
        if probe.in_flight() as u64 >= depth || probe.dice.one_in(6) {
            let left = probe.dice.below(depth) as usize;
            probe.wait_to(left);
        }
        if round % 500 == 499 {
            probe.settle();
        }
    }
    probe.settle();
}

fn flush(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    for round in 0..6 {
        for n in 0..24 {
            probe.write((n * 3 + round) * block, 2 * block, false);
        }
        probe.zero((100 + round) * block, 4 * block);
        probe.wait_all();
        let tag = probe.flush();
        probe.wait(tag);
        // Never flushed: each sector may be there or not.
        for n in 0..12 {
            probe.write((n * 5 + round) * block, block, false);
        }
        probe.wait_all();
        if !probe.cut_power() {
            break;
        }
    }
    probe.settle();
}

fn fua(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    for round in 0..6 {
        for n in 0..16 {
            // Beside writes that are not durable, and over them.
            let tag = probe.write(n * 4 * block, 4 * block, false);
            probe.wait(tag);
            let tag = probe.write((n * 4 + 1) * block, block * (1 + round % 3), true);
            probe.wait(tag);
        }
        if !probe.cut_power() {
            break;
        }
    }
    probe.settle();
}

fn flush_in_flight(probe: &mut Probe) {
    let block = probe.geometry.block.0;
    for round in 0..8 {
        for n in 0..8 {
            probe.write((n * 2 + round) * block, 3 * block, false);
            if n % 2 == 0 {
                probe.flush();
            }
        }
        let left = probe.dice.below(10) as usize;
        probe.wait_to(left);
        if !probe.cut_power() {
            break;
        }
    }
    probe.settle();
}

fn power_cuts(probe: &mut Probe) {
    let depth = (probe.depth() as u64).min(24);
    for _ in 0..8 {
        for _ in 0..150 {
            step(probe);
            if probe.in_flight() as u64 >= depth || probe.dice.one_in(4) {
                let left = probe.dice.below(depth) as usize;
                probe.wait_to(left);
            }
        }
        if !probe.cut_power() {
            break;
        }
    }
    probe.settle();
}
