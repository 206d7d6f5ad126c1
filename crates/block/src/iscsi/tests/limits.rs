//! What one initiator may hold: memory, and time.

use stele_ground::Duration;

use super::neighbours::Site;
use super::turns::{Host, reset};
use super::*;
use crate::iscsi::management::{FUNCTIONS_MAX, SETS_MAX};

#[test]
fn data_in_the_smallest_pieces_takes_no_more_memory_than_in_one() {
    let mut bench = Bench::new();
    let host = bench.ready("iqn.a:b");
    let content: Vec<u8> = (0..65_536u32).map(|at| (at * 7) as u8).collect();
    bench.send(host, command(1, 5, &write10(0, 128), Some(&[]), 65_536), &[]);
    let ready = bench.heard(host).remove(0);
    let mut at = 0;
    let mut lengths = [1usize, 1, 1, 700, 5000, 3].into_iter().cycle();
    let mut number = 0u32;
    while at < content.len() {
        let end = content.len().min(at + if at < 40_000 { 1 } else { lengths.next().unwrap() });
        let mut data = Header::new(opcode::DATA_OUT, if end == content.len() { 0x80 } else { 0 });
        data.set_tag(5);
        data.put32(20, ready.header.u32(20));
        data.put32(36, number);
        data.put32(40, at as u32);
        bench.send(host, data, &content[at..end]);
        (at, number) = (end, number + 1);
    }
    let Ask::Drive(_, stele_media::Op::Write { data, .. }) = &bench.held[0].2 else { panic!("no write") };
    assert!(data.len() <= 16, "{} buffers for {number} pieces", data.len());
    bench.settle();
    assert_eq!(bench.heard(host)[0].header.u8(3), 0);
    assert!(bench.command(host, &mut 1, &read10(0, 128), None, 65_536).1 == content);
}

#[test]
fn what_a_verification_reads_counts_as_memory_of_its_connection() {
    let site = Site::new();
    let volume = site.serve("a", |_| {});
    let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    volume.with(|state| state.hold = true);
    volume.asked();
    let mut cdb = [0u8; 16];
    (cdb[0], cdb[12]) = (0x8f, 8);
    for number in 2..102 {
        host.send(command(number, number, &cdb, None, 0), &[]);
    }
    host.turn();
    host.turn();
    let asked = volume.asked().len();
    assert!((30..=32).contains(&asked), "{asked} MiB are read at once");
    volume.let_go();
    for _ in 0..20 {
        host.turn();
    }
    assert_eq!(host.heard().len(), 100, "all are carried out in the end");
}

#[test]
fn an_initiator_that_does_not_send_what_was_asked_for_is_given_up() {
    let site = Site::new();
    site.serve("a", |_| {});
    let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    host.send(command(2, 2, &write10(0, 128), Some(&[]), 65_536), &[]);
    host.turn();
    assert_eq!(host.heard()[0].header.opcode(), opcode::READY);
    host.turn();
    host.now = host.now + Duration::from_secs(119);
    assert!(!host.turn().end);
    host.now = host.now + Duration::from_secs(2);
    assert!(host.turn().end);
    let mut idle = Host::new(site.log_in("iqn.h:two", "a"), 1 << 20).ready();
    idle.now = idle.now + Duration::from_secs(3600);
    assert!(!idle.turn().end, "who owes nothing may stay idle");
}

/// Sends functions beside a write that is with the volume. Returns the number of those that are
/// rejected at once, after a check that all others are answered when the write has ended.
fn rejected(function: u8, count: u32) -> usize {
    let site = Site::new();
    let volume = site.serve("a", |_| {});
    let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    let responses = |host: &mut Host| {
        while host.turn().again {}
        host.turn();
        let managed = host.heard().into_iter().filter(|frame| frame.header.opcode() == opcode::MANAGED);
        managed.map(|frame| frame.header.u8(2)).collect::<Vec<u8>>()
    };
    volume.with(|state| state.hold = true);
    host.send(command(2, 2, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
    host.turn();
    let manage = |tag: u32| {
        let mut header = reset(tag, function);
        header.put32(20, 2);
        header
    };
    (100..100 + count).for_each(|tag| host.send(manage(tag), &[]));
    let early = responses(&mut host);
    assert!(early.iter().all(|response| *response == 255), "{early:?}");
    volume.let_go();
    assert_eq!(responses(&mut host), vec![0; count as usize - early.len()]);
    host.send(manage(99), &[]);
    assert_ne!(responses(&mut host), [255], "there is room again");
    early.len()
}

#[test]
fn a_flood_of_task_management_functions_is_rejected() {
    assert_eq!(rejected(1, FUNCTIONS_MAX as u32), 0, "each command may be aborted by itself");
    assert_eq!(rejected(1, 10_000), 10_000 - FUNCTIONS_MAX);
    for function in [2, 4, 5, 6] {
        assert_eq!(rejected(function, SETS_MAX as u32 + 100), 100);
    }
}
