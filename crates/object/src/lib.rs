//! Floor 4: the S3 frontend. It speaks S3 over a byte stream, and the archive decides. `rest`
//! speaks the REST protocol of restic beside it, within the same limits.
//!
//! The wire crate (`s3s`) routes requests, and reads and writes their documents. Signatures,
//! bodies, limits and the codes of answers are implemented here. `SEMANTICS/object.md` states the
//! promises and refusals of the frontend.

mod call;
mod dechunk;
mod form;
mod frontend;
mod metrics;
mod objects;
mod operation;
mod paced;
mod payload;
mod query;
mod refusal;
mod rest;
mod serve;
mod settings;
mod sigv4;
mod wire;

pub use frontend::{Clock, Frontend, SnapshotSource, admin};
pub use metrics::{Alarm, DriveSample, Health, Metrics, Snapshot, TargetSample, Totals};
pub use operation::Operation;
pub use payload::Pace;
pub use rest::Rest;
pub use serve::{Connections, Endpoint, Peer, host_of, serve_connection};
pub use settings::Settings;
