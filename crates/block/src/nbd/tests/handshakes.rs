use super::*;

/// The client's flags for fixed newstyle without zeroes.
const HELLO: [u8; 4] = [0, 0, 0, 3];

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = wire::IHAVEOPT.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn go(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = text(name);
    data.extend((infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
    data
}

fn meta(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = text(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(text(query)));
    data
}

/// Replies to options: option, kind, data.
fn replies(handshake: &mut Handshake) -> Vec<(u32, u32, Vec<u8>)> {
    parsed(&handshake.take_outgoing())
}

fn parsed(bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut fields = wire::Fields(bytes);
    let mut replies = Vec::new();
    while !fields.is_empty() {
        assert_eq!(fields.u64(), Some(wire::OPTION_REPLY));
        let (number, kind) = (fields.u32().unwrap(), fields.u32().unwrap());
        let length = fields.u32().unwrap() as usize;
        replies.push((number, kind, fields.bytes(length).unwrap().to_vec()));
    }
    replies
}

fn begun(stage: &Stage) -> Handshake {
    let mut handshake = stage.handshake();
    assert_eq!(handshake.take_outgoing().len(), 18);
    assert!(matches!(handshake.receive(&HELLO), HandshakeStep::More));
    handshake
}

/// The kind of the last reply.
fn answer(handshake: &mut Handshake, number: u32, data: &[u8]) -> u32 {
    assert!(matches!(handshake.receive(&option(number, data)), HandshakeStep::More));
    replies(handshake).last().unwrap().1
}

#[test]
fn a_client_lists_exports_asks_about_one_and_goes() {
    let stage = Stage::new();
    stage.directory.serve(export("other"), stage.volume.handle(), Limits::default());
    let mut handshake = begun(&stage);
    handshake.receive(&option(opt::LIST, &[]));
    let listed = replies(&mut handshake);
    assert_eq!(listed[0], (opt::LIST, rep::SERVER, text("other")));
    assert_eq!(listed[1], (opt::LIST, rep::SERVER, text("vm")));
    assert_eq!(listed[2], (opt::LIST, rep::ACK, vec![]));

    assert_eq!(answer(&mut handshake, opt::STRUCTURED_REPLY, &[]), rep::ACK);
    assert_eq!(answer(&mut handshake, opt::SET_META_CONTEXT, &meta("vm", &["base:allocation", "x:y"])), rep::ACK);
    assert_eq!(answer(&mut handshake, opt::INFO, &go("vm", &[0, 1, 2, 3])), rep::ACK);

    let step = handshake.receive(&option(opt::GO, &go("vm", &[wire::info::BLOCK_SIZE])));
    let HandshakeStep::Transmit(agreed) = step else { panic!("not transmitting") };
    let told = replies(&mut handshake);
    let mut expected = wire::info::EXPORT.to_be_bytes().to_vec();
    expected.extend(SIZE.to_be_bytes());
    assert_eq!(told[0].2[..10], expected);
    let flags = u16::from_be_bytes([told[0].2[10], told[0].2[11]]);
    assert_eq!(flags, 0b1101_1110_1101, "flush, FUA, trim, zeroes, DF, multi-conn, cache, fast zero");
    assert_eq!(
        told[1].2,
        [&[0, 3][..], &4096u32.to_be_bytes(), &4096u32.to_be_bytes(), &PAYLOAD_MAX.to_be_bytes()].concat()
    );
    assert_eq!(told[2].1, rep::ACK);
    assert_eq!((agreed.form, agreed.contexts), (Form::Structured, Context::all(&[])));
}

#[test]
fn a_handshake_may_arrive_in_any_pieces() {
    let stage = Stage::new();
    let mut whole = HELLO.to_vec();
    whole.extend(option(opt::EXTENDED_HEADERS, &[]));
    whole.extend(option(opt::SET_META_CONTEXT, &meta("vm", &["base:allocation"])));
    whole.extend(option(opt::GO, &go("vm", &[3])));
    let early = b"the first request";
    whole.extend(early);
    for size in 1..whole.len() {
        let mut handshake = stage.handshake();
        let mut agreed = None;
        let mut rest = Vec::new();
        for piece in whole.chunks(size) {
            match agreed {
                Some(_) => rest.extend(piece),
                None => {
                    if let HandshakeStep::Transmit(done) = handshake.receive(piece) {
                        rest.extend(&done.rest);
                        agreed = Some(done);
                    }
                }
            }
        }
        let agreed = agreed.unwrap_or_else(|| panic!("in pieces of {size}"));
        assert_eq!((agreed.form, agreed.contexts.len(), &rest[..]), (Form::Extended, 1, &early[..]));
    }
}

#[test]
fn what_is_not_exported_or_not_allowed_is_not_there() {
    let check = |export: Export, peer: Peer, tls: Tls, expected: u32| {
        let stage = Stage::of(export, MemoryDrive::new(Bytes(SIZE)), Limits::default());
        let mut handshake = Handshake::new(stage.directory.clone(), peer, tls);
        handshake.take_outgoing();
        handshake.receive(&HELLO);
        assert_eq!(answer(&mut handshake, opt::INFO, &go("vm", &[3])), expected);
        let step = handshake.receive(&option(opt::EXPORT_NAME, b"vm"));
        assert_eq!(matches!(step, HandshakeStep::Transmit(_)), expected == rep::ACK);
    };
    let from = |address: &str| Peer { address: address.parse().ok(), ..Peer::default() };
    let networks = crate::Access { networks: vec!["10.0.0.0/8".parse().unwrap()], ..Default::default() };
    let secure = crate::Access { tls: true, ..Default::default() };
    check(export("another"), Peer::default(), Tls::Absent, rep::ERR_UNKNOWN);
    check(Export { access: networks.clone(), ..export("vm") }, from("192.0.2.1"), Tls::Absent, rep::ERR_UNKNOWN);
    check(Export { access: networks.clone(), ..export("vm") }, from("10.2.3.4"), Tls::Absent, rep::ACK);
    check(Export { access: secure.clone(), ..export("vm") }, Peer::default(), Tls::Offered, rep::ERR_TLS_REQD);
    // A client of another network does not learn that the export is there, not even that it is
    // served over TLS.
    for certificates in [Vec::new(), vec![crate::export::Fingerprint([7; 32])]] {
        let both = crate::Access { networks: networks.networks.clone(), certificates, tls: true };
        let to = |address: &str, expected| {
            check(Export { access: both.clone(), ..export("vm") }, from(address), Tls::Offered, expected);
        };
        to("192.0.2.1", rep::ERR_UNKNOWN);
        to("10.2.3.4", rep::ERR_TLS_REQD);
    }
    let tls = Peer { tls: true, ..Peer::default() };
    check(Export { access: secure, ..export("vm") }, tls, Tls::Offered, rep::ACK);
    check(export("vm"), Peer::default(), Tls::Required, rep::ERR_TLS_REQD);
}

#[test]
fn an_empty_name_means_the_only_export_and_none_of_several() {
    let stage = Stage::new();
    assert_eq!(answer(&mut begun(&stage), opt::INFO, &go("", &[3])), rep::ACK);
    stage.directory.serve(export("other"), stage.volume.handle(), Limits::default());
    assert_eq!(answer(&mut begun(&stage), opt::INFO, &go("", &[3])), rep::ERR_UNKNOWN);
}

#[test]
fn bytes_sent_before_tls_are_not_taken_for_bytes_within_it() {
    let stage = Stage::new();
    let secured = |bytes: &[u8]| {
        let mut handshake = Handshake::new(stage.directory.clone(), Peer::default(), Tls::Offered);
        handshake.receive(&HELLO);
        handshake.receive(&option(opt::STRUCTURED_REPLY, &[]));
        matches!(handshake.receive(bytes), HandshakeStep::StartTls)
    };
    let start = option(opt::STARTTLS, &[]);
    assert!(secured(&start));
    assert!(!secured(&[start, option(opt::LIST, &[])].concat()), "a stranger's option would be carried into TLS");
    assert_eq!(answer(&mut begun(&stage), opt::STARTTLS, &[]), rep::ERR_POLICY);
}

#[test]
fn what_was_agreed_in_the_clear_is_forgotten_under_tls() {
    let stage = Stage::new();
    let mut handshake = Handshake::new(stage.directory.clone(), Peer::default(), Tls::Offered);
    handshake.receive(&HELLO);
    handshake.receive(&option(opt::EXTENDED_HEADERS, &[]));
    handshake.receive(&option(opt::STARTTLS, &[]));
    handshake.secured(Peer { tls: true, ..Peer::default() });
    handshake.take_outgoing();
    assert_eq!(answer(&mut handshake, opt::STARTTLS, &[]), rep::ERR_INVALID);
    let HandshakeStep::Transmit(agreed) = handshake.receive(&option(opt::GO, &go("vm", &[3]))) else {
        panic!("refused")
    };
    assert_eq!(agreed.form, Form::Simple);
}

#[test]
fn a_client_that_knows_no_block_sizes_is_told_why_a_volume_of_large_blocks_refuses_it() {
    let stage = Stage::new();
    for option_number in [opt::INFO, opt::GO] {
        let mut handshake = begun(&stage);
        assert!(matches!(handshake.receive(&option(option_number, &go("vm", &[]))), HandshakeStep::More));
        // The sizes come before the refusal: a client that can keep them need not ask.
        let told = replies(&mut handshake);
        assert_eq!((told.len(), told[0].1, told[1].1), (2, rep::INFO, rep::ERR_BLOCK_SIZE_REQD));
        assert_eq!(told[0].2[..6], [0, 3, 0, 0, 0x10, 0]);
    }
    let small = MemoryDrive::with_block(Bytes(SIZE), Bytes(512));
    let stage = Stage::of(export("vm"), small, Limits::default());
    assert_eq!(answer(&mut begun(&stage), opt::INFO, &go("vm", &[])), rep::ACK);
}

#[test]
fn connections_beyond_the_limit_are_refused_until_one_leaves() {
    let stage = Stage::of(export("vm"), MemoryDrive::new(Bytes(SIZE)), Limits { connections: 1, ..Limits::default() });
    let first = stage.client(Form::Simple, 1 << 20);
    assert_eq!(answer(&mut begun(&stage), opt::GO, &go("vm", &[3])), rep::ERR_POLICY);
    drop(first);
    assert!(matches!(begun(&stage).receive(&option(opt::GO, &go("vm", &[3]))), HandshakeStep::Transmit(_)));
}

#[test]
fn malformed_options_are_answered_and_nonsense_ends_the_connection() {
    let stage = Stage::new();
    let check = |number, data: &[u8], expected| {
        assert_eq!(answer(&mut begun(&stage), number, data), expected, "option {number} of {} bytes", data.len());
    };
    check(99, b"whatever", rep::ERR_UNSUP);
    check(opt::LIST, b"x", rep::ERR_INVALID);
    check(opt::INFO, &[0, 0, 0, 200], rep::ERR_INVALID);
    check(opt::INFO, &go("vm", &[3])[..8], rep::ERR_INVALID);
    check(opt::INFO, &[go("vm", &[3]), vec![0]].concat(), rep::ERR_INVALID);
    check(opt::INFO, &[0, 0, 0, 2, 0xff, 0xfe, 0, 0], rep::ERR_INVALID);
    check(opt::SET_META_CONTEXT, &meta("vm", &["base:allocation"]), rep::ERR_INVALID);
    let mut handshake = begun(&stage);
    assert!(matches!(handshake.receive(&option(opt::ABORT, &[])), HandshakeStep::End));
    assert_eq!(replies(&mut handshake)[0].1, rep::ACK);
    for hello in [[0, 0, 0, 0], [0, 0, 0, 4], [0xff; 4]] {
        assert!(matches!(stage.handshake().receive(&hello), HandshakeStep::End), "{hello:?}");
    }
    assert!(matches!(begun(&stage).receive(&[7; 16]), HandshakeStep::End));
    assert!(matches!(begun(&stage).receive(&option(opt::EXPORT_NAME, b"nothing")), HandshakeStep::End));
}

#[test]
fn an_option_too_large_is_skipped_and_too_many_options_end_the_connection() {
    let stage = Stage::new();
    let mut handshake = begun(&stage);
    let mut large = wire::IHAVEOPT.to_be_bytes().to_vec();
    large.extend(opt::INFO.to_be_bytes());
    large.extend((200u32 << 10).to_be_bytes());
    large.resize(16 + (200 << 10), 0);
    for piece in large.chunks(30_000) {
        assert!(matches!(handshake.receive(piece), HandshakeStep::More));
    }
    assert_eq!(replies(&mut handshake)[0].1, rep::ERR_TOO_BIG);
    assert_eq!(answer(&mut handshake, opt::LIST, &[]), rep::ACK);
    let list = option(opt::LIST, &[]);
    let mut client = handshake;
    let ends = |_| {
        let step = client.receive(&list);
        client.take_outgoing();
        matches!(step, HandshakeStep::End)
    };
    assert!((0..handshake::OPTIONS_MAX).any(ends));
}

#[test]
fn a_client_may_ask_about_each_of_a_thousand_exports() {
    let stage = Stage::new();
    let mut handshake = begun(&stage);
    assert_eq!(answer(&mut handshake, opt::STRUCTURED_REPLY, &[]), rep::ACK);
    for export in 0..1000 {
        assert_eq!(answer(&mut handshake, opt::INFO, &go("vm", &[3])), rep::ACK, "export {export}");
        assert_eq!(answer(&mut handshake, opt::LIST_META_CONTEXT, &meta("vm", &[])), rep::ACK, "export {export}");
    }
    assert!(matches!(handshake.receive(&option(opt::GO, &go("vm", &[3]))), HandshakeStep::Transmit(_)));
}

#[test]
fn many_options_at_once_take_bounded_memory_and_are_all_answered() {
    let stage = Stage::new();
    let mut handshake = begun(&stage);
    let mut bytes = option(opt::INFO, &go("vm", &[1, 2, 3])).repeat(1500);
    bytes.extend(option(opt::ABORT, &[]));
    let mut step = handshake.receive(&bytes);
    let mut answered = 0;
    loop {
        let outgoing = handshake.take_outgoing();
        assert!(outgoing.len() < (64 << 10) + 1024, "{} bytes of replies wait", outgoing.len());
        answered += parsed(&outgoing).iter().filter(|(_, kind, _)| *kind == rep::ACK).count();
        match step {
            HandshakeStep::Again => step = handshake.receive(&[]),
            HandshakeStep::End => break,
            _ => panic!("the handshake waits for more"),
        }
    }
    assert_eq!(answered, 1501);
}

#[test]
fn a_refused_client_does_not_fill_the_log() {
    let secure = crate::Access { tls: true, ..Default::default() };
    let stage = Stage::of(Export { access: secure, ..export("vm") }, MemoryDrive::new(Bytes(SIZE)), Limits::default());
    let mut handshake = begun(&stage);
    for _ in 0..1000 {
        assert_ne!(answer(&mut handshake, opt::INFO, &go("vm", &[3])), rep::ACK);
    }
    let refusals = handshake.take_refusals();
    assert!((1..=8).contains(&refusals.len()), "{refusals:?}");
    assert!(refusals[0].contains("may not use export 'vm'"), "{refusals:?}");
}

#[test]
fn metadata_is_listed_by_name_and_by_namespace() {
    let stage = Stage::new();
    stage.target.note_snapshots(vec![("monday".to_owned(), stele_ground::VolumeId(7))]);
    let check = |queries: &[&str], expected: usize| {
        let mut handshake = begun(&stage);
        assert_eq!(answer(&mut handshake, opt::STRUCTURED_REPLY, &[]), rep::ACK);
        handshake.receive(&option(opt::LIST_META_CONTEXT, &meta("vm", queries)));
        let names = replies(&mut handshake);
        assert_eq!(names.len(), expected + 1, "{queries:?}");
    };
    check(&[], 3);
    check(&["base:"], 1);
    check(&["qemu:"], 1);
    check(&["stele:changed:"], 1);
    check(&["stele:changed:monday", "qemu:dirty-bitmap:monday"], 2);
    check(&["stele:changed:tuesday"], 0);
    check(&["base:allocation"], 1);
    check(&["base:allocation", "base:"], 1);
    check(&["base"], 0);
    check(&["qemu"], 0);
}
