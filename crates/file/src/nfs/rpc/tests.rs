use super::*;
use stele_ground::Dice;

/// A call of READ with AUTH_SYS, without arguments.
fn call() -> Vec<u8> {
    let mut call = Vec::new();
    for word in [0xfeed, CALL, VERSION, 100_003, 3, 6, AUTH_SYS, 32, 1, 3] {
        call.put_u32(word);
    }
    call.put_fixed(b"abc\0");
    for word in [1000, 100, 2, 10, 20, AUTH_NONE, 0] {
        call.put_u32(word);
    }
    call
}

fn with_word(at: usize, word: u32) -> Vec<u8> {
    let mut call = call();
    call[at * 4..at * 4 + 4].copy_from_slice(&word.to_be_bytes());
    call
}

/// The words of an answer behind its xid.
fn answer(record: Vec<u8>) -> Vec<u32> {
    match Call::parse(record.into()) {
        Err(Refusal::Answer(reply)) => {
            let words: Vec<u32> =
                reply.head.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
            assert_eq!(words[0], LAST_FRAGMENT | (reply.head.len() as u32 - 4));
            assert_eq!(words[1], 0xfeed);
            words[2..].to_vec()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_is_parsed() {
    let parsed = Call::parse(call().into()).unwrap();
    assert_eq!((parsed.xid, parsed.program, parsed.version, parsed.procedure), (0xfeed, 100_003, 3, 6));
    assert_eq!(parsed.credentials, Credentials::Sys { uid: 1000, gid: 100, groups: vec![10, 20] });
    assert_eq!(parsed.arguments.remaining(), 0);
}

#[test]
fn refused_calls_say_why() {
    for (record, expected) in [
        (with_word(2, 3), vec![1, 1, 0, 2, 2]),       // another version of RPC
        (with_word(6, 6), vec![1, 1, 1, 1]),          // GSS
        (with_word(7, 401), vec![1, 1, 1, 1]),        // a body that is too long
        (with_word(7, 28), vec![1, 1, 1, 1]),         // a body that ends inside the groups
        (with_word(9, 256), vec![1, 1, 1, 1]),        // a machine name that is too long
        (with_word(13, 17), vec![1, 1, 1, 1]),        // too many groups
        (with_word(17, 999), vec![1, 0, 0, 0, 4]),    // a verifier that is too long
        (call()[..20].to_vec(), vec![1, 0, 0, 0, 4]), // an end before the procedure
        (call()[..40].to_vec(), vec![1, 1, 1, 1]),    // an end in the credentials
        (call()[..call().len() - 2].to_vec(), vec![1, 0, 0, 0, 4]),
    ] {
        assert_eq!(answer(record.clone()), expected, "{record:?}");
    }
    let mismatch = Reply::refused(7, Accepted::ProgramMismatch(3, 4));
    assert_eq!(mismatch.head[24..], [0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
    assert_eq!(Reply::refused(7, Accepted::ProgramUnavailable).head[27], 1);
    assert_eq!(Reply::refused(7, Accepted::ProcedureUnavailable).head[27], 3);
}

#[test]
fn what_is_no_call_gets_no_answer() {
    for record in [Vec::new(), vec![1, 2, 3], call()[..7].to_vec(), with_word(1, REPLY), with_word(1, 9)] {
        assert!(matches!(Call::parse(record.into()), Err(Refusal::Silent)));
    }
}

#[test]
fn other_credentials_are_known() {
    for (flavor, expected) in [(AUTH_NONE, Credentials::None), (AUTH_TLS, Credentials::Tls)] {
        let mut record = call()[..24].to_vec();
        for word in [flavor, 0, AUTH_NONE, 0] {
            record.put_u32(word);
        }
        assert_eq!(Call::parse(record.into()).unwrap().credentials, expected);
    }
}

#[test]
fn no_bytes_make_the_parser_panic() {
    let mut dice = Dice::new(2);
    for _ in 0..20_000 {
        let mut record = call();
        for _ in 0..1 + dice.below(4) {
            let at = dice.below(record.len() as u64) as usize;
            record[at] = if dice.one_in(2) { 0xff } else { dice.roll() as u8 };
        }
        record.truncate(dice.below(record.len() as u64 + 1) as usize);
        let _ = Call::parse(record.into());
    }
}

#[test]
fn a_record_counts_content_and_padding() {
    let content = vec![Bytes::from_static(b"abc"), Bytes::from_static(b"de")];
    let reply = Reply::with(Reply::success(1), content);
    let mut bytes = reply.head.clone();
    bytes.extend(reply.content.concat());
    assert_eq!(bytes[..4], (LAST_FRAGMENT | 32).to_be_bytes());
    assert_eq!((bytes.len(), reply.length()), (36, 36));
    assert!(bytes.ends_with(b"abcde\0\0\0"));
}

#[test]
fn tls_is_begun_with_its_word() {
    let reply = Reply::start_tls(5);
    assert_eq!(reply.head[16..], *b"\0\0\0\0\0\0\0\x08STARTTLS\0\0\0\0");
}
