//! CHAP (RFC 1994, RFC 7143 12.1): proves a shared secret without sending it. It works in both
//! directions, and uses the strongest of MD5, SHA-1 and SHA-256 that the initiator offers.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};

/// Bytes of our challenge: the length of the longest hash.
pub const CHALLENGE: usize = 32;
const CHALLENGE_MAX: usize = 1024;
/// Bytes of the shortest secret that is accepted: 96 bits (RFC 7143, 9.2.1).
pub const SECRET_MIN: usize = 12;
/// Bytes of the longest user and of the longest secret: initiators take no more of either.
pub const CREDENTIAL_MAX: usize = 255;

/// A name with its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    pub user: String,
    pub secret: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, ...)", self.user)
    }
}

/// Settings of an export for iSCSI, beyond those of every protocol.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// The credentials that an initiator must prove.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap: Option<Credentials>,
    /// The credentials that the target proves on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutual: Option<Credentials>,
    /// Presented as a removable disk, which initiators can eject.
    pub removable: bool,
    /// Physical blocks are reported as large as logical ones, for initiators that refuse a disk
    /// with blocks of 512 bytes on blocks of 4096.
    pub native_blocks: bool,
}

impl Terms {
    pub fn is_plain(&self) -> bool {
        *self == Terms::default()
    }

    /// Returns the reason if the terms are invalid.
    pub fn check(&self) -> Result<(), String> {
        for Credentials { user, secret } in self.chap.iter().chain(&self.mutual) {
            let is_line = |text: &str, min: usize| {
                (min..=CREDENTIAL_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
            };
            if !is_line(user, 1) {
                return Err(format!(
                    "the user of CHAP has 1 to {CREDENTIAL_MAX} characters, and no control characters"
                ));
            }
            if !is_line(secret, SECRET_MIN) {
                return Err(format!(
                    "a CHAP secret is one line of at least {SECRET_MIN} characters and at most {CREDENTIAL_MAX}, without \
                     control characters"
                ));
            }
        }
        match (&self.chap, &self.mutual) {
            (None, Some(_)) => {
                Err("the target proves itself only to initiators that prove themselves: give --chap-user and \
                     --chap-secret too"
                    .to_owned())
            }
            (Some(one), Some(other)) if one.secret == other.secret => {
                Err("both directions have one secret, and a peer could send the proof of one back as that of the \
                     other: give the target a secret of its own"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }

    /// A copy that may be displayed.
    pub fn without_secrets(&self) -> Terms {
        let bare = |held: &Option<Credentials>| {
            held.as_ref().map(|held| Credentials { user: held.user.clone(), secret: String::new() })
        };
        Terms { chap: bare(&self.chap), mutual: bare(&self.mutual), ..self.clone() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    Md5,
    Sha1,
    Sha256,
}

impl Algorithm {
    /// The strongest algorithm in a list of numbers.
    pub fn choose(offered: &str) -> Option<Algorithm> {
        let has = |number: &str| offered.split(',').any(|one| one.trim() == number);
        [Algorithm::Sha256, Algorithm::Sha1, Algorithm::Md5].into_iter().find(|one| has(one.number()))
    }

    pub fn number(self) -> &'static str {
        match self {
            Algorithm::Md5 => "5",
            Algorithm::Sha1 => "6",
            Algorithm::Sha256 => "7",
        }
    }

    /// The response to a challenge.
    pub fn respond(self, identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
        let text = [&[identifier], secret.as_bytes(), challenge].concat();
        match self {
            Algorithm::Md5 => Md5::digest(&text).to_vec(),
            Algorithm::Sha1 => digest(&SHA1_FOR_LEGACY_USE_ONLY, &text).as_ref().to_vec(),
            Algorithm::Sha256 => digest(&SHA256, &text).as_ref().to_vec(),
        }
    }
}

/// A challenge that was sent and has no response yet.
pub struct Challenge {
    pub algorithm: Algorithm,
    pub identifier: u8,
    pub bytes: [u8; CHALLENGE],
}

impl Challenge {
    pub fn is_answered(&self, expected: &Credentials, user: &str, response: &[u8]) -> bool {
        let right = self.algorithm.respond(self.identifier, &expected.secret, &self.bytes);
        verify_slices_are_equal(&right, response).is_ok() && user == expected.user
    }

    /// Our response to a challenge of the initiator. `None`: it is no valid challenge, or our own
    /// sent back.
    pub fn answer(&self, own: &Credentials, identifier: u64, theirs: &[u8]) -> Option<Vec<u8>> {
        let identifier = u8::try_from(identifier).ok()?;
        if theirs.is_empty() || theirs.len() > CHALLENGE_MAX || theirs == self.bytes {
            return None;
        }
        Some(self.algorithm.respond(identifier, &own.secret, theirs))
    }
}
