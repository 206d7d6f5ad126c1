use stele_media::{MediaError, MediaFault};

use super::*;
use crate::nbd::wire::cmd_flag::{DF, FAST_ZERO, FUA, NO_HOLE, REQ_ONE};

const FORMS: [Form; 3] = [Form::Simple, Form::Structured, Form::Extended];
const FULL: usize = 64 << 20;

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 512) as u8 ^ seed).collect()
}

#[test]
fn what_is_written_is_read_in_every_form_and_size() {
    for form in FORMS {
        let stage = Stage::new();
        let mut client = stage.client(form, FULL);
        for (number, size) in [4096, 8192, 12 << 10, 64 << 10, 1 << 20, 4 << 20].into_iter().enumerate() {
            let data = pattern(size, number as u8);
            client.ask(0, WRITE, 7, 0, size as u64);
            client.send(&data);
            assert_eq!(client.reply(0).errno, 0);
            client.ask(if form == Form::Simple { 0 } else { DF }, READ, 8, 0, size as u64);
            let reply = client.reply(size);
            assert_eq!((reply.cookie, reply.errno, reply.data == data), (8, 0, true), "{size} in {form:?}");
        }
    }
}

#[test]
fn requests_may_arrive_in_any_pieces_and_many_at_once() {
    let mut bytes = Vec::new();
    for number in 0..6u64 {
        bytes.extend(request(Form::Structured, 0, WRITE, number, number * 4096, 4096));
        bytes.extend(pattern(4096, number as u8));
        bytes.extend(request(Form::Structured, 0, READ, 100 + number, number * 4096, 4096));
    }
    for size in [1, 7, 27, 28, 29, 4095, 4124, 5000, bytes.len()] {
        let stage = Stage::new();
        let mut client = stage.client(Form::Structured, FULL);
        for piece in bytes.chunks(size) {
            client.send(piece);
            client.turn();
        }
        let replies = client.replies(|_| 0);
        assert_eq!(replies.len(), 12, "in pieces of {size}");
        for number in 0..6 {
            let read = replies.iter().find(|reply| reply.cookie == 100 + number).unwrap();
            assert!(read.data == pattern(4096, number as u8), "{number} in pieces of {size}");
        }
    }
}

#[test]
fn a_batch_of_requests_reaches_the_volume_in_one_turn_and_its_replies_leave_in_one() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, FULL);
    (0..32).for_each(|number| client.ask(0, READ, number, number * 4096, 4096));
    client.turn();
    assert_eq!(stage.volume.asked().len(), 32);
    client.turn();
    let mut bytes = vec![0; 1 << 20];
    assert_eq!(client.pipe.read(&mut bytes).unwrap(), 32 * (16 + 4096));
}

#[test]
fn requests_that_make_no_sense_are_refused_each_with_its_error() {
    use wire::Errno::*;
    let check = |flags, command, at, length, errno: wire::Errno| {
        for form in FORMS {
            let stage = Stage::new();
            let mut client = stage.client(form, FULL);
            let found = client.errno(flags, command, at, length);
            assert_eq!(found, errno as u32, "{flags:x} {command} {at}+{length} in {form:?}");
            assert!(stage.volume.asked().is_empty());
            assert_eq!(client.errno(0, FLUSH, 0, 0), 0, "the session goes on");
        }
    };
    check(0, READ, SIZE, 4096, Invalid);
    check(0, READ, u64::MAX - 4095, 4096, Invalid);
    check(0, READ, 0, 0, Invalid);
    check(0, READ, 512, 4096, Invalid);
    check(0, READ, 0, 512, Invalid);
    check(0, READ, 0, 33 << 20, Invalid);
    check(FAST_ZERO, READ, 0, 4096, Invalid);
    check(0, TRIM, SIZE - 4096, 8192, NoSpace);
    check(0, ZERO, SIZE, 4096, NoSpace);
    check(0, ZERO, 0, 100, Invalid);
    check(FAST_ZERO | NO_HOLE, ZERO, 0, 4096, NotSupported);
    check(0, 8, 0, 4096, Invalid);
    check(0, 0xffff, 0, 4096, Invalid);
    check(1 << 9, FLUSH, 0, 0, Invalid);
}

