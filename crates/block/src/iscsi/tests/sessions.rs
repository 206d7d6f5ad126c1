use super::*;

#[test]
fn commands_are_carried_out_in_their_order_over_several_connections() {
    let mut bench = Bench::new();
    let one = bench.ready("iqn.a:b");
    let two = bench.connect("iqn.a:b", one.tsih, 1).unwrap();
    // The second connection's command arrives before the first one's.
    bench.send(two, command(2, 6, &write10(0, 1), Some(&[2; 512]), 512), &[2; 512]);
    assert!(bench.held.is_empty(), "it is not its turn");
    bench.send(one, command(1, 5, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
    assert_eq!(bench.held.len(), 2);
    bench.settle();
    assert_eq!(bench.heard(one)[0].header.tag(), 5);
    assert_eq!(bench.heard(two)[0].header.tag(), 6, "the answer goes where the command came from");

    assert_eq!(bench.connect("iqn.a:other", one.tsih, 2).err(), Some(Refusal::NO_SESSION), "not his session");
    for cid in 2..4 {
        bench.connect("iqn.a:b", one.tsih, cid).unwrap();
    }
    assert_eq!(bench.connect("iqn.a:b", one.tsih, 4).err(), Some(Refusal::TOO_MANY));
}

#[test]
fn commands_outside_of_the_window_are_passed_over() {
    let mut bench = Bench::new();
    let host = bench.ready("iqn.a:b");
    for number in [0, 1 + shared::WINDOW, u32::MAX] {
        bench.send(host, command(number, 5, &read10(0, 1), None, 512), &[]);
        assert!(bench.held.is_empty() && bench.heard(host).is_empty(), "number {number}");
    }
    assert_eq!(bench.command(host, &mut 0, &read10(0, 1), None, 512).0, 0);
}

#[test]
fn a_session_that_is_begun_anew_ends_the_old_one_and_what_it_held() {
    let mut bench = Bench::new();
    let old = bench.ready("iqn.a:one");
    let other = bench.ready("iqn.a:other");
    assert_eq!(bench.command(old, &mut 0, &[0x16, 0, 0, 0, 0, 0], None, 0).0, 0);
    assert_eq!(bench.command(other, &mut 0, &[0; 6], None, 0).0, 0x18, "reserved");
    bench.send(old, command(2, 5, &read10(0, 1), None, 512), &[]);
    let new = bench.connect("iqn.a:one", 0, 0).unwrap();
    bench.gather();
    assert!(bench.connections[&old.serial].is_closing() && !bench.connections[&old.serial].is_over());
    assert!(!bench.connections[&new.serial].may_begin(&bench.shared), "an old command is with the drive");
    bench.settle();
    assert!(bench.connections[&new.serial].may_begin(&bench.shared));
    assert!(bench.connections[&old.serial].is_over());
    assert_eq!(bench.command(other, &mut 1, &[0; 6], None, 0).0, 0, "no longer reserved");
    let (status, data) = bench.command(new, &mut 0, &[0; 6], None, 0);
    assert_eq!((status, sense(&data)), (2, (6, 0x2907)), "the nexus was lost");
}

#[test]
fn data_out_of_order_fails_its_command_and_no_other() {
    for (number, offset, transfer) in [(1, 0, NO_TAG), (0, 512, NO_TAG), (0, 0, 7)] {
        let mut bench = Bench::new();
        let host = bench.ready("iqn.a:b");
        let mut header = command(1, 5, &write10(0, 2), Some(&[]), 1024);
        header.put(1, &[0x20]);
        bench.send(host, header, &[]);
        let mut data = Header::new(opcode::DATA_OUT, 0x80);
        data.set_tag(5);
        data.put32(20, transfer);
        data.put32(36, number);
        data.put32(40, offset);
        bench.send(host, data, &[1; 512]);
        bench.send(host, data, &[1; 512]);
        let heard = bench.heard(host);
        let answer = heard.iter().find(|frame| frame.header.opcode() == opcode::RESPONSE).unwrap();
        assert_eq!((answer.header.u8(3), sense(&answer.data)), (2, (0x0b, 0x4705)));
        assert_eq!(bench.command(host, &mut 1, &read10(0, 1), None, 512), (0, vec![0; 512]));
    }
}

#[test]
fn residuals_say_what_was_not_moved() {
    let check = |cdb: &[u8], data: Option<&[u8]>, expected: u32, flags: u8, residual: u32| {
        let mut bench = Bench::new();
        let host = bench.ready("iqn.a:b");
        let data_in = data.is_none();
        bench.send(host, command(1, 5, cdb, data, expected), data.unwrap_or_default());
        bench.settle();
        let last = bench.heard(host).pop().unwrap();
        assert_eq!((last.header.flags() & 6, last.header.u32(44)), (flags, residual), "{cdb:?} of {expected}");
        assert!(!data_in || be32(&last.header.0, 16) == 5);
    };
    check(&read10(0, 1), None, 512, 0, 0);
    check(&read10(0, 1), None, 0, 4, 512);
    check(&read10(0, 1), None, 10_000, 2, 10_000 - 512);
    check(&read10(0, 2), None, 512, 4, 512);
    check(&write10(0, 1), Some(&[1; 512]), 512, 0, 0);
    check(&write10(0, 1), Some(&[]), 0, 4, 512);
    check(&write10(0, 2), Some(&[1; 512]), 512, 4, 512);
    check(&write10(0, 1), Some(&[1; 1024]), 1024, 2, 512);
}

#[test]
fn whatever_bytes_come_the_connection_lives_or_ends() {
    let mut dice = stele_ground::Dice::new(5);
    for _ in 0..300 {
        let mut bench = Bench::new();
        let host = bench.ready("iqn.a:b");
        for _ in 0..20 {
            let mut header = Header([0; 48]);
            header.0.iter_mut().for_each(|byte| *byte = dice.below(256) as u8);
            let opcodes = [0, 1, 2, 4, 5, 6, 16, 0x41, 0x42, 0x44, 0x40, 63];
            header.put(0, &[opcodes[dice.below(12) as usize]]);
            header.put(4, &[0]);
            header.put32(24, 1 + dice.below(3) as u32);
            if dice.below(2) == 0 {
                header.put(8, &[0; 8]);
                header.set_tag(dice.below(3) as u32);
            }
            let data = vec![7; dice.below(700) as usize];
            if bench.connections[&host.serial].is_closing() {
                break;
            }
            bench.send(host, header, &data);
            if dice.below(2) == 0 {
                bench.settle();
            }
        }
        bench.settle();
        let connection = bench.connections.get_mut(&host.serial).unwrap();
        connection.close(&mut bench.shared);
        assert!(connection.is_over());
        connection.forget(&mut bench.shared);
    }
}

#[test]
fn who_does_not_read_or_send_what_was_asked_for_holds_a_bounded_amount_and_holds_up_nobody() {
    const HELD_MAX: u64 = 33 << 20;
    let mut bench = Bench::new();
    let (slow, other) = (bench.ready("iqn.a:slow"), bench.ready("iqn.a:other"));
    let holds = |bench: &Bench| {
        let connection = &bench.connections[&slow.serial];
        connection.under_way + connection.out.bytes() as u64
    };
    // Reads of 2 MiB, as many as the window takes, whose data the client does not take. One of them
    // would delay every other.
    for number in 1..=100 {
        let mut header = command(number, number, &read10(0, 4096), None, 2 << 20);
        if number == 90 {
            header.put(1, &[0xc2]);
        }
        bench.send(slow, header, &[]);
        bench.settle();
        assert!(holds(&bench) <= HELD_MAX, "{} held after {number}", holds(&bench));
    }
    let (status, _) = bench.command(other, &mut 0, &write10(0, 1), Some(&[1; 512]), 512);
    assert_eq!(status, 0, "another connection is served meanwhile");
    // As the client takes the data, the rest arrives.
    let mut answered = 0;
    while answered < 100 {
        let heard = bench.heard(slow);
        assert!(!heard.is_empty(), "{answered} answered, and no more comes");
        answered += heard.iter().filter(|frame| frame.header.u8(1) & 1 != 0).count();
        let Bench { connections, shared, .. } = &mut bench;
        connections.get_mut(&slow.serial).unwrap().resume(shared);
        bench.gather();
        bench.settle();
    }
    // Writes whose data is requested as space becomes free.
    for number in 101..=200 {
        bench.send(slow, command(number, number, &write10(0, 4096), Some(&[]), 2 << 20), &[]);
    }
    let asked = bench.heard(slow).iter().filter(|frame| frame.header.opcode() == opcode::READY).count();
    assert!((8..=16).contains(&asked), "{asked} asked for");
    assert!(holds(&bench) <= HELD_MAX);
    let (status, _) = bench.command(other, &mut 1, &write10(0, 1), Some(&[2; 512]), 512);
    assert_eq!(status, 0);
    let connection = bench.connections.get_mut(&slow.serial).unwrap();
    connection.close(&mut bench.shared);
    assert_eq!((connection.under_way, connection.gathering, connection.is_over()), (0, 0, true));
}
