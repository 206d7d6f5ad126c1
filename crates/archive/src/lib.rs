//! Floor 3: the archive. One store of immutable versions, under retention that no frontend can weaken.
//!
//! Faces translate; what is allowed is decided here. Content lies in segments of authenticated frames on a data
//! volume, the index in a catalog, and everything in the catalog that matters can be had again from the volume.

pub mod access_keys;
mod affected;
pub mod approval;
pub mod audit;
pub mod background;
mod body;
pub mod bucket;
pub mod buckets;
mod cache;
pub mod checksum;
mod clock;
mod committing;
pub mod copy;
pub mod deletion;
mod disposal;
pub mod doubt;
pub mod error;
mod gate;
mod gateway;
pub mod get;
mod growth;
pub mod inspect;
mod install;
mod key_locks;
pub mod list;
mod lookup;
pub mod multipart;
pub mod mutation;
mod numbers;
mod opening;
mod pairing;
pub mod principal;
pub mod put;
pub mod rebuild;
mod reclaim;
mod record;
mod restating;
pub mod retention;
mod room;
pub mod scrub;
mod seal;
mod space;
pub mod store;
pub mod tags;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod time;
pub mod version;

pub use affected::Affected;
pub use approval::RequestInfo;
pub use audit::{Action, AuditRecord, AuditVerdict, HeadVerdict, SignedHead};
pub use background::{Alarm, AlarmKind, ClockStatus, SpaceStatus, StepReport};
pub use bucket::{
    AnonymousAccess, BucketChange, BucketInfo, DefaultRetention, ExpiryAction, NewBucket, ObjectLock, Period,
    Protection, Quota, Usage, Versioning,
};
pub use checksum::{Algorithm, Checksum, ChecksumKind, Expected};
pub use copy::{Copied, CopyRequest, CopySource};
pub use deletion::{DeleteRequest, Deleted};
pub use error::{ArchiveError, Result};
pub use gateway::Records;
pub use get::{ByteRange, GetRequest, ObjectReader, PartInfo, ReadCondition};
pub use list::{ListPage, ListRequest, ListVersionsRequest, VersionsPage};
pub use multipart::{
    CompleteRequest, CompletedPart, ListUploadsRequest, NewUpload, PartRequest, UploadInfo, UploadsPage,
};
pub use pairing::Paired;
pub use principal::{Access, AccessKeyInfo, Actor, Caller, Credentials, Grant, NewAccessKey, Rights, Role};
pub use put::{ObjectWriter, PutRequest, WriteCondition};
pub use rebuild::{Filled, Rebuild, RebuildReport};
pub use retention::Why;
pub use scrub::{ScrubCursor, ScrubPlace, ScrubReport};
pub use store::{Archive, CustomerKey, Foundation, Guard, MasterKey, NoGuard, Options};
pub use time::{Reading, Surroundings, Timestamp};
pub use version::{ETag, Metadata, ObjectInfo, Retention, RetentionMode, Tags, VersionId};
