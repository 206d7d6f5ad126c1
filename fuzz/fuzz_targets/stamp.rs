//! A reply of a time stamp authority from untrusted bytes: as read, and as a token in a reply that
//! grants it. No bytes verify, since the fuzzer has no key that signs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_stamp::{Authorities, Imprint, Request, verify};

/// A value of DER: tag, length, content.
fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    let digits = &length[length.iter().position(|digit| *digit > 0).unwrap_or(3)..];
    let mut bytes = vec![tag];
    if content.len() < 0x80 {
        bytes.push(content.len() as u8);
    } else {
        bytes.push(0x80 | digits.len() as u8);
        bytes.extend_from_slice(digits);
    }
    bytes.extend_from_slice(content);
    bytes
}

fuzz_target!(|input: &[u8]| {
    const GRANTED: [u8; 5] = [0x30, 3, 2, 1, 0];
    const SIGNED_DATA: [u8; 11] = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
    let imprint = Imprint::of(b"a head");
    let signed = value(0xa0, &value(0x30, input));
    let token = value(0x30, &[&SIGNED_DATA[..], &signed].concat());
    let wrapped = value(0x30, &[&GRANTED[..], &token].concat());
    for reply in [input, &wrapped] {
        assert!(verify(reply, imprint, None).is_err());
        assert!(Request::new(imprint, [1; 8]).check(reply, None).is_err());
    }
    let _ = Authorities::from_pem(input);
});
