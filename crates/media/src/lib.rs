//! Floor 1: the drive. One small trait, implemented by files and devices behind io_uring, by memory,
//! by a simulated drive, by a wrapper that injects faults, and, one floor up, by a volume of the array.

pub mod buffer;
pub mod conformance;
pub mod drive;
pub mod error;
pub mod memory;
pub mod operation;
pub mod port;

pub use buffer::{Buffer, Shared};
pub use drive::{Drive, Geometry};
pub use error::{MediaError, MediaFault};
pub use memory::MemoryDrive;
pub use operation::{Completion, Extent, ExtentState, Op, Priority, Request};
pub use port::{Done, Handle, Port};
