use stele_ground::{Bytes, Instant, MIB};

use super::*;
use crate::conformance::{self, Subject};
use crate::{Buffer, Priority};

struct Memory(MemoryDrive);

impl Subject for Memory {
    fn drive(&mut self) -> &mut dyn Drive {
        &mut self.0
    }
    fn cut_power(&mut self) -> bool {
        self.0.cut_power();
        true
    }
}

#[test]
fn every_kind_of_memory_drive_conforms() {
    for seed in 0..4 {
        conformance::check("memory", seed, &mut |_| Box::new(Memory(MemoryDrive::new(Bytes(4 * MIB)))));
        conformance::check("volatile memory", seed, &mut |_| Box::new(Memory(MemoryDrive::volatile(Bytes(5 * MIB)))));
        let small_blocks = || MemoryDrive::with_block(Bytes(4 * MIB + 3 * 512), Bytes(512));
        conformance::check("memory of 512", seed, &mut |_| Box::new(Memory(small_blocks())));
        conformance::check("touched memory", seed, &mut |_| {
            let mut drive = MemoryDrive::new(Bytes(4 * MIB));
            drive.preallocate();
            Box::new(Memory(drive))
        });
    }
}

fn one(drive: &mut MemoryDrive, op: Op) -> Op {
    drive.submit(Request { tag: 7, op, priority: Priority::Host, deadline: None });
    let mut finished = Vec::new();
    drive.reap(Instant(0), &mut finished);
    finished.pop().expect("memory answers at once").op
}

#[test]
fn what_is_not_flushed_is_lost_by_a_power_cut() {
    let mut drive = MemoryDrive::volatile(Bytes(MIB));
    let page = |byte| vec![Buffer::copy_of(&[byte; 4096]).freeze()];
    one(&mut drive, Op::Write { at: 0, data: page(1), fua: false });
    one(&mut drive, Op::Flush);
    one(&mut drive, Op::Write { at: 0, data: page(2), fua: false });
    one(&mut drive, Op::Write { at: 4096, data: page(3), fua: true });
    one(&mut drive, Op::Write { at: 8192, data: page(4), fua: false });
    drive.cut_power();
    let Op::Read { buffer, .. } = one(&mut drive, Op::Read { at: 0, buffer: Buffer::zeroed(3 * 4096) }) else {
        panic!("another operation came back")
    };
    assert_eq!([buffer[0], buffer[4096], buffer[8192]], [1, 3, 0]);
}

#[test]
fn untouched_and_cleared_space_owns_no_memory() {
    let mut drive = MemoryDrive::new(Bytes(64 * MIB));
    assert!(drive.chunks.iter().all(Option::is_none));
    one(&mut drive, Op::Write { at: 0, data: vec![Buffer::zeroed(MIB as usize).freeze()], fua: false });
    assert_eq!(drive.chunks.iter().flatten().count(), 4);
    one(&mut drive, Op::Discard { at: 0, length: MIB });
    assert!(drive.chunks.iter().all(Option::is_none));
    let Op::Extents { extents, .. } =
        one(&mut drive, Op::Extents { at: 0, length: MIB, since: None, extents: Vec::new() })
    else {
        panic!("another operation came back")
    };
    assert_eq!(extents, [Extent { length: MIB, state: ExtentState::Hole }]);
}
