//! A byte stream that somebody else accepted.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;

/// A stream that does not block: reading and writing answer `WouldBlock`, and its descriptor says when to try again. A
/// stream that holds bytes back (TLS) sends them in `flush`, which answers `WouldBlock` while some are left.
pub trait Stream: Read + Write + AsRawFd + Send + 'static {}

impl<T: Read + Write + AsRawFd + Send + 'static> Stream for T {}
