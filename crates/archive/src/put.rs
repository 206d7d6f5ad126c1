//! Writing an object: the body streams in, is hashed once, sealed frame by frame and handed to the appender.

use bytes::Bytes;

use crate::checksum::{Algorithm, Expected};
use crate::error::Result;
use crate::principal::Caller;
use crate::version::{Metadata, ObjectInfo, Retention, Tags};
use crate::{Archive, CustomerKey};

/// What must hold of the key's current version for a write to take place.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct WriteCondition {
    /// `If-None-Match: *`: the key has no current version, or it is a delete marker.
    pub absent: bool,
    /// `If-Match`: the current version has this entity tag (with or without quotes; `*`: any).
    pub etag: Option<String>,
}

/// A put, up to its body.
#[derive(Clone, Default, Debug)]
pub struct PutRequest {
    pub bucket: String,
    pub key: String,
    /// Bytes that will come, where the client said. The put fails if more or fewer do.
    pub length: Option<u64>,
    pub metadata: Metadata,
    pub tags: Tags,
    /// None: the bucket's default.
    pub retention: Option<Retention>,
    pub legal_hold: bool,
    pub condition: WriteCondition,
    /// What headers say the body hashes to.
    pub expected: Expected,
    /// To compute even where the value comes only with the trailers, or not at all.
    pub algorithms: Vec<Algorithm>,
    pub customer_key: Option<CustomerKey>,
}

/// A put or part whose body is arriving. Dropping it stores nothing.
pub struct ObjectWriter {}

impl Archive {
    /// Begins to write an object. Everything that can be refused without the body is refused here.
    pub async fn put(&self, _caller: &Caller, _request: PutRequest) -> Result<ObjectWriter> {
        Err(crate::being_built())
    }
}

impl ObjectWriter {
    /// Takes in the next bytes, of any length. Waits while too much of this or other bodies is in flight.
    pub async fn write(&mut self, _data: Bytes) -> Result<()> {
        Err(crate::being_built())
    }

    /// The body is complete; `trailers` are digests that came behind it. Answers once the object is durable and in
    /// the catalog. For a part, the information is the part's.
    pub async fn finish(self, _trailers: Expected) -> Result<ObjectInfo> {
        Err(crate::being_built())
    }
}
