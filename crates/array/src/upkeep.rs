//! What the pool does by itself: rebuild, scrub, moving stripes, and looking after drives that are
//! not well.

pub mod enclosures;
pub mod hospital;
mod moving;
mod rebuild;
mod scrub;
