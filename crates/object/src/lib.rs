//! Floor 4: the S3 frontend. A byte stream comes in, S3 goes over it, and the archive decides.
//!
//! The wire crate (`s3s`) routes requests and reads and writes their documents. Signatures, bodies,
//! limits and the answers' codes are ours. What the frontend promises and refuses is written in
//! `SEMANTICS/object.md`.

mod call;
mod dechunk;
mod frontend;
mod metrics;
mod operation;
mod paced;
mod payload;
mod query;
mod refusal;
mod serve;
mod settings;
mod sigv4;
mod wire;

pub use frontend::{Clock, Frontend, SnapshotSource, admin};
pub use metrics::{Alarm, DriveSample, Health, Metrics, Snapshot, Totals};
pub use operation::Operation;
pub use payload::Pace;
pub use serve::{Connections, Peer, serve_connection};
pub use settings::Settings;