#[test]
fn a_refused_write_takes_its_payload_with_it() {
    for form in FORMS {
        let stage = Stage::new();
        let mut client = stage.client(form, FULL);
        client.ask(0, WRITE, 1, SIZE, 300_000);
        client.send(&pattern(300_000, 1));
        assert_eq!(client.reply(0).errno, wire::Errno::NoSpace as u32);
        assert_eq!(client.errno(0, FLUSH, 0, 0), 0);
        assert_eq!(stage.volume.asked(), ["flush"]);
    }
}

/// libnbd gives a connection up whose server answers a request that it is still sending.
#[test]
fn a_write_is_refused_when_its_payload_has_arrived() {
    for form in FORMS {
        let stage = Stage::new();
        let mut client = stage.client(form, FULL);
        client.ask(0, WRITE, 1, SIZE, 300_000);
        client.send(&pattern(200_000, 1));
        assert!(client.replies(|_| 0).is_empty(), "{form:?}");
        client.send(&pattern(100_000, 1));
        assert_eq!(client.reply(0).errno, wire::Errno::NoSpace as u32);
        assert_eq!(client.errno(0, FLUSH, 0, 0), 0);
    }
}

/// With overflow checks, as under the fuzzer, the end of the named range must not be computed as a
/// sum.
#[test]
fn a_flush_may_name_any_range() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Extended, FULL);
    assert_eq!(client.errno(0, FLUSH, u64::MAX, u64::MAX), 0);
}

#[test]
fn a_read_only_export_changes_nothing() {
    let stage = Stage::of(Export { read_only: true, ..export("vm") }, MemoryDrive::new(Bytes(SIZE)), Limits::default());
    let mut client = stage.client(Form::Structured, FULL);
    for command in [TRIM, ZERO] {
        assert_eq!(client.errno(0, command, 0, 4096), wire::Errno::Perm as u32);
    }
    client.ask(0, WRITE, 1, 0, 4096);
    client.send(&[1; 4096]);
    assert_eq!(client.reply(0).errno, wire::Errno::Perm as u32);
    assert!(stage.volume.asked().is_empty());
    client.ask(0, READ, 1, 0, 4096);
    assert_eq!(client.reply(0).data, [0; 4096]);
    assert_eq!(client.errno(0, FLUSH, 0, 0), 0);
}

#[test]
fn what_fua_covers_is_durable_before_it_is_answered() {
    let check = |flags, command, at, length, expected: &[&str]| {
        let stage = Stage::new();
        let mut client = stage.client(Form::Structured, FULL);
        client.ask(flags, command, 1, at, length);
        if command == WRITE {
            client.send(&vec![1; length as usize]);
        }
        assert_eq!(client.reply(0).errno, 0);
        assert_eq!(stage.volume.asked(), expected);
    };
    check(FUA, WRITE, 0, 4096, &["write 0+4096 fua"]);
    check(0, WRITE, 0, 4096, &["write 0+4096"]);
    check(FUA, ZERO, 0, 8192, &["zero 0+8192", "flush"]);
    check(FUA | NO_HOLE, ZERO, 0, 2 << 20, &["write 0+1048576", "write 1048576+1048576", "flush"]);
    check(FAST_ZERO, ZERO, 0, 8192, &["zero 0+8192"]);
    check(FUA, TRIM, 0, 8192, &["discard 0+8192", "flush"]);
    check(0, TRIM, 100, 8192, &["discard 4096+4096"]);
    check(FUA, TRIM, 100, 4096, &[]);
    check(0, CACHE, 100, 8192, &["read 0+12288"]);
    check(FUA, FLUSH, 0, 0, &["flush"]);
}

#[test]
fn a_flush_on_one_connection_covers_what_was_answered_on_another() {
    let stage = Stage::of(export("vm"), MemoryDrive::volatile(Bytes(SIZE)), Limits::default());
    let (mut one, mut two) = (stage.client(Form::Simple, FULL), stage.client(Form::Simple, FULL));
    one.ask(0, WRITE, 1, 0, 4096);
    one.send(&[7; 4096]);
    assert_eq!(one.reply(0).errno, 0);
    two.ask(0, READ, 1, 0, 4096);
    assert_eq!(two.reply(4096).data, [7; 4096], "no connection keeps content of its own");
    assert_eq!(two.errno(0, FLUSH, 0, 0), 0);
    stage.volume.with(|state| state.drive.cut_power());
    one.ask(0, READ, 2, 0, 4096);
    assert_eq!(one.reply(4096).data, [7; 4096]);
}

