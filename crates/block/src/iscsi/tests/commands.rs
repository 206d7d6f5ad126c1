use std::sync::Arc;

use super::*;
use crate::scsi::naa;

#[test]
fn what_is_written_is_read_back_whichever_way_the_data_comes() {
    // 300 blocks: immediate, unsolicited and requested, over several bursts.
    let data: Vec<u8> = (0..300 * BLOCK).map(|at| (at / 7) as u8).collect();
    for immediate in [0usize, 4096, 8192] {
        for unsolicited in [0usize, 16_384, 65_536] {
            let mut bench = Bench::new();
            let host = bench.ready("iqn.a:b");
            let unsolicited = unsolicited.max(immediate);
            let mut header = command(1, 5, &write10(3, 300), Some(&data), data.len() as u32);
            if unsolicited > immediate {
                header.put(1, &[0x20]);
            }
            bench.send(host, header, &data[..immediate]);
            let mut sent = immediate;
            let piece = |bench: &mut Bench, sent: &mut usize, until: usize, transfer: u32| {
                let mut number = 0;
                while *sent < until {
                    let length = (until - *sent).min(8192);
                    let last = *sent + length == until;
                    let mut header = Header::new(opcode::DATA_OUT, if last { 0x80 } else { 0 });
                    header.set_tag(5);
                    header.put32(20, transfer);
                    header.put32(36, number);
                    header.put32(40, *sent as u32);
                    bench.send(host, header, &data[*sent..*sent + length]);
                    *sent += length;
                    number += 1;
                }
            };
            piece(&mut bench, &mut sent, unsolicited, NO_TAG);
            loop {
                let heard = bench.heard(host);
                let Some(ready) = heard.iter().find(|frame| frame.header.opcode() == opcode::READY) else { break };
                assert_eq!(ready.header.u32(40) as usize, sent);
                let until = sent + ready.header.u32(44) as usize;
                piece(&mut bench, &mut sent, until, ready.header.u32(20));
            }
            assert_eq!(sent, data.len());
            bench.settle();
            let answered = bench.heard(host);
            assert_eq!((answered.len(), answered[0].header.u8(3)), (1, 0));
            let (status, read) = bench.command(host, &mut 1, &read10(3, 300), None, data.len() as u32);
            assert_eq!(status, 0);
            assert!(read == data, "{immediate} immediate, {unsolicited} unasked");
        }
    }
}

#[test]
fn compare_and_write_has_its_blocks_to_itself() {
    let mut bench = Bench::new();
    let (one, other) = (bench.ready("iqn.a:one"), bench.ready("iqn.a:other"));
    let compare = |expects: u8, writes: u8| [[expects; 512], [writes; 512]].concat();
    let mut cdb = [0u8; 16];
    (cdb[0], cdb[9], cdb[13]) = (0x89, 7, 1);
    // Both expect zeros: only the first may find them.
    let (first, second) = (compare(0, 1), compare(0, 2));
    bench.send(one, command(1, 5, &cdb, Some(&first), 1024), &first);
    bench.send(other, command(1, 5, &cdb, Some(&second), 1024), &second);
    assert_eq!(bench.held.len(), 1, "the second waits");
    // A write beside it is carried out; one into it waits too.
    bench.send(other, command(2, 6, &write10(8, 1), Some(&[3; 512]), 512), &[3; 512]);
    bench.send(other, command(3, 7, &write10(7, 1), Some(&[4; 512]), 512), &[4; 512]);
    assert_eq!(bench.held.len(), 2);
    bench.settle();
    assert_eq!(bench.heard(one)[0].header.u8(3), 0);
    let answers = bench.heard(other);
    let of = |tag: u32| answers.iter().find(|frame| frame.header.tag() == tag).unwrap();
    assert_eq!((of(5).header.u8(3), sense(&of(5).data)), (2, (0x0e, 0x1d00)));
    assert_eq!((of(6).header.u8(3), of(7).header.u8(3)), (0, 0));
    let (_, read) = bench.command(one, &mut 1, &read10(7, 1), None, 512);
    assert_eq!(read, [4; 512]);
}

