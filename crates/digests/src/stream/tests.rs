use md5::{Digest, Md5};

use super::*;

#[test]
fn the_vectors_of_the_standard() {
    let hashed = |text: &str| {
        let mut state = Md5State::new();
        state.update(text.as_bytes());
        state.finish().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let check = |text: &str, digest: &str| assert_eq!(hashed(text), digest, "{text}");
    check("", "d41d8cd98f00b204e9800998ecf8427e");
    check("a", "0cc175b9c0f1b6a831c399e269772661");
    check("abc", "900150983cd24fb0d6963f7d28e17f72");
    check("message digest", "f96b697d7cb7938d525a2f31aaf161d0");
    check("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b");
    check("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f");
    check(&"1234567890".repeat(8), "57edf4a22be3c955ac49da2e2107b67a");
}

#[test]
fn every_length_around_a_block_in_two_pushes() {
    let data: Vec<u8> = (0..200u32).map(|at| (at * 7) as u8).collect();
    for length in 0..data.len() {
        for first in 0..=length {
            let mut state = Md5State::new();
            state.update(&data[..first]);
            state.update(&data[first..length]);
            let twin: [u8; 16] = Md5::digest(&data[..length]).into();
            assert_eq!(state.finish(), twin, "{first} of {length} bytes first");
        }
    }
}
