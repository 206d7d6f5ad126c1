//! Keys, ids and encryption.
//!
//! A repository has one secret of 32 bytes. Every key is derived from it with BLAKE3 for one
//! purpose, so no key serves two algorithms. AES-256-GCM fails if a nonce repeats under one key.
//! Therefore every sealed object has its own key, derived from a random salt of 32 bytes, and
//! within the object the nonce is a counter. Two objects would need the same 256 random bits to
//! share a key.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::error::{BackupError, Result};

pub const TAG_BYTES: usize = 16;
pub const SALT_BYTES: usize = 32;

pub type Salt = [u8; SALT_BYTES];
pub type Secret = Zeroizing<[u8; 32]>;

const CHUNK_IDS: &str = "stele backup 2026-11 chunk ids";
const TREE_IDS: &str = "stele backup 2026-11 tree chunk ids";
const SEALING: &str = "stele backup 2026-11 sealing";
const BOUNDARIES: &str = "stele backup 2026-11 chunk boundaries";
const CHECK: &str = "stele backup 2026-11 check of the secret";

/// The id of a chunk: keyed BLAKE3 of its content. Without the key it says nothing about the
/// content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub [u8; 32]);

impl std::fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl ChunkId {
    /// The bytes from `from` on as a number, for tables.
    pub fn number(&self, from: usize) -> u64 {
        self.0.get(from..from + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
}

/// Which key makes the id: file content and trees are apart, so that content never passes for a
/// tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Content,
    Tree,
}

/// All keys of an open repository.
pub struct Keys {
    secret: Secret,
    chunk_ids: Secret,
    tree_ids: Secret,
    sealing: Secret,
    boundaries: Secret,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Keys {
    pub fn new(secret: Secret) -> Keys {
        let derived = |purpose: &str| Zeroizing::new(blake3::derive_key(purpose, secret.as_ref()));
        Keys {
            chunk_ids: derived(CHUNK_IDS),
            tree_ids: derived(TREE_IDS),
            sealing: derived(SEALING),
            boundaries: derived(BOUNDARIES),
            secret,
        }
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Keys the boundaries of chunks, so that the lengths of stored chunks do not identify known
    /// files.
    pub fn boundaries(&self) -> &[u8; 32] {
        &self.boundaries
    }

    pub fn id(&self, kind: Kind, content: &[u8]) -> ChunkId {
        let key = match kind {
            Kind::Content => &self.chunk_ids,
            Kind::Tree => &self.tree_ids,
        };
        ChunkId(*blake3::keyed_hash(key, content).as_bytes())
    }

    /// The key of the object with this salt.
    pub fn sealing(&self, purpose: &str, salt: &Salt) -> SealingKey {
        let mut hasher = blake3::Hasher::new_keyed(&self.sealing);
        hasher.update(purpose.as_bytes()).update(&[0]).update(salt);
        SealingKey::new(&Zeroizing::new(*hasher.finalize().as_bytes()))
    }
}

/// A public value that tells whether a secret is that of a repository. It does not reveal the
/// secret.
pub fn check_value(secret: &Secret) -> [u8; 32] {
    blake3::derive_key(CHECK, secret.as_ref())
}

/// A key of AES-256-GCM.
pub struct SealingKey(Option<LessSafeKey>);

impl SealingKey {
    pub fn new(key: &[u8; 32]) -> SealingKey {
        SealingKey(UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new))
    }

    fn key(&self) -> Result<&LessSafeKey> {
        self.0.as_ref().ok_or_else(|| BackupError::Failed("the cryptographic library refused a key".to_owned()))
    }

    /// Seals `data` in place and returns the tag. `number` must be new for this key.
    pub fn seal(&self, number: u64, bound: &[u8], data: &mut [u8]) -> Result<[u8; TAG_BYTES]> {
        let refused = |_| BackupError::Failed("the cryptographic library refused to encrypt".to_owned());
        let tag = self.key()?.seal_in_place_separate_tag(counted(number), Aad::from(bound), data).map_err(refused)?;
        let mut bytes = [0; TAG_BYTES];
        bytes.copy_from_slice(tag.as_ref());
        Ok(bytes)
    }

    /// Opens `data`, which has the tag behind it, in place. None: it is not authentic.
    pub fn open<'a>(&self, number: u64, bound: &[u8], data: &'a mut [u8]) -> Option<&'a mut [u8]> {
        self.0.as_ref()?.open_in_place(counted(number), Aad::from(bound), data).ok()
    }
}

fn counted(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    if let Some(low) = nonce.first_chunk_mut() {
        *low = number.to_le_bytes();
    }
    Nonce::assume_unique_for_key(nonce)
}

pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('?');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of lower-case hexadecimal digits.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