#[test]
fn an_abort_is_answered_when_the_write_has_left_the_drive() {
    let mut bench = Bench::new();
    let (one, other) = (bench.ready("iqn.a:one"), bench.ready("iqn.a:other"));
    bench.send(one, command(1, 5, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
    let mut abort = Header::new(opcode::MANAGEMENT, 0x81);
    abort.put(0, &[0x42]);
    abort.set_tag(9);
    abort.put32(20, 5);
    bench.send(one, abort, &[]);
    assert!(bench.heard(one).is_empty(), "the write may still happen");
    bench.settle();
    let heard = bench.heard(one);
    assert_eq!(heard.len(), 1, "the write itself is not answered");
    assert_eq!((heard[0].header.opcode(), heard[0].header.u8(2)), (opcode::MANAGED, 0));
    bench.send(one, abort, &[]);
    assert_eq!(bench.heard(one)[0].header.u8(2), 1, "no such task");

    // A reset of the unit ends the tasks of all initiators, and each is notified.
    bench.send(other, command(1, 6, &write10(0, 1), Some(&[2; 512]), 512), &[2; 512]);
    let mut reset = Header::new(opcode::MANAGEMENT, 0x85);
    reset.put(0, &[0x42]);
    reset.set_tag(10);
    bench.send(one, reset, &[]);
    assert!(bench.heard(one).is_empty());
    bench.settle();
    assert_eq!(bench.heard(one)[0].header.u8(2), 0);
    assert!(bench.heard(other).is_empty());
    for (host, mut number) in [(one, 1), (other, 1)] {
        let (status, data) = bench.command(host, &mut number, &[0; 6], None, 0);
        assert_eq!((status, sense(&data)), (2, (6, 0x2903)));
    }
}

#[test]
fn reservations_that_were_to_persist_are_there_after_a_restart() {
    let out = |action: u8, kind: u8, key: u64, new: u64, persists: bool| {
        let mut cdb = [0u8; 10];
        (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, kind, 24);
        let mut list = [key.to_be_bytes(), new.to_be_bytes(), [0; 8]].concat();
        list[20] = u8::from(persists);
        (cdb, list)
    };
    for persists in [true, false] {
        let mut bench = Bench::new();
        let one = bench.ready("iqn.a:one");
        let mut number = 0;
        for (cdb, list) in [out(0, 0, 0, 77, persists), out(1, 5, 77, 0, persists)] {
            assert_eq!(bench.command(one, &mut number, &cdb, Some(&list), 24).0, 0);
        }
        let kept = bench.kept.take();
        assert_eq!(kept.is_some(), persists);
        let restored = kept.as_deref().map_or_else(Reservations::default, |kept| {
            assert!(Reservations::restore(&kept[..kept.len() - 1]).is_none(), "a damaged record is not guessed");
            Reservations::restore(kept).unwrap()
        });
        let mut bench = Bench::with(restored);
        let (other, one) = (bench.ready("iqn.a:other"), bench.ready("iqn.a:one"));
        let refused = if persists { 0x18 } else { 0 };
        assert_eq!(bench.command(other, &mut 0, &write10(0, 1), Some(&[1; 512]), 512).0, refused);
        assert_eq!(bench.command(other, &mut 1, &read10(0, 1), None, 512).0, 0, "write exclusive lets others read");
        assert_eq!(bench.command(one, &mut 0, &write10(0, 1), Some(&[1; 512]), 512).0, 0);
    }
}

#[test]
fn every_listed_command_is_understood_and_no_other() {
    let mut bench = Bench::new();
    let host = bench.ready("iqn.a:b");
    let mut number = 0;
    for opcode in 0..=255u8 {
        let mut cdb = [0u8; 16];
        cdb[0] = opcode;
        let (status, data) = bench.command(host, &mut number, &cdb, None, 0);
        let unknown = status == 2 && sense(&data).1 == 0x2000;
        let mut report = [0u8; 12];
        (report[0], report[1], report[2], report[3], report[8]) = (0xa3, 0x0c, 3, opcode, 1);
        let (_, listed) = bench.command(host, &mut number, &report, None, 256);
        let actions = matches!(opcode, 0x9e | 0xa3);
        assert!(actions || unknown == (listed[1] & 7 == 1), "opcode {opcode:#04x}");
    }
}

#[test]
fn commands_of_arbitrary_bytes_are_answered_and_harm_nothing() {
    let mut dice = stele_ground::Dice::new(11);
    let mut bench = Bench::new();
    let host = bench.ready("iqn.a:b");
    let mut number = 0;
    for _ in 0..20_000 {
        let mut cdb = [0u8; 16];
        let listed = crate::scsi::opcodes_listed();
        cdb[0] = listed[dice.below(listed.len() as u64) as usize];
        for byte in &mut cdb[1..] {
            if dice.below(3) == 0 {
                *byte = dice.below(256) as u8;
            }
        }
        let data = vec![dice.below(256) as u8; [0usize, 8, 24, 512, 1024][dice.below(5) as usize]];
        let outward = dice.below(2) == 0 && !data.is_empty();
        let expected = if outward { data.len() as u32 } else { dice.below(1 << 20) as u32 };
        bench.command(host, &mut number, &cdb, outward.then_some(&data[..]), expected);
    }
}

#[test]
fn settings_that_no_unit_keeps_or_takes_are_refused() {
    let mut bench = Bench::new();
    let host = bench.ready("iqn.a:b");
    let mut number = 0;
    let mut select = |bench: &mut Bench, flags: u8, descriptor: &[u8], protect: u8| {
        let page = [0x0a, 10, 0, 0x10, protect, 0, 0, 0, 0xff, 0xff, 0, 0];
        let list = [&[0, 0, 0, descriptor.len() as u8][..], descriptor, &page].concat();
        let cdb = [0x15, flags, 0, 0, list.len() as u8, 0];
        let (status, said) = bench.command(host, &mut number, &cdb, Some(&list), list.len() as u32);
        (status != 0).then(|| sense(&said))
    };
    const PROTECT: u8 = 8;
    assert_eq!(select(&mut bench, 0x11, &[], PROTECT), Some((5, 0x2400)), "nothing is saved over a restart");
    // Blocks of another size, another number of blocks, and half a descriptor.
    let others: [&[u8]; 3] = [&[0, 0, 0x10, 0, 0, 0, 0x10, 0], &[0, 0, 8, 0, 0, 0, 2, 0], &[0; 4]];
    for descriptor in others {
        assert_eq!(select(&mut bench, 0x10, descriptor, PROTECT), Some((5, 0x2600)), "{descriptor:?}");
    }
    assert!(bench.shared.unit.imposed().is_nothing());
    let same: [&[u8]; 4] = [&[], &[0, 0, 0x10, 0, 0, 0, 2, 0], &[0; 8], &[255, 255, 255, 255, 0, 0, 2, 0]];
    for descriptor in same {
        assert_eq!(select(&mut bench, 0x10, descriptor, PROTECT), None, "{descriptor:?}");
        let by = bench.shared.unit.imposed().write_protected_by;
        assert_eq!(by.as_deref(), Some("iqn.a:b,i,0x010203040506"));
        assert_eq!(select(&mut bench, 0x10, descriptor, 0), None, "{descriptor:?}");
        assert!(bench.shared.unit.imposed().is_nothing());
    }
}

#[test]
fn an_atomic_write_is_asked_for_as_one_or_refused() {
    let atomic =
        |at: u64, count: u16| [&[0x9c, 0][..], &at.to_be_bytes(), &[0, 0], &count.to_be_bytes(), &[0, 0]].concat();
    let mut bench = Bench::new();
    let host = bench.ready("iqn.a:b");
    let data = vec![7; 16 * BLOCK as usize];
    bench.send(host, command(1, 5, &atomic(8, 16), Some(&data), data.len() as u32), &data);
    let asked =
        bench.held.iter().any(|(_, _, ask)| matches!(ask, Ask::Whole(_, stele_media::Op::Write { at: 4096, .. })));
    assert!(asked, "{:?}", bench.held);
    bench.settle();
    assert_eq!(bench.heard(host)[0].header.u8(3), 0);
    let mut number = 1;
    // Misaligned, of a length between two steps, with too little data, too long, beyond the end.
    for (at, count, sent, wanted) in [
        (1, 8, 8, (5, 0x2400)),
        (8, 9, 9, (5, 0x2400)),
        (8, 16, 8, (5, 0x0e03)),
        (0, 2056, 0, (5, 0x2400)),
        (BLOCKS - 8, 16, 16, (5, 0x2100)),
    ] {
        let data = vec![9; sent * BLOCK as usize];
        let (status, said) = bench.command(host, &mut number, &atomic(at, count), Some(&data), data.len() as u32);
        assert_eq!((status, sense(&said)), (2, wanted), "{count} blocks at {at}");
    }
    bench.shared.unit.profile.whole_max = 0;
    let (status, said) = bench.command(host, &mut number, &atomic(8, 8), Some(&data[..4096]), 4096);
    assert_eq!((status, sense(&said)), (2, (5, 0x2000)), "a drive that keeps no write whole");
}

/// The parameter list of a copy between units by their names: segments as (from, to, at, at,
/// blocks).
pub(super) fn copy_list(names: &[[u8; 8]], segments: &[(u16, u16, u64, u64, u16)]) -> Vec<u8> {
    let mut list =
        [1, 0, 0, names.len() as u8 * 32, 0, 0, 0, 0, 0, 0, 0, segments.len() as u8 * 28, 0, 0, 0, 0].to_vec();
    for name in names {
        let mut described = [0; 32];
        described[..8].copy_from_slice(&[0xe4, 0, 0, 0, 1, 3, 0, 8]);
        described[8..16].copy_from_slice(name);
        list.extend(described);
    }
    for (from, to, from_at, to_at, blocks) in segments {
        list.extend([2, 0, 0, 24]);
        list.extend([from.to_be_bytes(), to.to_be_bytes(), [0; 2], blocks.to_be_bytes()].concat());
        list.extend([from_at.to_be_bytes(), to_at.to_be_bytes()].concat());
    }
    list
}

fn neighbour(blocks: u64) -> Reached {
    Reached { unit: UnitId(3), blocks, block_bytes: 512, readable: true, writable: true, hold: Arc::default() }
}

#[test]
fn a_copy_reaches_the_units_that_its_initiator_may_reach_and_no_other() {
    let mut bench = Bench::new();
    let one = bench.ready("iqn.a:one");
    let mut number = 0;
    bench.neighbour = Some((neighbour(BLOCKS), MemoryDrive::with_block(Bytes(BLOCKS * BLOCK), Bytes(BLOCK))));
    let (here, there) = (naa(&profile()), naa(&neighbour_profile()));
    let data: Vec<u8> = (0..4 * 512).map(|at| (at / 7) as u8).collect();
    bench.command(one, &mut number, &write10(8, 4), Some(&data), 4 * 512);
    let mut copy = |bench: &mut Bench, names: &[[u8; 8]], segments: &[(u16, u16, u64, u64, u16)]| {
        let list = copy_list(names, segments);
        let mut cdb = [0; 16];
        cdb[0] = 0x83;
        cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
        let (status, said) = bench.command(one, &mut number, &cdb, Some(&list), list.len() as u32);
        if status == 0 { None } else { Some(sense(&said)) }
    };
    // To the other unit, within it, and back to another place.
    let segments = [(0, 1, 8, 100, 4), (1, 1, 100, 200, 4), (1, 0, 201, 50, 2)];
    assert_eq!(copy(&mut bench, &[here, there], &segments), None);
    let read = |bench: &mut Bench, at, count: u16| {
        let mut header = command(0, 0x77, &read10(at, count), None, u32::from(count) * 512);
        // Immediate: it has no number of its own.
        header.put(0, &[0x41]);
        bench.send(one, header, &[]);
        bench.settle();
        bench.heard(one).iter().flat_map(|frame| frame.data.to_vec()).collect::<Vec<u8>>()
    };
    assert!(read(&mut bench, 50, 2) == data[512..3 * 512], "two of the blocks came back");
    let hold = bench.neighbour.as_ref().map(|(reached, _)| Arc::downgrade(&reached.hold)).unwrap();
    assert_eq!(hold.strong_count(), 1, "nobody holds the unit after its copy");

    let unreachable = Some((0x0a, 0x0d02));
    assert_eq!(copy(&mut bench, &[here, *b"elsewher"], &[(0, 1, 0, 0, 1)]), unreachable);
    assert_eq!(copy(&mut bench, &[here, there], &[(0, 2, 0, 0, 1)]), unreachable, "it names two units");
    let failed = Some((0x0a, 0x0000));
    assert_eq!(copy(&mut bench, &[here, there], &[(0, 1, 0, BLOCKS, 1)]), failed, "beyond the end of the other");
    let refit = |bench: &mut Bench, change: &dyn Fn(&mut Reached)| {
        let (reached, _) = bench.neighbour.as_mut().unwrap();
        *reached = neighbour(BLOCKS);
        change(reached);
    };
    refit(&mut bench, &|reached| reached.blocks = 100);
    assert_eq!(copy(&mut bench, &[here, there], &[(0, 1, 8, 99, 2)]), failed, "the other is smaller");
    refit(&mut bench, &|reached| reached.block_bytes = 4096);
    assert_eq!(copy(&mut bench, &[here, there], &[(0, 1, 8, 8, 1)]), failed, "blocks of another size");
    refit(&mut bench, &|reached| reached.readable = false);
    assert_eq!(copy(&mut bench, &[here, there], &[(1, 0, 8, 8, 1)]), unreachable, "reserved by somebody else");
    refit(&mut bench, &|reached| reached.writable = false);
    assert_eq!(copy(&mut bench, &[here, there], &[(0, 1, 8, 8, 1)]), Some((0x07, 0x2701)), "protected");
    assert_eq!(copy(&mut bench, &[here, there], &[(1, 0, 100, 8, 4)]), None, "and can be read");
    bench.neighbour = None;
    assert_eq!(copy(&mut bench, &[here, there], &[(0, 1, 8, 8, 1)]), unreachable);
}
