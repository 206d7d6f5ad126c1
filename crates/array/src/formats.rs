//! Bytes of the table's pages: maps, slot entries and the arithmetic of stripes. Everything here is
//! a pure function.

pub mod codec;
pub mod entry;
pub mod map;
pub mod shape;
pub mod tables;
