use super::*;

fn request(stage: u8, next: Option<u8>, keys: &[(&str, &str)]) -> Frame {
    let mut pairs = Pairs::default();
    keys.iter().for_each(|(key, value)| pairs.add(key, value));
    let transit = next.map_or(0, |next| 0x80 | next);
    let mut header = Header::new(opcode::LOGIN, stage << 2 | transit);
    header.put(0, &[0x43]);
    header.set_data_length(pairs.0.len());
    Frame { header, additional: Vec::new(), data: pairs.0.into() }
}

fn answer(login: &mut Login) -> (Header, Vec<(String, String)>) {
    let mut frames = frames(&login.out.take());
    let frame = frames.pop().unwrap();
    (frame.header, text::parse(&frame.data).unwrap())
}

fn value(pairs: &[(String, String)], wanted: &str) -> Option<String> {
    pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.clone())
}

fn refused(login: &mut Login, next: Next) -> (u8, u8) {
    assert!(matches!(next, Next::Close));
    let (header, _) = answer(login);
    (header.u8(36), header.u8(37))
}

const NAMES: [(&str, &str); 2] = [("InitiatorName", "iqn.a:b"), ("TargetName", TARGET)];

fn guarded(mutual: bool) -> OneTarget {
    let own = Credentials { user: "stele".into(), secret: "the other secret".into() };
    OneTarget(LoginRules {
        chap: Some(Credentials { user: "host".into(), secret: "a long secret".into() }),
        mutual: mutual.then_some(own),
    })
}

#[test]
fn an_open_target_is_entered_in_one_exchange_with_the_terms_agreed_on() {
    let mut login = Login::new([9; 32]);
    let keys = [
        ("InitiatorName", "iqn.a:b"),
        ("TargetName", TARGET),
        ("SessionType", "Normal"),
        ("HeaderDigest", "CRC32C,None"),
        ("DataDigest", "None,CRC32C"),
        ("MaxRecvDataSegmentLength", "131072"),
        ("MaxBurstLength", "16776192"),
        ("FirstBurstLength", "65536"),
        ("InitialR2T", "No"),
        ("ErrorRecoveryLevel", "2"),
        ("X-unheard-of", "1"),
    ];
    assert!(matches!(login.receive(request(1, Some(3), &keys), &OneTarget(LoginRules::default())), Next::Join));
    let agreed = login.agreed();
    assert!(agreed.parameters.header_digest && !agreed.parameters.data_digest && !agreed.parameters.initial_r2t);
    assert_eq!(agreed.parameters.their_data_max, 131_072);
    login.accept(7);
    let (header, pairs) = answer(&mut login);
    assert_eq!((header.flags(), header.u16(14), header.u8(36)), (0x87, 7, 0));
    assert_eq!(value(&pairs, "ErrorRecoveryLevel").as_deref(), Some("0"));
    assert_eq!(value(&pairs, "MaxBurstLength").as_deref(), Some("1048576"));
    assert_eq!(value(&pairs, "X-unheard-of").as_deref(), Some("NotUnderstood"));
    assert_eq!(value(&pairs, "TargetPortalGroupTag").as_deref(), Some("1"));
}

#[test]
fn a_guarded_target_is_entered_with_its_secret_alone_by_every_algorithm() {
    for (offered, algorithm) in
        [("5", chap::Algorithm::Md5), ("6,5", chap::Algorithm::Sha1), ("5,7", chap::Algorithm::Sha256)]
    {
        for (secret, mutual, enters) in [("a long secret", true, true), ("a wrong secret", false, false)] {
            let (mut login, targets) = (Login::new([9; 32]), guarded(true));
            let first = [NAMES[0], NAMES[1], ("AuthMethod", "CHAP,None")];
            assert!(matches!(login.receive(request(0, Some(1), &first), &targets), Next::Continue));
            assert_eq!(value(&answer(&mut login).1, "AuthMethod").as_deref(), Some("CHAP"));
            assert!(matches!(login.receive(request(0, Some(1), &[("CHAP_A", offered)]), &targets), Next::Continue));
            let (header, pairs) = answer(&mut login);
            assert_eq!(header.flags() & 0x80, 0, "nobody is let on before the answer");
            let challenge = text::binary(&value(&pairs, "CHAP_C").unwrap()).unwrap();
            let identifier: u8 = value(&pairs, "CHAP_I").unwrap().parse().unwrap();
            let response = text::hexadecimal(&algorithm.respond(identifier, secret, &challenge));
            let mut keys = vec![("CHAP_N", "host"), ("CHAP_R", response.as_str())];
            if mutual {
                keys.extend([("CHAP_I", "5"), ("CHAP_C", "0x0102030405060708")]);
            }
            let next = login.receive(request(0, Some(1), &keys), &targets);
            if !enters {
                assert_eq!(refused(&mut login, next), (2, 1));
                continue;
            }
            let (header, pairs) = answer(&mut login);
            assert_eq!(header.flags(), 0x81);
            let proof = text::binary(&value(&pairs, "CHAP_R").unwrap()).unwrap();
            assert_eq!(proof, algorithm.respond(5, "the other secret", &[1, 2, 3, 4, 5, 6, 7, 8]));
            assert!(matches!(login.receive(request(1, Some(3), &[]), &targets), Next::Join));
        }
    }
}