#[test]
fn a_status_tells_what_owns_space_and_what_reads_as_zeros() {
    for form in [Form::Structured, Form::Extended] {
        let stage = Stage::new();
        let mut client = stage.client(form, FULL);
        client.ask(0, WRITE, 1, 8192, 4096);
        client.send(&[1; 4096]);
        assert_eq!(client.reply(0).errno, 0);
        client.ask(0, STATUS, 2, 0, SIZE);
        let runs = client.reply(0).runs;
        assert_eq!(runs.iter().map(|run| run.0).sum::<u64>(), SIZE);
        let mut at = 0;
        for (length, flags) in runs {
            assert_eq!(flags & 2 == 0, at <= 8192 && 8192 < at + length, "{length} bytes at {at} have flags {flags}");
            at += length;
        }
        client.ask(REQ_ONE, STATUS, 3, 8192, 8192);
        assert_eq!(client.reply(0).runs.len(), 1);
    }
    let stage = Stage::new();
    let mut client = stage.client_of(Form::Structured, FULL, Vec::new());
    assert_eq!(client.errno(0, STATUS, 0, 4096), wire::Errno::Invalid as u32, "no context was chosen");
}

/// A volume with a client that asks for the status of much of it at once.
fn large(size: u64, form: Form) -> (Stage, Client) {
    let stage = Stage::of(export("vm"), MemoryDrive::new(Bytes(size)), Limits::default());
    let client = stage.client(form, FULL);
    (stage, client)
}

/// The answer to a status, which takes a turn for each window.
fn status(client: &mut Client, flags: u16, at: u64, length: u64) -> Vec<(u64, u64)> {
    client.ask(flags, STATUS, 1, at, length);
    for _ in 0..80 {
        client.turn();
    }
    client.reply(0).runs
}

#[test]
fn a_status_goes_through_a_large_range_in_windows() {
    let window = 1 << 30;
    for (form, length) in [(Form::Structured, 3 * window + 8192), (Form::Extended, 6 * window)] {
        let (stage, mut client) = large(6 * window, form);
        assert_eq!(status(&mut client, 0, 4096, length - 4096), [(length - 4096, 3)], "one hole, in {form:?}");
        let asked = stage.volume.asked();
        assert_eq!(asked.len() as u64, length.div_ceil(window), "{asked:?}");
        assert_eq!((asked[0].as_str(), &asked[1][..18]), ("extents 4096+1073741824", "extents 1073745920"));
        // What is no hole begins behind the first window, with blocks that the drive took along.
        client.ask(0, WRITE, 2, window + 8192, 4096);
        client.send(&[1; 4096]);
        assert_eq!(client.reply(0).errno, 0);
        let runs = status(&mut client, 0, 0, length);
        assert_eq!(runs.iter().map(|run| run.0).sum::<u64>(), length);
        assert_eq!(runs[..3], [(window, 3), (8192, 2), (4096, 0)], "{runs:?}");
        assert_eq!((runs[4].1, runs.len()), (3, 5), "{runs:?}");
        stage.volume.asked();
        assert_eq!(status(&mut client, REQ_ONE, 0, length), [(window, 3)]);
        assert_eq!(stage.volume.asked().len(), 2, "it ends where the state changes");
    }
}

#[test]
fn a_status_of_a_larger_range_is_answered_for_its_beginning() {
    let (window, windows) = (1 << 30, 64);
    let (stage, mut client) = large((windows + 3) * window, Form::Extended);
    assert_eq!(status(&mut client, 0, 0, (windows + 3) * window), [(windows * window, 3)]);
    assert_eq!(stage.volume.asked().len() as u64, windows);
}

#[test]
fn an_export_taken_away_ends_a_status_with_what_was_found() {
    let window = 1 << 30;
    let (stage, mut client) = large(4 * window, Form::Extended);
    stage.volume.with(|state| state.hold = true);
    client.ask(0, STATUS, 1, 0, 4 * window);
    client.turn();
    stage.directory.withdraw(crate::Protocol::Nbd, "vm");
    stage.volume.let_go();
    assert_eq!(client.reply(0).runs, [(window, 3)]);
    assert!(client.session.is_none());
}

