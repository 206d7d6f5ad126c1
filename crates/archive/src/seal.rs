//! Encryption. Every key except the master key is random or derived; everything sealed is
//! AES-256-GCM.
//!
//! No nonce is used twice with one key. The keys of streams and notes are derived from 128 fresh
//! random bits each, so even a store that was set back cannot repeat one; frames within a stream
//! count up. Wrapped keys have a random nonce of their own.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::model::error::{ArchiveError, Result};
use crate::model::time::Surroundings;

pub(crate) type Secret = Zeroizing<[u8; 32]>;
/// 128 random bits that make a derived key unique.
pub(crate) type Salt = [u8; 16];

pub(crate) const TAG: usize = MAX_TAG_LEN;
/// Nonce, sealed key, tag.
pub(crate) const WRAPPED: usize = NONCE_LEN + 32 + TAG;

/// A key ready for use.
pub(crate) struct SealingKey(LessSafeKey);

/// A sealed value did not open: wrong key, wrong place, or changed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotAuthentic;

pub(crate) fn random_secret(surroundings: &dyn Surroundings) -> Secret {
    let mut secret = Zeroizing::new([0; 32]);
    surroundings.entropy(secret.as_mut());
    secret
}

pub(crate) fn random_salt(surroundings: &dyn Surroundings) -> Salt {
    let mut salt = Salt::default();
    surroundings.entropy(&mut salt);
    salt
}

/// A key for one purpose: keyed BLAKE3 of the purpose and the salt.
pub(crate) fn derive(key: &[u8; 32], purpose: &str, salt: &[u8]) -> Secret {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(purpose.as_bytes()).update(&[0]).update(salt);
    Zeroizing::new(*hasher.finalize().as_bytes())
}

impl SealingKey {
    pub fn new(key: &[u8; 32]) -> SealingKey {
        let unbound = UnboundKey::new(&AES_256_GCM, key).expect("AES-256 takes any key of 32 bytes");
        SealingKey(LessSafeKey::new(unbound))
    }

    /// Seals in place and returns the tag. `number` must be new for this key.
    pub fn seal(&self, number: u64, bound: &[u8], data: &mut [u8]) -> [u8; TAG] {
        let tag = self
            .0
            .seal_in_place_separate_tag(counted(number), Aad::from(bound), data)
            .expect("a frame is far below the limits of AES-GCM");
        let mut bytes = [0; TAG];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// Opens in place. If it fails, the data is unusable.
    pub fn open(&self, number: u64, bound: &[u8], data: &mut [u8], tag: &[u8; TAG]) -> Result<(), NotAuthentic> {
        self.0
            .open_in_place_separate_tag(counted(number), Aad::from(bound), tag, data)
            .map(drop)
            .map_err(|_| NotAuthentic)
    }

    /// Wraps a key and binds it to its use.
    pub fn wrap(&self, surroundings: &dyn Surroundings, bound: &[u8], secret: &[u8; 32]) -> [u8; WRAPPED] {
        let mut wrapped = [0; WRAPPED];
        let (nonce, rest) = wrapped.split_at_mut(NONCE_LEN);
        surroundings.entropy(nonce);
        let (body, tag) = rest.split_at_mut(32);
        body.copy_from_slice(secret);
        let nonce = Nonce::try_assume_unique_for_key(nonce).expect("the nonce has its length");
        let made = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(bound), body)
            .expect("a key is far below the limits of AES-GCM");
        tag.copy_from_slice(made.as_ref());
        wrapped
    }

    pub fn unwrap(&self, bound: &[u8], wrapped: &[u8]) -> Result<Secret, NotAuthentic> {
        let (nonce, body) = wrapped.split_at_checked(NONCE_LEN).ok_or(NotAuthentic)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| NotAuthentic)?;
        let mut body = Zeroizing::new(<[u8; 32 + TAG]>::try_from(body).map_err(|_| NotAuthentic)?);
        let plain = self.0.open_in_place(nonce, Aad::from(bound), body.as_mut()).map_err(|_| NotAuthentic)?;
        Ok(Zeroizing::new((&*plain).try_into().map_err(|_| NotAuthentic)?))
    }
}

/// Seals a small record under a key derived for it alone. The result is salt, sealed bytes and tag.
pub(crate) fn seal_note(surroundings: &dyn Surroundings, key: &[u8; 32], bound: &[u8], note: &[u8]) -> Vec<u8> {
    let salt = random_salt(surroundings);
    let mut sealed = Vec::with_capacity(salt.len() + note.len() + TAG);
    sealed.extend_from_slice(&salt);
    sealed.extend_from_slice(note);
    let tag = SealingKey::new(&derive(key, "note", &salt)).seal(0, bound, &mut sealed[salt.len()..]);
    sealed.extend_from_slice(&tag);
    sealed
}

pub(crate) fn open_note(key: &[u8; 32], bound: &[u8], sealed: &[u8]) -> Result<Vec<u8>, NotAuthentic> {
    let (salt, rest) = sealed.split_first_chunk::<16>().ok_or(NotAuthentic)?;
    let (body, tag) = rest.split_last_chunk::<TAG>().ok_or(NotAuthentic)?;
    let mut note = body.to_vec();
    SealingKey::new(&derive(key, "note", salt)).open(0, bound, &mut note, tag)?;
    Ok(note)
}

pub(crate) fn wrong_key(what: &str) -> ArchiveError {
    ArchiveError::WrongKey(format!(
        "{what} does not open with this master key; give the key that the store was made with (`stele master-key verify` tests one)"
    ))
}

fn counted(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests;