#[test]
fn nobody_gets_around_the_secret() {
    let check = |what: &str, targets: &OneTarget, requests: Vec<Frame>, expected: (u8, u8)| {
        let mut login = Login::new([9; 32]);
        let mut last = None;
        for frame in requests {
            login.out.take();
            last = Some(login.receive(frame, targets));
        }
        assert_eq!(refused(&mut login, last.unwrap()), expected, "{what}");
    };
    let guarded = guarded(false);
    check("by skipping the security stage", &guarded, vec![request(1, Some(3), &NAMES)], (2, 1));
    let none = [NAMES[0], NAMES[1], ("AuthMethod", "None")];
    check("by offering no method", &guarded, vec![request(0, Some(3), &none)], (2, 1));
    let chap = [NAMES[0], NAMES[1], ("AuthMethod", "CHAP")];
    check(
        "by moving on without the answer",
        &guarded,
        vec![request(0, Some(1), &chap), request(1, Some(3), &[])],
        (2, 11),
    );
    check(
        "by answering before being asked",
        &guarded,
        vec![request(0, None, &chap), request(0, Some(3), &[("CHAP_N", "host"), ("CHAP_R", "0x00")])],
        (2, 1),
    );
    check("by another name", &guarded, vec![request(1, Some(3), &[NAMES[0], ("TargetName", "iqn.x:y")])], (2, 3));
    check("namelessly", &guarded, vec![request(1, Some(3), &[NAMES[1]])], (2, 7));
    check("with nonsense", &guarded, vec![request(1, Some(3), &[NAMES[0], NAMES[1], ("MaxBurstLength", "x")])], (2, 1));
    let open = OneTarget(LoginRules::default());
    let keys = [NAMES[0], NAMES[1], ("MaxBurstLength", "x")];
    check("on impossible terms", &open, vec![request(1, Some(3), &keys)], (2, 0));
}

#[test]
fn our_own_challenge_sent_back_is_not_answered() {
    let (mut login, targets) = (Login::new([9; 32]), guarded(true));
    login.receive(request(0, None, &[NAMES[0], NAMES[1], ("AuthMethod", "CHAP")]), &targets);
    login.receive(request(0, None, &[("CHAP_A", "5")]), &targets);
    login.out.take();
    let response = text::hexadecimal(&chap::Algorithm::Md5.respond(9, "a long secret", &[9; 32]));
    let mirrored = text::hexadecimal(&[9; 32]);
    let keys = [("CHAP_N", "host"), ("CHAP_R", &*response), ("CHAP_I", "9"), ("CHAP_C", &*mirrored)];
    let next = login.receive(request(0, Some(1), &keys), &targets);
    assert_eq!(refused(&mut login, next), (2, 1));
}

#[test]
fn digests_are_those_of_the_standard_and_damage_is_noticed() {
    // RFC 7143, appendix A.4: 32 bytes of zeros.
    assert_eq!(digest_of(&[&[0; 32]]), [0xaa, 0x36, 0x91, 0x8a]);
    let mut out = outbox::Outbox::default();
    (out.header_digest, out.data_digest) = (true, true);
    out.push(Header::new(opcode::NOP_OUT, 0x80), &[stele_media::Shared::from_static(b"hello")]);
    let whole = out.take();
    assert_eq!(whole.len(), 48 + 4 + 8 + 4);
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        let mut framing = Framing::new(64);
        (framing.header_digest, framing.data_digest) = (true, true);
        framing.feed(&damaged);
        // A header with other lengths may wait for more data, or be too long; it is never accepted.
        assert!(!matches!(framing.frame(), Ok(Some(_))), "byte {place}");
    }
    let mut framing = Framing::new(4);
    framing.feed(&whole);
    assert_eq!(framing.frame().err(), Some(Broken::TooLong(5)));
}

