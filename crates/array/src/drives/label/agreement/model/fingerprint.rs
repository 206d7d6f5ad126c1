//! What the model keeps of the worlds it has seen: 128 bits of each. Two worlds out of the millions
//! of a run have the same with a chance below 1 in 10^23.

use std::hash::{BuildHasher, Hash, Hasher};

use super::World;
use crate::cache::FixedState;

type Half = <FixedState as BuildHasher>::Hasher;

struct Fingerprint(Half, Half);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn write_u64(&mut self, word: u64) {
        self.0.write_u64(word);
        self.1.write_u64(word);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

pub(super) fn fingerprint(world: &World) -> u128 {
    let mut both = Fingerprint(FixedState.build_hasher(), FixedState.build_hasher());
    both.1.write_u64(1);
    world.hash(&mut both);
    u128::from(both.0.finish()) << 64 | u128::from(both.1.finish())
}
