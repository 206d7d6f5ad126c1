//! What the frontend may be told to do differently, and every limit it keeps.

use crate::payload::Pace;
use std::time::Duration;

/// The frontend's settings; the defaults suit one machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The region this store says it is in.
    pub region: String,
    /// Whether a request signed for another region is refused.
    pub region_strict: bool,
    /// Domains under which `BUCKET.DOMAIN` names a bucket; path-style always works.
    pub domains: Vec<String>,
    /// Connections served at once; one more is answered 503 and closed.
    pub connections_max: usize,
    /// Connections of one host served at once; one more is answered the same.
    pub connections_per_peer: usize,
    /// Requests served at once; one more waits `queue_patience`, then is answered 503 SlowDown.
    pub requests_max: usize,
    /// How long a request may wait for its turn.
    pub queue_patience: Duration,
    /// Header section of a request, in bytes.
    pub header_bytes_max: usize,
    /// A body that is held whole (XML), in bytes.
    pub document_bytes_max: u64,
    /// How long such a body may take to arrive.
    pub document_patience: Duration,
    /// All bodies held whole at one time, in bytes.
    pub documents_bytes_max: u64,
    /// A body in one request, in bytes: 5 GiB as on AWS.
    pub object_bytes_max: u64,
    /// What one connection's socket buffer may grow to, in bytes.
    pub buffer_bytes_max: usize,
    /// How long a head may take, and how long a connection may idle between requests.
    pub head_patience: Duration,
    /// How slow a body may come.
    pub pace: Pace,
    /// How long a write to the client may make no progress.
    pub write_patience: Duration,
    /// Whether `/health` and `/metrics` are also served, unsigned, where S3 is.
    pub open_metrics: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            region: "us-east-1".into(),
            region_strict: false,
            domains: Vec::new(),
            connections_max: 1024,
            connections_per_peer: 256,
            requests_max: 256,
            queue_patience: Duration::from_secs(5),
            header_bytes_max: 32 * 1024,
            document_bytes_max: 8 << 20,
            document_patience: Duration::from_secs(60),
            documents_bytes_max: 64 << 20,
            object_bytes_max: 5 << 30,
            buffer_bytes_max: 128 * 1024,
            head_patience: Duration::from_secs(60),
            pace: Pace { silence_max: Duration::from_secs(30), rate_min: 1024, grace: Duration::from_secs(60) },
            write_patience: Duration::from_secs(60),
            open_metrics: false,
        }
    }
}
