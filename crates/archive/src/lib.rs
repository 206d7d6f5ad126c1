//! Floor 3: the archive. One store of immutable versions, under retention that no frontend can
//! weaken.
//!
//! Frontends translate requests; the archive decides what is allowed. Content lies in segments of
//! authenticated frames on a data volume, the index in a catalog. Everything in the catalog that
//! matters can be rebuilt from the volume.
//!
//! Each folder imports only from those before it in this list:
//!
//! - `model` (types of the interface), `cache`, `seal` (encryption), `record` (catalog rows);
//! - `space` (the data volume), `state` (shared memory), `store` (the parts put together, commits
//!   and notes);
//! - `audit`, `changes` (of noted rows), `evidence` (receipts and proofs), `retention`, `removal`;
//! - `access` (keys), `buckets`, `objects`, `shares`, `upkeep` (background work);
//! - `opening`, `rebuild`, `inspect`.

mod access;
mod audit;
mod buckets;
mod cache;
mod changes;
mod evidence;
pub mod inspect;
mod model;
mod objects;
mod opening;
mod rebuild;
mod record;
mod removal;
mod retention;
mod seal;
mod shares;
mod space;
mod state;
pub mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod upkeep;

pub use access::expiry::{KeyChange, KeyLife};
pub use access::sessions::{
    NewSession, SESSION_POLICY_BYTES_MAX, SESSION_SECONDS, SESSION_SECONDS_DEFAULT, SessionRequest,
};
pub use audit::{AuditRecord, AuditVerdict, HeadVerdict};
pub use buckets::inventory::InventoryReport;
pub use buckets::settings::PolicyRequest;
pub use evidence::bundle::{
    BundleFiles, Manifest, ProofVerdict, ProvenVersion, public_key, verify_bundle, verify_bundle_with,
};
pub use evidence::disposal::{DisposalCertificate, PastApproval, PastHold, PastSegment, Removal};
pub use evidence::disposals::{DisposalQuery, Disposed};
pub use evidence::export::{ProofExport, ProofPiece, ProofSelection};
pub use evidence::format::{format_after, later_format};
pub use evidence::receipt::{
    ConsistencyProof, ContentDigests, ContentHasher, Finding, ProvenRecord, Receipt, ReceiptGroup, check_head,
};
pub use model::act::{Act, People};
pub use model::action::Action;
pub use model::alarm::{Alarm, AlarmKind};
pub use model::bucket::{
    AccessBlock, AnonymousAccess, BucketChange, BucketInfo, DefaultRetention, ExpiryAction, NewBucket, ObjectLock,
    Period, Protection, Quota, Usage, Versioning, check_bucket_name,
};
pub use model::checksum::{Algorithm, Checksum, ChecksumKind, Expected};
pub use model::class::{Binding, Bindings, ClassInfo, ClassTerms, Comparison, Expiring, ExpiringQuery, Initiation};
pub use model::cors::CorsRule;
pub use model::error::{ArchiveError, Result};
pub use model::head::SignedHead;
pub use model::inventory::{INVENTORY_FIELDS, Inventory};
pub use model::lifecycle::{Expiration, LIFECYCLE_RULES_MAX, LifecycleFilter, LifecycleRule, NoncurrentExpiration};
pub use model::logging::AccessLog;
pub use model::matter::{Counted, HoldJob, Listed, MatterInfo, MatterState, Selection, VersionName};
pub use model::mutation;
pub use model::notification::{
    EVENTS_PENDING_MAX, NotificationRule, ObjectEvent, TEST_EVENT, TargetForm, TargetLag, events_pending_max,
    is_target_name,
};
pub use model::pairing::Paired;
pub use model::policy::{Policy, RequestFacts};
pub use model::principal::{
    Access, AccessKeyInfo, Actor, Caller, Credentials, Grant, NewAccessKey, Owned, Rights, Role, Session,
};
pub use model::secrets::{CustomerKey, MasterKey};
pub use model::time::{Reading, Surroundings, Timestamp};
pub use model::version::{ETag, Metadata, ObjectInfo, PartInfo, Retention, RetentionMode, Tags, VersionId};
pub use objects::copy::{Copied, CopyRequest, CopySource, transfer};
pub use objects::deletion::{DeleteRequest, Deleted};
pub use objects::get::{ByteRange, GetRequest, IfRange, ObjectReader, ReadCondition};
pub use objects::list::{ListPage, ListRequest, ListVersionsRequest, VersionsPage};
pub use objects::multipart;
pub use objects::multipart::{
    CompleteRequest, CompletedPart, ListUploadsRequest, NewUpload, PartRequest, UploadInfo, UploadsPage,
};
pub use objects::put::{Ending, ObjectWriter, PutRequest, Way, WriteCondition};
pub use rebuild::{Filled, Rebuild, RebuildReport};
pub use retention::acts::ActRule;
pub use retention::approval::RequestInfo;
pub use retention::clock::ClockStatus;
pub use retention::events::Told;
pub use retention::find::{FindQuery, FoundVersion};
pub use retention::keeping::Unkept;
pub use retention::why::Why;
pub use shares::{FileHeld, Located, ShareObjects, Shares, upload_key};
pub use store::Archive;
pub use store::alongside::{Alongside, CommitBoth, Placement};
pub use store::foundation::{Foundation, Guard, NoGuard, Options};
pub use store::gateway::Records;
pub use upkeep::affected::{Affected, Unreadable};
pub use upkeep::background::StepReport;
pub use upkeep::pausing::ExpirationStatus;
pub use upkeep::scrub::{ScrubCursor, ScrubPlace, ScrubReport};
pub use upkeep::self_test::{Attempt, Canary, Interfaces, SelfTest};
pub use upkeep::status::SpaceStatus;
