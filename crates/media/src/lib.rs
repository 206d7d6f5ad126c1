//! Floor 1: the drive. One small trait, implemented by files and devices behind io_uring, by
//! memory, by a simulated drive, by a wrapper that injects faults, and, one floor up, by a volume
//! of the array.

pub mod buffer;
pub mod conformance;
pub mod drive;
pub mod error;
pub mod faulty;
pub mod file;
pub mod mailbox;
pub mod memory;
pub mod operation;
pub mod port;
pub mod retries;
pub mod ring;
pub mod serve;
pub mod sessions;
pub mod simulated;
pub mod system;

pub use buffer::{Buffer, BufferPool, Shared};
pub use drive::{Drive, Geometry};
pub use error::{MediaError, MediaFault};
pub use file::{Access, DriveFile, Space};
pub use memory::MemoryDrive;
pub use operation::{Completion, Extent, ExtentState, Op, Priority, Request};
pub use port::{Done, Handle, Order, Ordered, Port, Remote};
pub use retries::Retries;
pub use ring::{Engine, FileDrive, Ring};
pub use serve::{serve, serve_file, serve_memory};
pub use sessions::{Interest, ReactorSession, SessionSet, Waker};
