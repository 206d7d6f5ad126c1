//! Commands that a task management function ends before their turn has come: none of them runs
//! later.

use super::turns::reset;
use super::*;

/// Two connections of one session.
fn two(bench: &mut Bench) -> (Initiator, Initiator) {
    let one = bench.ready("iqn.a:b");
    let two = bench.connect("iqn.a:b", one.tsih, 1).unwrap();
    (one, two)
}

fn write(bench: &mut Bench, from: Initiator, number: u32) {
    bench.send(from, command(number, 100 + number, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
}

fn function(number: u32, kind: u8) -> Header {
    let mut header = reset(9, kind);
    header.put32(24, number);
    header
}

#[track_caller]
fn answered(bench: &mut Bench, from: Initiator) -> u8 {
    bench.gather();
    let heard = bench.heard(from);
    assert_eq!((heard.len(), heard[0].header.opcode()), (1, opcode::MANAGED));
    heard[0].header.u8(2)
}

#[test]
fn a_reset_ends_the_commands_that_wait_for_their_turn_and_those_on_their_way() {
    for kind in [2, 4, 5, 6] {
        let mut bench = Bench::new();
        let (one, two) = two(&mut bench);
        // Command 1 is on its way; 2 waits for it. The function was sent after both, 3 after the
        // function.
        write(&mut bench, one, 2);
        bench.send(one, function(3, kind), &[]);
        assert_eq!(answered(&mut bench, one), 0);
        write(&mut bench, one, 3);
        write(&mut bench, two, 1);
        // After the reset of the unit, command 3 is told of it instead.
        let writes = usize::from(kind != 5);
        assert_eq!(bench.held.len(), writes, "function {kind}: a command that was ended writes");
        bench.settle();
        let heard = bench.heard(one);
        assert_eq!((heard.len(), heard[0].header.tag()), (1, 103));
        assert!(bench.heard(two).is_empty());
    }
}

#[test]
fn a_reset_ends_what_waits_in_other_sessions_too() {
    let mut bench = Bench::new();
    let (victim, other) = (bench.ready("iqn.a:victim"), bench.ready("iqn.a:other"));
    write(&mut bench, victim, 2);
    bench.send(other, function(1, 5), &[]);
    assert_eq!(answered(&mut bench, other), 0);
    bench.command(victim, &mut 0, &[0; 6], None, 0);
    assert!(bench.held.is_empty(), "the write was ended");
    assert_eq!(bench.command(victim, &mut 2, &write10(0, 1), Some(&[2; 512]), 512).0, 0);
}

#[test]
fn a_connection_made_anew_sends_again_what_waited_for_its_turn() {
    let mut bench = Bench::new();
    let (one, two) = two(&mut bench);
    // Command 2 waits for command 1 when its connection breaks.
    write(&mut bench, two, 2);
    let again = bench.connect("iqn.a:b", one.tsih, 1).unwrap();
    bench.gather();
    write(&mut bench, again, 2);
    write(&mut bench, one, 1);
    bench.settle();
    let heard = bench.heard(again);
    let said: Vec<_> = heard.iter().map(|frame| (frame.header.tag(), frame.header.u8(3))).collect();
    assert_eq!(said, [(102, 0)], "the command is carried out");
    assert!(bench.heard(two).is_empty());
}

/// A piece of unsolicited data of command 102.
fn data(bench: &mut Bench, from: Initiator, number: u32, at: u32, bytes: &[u8], last: bool) {
    let mut header = Header::new(opcode::DATA_OUT, if last { 0x80 } else { 0 });
    header.set_tag(102);
    header.put32(20, NO_TAG);
    header.put32(36, number);
    header.put32(40, at);
    bench.send(from, header, bytes);
}

/// A write of three blocks: one comes with it, the others follow unasked.
fn begins(bench: &mut Bench, from: Initiator, content: &[u8]) {
    let mut header = command(2, 102, &write10(8, 3), Some(content), 3 * 512);
    header.put(1, &[0x20]);
    bench.send(from, header, &content[..512]);
}

#[test]
fn data_that_follows_a_command_before_its_turn_waits_with_it() {
    let content: Vec<u8> = (0..3 * 512u32).map(|at| (at / 100) as u8).collect();
    // The turn comes before the data, between its pieces, or after it.
    for turn in 0..3 {
        let mut bench = Bench::new();
        let (one, two) = two(&mut bench);
        begins(&mut bench, two, &content);
        for number in 0..3 {
            if number == turn {
                write(&mut bench, one, 1);
            }
            if number < 2 {
                let at = 512 * (number + 1) as usize;
                data(&mut bench, two, number, at as u32, &content[at..at + 512], number == 1);
            }
        }
        bench.settle();
        let answers = [bench.heard(one), bench.heard(two)];
        for (heard, tag) in answers.iter().zip([101, 102]) {
            let said: Vec<_> = heard.iter().map(|frame| (frame.header.tag(), frame.header.u8(3))).collect();
            assert_eq!(said, [(tag, 0)], "the turn comes before piece {turn}");
        }
        let (status, read) = bench.command(one, &mut 2, &read10(8, 3), None, 3 * 512);
        assert!(status == 0 && read == content, "the turn comes before piece {turn}");
    }
}

#[test]
fn data_of_a_command_that_was_ended_before_its_turn_is_dropped() {
    let mut bench = Bench::new();
    let (one, two) = two(&mut bench);
    begins(&mut bench, two, &[7; 3 * 512]);
    data(&mut bench, two, 0, 512, &[7; 512], false);
    let mut abort = function(3, 1);
    abort.put32(20, 102);
    abort.put32(32, 2);
    bench.send(two, abort, &[]);
    assert_eq!(answered(&mut bench, two), 0);
    data(&mut bench, two, 1, 1024, &[7; 512], true);
    write(&mut bench, one, 1);
    bench.settle();
    assert_eq!((bench.heard(one).len(), bench.heard(two).len()), (1, 0));
    assert!(!bench.connections[&two.serial].is_closing());
}

#[test]
fn data_without_end_before_its_turn_ends_its_connection() {
    let mut bench = Bench::new();
    let (one, two) = two(&mut bench);
    begins(&mut bench, two, &[7; 3 * 512]);
    let pieces = (shared::EARLY_MAX / 512) as u32;
    for number in 0..pieces - 1 {
        data(&mut bench, two, number, 512, &[], false);
    }
    assert!(!bench.connections[&two.serial].is_closing());
    data(&mut bench, two, pieces - 1, 512, &[], false);
    assert!(bench.connections[&two.serial].is_closing());
    assert!(!bench.connections[&one.serial].is_closing());
}

#[test]
fn an_abort_finds_a_command_that_waits_for_its_turn_or_has_not_arrived() {
    for arrived in [true, false] {
        let mut bench = Bench::new();
        let (one, two) = two(&mut bench);
        if arrived {
            write(&mut bench, one, 2);
        }
        let mut abort = function(3, 1);
        abort.put32(20, 102);
        abort.put32(32, 2);
        bench.send(one, abort, &[]);
        assert_eq!(answered(&mut bench, one), 0, "arrived: {arrived}");
        write(&mut bench, two, 1);
        write(&mut bench, one, 2);
        write(&mut bench, one, 3);
        assert_eq!(bench.held.len(), 2, "1 and 3 run, and 2 does not (arrived: {arrived})");
    }
    let mut bench = Bench::new();
    let one = bench.ready("iqn.a:b");
    let mut abort = function(1, 1);
    abort.put32(20, 102);
    abort.put32(32, 200);
    bench.send(one, abort, &[]);
    assert_eq!(answered(&mut bench, one), 1, "no such number was sent");
}
