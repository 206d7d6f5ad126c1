//! Secrets sealed under a passphrase: AES-256-GCM under a key derived by PBKDF2-HMAC-SHA512 from
//! the passphrase and a random salt. The cipher also authenticates text in the clear, so that
//! neither part can be changed or exchanged alone.

use std::num::NonZeroU32;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA512, derive};
use serde::{Deserialize, Serialize};
use stele_server::failure::{Failure, Kind, Outcome};
use stele_server::node::surroundings::random;

/// About half a second on a processor of 2024.
const ROUNDS: u32 = 1_000_000;
/// A file with more rounds is not ours; it would only keep the processor busy.
const ROUNDS_MAX: u32 = 100_000_000;

/// All fields are in base64.
#[derive(Clone, Serialize, Deserialize)]
pub struct Sealed {
    rounds: u32,
    salt: String,
    nonce: String,
    text: String,
}

impl Sealed {
    pub fn seal(phrase: &str, open: &[u8], mut secret: Vec<u8>) -> Outcome<Sealed> {
        let (salt, nonce): ([u8; 32], [u8; NONCE_LEN]) = (random(), random());
        let key = key(phrase, &salt, ROUNDS)?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(open), &mut secret)
            .map_err(|_| Failure::failed("the secrets could not be sealed; this is a defect of Stele"))?;
        let encode = |bytes: &[u8]| base64_simd::STANDARD.encode_to_string(bytes);
        Ok(Sealed { rounds: ROUNDS, salt: encode(&salt), nonce: encode(&nonce), text: encode(&secret) })
    }

    pub fn open(&self, phrase: &str, open: &[u8]) -> Outcome<Vec<u8>> {
        let broken = || Failure::usage("the sealed part of the backup is damaged");
        let decode = |text: &str| base64_simd::STANDARD.decode_to_vec(text).map_err(|_| broken());
        let (salt, nonce, mut text) = (decode(&self.salt)?, decode(&self.nonce)?, decode(&self.text)?);
        let nonce: [u8; NONCE_LEN] = nonce.try_into().map_err(|_| broken())?;
        if self.rounds > ROUNDS_MAX {
            return Err(broken());
        }
        let key = key(phrase, &salt, self.rounds)?;
        let opened = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(open), &mut text);
        let length = opened.map(|opened| opened.len()).map_err(|_| {
            Failure::new(Kind::Refused, "the passphrase is another, or the backup was changed since it was made")
                .next("find the right passphrase, or another copy of the backup")
        })?;
        text.truncate(length);
        Ok(text)
    }
}

fn key(phrase: &str, salt: &[u8], rounds: u32) -> Outcome<LessSafeKey> {
    let mut bytes = [0; 32];
    let rounds = NonZeroU32::new(rounds).ok_or_else(|| Failure::usage("the sealed part of the backup is damaged"))?;
    derive(PBKDF2_HMAC_SHA512, rounds, salt, phrase.as_bytes(), &mut bytes);
    UnboundKey::new(&AES_256_GCM, &bytes)
        .map(LessSafeKey::new)
        .map_err(|_| Failure::failed("no key could be made of the passphrase; this is a defect of Stele"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_passphrase_opens_and_nothing_can_be_changed() {
        let sealed = Sealed::seal("correct horse battery", b"in the open", b"the key".to_vec()).unwrap();
        assert_eq!(sealed.open("correct horse battery", b"in the open").unwrap(), b"the key");
        assert!(!sealed.text.contains("key"));
        let refused = |sealed: &Sealed, phrase: &str, open: &[u8]| sealed.open(phrase, open).unwrap_err().kind;
        assert_eq!(refused(&sealed, "correct horse staple", b"in the open"), Kind::Refused);
        assert_eq!(refused(&sealed, "correct horse battery", b"in the Open"), Kind::Refused);
        let other = Sealed::seal("correct horse battery", b"in the open", b"the key".to_vec()).unwrap();
        assert_ne!((&sealed.salt, &sealed.text), (&other.salt, &other.text), "each has a salt of its own");
        for broken in [
            Sealed { rounds: 0, ..sealed.clone() },
            Sealed { rounds: u32::MAX, ..sealed.clone() },
            Sealed { nonce: "AA==".into(), ..sealed.clone() },
            Sealed { text: "not base64!".into(), ..sealed.clone() },
        ] {
            assert_eq!(refused(&broken, "correct horse battery", b"in the open"), Kind::Usage);
        }
        let exchanged = Sealed { text: other.text, ..sealed };
        assert_eq!(refused(&exchanged, "correct horse battery", b"in the open"), Kind::Refused);
    }
}