#[test]
fn failures_of_the_volume_reach_the_client_in_its_own_words() {
    let check = |fault, command, errno: wire::Errno| {
        let stage = Stage::new();
        let mut client = stage.client(Form::Structured, FULL);
        stage.volume.with(|state| state.failures.push_back(MediaError::new(fault, "on purpose")));
        client.ask(0, command, 1, 0, 4096);
        if command == WRITE {
            client.send(&[0; 4096]);
        }
        assert_eq!(client.reply(0).errno, errno as u32, "{fault:?}");
    };
    check(MediaFault::Damaged, READ, wire::Errno::Io);
    check(MediaFault::Full, WRITE, wire::Errno::NoSpace);
    check(MediaFault::Refused, WRITE, wire::Errno::Perm);
    check(MediaFault::Gone, READ, wire::Errno::Shutdown);
}

#[test]
fn a_full_queue_of_the_volume_is_waited_out_and_never_seen() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, FULL);
    for _ in 0..3 {
        stage.volume.with(|state| state.failures.push_back(MediaError::new(MediaFault::Retry, "full")));
    }
    client.ask(0, READ, 1, 0, 4096);
    assert_eq!(client.reply(4096).errno, 0);
    assert_eq!(stage.volume.asked().len(), 4);
}

#[test]
fn a_volume_that_grows_is_larger_at_once() {
    let stage = Stage::of(export("vm"), MemoryDrive::new(Bytes(2 * SIZE)), Limits::default());
    stage.volume.with(|state| state.size = Some(SIZE));
    let mut client = stage.client(Form::Structured, FULL);
    assert_eq!(client.errno(0, TRIM, SIZE, 4096), wire::Errno::NoSpace as u32);
    stage.volume.with(|state| state.size = Some(2 * SIZE));
    assert_eq!(client.errno(0, TRIM, SIZE, 4096), 0);
}

#[test]
fn a_goodbye_is_said_after_everything_is_answered() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, FULL);
    stage.volume.with(|state| state.hold = true);
    client.ask(0, READ, 1, 0, 4096);
    client.ask(0, DISC, 2, 0, 0);
    client.ask(0, READ, 3, 0, 4096);
    assert!(!client.turn().end);
    stage.volume.let_go();
    assert_eq!(client.replies(|_| 4096).len(), 1);
    assert!(client.session.is_none());
    assert!(!stage.target.is_used());
}

#[test]
fn an_export_taken_away_ends_its_connections_after_what_is_under_way() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, FULL);
    stage.volume.with(|state| state.hold = true);
    client.ask(0, READ, 1, 0, 4096);
    client.turn();
    stage.directory.withdraw(crate::Protocol::Nbd, "vm");
    client.ask(0, READ, 2, 0, 4096);
    assert!(!client.turn().end);
    stage.volume.let_go();
    assert_eq!(client.replies(|_| 4096).len(), 1);
    assert!(client.session.is_none());
}

#[test]
fn an_export_taken_away_ends_a_long_request_at_its_next_piece() {
    for (flags, command) in [(NO_HOLE, ZERO), (0, CACHE)] {
        let stage = Stage::new();
        let mut client = stage.client(Form::Simple, FULL);
        stage.volume.with(|state| state.hold = true);
        client.ask(flags, command, 1, 0, SIZE);
        client.turn();
        assert!(stage.directory.leaving("vm").is_empty());
        stage.directory.withdraw(crate::Protocol::Nbd, "vm");
        assert_eq!(stage.directory.leaving("vm").len(), 1, "its requests may still write");
        stage.volume.asked();
        stage.volume.let_go();
        let replies = client.replies(|_| 0);
        assert_eq!((replies.len(), replies[0].errno), (1, wire::Errno::Shutdown as u32));
        assert!(stage.volume.asked().is_empty());
        assert!(stage.directory.leaving("vm").is_empty());
    }
}

#[test]
fn a_withdrawn_export_is_opened_by_nobody() {
    let stage = Stage::new();
    let peer = Peer::default();
    assert!(crate::Disk::open(&stage.target, &peer).is_ok());
    stage.directory.withdraw(crate::Protocol::Nbd, "vm");
    assert!(matches!(crate::Disk::open(&stage.target, &peer), Err(crate::disk::Denied::Closed)));
    assert!(!stage.target.is_used());
}

