//! Tests of the block cache.
