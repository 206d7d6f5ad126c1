//! Writing an object: the body is hashed once, sealed frame by frame and handed to the appender as
//! it arrives.
//!
//! The order: content and key durable on the data volume, then the catalog's commit, then the
//! answer. A body whose writing ends early leaves only dead bytes in segments.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::{check_key, check_tags};
use crate::model::checksum::{Algorithm, Checksum, Digests, Expected, Wanted};
use crate::model::class::VersionFacts;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::model::secrets::CustomerKey;
use crate::model::version::{ETag, Metadata, ObjectInfo, Retention, Tags};
use crate::objects::body::Body;
use crate::objects::install::Install;
use crate::objects::multipart::PartTarget;
use crate::record::content::{Content, Place, Stream};
use crate::record::version::{CustomerMark, VersionRow};
use crate::retention::rules::initial_retention;
use crate::state::buckets::Bucket;
use crate::state::usage::Counter;
use crate::store::Archive;
use crate::store::alongside::{Alongside, Placement};
use crate::store::lease::Lease;
use crate::store::lookup::{self, Found};

/// The longest body of one put or part.
pub const BODY_MAX: u64 = 5 << 30;
/// Bytes of names and values of the client's own metadata together.
const USER_METADATA_MAX: usize = 8 << 10;
const OBJECT_TAGS_MAX: usize = 10;

/// Conditions on the key's current version that a write requires.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct WriteCondition {
    /// `If-None-Match: *`: the key has no current version, or it is a delete marker.
    pub absent: bool,
    /// `If-Match`: the current version has this entity tag (with or without quotes; `*`: any).
    pub etag: Option<String>,
}

/// How an object comes to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    #[default]
    Put,
    /// By a form of a page.
    Form,
    Copy,
}

impl Way {
    fn event(self) -> &'static str {
        match self {
            Way::Put => "ObjectCreated:Put",
            Way::Form => "ObjectCreated:Post",
            Way::Copy => "ObjectCreated:Copy",
        }
    }
}

/// A put, up to its body.
#[derive(Clone, Default, Debug)]
pub struct PutRequest {
    pub bucket: String,
    pub key: String,
    /// The announced length of the body, if the client sent one. A body of another length is
    /// refused.
    pub length: Option<u64>,
    pub metadata: Metadata,
    pub tags: Tags,
    /// None: the bucket's default.
    pub retention: Option<Retention>,
    pub legal_hold: bool,
    /// The management class that the request names.
    pub class: Option<String>,
    pub condition: WriteCondition,
    /// How the object comes, for those who are told.
    pub way: Way,
    /// The digests of the body in the headers.
    pub expected: Expected,
    /// Further digests to compute: their values come with the trailers, or not at all.
    pub algorithms: Vec<Algorithm>,
    /// No client will compare the entity tag with an MD5, so none is computed.
    pub without_md5: bool,
    pub customer_key: Option<CustomerKey>,
}

/// A put or part whose body is arriving. Dropping it stores nothing.
pub struct ObjectWriter {
    pub(crate) archive: Archive,
    pub(crate) caller: Caller,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) key: String,
    pub(crate) length: Option<u64>,
    pub(crate) expected: Expected,
    /// On the heap: the states of its digests take kilobytes, and the writer moves.
    pub(crate) body: Box<Body>,
    pub(crate) target: Target,
    /// Ends the body of an object in a share.
    pub(crate) ending: Option<Box<dyn Ending>>,
}

/// What the file gateway does when the body of an object in a share has arrived.
pub trait Ending: Send + Sync {
    /// Says where the object goes ([`ObjectWriter::place`]), and finishes the writer.
    fn finish(self: Box<Self>, writer: ObjectWriter, trailers: Expected) -> BoxFuture<'static, Result<ObjectInfo>>;
}

/// What the body becomes.
pub(crate) enum Target {
    Object { request: Box<PutRequest>, lease: Lease, alongside: Option<Arc<dyn Alongside>> },
    Part(Box<PartTarget>),
}

