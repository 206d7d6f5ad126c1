//! Peers that are slow, silent, greedy or faulty.

use stele_ground::Dice;

use super::*;

#[test]
fn a_peer_that_takes_no_replies_is_not_read_from_and_then_given_up() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, 64 << 10);
    for number in 0..64 {
        client.ask(0, READ, number, 0, 1 << 20);
    }
    for _ in 0..200 {
        client.turn();
    }
    let asked = stage.volume.asked().len();
    assert!(asked < 20, "{asked} MiB are held for a peer that takes nothing");
    assert!(!client.turn().end);
    client.now = client.now + Duration::from_secs(119);
    assert!(!client.turn().end);
    client.now = client.now + Duration::from_secs(2);
    assert!(client.turn().end);
    assert!(!stage.target.is_used());
}

#[test]
fn what_a_peer_sends_does_not_count_as_taking_replies() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, 64 << 10);
    (0..7).for_each(|number| client.ask(0, READ, number, 0, 1 << 20));
    for _ in 0..20 {
        client.turn();
    }
    client.send(&[0x25]);
    client.now = client.now + Duration::from_secs(100);
    assert!(!client.turn().end);
    client.send(&[0x60]);
    client.now = client.now + Duration::from_secs(21);
    assert!(client.turn().end);
}

#[test]
fn taking_replies_does_not_count_as_sending_a_payload() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, 1 << 10);
    client.ask(0, READ, 1, 0, 1 << 20);
    client.ask(0, WRITE, 2, 0, 1 << 20);
    for _ in 0..20 {
        client.turn();
    }
    let mut bytes = [0; 100];
    for _ in 0..2 {
        assert_eq!(client.pipe.read(&mut bytes).unwrap(), 100);
        client.now = client.now + Duration::from_secs(59);
        assert!(!client.turn().end);
    }
    assert_eq!(client.pipe.read(&mut bytes).unwrap(), 100);
    client.now = client.now + Duration::from_secs(3);
    assert!(client.turn().end);
}

#[test]
fn replies_that_nobody_takes_hold_the_memory_of_their_volume_and_not_that_of_others() {
    let limits = Limits { volume_bytes: 8 << 20, ..Limits::default() };
    let stage = Stage::of(export("vm"), MemoryDrive::new(Bytes(SIZE)), limits);
    let other = crate::Peer { name: "another".to_owned(), ..crate::Peer::default() };
    let mut greedy: Vec<Client> = (0..16).map(|_| stage.client(Form::Simple, 1 << 10)).collect();
    for client in &mut greedy {
        (0..16).for_each(|number| client.ask(0, READ, number, 0, 1 << 20));
    }
    for _ in 0..50 {
        for client in &mut greedy {
            client.turn();
        }
    }
    let held = stage.volume.asked().len();
    assert!((8..=9).contains(&held), "{held} MiB are held for connections that take nothing");
    let mut other = stage.client_by(&other);
    other.ask(0, READ, 1, 0, 4096);
    assert_eq!(other.reply(4096).errno, 0);
}

#[test]
fn a_peer_that_is_slow_but_alive_is_served_to_the_end() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, 4096);
    for number in 0..8 {
        client.ask(0, READ, number, 0, 256 << 10);
    }
    let mut taken = 0;
    let mut bytes = [0; 4096];
    while taken < 8 * ((256 << 10) + 16) {
        assert!(!client.turn().end);
        if let Ok(count) = client.pipe.read(&mut bytes) {
            taken += count;
        }
        client.now = client.now + Duration::from_secs(10);
    }
}

#[test]
fn a_payload_that_stops_arriving_ends_the_session_and_gives_its_room_back() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, 1 << 20);
    client.ask(0, WRITE, 1, 0, 1 << 20);
    client.send(&[1; 1000]);
    assert!(!client.turn().end);
    assert_eq!(client.turn().at, Some(client.now + Duration::from_secs(120)));
    client.now = client.now + Duration::from_secs(121);
    assert!(client.turn().end);
    assert!(stage.volume.asked().is_empty(), "half a write is none");
}

#[test]
fn an_idle_connection_may_stay_idle() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, 1 << 20);
    client.now = client.now + Duration::from_secs(1_000_000);
    assert_eq!(client.turn(), Interest { read: true, ..Interest::default() });
}