#[test]
fn every_chosen_context_is_asked_about_with_its_snapshot_and_answered_once() {
    let stage = Stage::new();
    let snapshots = [("monday".to_owned(), stele_ground::VolumeId(7))];
    let mut client = stage.client_of(Form::Structured, FULL, Context::all(&snapshots));
    client.ask(0, STATUS, 1, 0, 8192);
    assert_eq!(client.reply(0).runs, [(8192, 3), (8192, 0), (8192, 0)], "a hole, and nothing changed");
    assert_eq!(stage.volume.asked(), ["extents 0+8192", "extents 0+8192 since 7", "extents 0+8192 since 7"]);
}

#[test]
fn a_long_zeroing_or_trim_is_carried_out_in_spans() {
    let span = 256 << 20;
    let long = 2 * span + 4096;
    let check = |command: u16, flags: u16, expected: &[String]| {
        let stage = Stage::of(export("vm"), MemoryDrive::new(Bytes(1 << 30)), Limits::default());
        let mut client = stage.client(Form::Simple, 1 << 20);
        client.ask(flags, command, 1, 8192, long);
        assert_eq!(client.reply(0).errno, 0);
        assert_eq!(stage.volume.asked(), expected);
    };
    let spans = |name: &str| {
        let at = |number: u64| 8192 + number * span;
        [(at(0), span), (at(1), span), (at(2), 4096)].map(|(at, length)| format!("{name} {at}+{length}")).to_vec()
    };
    check(ZERO, 0, &spans("zero"));
    check(TRIM, 0, &spans("discard"));
    check(ZERO, wire::cmd_flag::FUA, &[spans("zero"), vec!["flush".to_owned()]].concat());
}

/// A hundred zeroings of 4 GiB on one connection made the hosts of other volumes wait for seconds:
/// all of them were with the volume at once.
#[test]
fn long_ranges_of_a_connection_wait_for_each_other() {
    let span = 256 << 20;
    for (command, name) in [(ZERO, "zero"), (TRIM, "discard"), (STATUS, "extents")] {
        let stage = Stage::of(export("vm"), MemoryDrive::new(Bytes(1 << 30)), Limits::default());
        let mut client = stage.client(Form::Structured, 1 << 20);
        stage.volume.with(|state| state.hold = true);
        (0..8).for_each(|number| client.ask(0, command, number, number % 4 * span, span));
        client.ask(0, READ, 8, 0, 4096);
        while client.turn().again {}
        let asked = stage.volume.asked();
        assert_eq!(asked, [format!("{name} 0+{span}"), "read 0+4096".to_owned()], "one range, and no data waits");
        stage.volume.let_go();
        assert_eq!(client.replies(|_| 0).len(), 9, "each is answered in the end");
        assert_eq!(stage.volume.asked().len(), 7);
    }
    // Short ones go together.
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, FULL);
    stage.volume.with(|state| state.hold = true);
    (0..64).for_each(|number| client.ask(0, ZERO, number, number * 4096, 4096));
    client.turn();
    assert_eq!(stage.volume.asked().len(), 64);
}

#[test]
fn ranges_that_wait_do_not_begin_on_an_export_taken_away() {
    let span = 256 << 20;
    let stage = Stage::of(export("vm"), MemoryDrive::new(Bytes(1 << 30)), Limits::default());
    let mut client = stage.client(Form::Simple, 1 << 20);
    stage.volume.with(|state| state.hold = true);
    (0..4).for_each(|number| client.ask(0, ZERO, number, number * span, span));
    client.turn();
    stage.directory.withdraw(crate::Protocol::Nbd, "vm");
    stage.volume.let_go();
    let errors: Vec<u32> = client.replies(|_| 0).iter().map(|reply| reply.errno).collect();
    let gone = wire::Errno::Shutdown as u32;
    assert_eq!((errors.as_slice(), stage.volume.asked().len()), (&[0, gone, gone, gone][..], 1));
    assert!(client.session.is_none());
}

/// A host that goes away in the middle takes the requests along that have not begun.
#[test]
fn ranges_that_wait_end_with_their_connection() {
    let span = 256 << 20;
    let stage = Stage::of(export("vm"), MemoryDrive::new(Bytes(1 << 30)), Limits::default());
    let mut client = stage.client(Form::Simple, 1 << 20);
    stage.volume.with(|state| state.hold = true);
    (0..4).for_each(|number| client.ask(0, ZERO, number, number * span, span));
    client.turn();
    client.send(&[0xff; 28]);
    client.turn();
    client.turn();
    stage.volume.let_go();
    client.settle();
    assert!(client.session.is_none() && stage.volume.asked().len() == 1);
    assert!(!stage.target.is_used());
}