impl WriteCondition {
    /// For a write, a condition on the content of a missing key is a missing key.
    pub(crate) fn judge_write(&self, current: Option<&Found>, bucket: &Bucket, key: &str) -> Result<()> {
        if self.etag.is_some() && current.is_none_or(|found| found.row.marker) {
            return Err(ArchiveError::NoSuchKey { bucket: bucket.name().into(), key: key.into(), marker: None });
        }
        self.judge(current)
    }

    pub(crate) fn judge(&self, current: Option<&Found>) -> Result<()> {
        let current = current.filter(|found| !found.row.marker);
        let fail = |message: &str| Err(ArchiveError::PreconditionFailed(message.into()));
        if self.absent && current.is_some() {
            return fail("the key exists already");
        }
        match (&self.etag, current) {
            (None, _) => Ok(()),
            (Some(_), None) => fail("the key does not exist"),
            (Some(etag), Some(_)) if etag.trim() == "*" => Ok(()),
            (Some(etag), Some(found)) if ETag::parse(etag) == Some(found.row.etag) => Ok(()),
            (Some(_), Some(_)) => fail("the entity tag differs"),
        }
    }

    pub(crate) fn is_any(&self) -> bool {
        self.absent || self.etag.is_some()
    }
}

pub(crate) fn check_metadata(metadata: &Metadata) -> Result<()> {
    let length: usize = metadata.user.iter().map(|(name, value)| name.len() + value.len()).sum();
    if length > USER_METADATA_MAX {
        return Err(ArchiveError::InvalidArgument(format!(
            "metadata of {length} bytes, at most {USER_METADATA_MAX} are allowed"
        )));
    }
    Ok(())
}

impl Archive {
    /// Begins to write an object. Every refusal that does not need the body happens here.
    pub async fn put(&self, caller: &Caller, request: PutRequest) -> Result<ObjectWriter> {
        let (bucket, key) = (request.bucket.clone(), request.key.clone());
        let result = self.begin_put(caller, request).await;
        self.store().audited(result, || Event::new(caller, Action::PutObject).object(&bucket, &key)).await
    }

    async fn begin_put(&self, caller: &Caller, request: PutRequest) -> Result<ObjectWriter> {
        let store = &self.store();
        check_key(&request.key)?;
        store.writable()?;
        let bucket = store.authorized(caller, Access::Write, &request.bucket, &request.key)?;
        check_metadata(&request.metadata)?;
        check_tags(&request.tags, OBJECT_TAGS_MAX)?;
        if request.length.is_some_and(|length| length > BODY_MAX) {
            return Err(ArchiveError::TooLarge { limit: BODY_MAX });
        }
        initial_retention(store, caller, &bucket, &request.key, request.retention, request.legal_hold)?;
        store.named_class(caller, &bucket, &request.key, request.class.as_deref(), &request.tags)?;
        if request.condition.is_any() {
            // Checked again before the commit. The early check spares the transfer of the body.
            let snapshot = store.snapshot()?;
            let current = lookup::newest(&*snapshot, &bucket, &request.key)?;
            request.condition.judge_write(current.as_ref(), &bucket, &request.key)?;
        }
        let lease = Lease::new(store, &bucket, request.customer_key.as_ref()).await?;
        // A client that names the content by its BLAKE3 needs no MD5, which costs more than all
        // other digests together.
        let is_named = request.expected.blake3.is_some() || request.without_md5;
        let md5 = request.expected.md5.is_some() || !is_named;
        let wanted = Wanted { md5, others: algorithms_of(&request.expected, &request.algorithms) };
        let body = Body::new(store, lease.object, &lease.key, wanted, request.length, &lease.writing).await?;
        Ok(ObjectWriter {
            archive: self.clone(),
            caller: caller.clone(),
            bucket,
            key: request.key.clone(),
            length: request.length,
            expected: request.expected.clone(),
            body: Box::new(body),
            target: Target::Object { request: Box::new(request), lease, alongside: None },
            ending: None,
        })
    }
}

