//! Passwords: each wraps the repository's secret in an object of its own, so passwords come and go
//! without a change of data. An escrow is the secret as text, for a safe.
//!
//! Losing all passwords and the escrow loses every backup. There is no other way in.

use argon2::{Algorithm, Argon2, Params, Version};
use zeroize::Zeroizing;

use crate::codec::Decoder;
use crate::crypt::{SALT_BYTES, Salt, SealingKey, Secret, TAG_BYTES, check_value, from_hex, hex};
use crate::error::{BackupError, Result};

pub(crate) const MAGIC: [u8; 8] = *b"STLBKEY1";
const ESCROW: &str = "stele-backup-escrow-1";

/// Bytes of the longest label of a key.
pub const LABEL_MAX: usize = 200;
/// Bytes of the longest object of a key.
pub const KEY_BYTES_MAX: u64 = 1024;
/// Bytes of the name of a key. Keys of earlier versions have random names of 8 bytes.
pub const NAME_BYTES: usize = 16;

/// The name of a key: the beginning of the hash of its object.
pub fn digest(bytes: &[u8]) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    blake3::Hasher::new().update(bytes).finalize_xof().fill(&mut name);
    name
}

/// The cost of one attempt at a password, with Argon2id. The defaults are RFC 9106's second
/// recommendation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Cost {
    pub const STANDARD: Cost = Cost { memory_kib: 64 << 10, passes: 3, lanes: 4 };
    /// The lowest cost that the algorithm takes, for tests.
    pub const LEAST: Cost = Cost { memory_kib: 8, passes: 1, lanes: 1 };
    /// A key that asks for more is refused: it would exhaust the memory or the patience of its
    /// reader.
    const MOST: Cost = Cost { memory_kib: 1 << 20, passes: 64, lanes: 16 };

    fn parameters(self) -> Result<Params> {
        let Cost { memory_kib, passes, lanes } = self;
        let most = Cost::MOST;
        if memory_kib > most.memory_kib || passes > most.passes || lanes > most.lanes {
            return Err(BackupError::damaged("a key demands more memory or time than any writer sets"));
        }
        Params::new(memory_kib, passes, lanes, Some(32)).map_err(impossible)
    }

    fn derive(self, password: &[u8], salt: &Salt) -> Result<Secret> {
        let mut key = Zeroizing::new([0; 32]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, self.parameters()?)
            .hash_password_into(password, salt, key.as_mut())
            .map_err(impossible)?;
        Ok(key)
    }
}

fn impossible(error: argon2::Error) -> BackupError {
    BackupError::Damaged(format!("a key has impossible parameters: {error}"))
}

/// The secret wrapped with a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrappedKey {
    /// A word of the operator about this password, in plain text.
    pub label: String,
    cost: Cost,
    salt: Salt,
    sealed: [u8; 32 + TAG_BYTES],
}

impl WrappedKey {
    /// `salt` must be random: the wrapping key depends on it alone and on the password.
    pub fn new(secret: &Secret, password: &[u8], label: &str, cost: Cost, salt: Salt) -> Result<WrappedKey> {
        if password.is_empty() {
            return Err(BackupError::Invalid("the password is empty".to_owned()));
        }
        if label.len() > LABEL_MAX {
            return Err(BackupError::Invalid(format!("the label exceeds {LABEL_MAX} bytes")));
        }
        let key = SealingKey::new(&*cost.derive(password, &salt)?);
        let mut sealed = [0; 32 + TAG_BYTES];
        let (text, tag) = sealed.split_at_mut(32);
        text.copy_from_slice(secret.as_ref());
        tag.copy_from_slice(&key.seal(0, label.as_bytes(), text)?);
        Ok(WrappedKey { label: label.to_owned(), cost, salt, sealed })
    }

    /// Whether a password could open the key, as far as its form tells.
    pub fn check(&self) -> Result<()> {
        self.cost.parameters().map(drop)
    }

    /// The secret. None: the password is another.
    pub fn open(&self, password: &[u8]) -> Result<Option<Secret>> {
        let key = SealingKey::new(&*self.cost.derive(password, &self.salt)?);
        let mut text = Zeroizing::new(self.sealed);
        let opened = key.open(0, self.label.as_bytes(), text.as_mut());
        Ok(opened.and_then(|secret| <[u8; 32]>::try_from(&*secret).ok()).map(Zeroizing::new))
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [self.cost.memory_kib, self.cost.passes, self.cost.lanes, self.label.len() as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(&self.sealed);
        bytes.extend_from_slice(self.label.as_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<WrappedKey> {
        let mut decoder = Decoder::new(bytes, "key");
        if decoder.array()? != MAGIC {
            return Err(decoder.damaged("it begins as no key does"));
        }
        let cost = Cost { memory_kib: decoder.u32()?, passes: decoder.u32()?, lanes: decoder.u32()? };
        let length = decoder.u32()? as usize;
        let (salt, sealed) = (decoder.array::<SALT_BYTES>()?, decoder.array()?);
        if length > LABEL_MAX {
            return Err(decoder.damaged("its label is too long"));
        }
        let label = std::str::from_utf8(decoder.take(length)?).map_err(|_| decoder.damaged("its label is no text"))?;
        decoder.end()?;
        Ok(WrappedKey { label: label.to_owned(), cost, salt, sealed })
    }
}

/// The secret as text for a safe: its purpose, the repository, the secret, and a check over all
/// three.
pub fn escrow(repository: &[u8; 16], secret: &Secret) -> Zeroizing<String> {
    let body = Zeroizing::new(format!("{} {}", hex(repository), hex(secret.as_ref())));
    Zeroizing::new(format!("{ESCROW} {} {}\n", *body, escrow_check(&body)))
}

fn escrow_check(body: &str) -> String {
    let check = check_value(&Zeroizing::new(*blake3::hash(body.as_bytes()).as_bytes()));
    hex(check.get(..4).unwrap_or_default())
}

/// Whether the text begins as an escrow does.
pub fn is_escrow(text: &str) -> bool {
    text.split_whitespace().next() == Some(ESCROW)
}

/// The repository and the secret of an escrow.
pub fn parse_escrow(text: &str) -> Result<([u8; 16], Secret)> {
    let wrong = |why: &str| BackupError::Invalid(format!("this is no escrow of a backup repository: {why}"));
    let mut words = text.split_whitespace();
    if words.next() != Some(ESCROW) {
        return Err(wrong("its first word is another"));
    }
    let mut word = || words.next().ok_or_else(|| wrong("words are missing"));
    let (repository, secret, check) = (word()?, word()?, word()?);
    if escrow_check(&format!("{repository} {secret}")) != check {
        return Err(wrong("its check differs; compare it digit by digit"));
    }
    let repository = from_hex(repository).ok_or_else(|| wrong("a word has other characters"))?;
    let secret = from_hex(secret).ok_or_else(|| wrong("a word has other characters"))?;
    Ok((repository, Zeroizing::new(secret)))
}

#[cfg(test)]
mod tests;
