//! The settings of the frontend, and every limit that it observes.

use crate::payload::Pace;
use std::collections::BTreeMap;
use std::time::Duration;

/// The frontend's settings; the defaults suit one machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The region that this store reports.
    pub region: String,
    /// Whether a request signed for another region is refused.
    pub region_strict: bool,
    /// Domains under which `BUCKET.DOMAIN` names a bucket; path-style always works.
    pub domains: Vec<String>,
    /// Connections served at once; a further one is answered 503 and closed.
    pub connections_max: usize,
    /// Connections of one host served at once; a further one gets the same answer. Below
    /// `requests_max`, so that one host with slow requests leaves turns for others.
    pub connections_per_peer: usize,
    /// Requests served at once; a further one waits for `queue_patience`, then is answered 503
    /// SlowDown.
    pub requests_max: usize,
    /// Requests of one access key served at once; a further one waits as long.
    pub requests_per_key: usize,
    /// Largest time for a request to wait for its turn.
    pub queue_patience: Duration,
    /// Largest header section of a request, in bytes.
    pub header_bytes_max: usize,
    /// Largest body that is held completely (XML), in bytes.
    pub document_bytes_max: u64,
    /// Largest time for such a body to arrive.
    pub document_patience: Duration,
    /// Largest sum of all bodies held completely at one time, in bytes. One access key has a
    /// quarter of it, but room for the largest body.
    pub documents_bytes_max: u64,
    /// Largest sum of all documents of answers that their clients have not taken, in bytes. One
    /// access key has a quarter of it, and so have all clients without a key together; each has
    /// room for the largest document.
    pub answers_bytes_max: u64,
    /// Largest body of one request, in bytes: 5 GiB as on AWS.
    pub object_bytes_max: u64,
    /// Largest size of one connection's socket buffer, in bytes.
    pub buffer_bytes_max: usize,
    /// Largest time for a head to arrive, and for a connection to be idle between requests.
    pub head_patience: Duration,
    /// Limits on slow bodies.
    pub pace: Pace,
    /// Largest time for a write to the client without progress.
    pub write_patience: Duration,
    /// Whether the S3 listener serves `/health` and `/metrics` as well, unsigned.
    pub open_metrics: bool,
    /// Age at which lines of an access log are stored.
    pub access_log_every: Duration,
    /// The targets of notifications that clients may name: `webhook` or `file` by name.
    pub notification_targets: BTreeMap<String, &'static str>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            region: "us-east-1".into(),
            region_strict: false,
            domains: Vec::new(),
            connections_max: 1024,
            connections_per_peer: 256,
            requests_max: 512,
            requests_per_key: 256,
            queue_patience: Duration::from_secs(5),
            header_bytes_max: 32 * 1024,
            document_bytes_max: 8 << 20,
            document_patience: Duration::from_secs(60),
            documents_bytes_max: 64 << 20,
            answers_bytes_max: 512 << 20,
            object_bytes_max: 5 << 30,
            buffer_bytes_max: 128 * 1024,
            head_patience: Duration::from_secs(60),
            pace: Pace { silence_max: Duration::from_secs(30), rate_min: 1024, grace: Duration::from_secs(60) },
            write_patience: Duration::from_secs(60),
            open_metrics: false,
            access_log_every: Duration::from_secs(300),
            notification_targets: BTreeMap::new(),
        }
    }
}