/// Empty if the client sent none.
pub(crate) fn content_type(metadata: &Metadata) -> &str {
    metadata.headers.get("content-type").map_or("", String::as_str)
}

/// Every algorithm that a request mentions.
pub(crate) fn algorithms_of(expected: &Expected, algorithms: &[Algorithm]) -> Vec<Algorithm> {
    let mut all: Vec<Algorithm> = algorithms.to_vec();
    all.extend(expected.checksums.iter().map(|checksum| checksum.algorithm));
    all.extend(expected.sha256.map(|_| Algorithm::Sha256));
    all
}

/// The checksums to store: those that the client named. A SHA-256 that was only part of the
/// signature is not one.
pub(crate) fn kept(digests: &Digests, named: &[Algorithm], expected: &Expected) -> Vec<Checksum> {
    let keep = |algorithm: Algorithm| {
        named.contains(&algorithm) || expected.checksums.iter().any(|checksum| checksum.algorithm == algorithm)
    };
    digests.checksums.iter().filter(|checksum| keep(checksum.algorithm)).cloned().collect()
}

impl ObjectWriter {
    /// Takes the next bytes, of any length. Waits while too many bytes of this or other bodies are
    /// in flight.
    pub async fn write(&mut self, data: Bytes) -> Result<()> {
        let limit = self.length.unwrap_or(BODY_MAX);
        if self.body.length() + data.len() as u64 > limit {
            return Err(match self.length {
                Some(length) => {
                    ArchiveError::IncompleteBody { expected: length, received: self.body.length() + data.len() as u64 }
                }
                None => ArchiveError::TooLarge { limit: BODY_MAX },
            });
        }
        self.body.write(&self.archive.store(), data).await
    }

    /// Resolves when other bodies wait for memory and this one holds more than it needs. A caller
    /// that feeds it slowly should then call [`ObjectWriter::give_way`].
    pub async fn crowded(&self) {
        self.body.crowded(&self.archive.store()).await;
    }

    /// Stores the received bytes, except the last unfinished 64 KiB, and gives the memory back.
    pub async fn give_way(&mut self) -> Result<()> {
        self.body.give_way(&self.archive.store()).await
    }

    /// Leaves the end of the body to the file gateway.
    pub fn ending(mut self, ending: Box<dyn Ending>) -> ObjectWriter {
        self.ending = Some(ending);
        self
    }

    /// Stores the object under this key, on this condition, and with the gateway's change. Comes
    /// before `finish`; the body of a part has no such place.
    pub fn place(&mut self, placement: Placement, condition: WriteCondition) {
        if let Target::Object { request, alongside, .. } = &mut self.target {
            self.key.clone_from(&placement.key);
            request.key = placement.key;
            request.metadata.user.extend(placement.metadata);
            request.condition = condition;
            *alongside = Some(placement.alongside);
        }
    }

    /// Stores the object together with the gateway's change. Comes before `finish`.
    pub fn place_alongside(&mut self, change: Arc<dyn Alongside>) {
        if let Target::Object { alongside, .. } = &mut self.target {
            *alongside = Some(change);
        }
    }

    /// Bytes that this writer has handed to the data volume.
    pub fn handed_on(&self) -> u64 {
        self.body.handed_on()
    }

    /// Ends the body. `trailers` are digests that came behind it. Returns once the object is
    /// durable and in the catalog. For a part, the properties are the part's.
    pub async fn finish(mut self, trailers: Expected) -> Result<ObjectInfo> {
        if let Some(ending) = self.ending.take() {
            return ending.finish(self, trailers).await;
        }
        let archive = self.archive.clone();
        let (caller, bucket, key) = (self.caller.clone(), self.bucket.name().to_string(), self.key.clone());
        let action = match self.target {
            Target::Object { .. } => Action::PutObject,
            Target::Part(_) => Action::PutPart,
        };
        let result = self.try_finish(trailers).await;
        archive.store().audited(result, || Event::new(&caller, action).object(&bucket, &key)).await
    }

