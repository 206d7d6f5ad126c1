//! Time stamps by OpenSSL's authority: what is granted verifies, and nothing else does.

mod authority;

use authority::{Authority, ECDSA, RSA};
use stele_stamp::{Authorities, Imprint, REPLY_MAX, Request, verify};

const BYTES: &[u8] = b"the head of an audit log\n";
const NONCE: [u8; 8] = [0xff, 1, 2, 3, 4, 5, 6, 7];

fn authorities(authority: &Authority, name: &str) -> Authorities {
    Authorities::from_pem(&std::fs::read(authority.path(name)).unwrap()).unwrap()
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn granted_stamps_verify_whatever_signs_them() {
    for (name, key, ess) in [("rsa-1", RSA, "sha1"), ("rsa-2", RSA, "sha256"), ("ecdsa", ECDSA, "sha256")] {
        let authority = Authority::new(name, key, ess);
        let request = Request::new(Imprint::of(BYTES), NONCE);
        let reply = authority.reply(&request.to_der());
        let trusted = authorities(&authority, "ca.pem");
        let stamp = request.check(&reply, Some(&trusted)).unwrap();
        assert!(now().abs_diff(stamp.time) < 600, "{name}: {stamp:?}");
        assert_eq!(stamp.serial, "0b", "{name}");
        assert_eq!(request.check(&reply, None), Ok(stamp.clone()), "{name}");
        assert_eq!(verify(&reply, Imprint::of(BYTES), Some(&trusted)), Ok(stamp), "{name}: later, without the nonce");
        let [bytes, kept] = ["bytes", "kept"].map(|name| authority.path(name));
        std::fs::write(&bytes, BYTES).unwrap();
        std::fs::write(&kept, &reply).unwrap();
        assert!(authority.verifies(&bytes, &kept), "{name}: OpenSSL agrees");
    }
}

#[test]
fn a_stamp_of_other_bytes_or_for_another_request_is_refused() {
    let authority = Authority::new("other", ECDSA, "sha256");
    let request = Request::new(Imprint::of(BYTES), NONCE);
    let reply = authority.reply(&request.to_der());
    let refused = |request: Request, word: &str| {
        let finding = request.check(&reply, None).unwrap_err();
        assert!(finding.contains(word), "{finding}");
    };
    refused(Request::new(Imprint::of(b"another head\n"), NONCE), "other bytes");
    refused(Request::new(Imprint::of(BYTES), [1; 8]), "another request");
}

#[test]
fn a_signer_that_no_authority_certified_is_refused() {
    let [authority, stranger] = ["known", "stranger"].map(|name| Authority::new(name, ECDSA, "sha256"));
    let request = Request::new(Imprint::of(BYTES), NONCE);
    let reply = stranger.reply(&request.to_der());
    let finding = request.check(&reply, Some(&authorities(&authority, "ca.pem"))).unwrap_err();
    assert!(finding.contains("no given authority"), "{finding}");
    for text in ["", "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"] {
        assert!(Authorities::from_pem(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn a_refusal_tells_the_reason_of_the_authority() {
    let authority = Authority::new("refusal", ECDSA, "sha256");
    let request = Request::new(Imprint::of(BYTES), NONCE);
    let reply = authority.reply_by("other_policy", &request.to_der());
    let finding = request.check(&reply, None).unwrap_err();
    assert!(finding.contains("refused, with status 02: Message digest algorithm is not supported"), "{finding}");
}

#[test]
fn no_changed_or_cut_byte_keeps_a_stamp_valid() {
    let authority = Authority::new("altered", ECDSA, "sha256");
    let request = Request::new(Imprint::of(BYTES), NONCE);
    let reply = authority.reply(&request.to_der());
    let trusted = authorities(&authority, "ca.pem");
    let stamp = request.check(&reply, Some(&trusted)).unwrap();
    for length in 0..reply.len() {
        assert!(request.check(&reply[..length], Some(&trusted)).is_err(), "cut to {length}");
    }
    let longer = [&reply[..], &[0]].concat();
    assert!(request.check(&longer, Some(&trusted)).is_err());
    assert!(request.check(&vec![0x30; REPLY_MAX + 1], None).unwrap_err().contains("more than"));
    // The signature comes last.
    let mut altered = reply.clone();
    *altered.last_mut().unwrap() ^= 1;
    assert!(request.check(&altered, None).unwrap_err().contains("signature does not hold"));
    for at in 0..reply.len() {
        let mut altered = reply.clone();
        altered[at] ^= 1;
        // Some bytes are not signed, such as version numbers: changing them says nothing else.
        if let Ok(other) = request.check(&altered, Some(&trusted)) {
            assert_eq!(other, stamp, "byte {at}");
        }
    }
}

#[test]
fn no_noise_in_a_reply_verifies_or_breaks_the_reader() {
    let authority = Authority::new("noise", ECDSA, "sha256");
    let request = Request::new(Imprint::of(BYTES), NONCE);
    let reply = authority.reply(&request.to_der());
    let mut state = 88_172_645_463_325_252_u64;
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % limit as u64).unwrap()
    };
    for _ in 0..100_000 {
        let mut noisy = reply.clone();
        for _ in 0..=below(5) {
            // At least one byte stays.
            let at = 1.max(below(noisy.len().max(2))).min(noisy.len());
            match below(4) {
                0 => noisy.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x55),
                1 => drop(noisy.splice(at..noisy.len().min(at + 1), [])),
                2 => noisy.insert(at, 0x30),
                _ if at % 8 == 0 => noisy.truncate(at),
                _ => {}
            }
        }
        assert!(verify(&noisy, Imprint::of(b"other bytes"), None).is_err());
    }
}

/// A value of DER.
fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[tag, 0x82], &length[..], content].concat()
}

/// What `signer` signs over the stamp in a reply, as a reply. It names its certificate as RFC 5816
/// says.
fn signed_by(authority: &Authority, reply: &[u8], signer: &str) -> Vec<u8> {
    std::fs::write(authority.path("original"), reply).unwrap();
    authority.openssl(&["ts", "-reply", "-in", "original", "-token_out", "-out", "token"]);
    let read = ["cms", "-verify", "-noverify", "-inform", "DER", "-in", "token", "-out", "content"];
    authority.openssl(&read);
    let (certificate, key) = (format!("{signer}.pem"), format!("{signer}.key"));
    let what = ["cms", "-sign", "-binary", "-nodetach", "-cades", "-econtent_type", "id-smime-ct-TSTInfo"];
    let how = ["-in", "content", "-signer", &certificate, "-inkey", &key, "-outform", "DER", "-out", "token"];
    authority.openssl(&[&what[..], &how].concat());
    let token = std::fs::read(authority.path("token")).unwrap();
    value(0x30, &[&[0x30, 3, 2, 1, 0], &token[..]].concat())
}

#[test]
fn only_a_certificate_for_time_stamping_may_sign() {
    let authority = Authority::new("purpose", ECDSA, "sha256");
    let request = Request::new(Imprint::of(BYTES), NONCE);
    let reply = authority.reply(&request.to_der());
    let trusted = authorities(&authority, "ca.pem");
    assert!(request.check(&signed_by(&authority, &reply, "signer"), Some(&trusted)).is_ok());
    let web = signed_by(&authority, &reply, "web");
    assert!(request.check(&web, None).is_ok(), "its signature holds");
    assert!(request.check(&web, Some(&trusted)).unwrap_err().contains("no given authority"));
}
