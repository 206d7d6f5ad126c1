//! File handles: which file of which share, with a code that only this server can compute.
//!
//! | offset | length | content |
//! | --- | --- | --- |
//! | 0 | 4 | version, 1 |
//! | 4 | 4 | share number |
//! | 8 | 8 | inode |
//! | 16 | 8 | the first bytes of BLAKE3 of the above, keyed with the server's secret |
//!
//! All integers are big-endian. A handle says the same after a restart with the same secret. A
//! client cannot make a handle of a share that it may not mount.

use crate::Inode;

const VERSION: u32 = 1;
pub const LENGTH: usize = 24;
const SIGNED: usize = 16;
const CODE: usize = 8;
/// The longest handle of NFS version 3.
pub const HANDLE_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle {
    pub share: u32,
    pub inode: Inode,
}

/// Makes and checks handles.
#[derive(Clone)]
pub struct HandleKey([u8; 32]);

impl HandleKey {
    pub fn new(secret: [u8; 32]) -> HandleKey {
        HandleKey(secret)
    }

    pub fn encode(&self, handle: Handle) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let (signed, code) = bytes.split_at_mut(SIGNED);
        let words = VERSION.to_be_bytes().into_iter().chain(handle.share.to_be_bytes());
        for (into, from) in signed.iter_mut().zip(words.chain(handle.inode.0.to_be_bytes())) {
            *into = from;
        }
        code.copy_from_slice(&self.code(signed));
        bytes
    }

    /// None: this server did not make it.
    pub fn decode(&self, bytes: &[u8]) -> Option<Handle> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let (signed, code) = bytes.split_at(SIGNED);
        let (version, rest) = signed.split_first_chunk::<4>()?;
        let (share, inode) = rest.split_first_chunk::<4>()?;
        let genuine = u64::from_ne_bytes(self.code(signed)) ^ u64::from_ne_bytes(code.try_into().ok()?) == 0;
        let known = genuine && u32::from_be_bytes(*version) == VERSION;
        known.then_some(Handle {
            share: u32::from_be_bytes(*share),
            inode: Inode(u64::from_be_bytes(inode.try_into().ok()?)),
        })
    }

    fn code(&self, signed: &[u8]) -> [u8; CODE] {
        let digest = blake3::keyed_hash(&self.0, signed);
        digest.as_bytes().first_chunk().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
