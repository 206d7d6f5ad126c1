//! What flows run on: the executor, waiting, and the only way to a drive.

pub mod io;
pub mod sync;
pub mod task;
