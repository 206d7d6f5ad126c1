//! Floor 0: the base of every other part of Stele. Units as types, ids, the digest, seeded dice,
//! dates, and the clock as a value. Nothing here waits, reads a clock or asks the system for
//! entropy.

pub mod calendar;
pub mod clock;
pub mod count;
pub mod dice;
pub mod digest;
pub mod ids;
pub mod shown;
pub mod units;

pub use clock::{Duration, Instant};
pub use count::{are, counted, counted_are, names_in_row};
pub use dice::Dice;
pub use ids::{DriveId, PoolId, VolumeId};
pub use shown::{Shown, shown};
pub use units::{BLOCK, BlockIndex, Bytes, GIB, KIB, MIB};
