use stele_ground::{Bytes, MIB};

use super::*;

#[test]
fn memory_is_aligned_zero_and_as_long_as_asked() {
    for length in [0, 1, 511, 4096, 4097, 65536, 9_000_000] {
        let buffer = Buffer::zeroed(length);
        assert_eq!(buffer.len(), length);
        assert!(buffer.iter().all(|byte| *byte == 0));
        assert!(buffer.as_ptr().addr().is_multiple_of(4096));
        assert!(buffer.capacity() >= length && buffer.capacity() <= (length + 4095) / 4 * 5);
    }
}

#[test]
fn a_pool_hands_out_the_same_memory_again_frozen_or_not() {
    let pool = BufferPool::new(Bytes(MIB));
    let mut first = pool.take(5000);
    first.fill(7);
    let place = first.as_ptr();
    drop(first);
    assert_eq!(pool.kept(), Bytes(8192));
    let second = pool.take(8192);
    assert_eq!((second.as_ptr(), second.len(), pool.kept()), (place, 8192, Bytes(0)));
    let shared = second.freeze();
    let slice = shared.slice(4096..);
    drop(shared);
    assert_eq!(pool.kept(), Bytes(0), "a slice still holds it");
    drop(slice);
    assert_eq!(pool.kept(), Bytes(8192));
}

#[test]
fn a_pool_keeps_no_more_than_its_limit_and_nothing_huge() {
    let pool = BufferPool::new(Bytes(MIB));
    let buffers: Vec<Buffer> = (0..40).map(|_| pool.take(65536)).collect();
    drop(buffers);
    assert_eq!(pool.kept(), Bytes(MIB));
    let pool = BufferPool::new(Bytes(1 << 40));
    drop(pool.take(64 << 20));
    assert_eq!(pool.kept(), Bytes(0));
}

#[test]
fn a_buffer_outlives_its_pool() {
    let pool = BufferPool::new(Bytes(MIB));
    let buffer = pool.take(4096);
    drop(pool);
    assert_eq!(buffer.len(), 4096);
}

#[test]
fn zeroed_means_zeroed_whatever_was_there_before() {
    for length in [1, 4096, 20_000, 1 << 20, 5 << 20] {
        let mut used = Buffer::stale(length);
        let capacity = used.capacity();
        used.set_length(capacity);
        used.fill(0xEE);
        drop(used);
        let mut buffer = Buffer::zeroed(length);
        let capacity = buffer.capacity();
        buffer.set_length(capacity);
        assert!(buffer.iter().all(|byte| *byte == 0), "{length}");
        assert_eq!(Buffer::copy_of(&[7; 100])[..], [7; 100]);
    }
}
