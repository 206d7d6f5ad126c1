//! Owned, page-aligned memory that travels with an operation and comes back with its completion.
//!
//! A [`Buffer`] has one owner and is writable: reads fill it. Freezing it gives a [`Shared`]:
//! immutable, cheap to clone and to slice, so that one block can be on its way to four drives
//! without a copy.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use stele_ground::BLOCK;

mod pool;

pub use pool::BufferPool;

/// Immutable bytes shared by reference count.
pub type Shared = bytes::Bytes;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK]);

/// Unique memory aligned to 4096 bytes, as O_DIRECT wants it.
pub struct Buffer {
    pages: Vec<Page>,
    length: usize,
    /// The pool that takes the pages back when the buffer is dropped; `None`: the allocator.
    home: Option<Arc<pool::Shelves>>,
}

fn pages_of_zeros(count: usize) -> Vec<Page> {
    bytemuck::zeroed_vec(count)
}

impl Buffer {
    /// `length` zero bytes.
    pub fn zeroed(length: usize) -> Buffer {
        pool::process().take_zeroed(length)
    }

    /// A buffer of `length` bytes left over from an earlier use, for a caller that overwrites all
    /// of them. It spares the clearing.
    pub fn stale(length: usize) -> Buffer {
        pool::process().take(length)
    }

    /// A copy of `bytes`, aligned.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::stale(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Bytes it can hold without growing; a multiple of 4096.
    pub fn capacity(&self) -> usize {
        self.pages.len() * BLOCK
    }

    /// Sets the length, which must fit the capacity. Bytes beyond the former length keep their
    /// content.
    pub fn set_length(&mut self, length: usize) {
        assert!(length <= self.capacity(), "a buffer of {} bytes cannot hold {length}", self.capacity());
        self.length = length;
    }

    /// Makes the buffer immutable, so that it can be shared. No copy.
    pub fn freeze(self) -> Shared {
        Shared::from_owner(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.put_back(mem::take(&mut self.pages));
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..self.length]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests;
