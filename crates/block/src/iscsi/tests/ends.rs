//! The ends of commands and sessions: fencing, resets, changed and withdrawn exports. Who ends
//! commands of others is answered when none of them can reach the volume any more.

use super::commands::copy_list;
use super::neighbours::Site;
use super::turns::{Host, reset};
use super::*;
use crate::scsi::{Held, naa};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_IGNORING: u8 = 6;
const MOVE: u8 = 7;

fn persistent(action: u8, kind: u8, key: u64, new: u64, persists: bool) -> ([u8; 10], Vec<u8>) {
    let mut cdb = [0u8; 10];
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, kind, 24);
    let mut list = [key.to_be_bytes(), new.to_be_bytes(), [0; 8]].concat();
    list[20] = u8::from(persists);
    (cdb, list)
}

impl Bench {
    /// The status of a PERSISTENT RESERVE OUT of the write exclusive type for registrants.
    fn reserve_out(&mut self, from: Initiator, number: &mut u32, action: u8, key: u64, new: u64) -> u8 {
        let (cdb, list) = persistent(action, 5, key, new, true);
        self.command(from, number, &cdb, Some(&list), 24).0
    }

    fn write_held(&mut self, from: Initiator, number: u32, tag: u32) {
        self.send(from, command(number, tag, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
    }
}

#[test]
fn preempt_and_abort_is_answered_when_the_victim_can_write_no_more() {
    for closed in [false, true] {
        let mut bench = Bench::new();
        let (victim, fencer) = (bench.ready("iqn.a:victim"), bench.ready("iqn.a:fencer"));
        let (mut first, mut second) = (0, 0);
        assert_eq!(bench.reserve_out(victim, &mut first, REGISTER, 0, 1), 0);
        assert_eq!(bench.reserve_out(fencer, &mut second, REGISTER, 0, 2), 0);
        assert_eq!(bench.reserve_out(fencer, &mut second, RESERVE, 2, 0), 0);
        bench.write_held(victim, first + 1, 50);
        assert_eq!(bench.held.len(), 1);
        if closed {
            bench.connections.get_mut(&victim.serial).unwrap().close(&mut bench.shared);
        }
        let (cdb, list) = persistent(PREEMPT_AND_ABORT, 5, 2, 1, true);
        bench.send(fencer, command(second + 1, 60, &cdb, Some(&list), 24), &list);
        bench.carry_out(1);
        assert!(bench.kept.is_some());
        assert!(bench.heard(fencer).is_empty(), "the victim's write is with the drive (closed: {closed})");
        // Another change of the reservations need not wait for it.
        let mut third = second + 1;
        let (cdb, list) = persistent(REGISTER, 5, 2, 3, true);
        bench.send(fencer, command(third + 1, 61, &cdb, Some(&list), 24), &list);
        third += 1;
        bench.carry_out(1);
        assert_eq!(bench.heard(fencer).len(), 1);
        bench.settle();
        let heard = bench.heard(fencer);
        assert_eq!((heard.len(), heard[0].header.tag(), heard[0].header.u8(3)), (1, 60, 0));
        assert!(closed || bench.heard(victim).is_empty(), "the write itself is not answered");
        assert_eq!(bench.command(fencer, &mut third, &[0; 6], None, 0).0, 0);
    }
}

#[test]
fn preempt_without_abort_waits_for_nobody() {
    let mut bench = Bench::new();
    let (victim, other) = (bench.ready("iqn.a:victim"), bench.ready("iqn.a:other"));
    let (mut first, mut second) = (0, 0);
    assert_eq!(bench.reserve_out(victim, &mut first, REGISTER, 0, 1), 0);
    assert_eq!(bench.reserve_out(other, &mut second, REGISTER, 0, 2), 0);
    bench.write_held(victim, first + 1, 50);
    let (cdb, list) = persistent(PREEMPT, 5, 2, 1, true);
    bench.send(other, command(second + 1, 60, &cdb, Some(&list), 24), &list);
    bench.carry_out(1);
    assert_eq!(bench.heard(other)[0].header.u8(3), 0);
}

#[test]
fn each_later_abort_or_reset_waits_for_a_task_that_was_aborted_before() {
    let mut bench = Bench::new();
    let (one, other) = (bench.ready("iqn.a:one"), bench.ready("iqn.a:other"));
    bench.write_held(one, 1, 5);
    let abort = |tag: u32| {
        let mut abort = reset(tag, 1);
        abort.put32(20, 5);
        abort
    };
    bench.send(one, abort(9), &[]);
    bench.send(one, abort(10), &[]);
    bench.send(one, reset(11, 5), &[]);
    bench.send(other, reset(12, 5), &[]);
    assert!(bench.heard(one).is_empty() && bench.heard(other).is_empty(), "the write may still happen");
    bench.settle();
    let tags: Vec<u32> = bench.heard(one).iter().map(|frame| frame.header.tag()).collect();
    assert_eq!((tags, bench.heard(other).len()), (vec![9, 10, 11], 1));
}

#[test]
fn what_an_initiator_imposes_on_others_is_told_with_its_name() {
    let mut bench = Bench::new();
    bench.shared.unit.profile.removable = true;
    let one = bench.ready("iqn.a:one");
    let mut number = 0;
    let mut good = |bench: &mut Bench, cdb: &[u8], data: Option<&[u8]>| {
        let length = data.map_or(0, <[u8]>::len) as u32;
        assert_eq!(bench.command(one, &mut number, cdb, data, length).0, 0, "{cdb:?}");
        bench.shared.unit.imposed()
    };
    let holder = || Some("iqn.a:one,i,0x010203040506".to_owned());
    let told = good(&mut bench, &[0x16, 0, 0, 0, 0, 0], None);
    assert_eq!(told.reservation, Some(Held { kind: "unit".to_owned(), holder: holder() }));
    assert!(good(&mut bench, &[0x17, 0, 0, 0, 0, 0], None).is_nothing());
    for (kind, word, by) in
        [(5, "write-exclusive-registrants-only", holder()), (8, "exclusive-access-all-registrants", None)]
    {
        let (cdb, list) = persistent(0, 0, 0, 77, true);
        assert_eq!(good(&mut bench, &cdb, Some(&list)).registrations, 1);
        let (cdb, list) = persistent(1, kind, 77, 0, true);
        let told = good(&mut bench, &cdb, Some(&list));
        assert_eq!(told.reservation, Some(Held { kind: word.to_owned(), holder: by }));
        let kept = Reservations::restore(bench.kept.as_deref().unwrap()).unwrap();
        assert_eq!(kept.imposed(), told, "it is told before the first login after a start, too");
        let (cdb, list) = persistent(3, 0, 77, 0, true);
        assert!(good(&mut bench, &cdb, Some(&list)).is_nothing());
    }
    // START STOP UNIT: eject, then load.
    assert_eq!(good(&mut bench, &[0x1b, 0, 0, 0, 2, 0], None).ejected_by, holder());
    assert!(good(&mut bench, &[0x1b, 0, 0, 0, 3, 0], None).is_nothing());
}

#[test]
fn who_registers_no_key_takes_no_promise_from_others() {
    let mut bench = Bench::new();
    let (one, other) = (bench.ready("iqn.a:one"), bench.ready("iqn.a:other"));
    let mut number = 0;
    assert_eq!(bench.reserve_out(one, &mut number, REGISTER, 0, 1), 0);
    assert_eq!(bench.reserve_out(one, &mut number, RESERVE, 1, 0), 0);
    let kept = bench.kept.clone();
    assert!(kept.is_some());
    let mut number = 0;
    for action in [REGISTER, REGISTER_IGNORING] {
        let (cdb, list) = persistent(action, 0, 0, 0, false);
        assert_eq!(bench.command(other, &mut number, &cdb, Some(&list), 24).0, 0);
        assert!(bench.kept == kept, "action {action}");
    }
    assert_eq!(bench.reserve_out(other, &mut number, REGISTER, 7, 0), 0x18, "not its key");
}

#[test]
fn a_reservation_that_cannot_be_kept_has_changed_nothing() {
    let mut bench = Bench::new();
    let (one, other) = (bench.ready("iqn.a:one"), bench.ready("iqn.a:other"));
    let (mut first, mut second) = (0, 0);
    assert_eq!(bench.reserve_out(one, &mut first, REGISTER, 0, 1), 0);
    assert_eq!(bench.reserve_out(one, &mut first, RESERVE, 1, 0), 0);
    assert_eq!(bench.reserve_out(other, &mut second, REGISTER, 0, 2), 0);
    bench.keep_fails = true;
    assert_eq!(bench.reserve_out(other, &mut second, PREEMPT_AND_ABORT, 2, 1), 2);
    assert_eq!(bench.command(one, &mut first, &write10(0, 1), Some(&[1; 512]), 512).0, 0, "it holds still");
    bench.keep_fails = false;
    assert_eq!(bench.reserve_out(other, &mut second, PREEMPT_AND_ABORT, 2, 1), 0, "trying again helps");
    let (status, data) = bench.command(one, &mut first, &[0; 6], None, 0);
    assert_eq!((status, sense(&data)), (2, (6, 0x2a05)));
}

#[test]
fn a_write_that_the_pool_refuses_at_present_may_be_tried_again() {
    for (fault, expected) in [
        (MediaFault::Refused, (0x0b, 0x0800)),
        (MediaFault::Retry, (0x0b, 0x0800)),
        (MediaFault::Full, (7, 0x2707)),
        (MediaFault::Damaged, (3, 0x0c00)),
    ] {
        let mut bench = Bench::new();
        let host = bench.ready("iqn.a:b");
        bench.write_held(host, 1, 5);
        let (serial, tag, ask) = bench.held.remove(0);
        let Ask::Drive(_, op) = ask else { panic!("{ask:?}") };
        let answer = Answer::Drive(op, Err(MediaError::new(fault, "two drives are away")));
        bench.connections.get_mut(&serial).unwrap().answer(&mut bench.shared, tag, answer);
        let heard = bench.heard(host);
        assert_eq!((heard[0].header.u8(3), sense(&heard[0].data)), (2, expected), "{fault:?}");
    }
}

#[test]
fn a_moved_registration_counts_among_the_limited_ones() {
    let mut bench = Bench::new();
    let holder = bench.ready("iqn.a:0");
    let mut number = 0;
    assert_eq!(bench.reserve_out(holder, &mut number, REGISTER, 0, 1), 0);
    assert_eq!(bench.reserve_out(holder, &mut number, RESERVE, 1, 0), 0);
    for index in 1..shared::SESSIONS_MAX {
        let host = bench.ready(&format!("iqn.a:{index}"));
        assert_eq!(bench.reserve_out(host, &mut 0, REGISTER, 0, 1), 0);
    }
    let name = b"iqn.b:new,i,0x010203040506\0\0";
    let (mut cdb, mut list) = persistent(MOVE, 5, 1, 9, true);
    list.extend([&[0x45, 0, 0, name.len() as u8][..], name].concat());
    (list[17], list[19], list[20]) = (1, 1, 0);
    list[20..24].copy_from_slice(&(name.len() as u32 + 4).to_be_bytes());
    cdb[8] = list.len() as u8;
    let (status, data) = bench.command(holder, &mut number, &cdb, Some(&list), list.len() as u32);
    assert_eq!((status, sense(&data)), (2, (5, 0x5504)));
}

fn out(host: &mut Host, number: u32, action: u8, key: u64, new: u64) -> u8 {
    let (cdb, list) = persistent(action, 5, key, new, false);
    host.send(command(number, number, &cdb, Some(&list), 24), &list);
    host.turn();
    host.turn();
    host.heard()[0].header.u8(3)
}

fn write_status(host: &mut Host, number: u32) -> u8 {
    host.send(command(number, number, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
    host.turn();
    host.turn();
    host.heard()[0].header.u8(3)
}

#[test]
fn a_changed_export_keeps_its_reservations_and_a_removed_one_does_not() {
    let site = Site::new();
    site.serve("a", |_| {});
    let mut one = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    assert_eq!((out(&mut one, 2, REGISTER, 0, 1), out(&mut one, 3, RESERVE, 1, 0)), (0, 0));
    site.serve("a", |export| export.access.networks = vec!["10.0.0.0/8".parse().unwrap()]);
    let joined = site.log_in("iqn.h:two", "a");
    one.turn();
    assert!(joined.may_begin());
    let mut other = Host::new(joined, 1 << 20).ready();
    assert_eq!(write_status(&mut other, 2), 0x18, "a fenced host writes");
    let mut one = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    assert_eq!(write_status(&mut one, 2), 0);

    assert!(site.directory.withdraw(crate::Protocol::Iscsi, "iqn.a:a"));
    site.serve("a", |_| {});
    let mut other = Host::new(site.log_in("iqn.h:two", "a"), 1 << 20).ready();
    assert_eq!(write_status(&mut other, 2), 0);
}

#[test]
fn a_new_session_begins_with_the_present_size() {
    let site = Site::new();
    let volume = site.serve("a", |_| {});
    drop(Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready());
    volume.with(|state| state.size = Some(BLOCKS / 2 * BLOCK));
    let mut host = Host::new(site.log_in("iqn.h:two", "a"), 1 << 20).ready();
    host.send(command(2, 2, &[0; 6], None, 0), &[]);
    host.turn();
    host.turn();
    assert_eq!(host.heard()[0].header.u8(3), 0, "it is told of no change");
    volume.with(|state| state.size = Some(BLOCKS * BLOCK));
    host.send(command(3, 3, &[0; 6], None, 0), &[]);
    host.turn();
    host.turn();
    assert_eq!(sense(&host.heard()[0].data), (6, 0x2a09), "a change during the session is told");
}

#[test]
fn a_login_to_a_changed_export_waits_for_the_commands_of_the_old_one() {
    let site = Site::new();
    let volume = site.serve("a", |_| {});
    let mut one = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    volume.with(|state| state.hold = true);
    one.send(command(2, 2, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
    one.turn();
    site.serve("a", |_| {});
    let joined = site.log_in("iqn.h:two", "a");
    one.turn();
    assert!(!joined.may_begin(), "a write of the old export is with the volume");
    volume.let_go();
    one.turn();
    assert!(joined.may_begin());
}

#[test]
fn no_command_begins_after_the_reservations_were_handed_over() {
    let mut bench = Bench::new();
    let host = bench.ready("iqn.a:b");
    let (cdb, list) = persistent(REGISTER, 0, 0, 1, true);
    bench.send(host, command(1, 1, &cdb, Some(&list), 24), &list);
    assert!(bench.shared.retire().is_none(), "a change is being kept");
    bench.settle();
    assert!(bench.shared.retire().is_some_and(|reservations| reservations.has_registrants()));
    bench.write_held(host, 2, 5);
    assert!(bench.held.is_empty(), "a write passes by the successor's reservations");
}

#[test]
fn a_login_that_found_an_export_before_its_change_is_refused() {
    let site = Site::new();
    site.serve("a", |_| {});
    let found = site.directory.find(crate::Protocol::Iscsi, "iqn.a:a").unwrap();
    site.serve("a", |_| {});
    let _state = site.log_in("iqn.h:one", "a");
    assert_eq!(site.node.shared(&found).err(), Some(Refusal::UNAVAILABLE));
}

#[test]
fn a_withdrawn_export_answers_the_commands_under_way() {
    let site = Site::new();
    let volume = site.serve("a", |_| {});
    let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    volume.with(|state| state.hold = true);
    host.send(command(2, 2, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
    host.send(command(3, 3, &write10(8, 128), Some(&[]), 65_536), &[]);
    host.turn();
    assert_eq!(host.heard().len(), 1, "data is requested for the second");
    site.directory.withdraw(crate::Protocol::Iscsi, "iqn.a:a");
    let interest = host.turn();
    assert!(!interest.end && !interest.read);
    volume.let_go();
    host.turn();
    let heard = host.heard();
    let kinds: Vec<u8> = heard.iter().map(|frame| frame.header.opcode()).collect();
    assert_eq!(kinds, [opcode::RESPONSE, opcode::ASYNC]);
    assert_eq!((heard[0].header.tag(), heard[0].header.u8(3)), (2, 0));
    assert!(host.turn().end);
}

/// Two hosts: one copies 2 MiB from `a` to `b`, the other is logged in to `b`. The first read waits
/// in the volume.
fn of(name: &str) -> Profile {
    let mut id = [0; 16];
    id[15] = name.as_bytes()[0];
    Profile { id, ..profile() }
}

/// A host that copies from `a` to `b`, with a list that names `a` and these units.
fn copying_to(site: &Site, units: &[&str]) -> (crate::testing::Volume, crate::testing::Volume, Host, Host) {
    let (from, to) = (site.serve("a", |_| {}), site.serve("b", |_| {}));
    let there = site.log_in("iqn.h:one", "b");
    std::mem::forget(there);
    let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    let fencer = Host::new(site.log_in("iqn.h:two", "b"), 1 << 20).ready();
    let names: Vec<_> = ["a"].iter().chain(units).map(|name| naa(&of(name))).collect();
    from.with(|state| state.hold = true);
    let list = copy_list(&names, &[(0, 1, 0, 0, 4096)]);
    let mut cdb = [0u8; 16];
    cdb[0] = 0x83;
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    host.send(command(2, 2, &cdb, Some(&list), list.len() as u32), &list);
    host.turn();
    host.turn();
    assert_eq!(from.asked().len(), 1);
    (from, to, host, fencer)
}

fn copying(site: &Site) -> (crate::testing::Volume, crate::testing::Volume, Host, Host) {
    copying_to(site, &["b"])
}

#[test]
fn copies_of_a_connection_are_one_connection_to_another_unit_however_often_they_name_it() {
    let site = Site::new();
    let there = || site.directory.find(crate::Protocol::Iscsi, "iqn.a:b").unwrap().connections().len();
    let (from, to, mut host, _other) = copying_to(&site, &["b"; 6]);
    assert_eq!(there(), 3, "two sessions, and the copy");
    // A second copy uses it after the first one has ended.
    let list = copy_list(&[naa(&of("a")), naa(&of("b"))], &[(0, 1, 0, 8, 8)]);
    let mut cdb = [0u8; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    host.send(command(3, 3, &cdb, Some(&list), list.len() as u32), &list);
    host.turn();
    host.turn();
    assert_eq!((from.asked().len(), there()), (1, 3));
    from.let_go();
    for _ in 0..10 {
        host.turn();
    }
    let heard = host.heard();
    assert_eq!((heard.len(), heard[0].header.u8(3), heard[1].header.u8(3)), (2, 0, 0));
    assert_eq!((to.asked().iter().filter(|asked| asked.starts_with("write")).count(), there()), (3, 2));
}

#[test]
fn a_copy_to_another_unit_ends_when_its_initiator_is_fenced_there() {
    let site = Site::new();
    let (from, to, mut host, mut fencer) = copying(&site);
    assert_eq!((out(&mut fencer, 2, REGISTER, 0, 1), out(&mut fencer, 3, RESERVE, 1, 0)), (0, 0));
    from.let_go();
    host.turn();
    host.turn();
    assert!(to.asked().is_empty(), "it writes although it is fenced");
    let heard = host.heard();
    assert_eq!((heard.len(), heard[0].header.u8(3)), (1, 2));
}

#[test]
fn a_reset_waits_for_what_a_copy_writes_from_another_unit() {
    let site = Site::new();
    let (from, to, mut host, mut fencer) = copying(&site);
    to.with(|state| state.hold = true);
    from.let_go();
    host.turn();
    assert_eq!(to.asked().len(), 1);
    fencer.send(reset(9, 5), &[]);
    fencer.turn();
    assert!(fencer.heard().is_empty(), "the copy's write is with the volume");
    to.let_go();
    host.turn();
    fencer.turn();
    assert_eq!(fencer.heard()[0].header.opcode(), opcode::MANAGED);
}

#[test]
fn a_copy_waits_until_a_command_of_the_other_unit_gives_its_blocks_free() {
    let site = Site::new();
    let (from, to, mut host, mut other) = copying(&site);
    to.with(|state| state.hold = true);
    let mut cdb = [0u8; 16];
    (cdb[0], cdb[13]) = (0x89, 1);
    let data = [[0; 512], [9; 512]].concat();
    other.send(command(2, 2, &cdb, Some(&data), 1024), &data);
    other.turn();
    assert_eq!(to.asked(), ["read 0+512"]);
    from.let_go();
    host.turn();
    let interest = host.turn();
    assert!(to.asked().is_empty(), "the copy writes between the comparison and its write");
    assert!(interest.at.is_some(), "it asks again");
    to.let_go();
    (0..3).for_each(|_| _ = other.turn());
    assert_eq!(other.heard()[0].header.u8(3), 0);
    (0..8).for_each(|_| _ = host.turn());
    assert_eq!(to.asked(), ["write 0+512", "write 0+1048576", "write 1048576+1048576"]);
    assert_eq!(host.heard()[0].header.u8(3), 0);
}

#[test]
fn a_copy_that_waits_for_another_unit_can_be_ended() {
    let site = Site::new();
    let (from, to, mut host, mut other) = copying(&site);
    to.with(|state| state.hold = true);
    let mut cdb = [0u8; 16];
    (cdb[0], cdb[13]) = (0x89, 1);
    other.send(command(2, 2, &cdb, Some(&[0; 1024]), 1024), &[0; 1024]);
    other.turn();
    from.let_go();
    host.turn();
    host.send(reset(9, 5), &[]);
    (0..3).for_each(|_| _ = host.turn());
    assert_eq!(host.heard()[0].header.opcode(), opcode::MANAGED);
    to.let_go();
    (0..3).for_each(|_| _ = other.turn());
    (0..3).for_each(|_| _ = host.turn());
    assert_eq!(to.asked(), ["read 0+512", "write 0+512"]);
}

#[test]
fn a_withdrawn_export_begins_no_further_step_of_a_long_command() {
    let site = Site::new();
    let volume = site.serve("a", |_| {});
    let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    volume.with(|state| state.hold = true);
    let mut cdb = [0u8; 16];
    (cdb[0], cdb[12]) = (0x93, 16);
    host.send(command(2, 2, &cdb, Some(&[5; 512]), 512), &[5; 512]);
    cdb[12] = 8;
    (cdb[0], cdb[1]) = (0x8f, 0);
    host.send(command(3, 3, &cdb, None, 0), &[]);
    host.turn();
    volume.asked();
    let used = |site: &Site| site.directory.leaving("a").len();
    assert_eq!(used(&site), 0);
    site.directory.withdraw(crate::Protocol::Iscsi, "iqn.a:a");
    host.turn();
    assert_eq!(used(&site), 1, "its commands may still write");
    volume.let_go();
    (0..4).for_each(|_| _ = host.turn());
    assert!(volume.asked().is_empty());
    assert_eq!(used(&site), 0);
}

#[test]
fn a_login_that_proved_the_former_secret_is_refused() {
    let site = Site::new();
    let chap = |secret: &str| Some(Credentials { user: "host".to_owned(), secret: secret.to_owned() });
    site.serve("a", |export| export.iscsi.chap = chap("the former secret"));
    let agreed = site.agreed("iqn.h:one", "a");
    let join = |agreed: LoginResult| site.node.join(agreed, &crate::Peer::default(), String::new()).map(|_| ());
    assert_eq!(join(agreed.clone()), Ok(()));
    site.serve("a", |export| export.iscsi.chap = chap("a secret of today"));
    assert_eq!(join(agreed), Err(Refusal::UNAVAILABLE));
    assert_eq!(join(site.agreed("iqn.h:one", "a")), Ok(()));
}

#[test]
fn a_paused_volume_takes_no_login_that_may_write() {
    let site = Site::new();
    site.serve("a", |_| {});
    site.serve("r", |export| export.read_only = true);
    let pauses = ["a", "r"].map(|volume| site.directory.pause(volume));
    let enter = |name| site.log_in_with("iqn.h:one", name, parameters::Parameters::default()).map(|_| ());
    assert_eq!((enter("a"), enter("r")), (Err(Refusal::UNAVAILABLE), Ok(())));
    let again = site.directory.pause("a");
    drop(pauses);
    assert_eq!(enter("a"), Err(Refusal::UNAVAILABLE));
    drop(again);
    assert_eq!(enter("a"), Ok(()));
}

#[test]
fn a_new_export_waits_for_reservations_that_the_removed_one_is_keeping() {
    for name in ["a", "other"] {
        let site = Site::new();
        let volume = site.serve("a", |_| {});
        let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
        let (cdb, list) = persistent(REGISTER, 0, 0, 1, true);
        volume.with(|state| state.hold = true);
        host.send(command(2, 2, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
        host.send(command(3, 3, &cdb, Some(&list), 24), &list);
        host.turn();
        site.directory.withdraw(crate::Protocol::Iscsi, "iqn.a:a");
        site.serve(name, |export| export.volume = "a".to_owned());
        let enter = || site.log_in_with("iqn.h:two", name, parameters::Parameters::default());
        assert_eq!(enter().map(|_| ()), Err(Refusal::UNAVAILABLE), "{name}");
        host.turn();
        let joined = enter().expect("the reservations are kept");
        assert!(!joined.may_begin(), "a write of the removed export is with the volume ({name})");
        volume.let_go();
        (0..2).for_each(|_| _ = host.turn());
        assert!(joined.may_begin());
    }
}
