//! A byte stream that the server has accepted.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;

/// A non-blocking stream: reads and writes return `WouldBlock`, and its descriptor shows when to
/// try again. A stream that buffers bytes (TLS) sends them in `flush`, which returns `WouldBlock`
/// while some are left.
pub trait Stream: Read + Write + AsRawFd + Send + 'static {}

impl<T: Read + Write + AsRawFd + Send + 'static> Stream for T {}