#[test]
fn a_peer_that_disappears_takes_nothing_with_it() {
    let stage = Stage::new();
    let mut client = stage.client(Form::Simple, 1 << 20);
    client.ask(0, WRITE, 1, 0, 4096);
    client.send(&[5; 4096]);
    stage.volume.with(|state| state.hold = true);
    client.turn();
    client.ask(0, WRITE, 1, 0, 4096);
    let Client { session, pipe, now, .. } = client;
    drop(pipe);
    let mut session = session.unwrap();
    while !session.turn(now).end {
        stage.volume.let_go();
    }
    drop(session);
    assert_eq!(stage.volume.asked().len(), 1, "the write whose data did not come is none");
    assert!(!stage.target.is_used());
}

#[test]
fn a_broken_session_keeps_its_memory_until_its_writes_are_done() {
    let limits = Limits { volume_bytes: 4 << 20, ..Limits::default() };
    let stage = Stage::of(export("vm"), MemoryDrive::new(Bytes(SIZE)), limits);
    stage.volume.with(|state| state.hold = true);
    let mut client = stage.client(Form::Simple, 1 << 20);
    for number in 0..4 {
        client.ask(0, WRITE, number, 0, 1 << 20);
        client.send(&vec![1; 1 << 20]);
    }
    for _ in 0..12 {
        client.turn();
    }
    client.send(&[0xee; 64]);
    client.turn();
    for _ in 0..3 {
        let interest = client.turn();
        assert!(!interest.end && !interest.read && !interest.write && !interest.again);
    }
    let mut second = stage.client(Form::Simple, 1 << 20);
    second.ask(0, READ, 1, 0, 4096);
    second.turn();
    assert_eq!(stage.volume.asked().len(), 4, "the first session's writes hold the memory");
    stage.volume.let_go();
    assert!(client.turn().end);
    assert_eq!(second.reply(4096).errno, 0);
}

#[test]
fn a_broken_session_does_not_try_again_what_the_volume_did_not_take() {
    let stage = Stage::new();
    let full = || stele_media::MediaError::new(stele_media::MediaFault::Retry, "full");
    stage.volume.with(|state| state.failures.extend([full(), full()]));
    let mut client = stage.client(Form::Simple, 1 << 20);
    client.ask(0, WRITE, 1, 0, 4096);
    client.send(&[5; 4096]);
    client.turn();
    client.turn();
    client.send(&[0xee; 64]);
    assert!(client.turn().end);
    assert_eq!(stage.volume.asked().len(), 1);
}

#[test]
fn what_is_no_request_ends_the_session() {
    for form in [Form::Simple, Form::Structured, Form::Extended] {
        let stage = Stage::new();
        let mut client = stage.client(form, 1 << 20);
        client.send(b"GET / HTTP/1.1\r\n\r\n");
        assert!(client.turn().end);
    }
}

#[test]
fn one_connection_cannot_take_all_turns_of_another_initiator() {
    let stage = Stage::new();
    let mut greedy: Vec<Client> = (0..4).map(|_| stage.client(Form::Simple, 64 << 20)).collect();
    for client in &mut greedy {
        (0..1000).for_each(|number| client.ask(0, READ, number, 0, 4096));
    }
    stage.volume.with(|state| state.hold = true);
    let begun: Vec<usize> = greedy
        .iter_mut()
        .map(|client| {
            client.turn();
            stage.volume.asked().len()
        })
        .collect();
    assert_eq!(begun, [32; 4], "a turn's work is divided among the connections of one initiator");
}

#[test]
fn random_bytes_and_mutilated_requests_neither_crash_nor_touch_what_they_may_not() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let form = [Form::Simple, Form::Structured, Form::Extended][dice.below(3) as usize];
        let stage =
            Stage::of(Export { read_only: true, ..export("vm") }, MemoryDrive::new(Bytes(SIZE)), Limits::default());
        let mut client = stage.client(form, 1 << 16);
        for _ in 0..40 {
            let mut bytes = request(form, 0, dice.below(9) as u16, dice.roll(), dice.below(SIZE), dice.below(70_000));
            for _ in 0..dice.below(3) {
                let at = 4 + dice.below(bytes.len() as u64 - 4) as usize;
                bytes[at] = dice.below(256) as u8;
            }
            bytes.resize(bytes.len() + dice.below(5000) as usize, dice.below(256) as u8);
            if client.pipe.write_all(&bytes).is_err() {
                break;
            }
            client.turn();
            let _ = client.pipe.read(&mut [0; 5000]);
        }
        let changes = stage
            .volume
            .asked()
            .into_iter()
            .filter(|asked| !asked.starts_with("read") && !asked.starts_with("extents") && asked != "flush");
        assert_eq!(changes.count(), 0, "seed {seed}");
    }
}