    /// Verifies the body as `finish` does, and stores nothing.
    pub fn discard(mut self, trailers: Expected) -> Result<()> {
        self.expected.md5 = trailers.md5.or(self.expected.md5);
        self.expected.sha256 = trailers.sha256.or(self.expected.sha256);
        self.expected.checksums.extend(trailers.checksums);
        self.body.digests()?.verify(&self.expected)
    }

    async fn try_finish(self, trailers: Expected) -> Result<ObjectInfo> {
        let ObjectWriter { archive, caller, bucket, key, length, mut expected, mut body, target, ending: _ } = self;
        if let Some(length) = length
            && body.length() != length
        {
            return Err(ArchiveError::IncompleteBody { expected: length, received: body.length() });
        }
        expected.md5 = trailers.md5.or(expected.md5);
        expected.sha256 = trailers.sha256.or(expected.sha256);
        expected.checksums.extend(trailers.checksums);
        let digests = body.digests()?;
        digests.verify(&expected)?;
        match target {
            Target::Part(part) => {
                Box::pin(archive.finish_part(&caller, bucket, key, *part, body, digests, &expected)).await
            }
            Target::Object { request, lease, alongside } => {
                finish_object(&archive, &caller, bucket, *request, lease, body, digests, &expected, alongside).await
            }
        }
    }
}

#[allow(clippy::too_many_arguments)]
async fn finish_object(
    archive: &Archive,
    caller: &Caller,
    bucket: Arc<Bucket>,
    request: PutRequest,
    lease: Lease,
    body: Box<Body>,
    digests: Digests,
    expected: &Expected,
    alongside: Option<Arc<dyn Alongside>>,
) -> Result<ObjectInfo> {
    let store = &archive.store();
    check_metadata(&request.metadata)?;
    let lock = store.lock(bucket.number, &request.key).await?;
    let _settled = store.settings_locks.share(bucket.number).await;
    // The bucket's settings may have changed while the body arrived. Another bucket of the same
    // name is not the requested one.
    let now = store.authorized(caller, Access::Write, bucket.name(), &request.key)?;
    if now.number != bucket.number {
        return Err(ArchiveError::NoSuchBucket(bucket.name().into()));
    }
    let bucket = now;
    let (retention, hold) =
        initial_retention(store, caller, &bucket, &request.key, request.retention, request.legal_hold)?;
    let facts = VersionFacts {
        key: &request.key,
        tags: &request.tags,
        size: digests.length,
        content_type: content_type(&request.metadata),
    };
    let (retention, class) =
        store.classified(caller, &bucket, request.class.as_deref(), facts, request.retention, retention)?;
    let null = !bucket.versioned();
    let row = VersionRow {
        object: lease.object,
        salt: store.random(),
        null,
        marker: false,
        size: digests.length,
        etag: digests.etag(),
        modified: store.later_now(),
        owner: caller.actor.clone(),
        slot: lease.slot.number,
        metadata: request.metadata,
        tags: request.tags,
        retention,
        hold,
        checksums: kept(&digests, &request.algorithms, expected),
        blake3: digests.blake3,
        customer: request
            .customer_key
            .as_ref()
            .map(|key| CustomerMark::of(key, crate::seal::random_salt(store.surroundings()))),
        content: if digests.length == 0 {
            Content::None
        } else {
            Content::Stream(Stream { number: body.stream, salt: body.salt, size: digests.length, extents: None })
        },
        note: Place::default(),
        notified: None,
        upload: None,
        matters: None,
        class,
        held: None,
    };
    let customer_md5 = request.customer_key.as_ref().map(CustomerKey::md5);
    let install = Install {
        caller,
        action: Action::PutObject,
        happened: request.way.event(),
        bucket: &bucket,
        key: &request.key,
        condition: &request.condition,
        detail: None,
        lock,
        compared: Counter::Held,
        left: Vec::new(),
        alongside,
    };
    let mut info = install.stream(store, row, lease, body).await?;
    info.customer_key_md5 = customer_md5;
    Ok(info)
}