#[test]
fn a_refusal_names_the_target_that_was_asked_for() {
    struct NoTarget;
    impl Targets for NoTarget {
        fn rules(&self, _: &str) -> Result<LoginRules, Refusal> {
            Err(Refusal::NOT_FOUND)
        }
    }
    let long = format!("iqn.a:{}", "x".repeat(300));
    for (asked, named) in [(TARGET, Some(TARGET)), (long.as_str(), None)] {
        let mut login = Login::new([9; 32]);
        let next =
            login.receive(request(1, Some(3), &[("InitiatorName", "iqn.a:b"), ("TargetName", asked)]), &NoTarget);
        assert_eq!(refused(&mut login, next), (2, 3));
        assert_eq!(login.refused().unwrap().target.as_deref(), named, "{asked}");
    }
}

#[test]
fn a_name_of_an_initiator_holds_nothing_that_acts_on_a_terminal() {
    for name in ["iqn.a:\u{1b}[2J", "iqn.a:b\n10.0.0.1", "iqn.a:b 10.0.0.1:3260", "iqn.a:\u{202e}b", "\u{a0}"] {
        let mut login = Login::new([9; 32]);
        let pairs = [("InitiatorName", name), ("TargetName", TARGET)];
        let next = login.receive(request(1, Some(3), &pairs), &OneTarget(LoginRules::default()));
        assert_eq!(refused(&mut login, next), (2, 0), "{name:?}");
    }
    let mut login = Login::new([9; 32]);
    let pairs = [("InitiatorName", "iqn.2026-11.example.\u{fc}ber:host-1"), ("TargetName", TARGET)];
    let next = login.receive(request(1, Some(3), &pairs), &OneTarget(LoginRules::default()));
    assert!(matches!(next, Next::Join));
}

#[test]
fn a_secret_is_one_line_that_an_initiator_can_hold() {
    let check = |user: &str, secret: &str| {
        let chap = Some(Credentials { user: user.into(), secret: secret.into() });
        Terms { chap, ..Terms::default() }.check()
    };
    let long = |length: usize| "x".repeat(length);
    for (user, secret) in [("host", "a long secret"), (&long(255), &long(255)), ("host", "päßwörter sind lang")] {
        check(user, secret).unwrap();
    }
    for (user, secret, reason) in [
        ("host", "short", "at least 12"),
        ("host", &long(256), "at most 255"),
        ("host", "the first line\nthe second one", "one line"),
        ("host", "of another system\r", "control characters"),
        ("", "a long secret", "user of CHAP"),
        (&long(256), "a long secret", "user of CHAP"),
        ("ho\nst", "a long secret", "user of CHAP"),
    ] {
        let said = check(user, secret).unwrap_err();
        assert!(said.contains(reason), "{user:?} {secret:?}: {said}");
    }
}

#[test]
fn a_name_of_a_target_has_the_form_of_its_kind() {
    for good in
        ["iqn.2026-01.local.stele:a", "eui.0123456789abcdef", "naa.0123456789abcdef", &format!("naa.{:032x}", 7)]
    {
        assert_eq!(check_target(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "iqn",
        "iqn.",
        "iqn.A:b",
        "iqn.a b",
        "eui.123",
        "eui.0123456789ABCDEF",
        "naa.0123",
        "abc.d",
        "\u{e4}\u{f6}.",
    ] {
        assert!(check_target(bad).unwrap_err().contains("cannot name an iSCSI target"), "{bad}");
    }
    assert!(check_target(&format!("iqn.{}", "a".repeat(220))).is_err());
}

#[test]
fn every_refusal_of_a_login_has_words_for_the_log() {
    for refusal in [
        Refusal::INITIATOR,
        Refusal::AUTHENTICATION,
        Refusal::NOT_FOUND,
        Refusal::VERSION,
        Refusal::TOO_MANY,
        Refusal::MISSING,
        Refusal::SESSION_TYPE,
        Refusal::NO_SESSION,
        Refusal::STATE,
        Refusal::UNAVAILABLE,
        Refusal::RESOURCES,
    ] {
        assert!(!refusal.to_string().contains("status"), "{refusal:?}: {refusal}");
    }
}
