//! Files of a repository: reading, storing and removing.

use super::address::{Address, File};
use super::{Rest, done};
use crate::call::Call;
use crate::frontend::range::readable;
use crate::payload::Payload;
use crate::refusal::{refuse, translated};
use crate::wire::{Digests, body_of, pump};
use aws_lc_rs::digest;
use bytes::Bytes;
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, LAST_MODIFIED, RANGE};
use hyper::{HeaderMap, Response, StatusCode};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;
use stele_archive::{
    Access, Algorithm, ArchiveError, ByteRange, Caller, DeleteRequest, Expected, GetRequest, Grant, ObjectInfo,
    ObjectReader, PutRequest, WriteCondition,
};

/// Versions of one file that a removal takes away. The protocol itself makes at most one.
const VERSIONS_MAX: usize = 1000;

impl Rest {
    pub(super) async fn head(&self, call: &Call, address: &Address, headers: &HeaderMap) -> S3Result<Response<Body>> {
        let get = read(address, headers)?;
        let asked = get.range;
        let (info, range) = self.archive().head(&call.caller, get).await.map_err(translated)?;
        Ok(described(&info, &range, asked, Body::empty()))
    }

    pub(super) async fn get(
        &self,
        call: Arc<Call>,
        address: &Address,
        headers: &HeaderMap,
    ) -> S3Result<Response<Body>> {
        let get = read(address, headers)?;
        let asked = get.range;
        let reader = self.archive().get(&call.caller, get).await.map_err(translated)?;
        let (info, range) = (reader.info.clone(), reader.range.clone());
        let body = body_of(call, reader, range.end.saturating_sub(range.start)).await?;
        Ok(described(&info, &range, asked, body))
    }

    /// Stores a file. When this returns, its content has the SHA-256 of its name, and is durable.
    pub(super) async fn put(&self, call: &Call, address: &Address, file: File) -> S3Result<Response<Body>> {
        let Some(mut payload) = call.take_payload() else {
            return Err(refuse(S3ErrorCode::InternalError, "the request's body was taken already"));
        };
        // Only the config has a name that says nothing of its content. It is small, and held whole.
        let (sha256, held) = match file {
            File::Named(_, name) => (name, None),
            File::Config => match payload.collect(file.length_max()).await {
                Ok(content) => (sha256_of(&content), Some(content)),
                Err(error) => return Err(give_back(call, payload, error)),
            },
        };
        let key = address.key(file);
        let put = PutRequest {
            bucket: address.bucket.clone(),
            key: key.clone(),
            length: payload.known_length(),
            condition: WriteCondition { absent: true, etag: None },
            expected: Expected { sha256: Some(sha256), ..Expected::default() },
            algorithms: vec![Algorithm::Sha256],
            without_md5: true,
            ..PutRequest::default()
        };
        let stored = match (self.archive().put(&call.caller, put).await, held) {
            (Ok(writer), None) => pump(call, payload, writer, &Digests::default()).await.map(drop),
            (Ok(mut writer), Some(content)) => match writer.write(content).await {
                Ok(()) => writer.finish(Expected::default()).await.map(drop).map_err(translated),
                Err(error) => Err(translated(error)),
            },
            (Err(error @ ArchiveError::PreconditionFailed(_)), held) => {
                // The name is taken. The body must be what its name says, before it is compared
                // with what is stored.
                match if held.is_some() { Ok(sha256) } else { hashed(&mut payload).await } {
                    Ok(found) if found == sha256 => Err(translated(error)),
                    Ok(_) => Err(refuse(S3ErrorCode::BadDigest, "the content does not have the SHA-256 of its name")),
                    Err(error) => Err(give_back(call, payload, error)),
                }
            }
            (Err(error), _) => Err(give_back(call, payload, translated(error))),
        };
        match stored {
            Err(error) if *error.code() == S3ErrorCode::PreconditionFailed => {
                self.same(call, &address.bucket, &key, sha256).await
            }
            Err(error) => Err(error),
            Ok(()) => Ok(done()),
        }
    }

    /// Answers an upload under a name that is taken: as the first one, if the content is the same.
    async fn same(&self, call: &Call, bucket: &str, key: &str, sha256: [u8; 32]) -> S3Result<Response<Body>> {
        let get = GetRequest { bucket: bucket.to_owned(), key: key.to_owned(), ..GetRequest::default() };
        let (info, _) = self.archive().head(&call.caller, get.clone()).await.map_err(translated)?;
        let whole = |found: &&stele_archive::Checksum| found.algorithm == Algorithm::Sha256 && found.parts.is_none();
        let same = match info.checksums.iter().find(whole) {
            Some(found) => found.value == sha256,
            // An S3 client stored it without a SHA-256.
            None => {
                let reader = self.archive().get(&call.caller, get).await.map_err(translated)?;
                content_hash(reader).await? == sha256
            }
        };
        match same {
            true => Ok(done()),
            false => Err(refuse(
                S3ErrorCode::AccessDenied,
                format!("`{key}` exists with other content, and files of a repository are never replaced"),
            )),
        }
    }

    /// Removes a file for good, with all its versions, where retention permits it. It takes the
    /// right to delete.
    ///
    /// A lock is no content: a caller that may store it may remove it, as restic requires of
    /// append-only servers. Such a caller removes it as S3 does, with a delete marker where the
    /// bucket keeps versions. This is nothing that it could not do by storing another object there,
    /// and retention holds.
    pub(super) async fn remove(&self, call: &Call, address: &Address, file: File) -> S3Result<Response<Body>> {
        let (archive, key) = (self.archive(), address.key(file));
        let get = GetRequest { bucket: address.bucket.clone(), key: key.clone(), ..GetRequest::default() };
        let delete = DeleteRequest { bucket: address.bucket.clone(), key: key.clone(), ..DeleteRequest::default() };
        if file.is_lock() && !may(&call.caller, Access::Delete, &address.bucket, &key) {
            archive.head(&call.caller, get).await.map_err(translated)?;
            let caller = lock_remover(&call.caller, &address.bucket, &key);
            archive.delete(&caller, delete).await.map_err(translated)?;
            return Ok(done());
        }
        for removed in 0..VERSIONS_MAX {
            let info = match archive.head(&call.caller, get.clone()).await {
                Ok((info, _)) => info,
                Err(ArchiveError::NoSuchKey { .. }) if removed > 0 => return Ok(done()),
                Err(error) => return Err(translated(error)),
            };
            let version = DeleteRequest { version: Some(info.version), ..delete.clone() };
            match archive.delete(&call.caller, version).await {
                Ok(_) => {}
                Err(ArchiveError::Retained { .. }) if file.is_lock() => {
                    archive.delete(&call.caller, delete).await.map_err(translated)?;
                    return Ok(done());
                }
                Err(error) => return Err(translated(error)),
            }
        }
        Err(refuse(S3ErrorCode::SlowDown, format!("`{key}` has more than {VERSIONS_MAX} versions; remove it again")))
    }
}

/// Whether a grant of the caller has this access to the key. The archive decides in the end.
fn may(caller: &Caller, access: Access, bucket: &str, key: &str) -> bool {
    caller.rights.grants.iter().any(|grant| {
        grant.access.contains(&access)
            && grant.bucket.as_deref().is_none_or(|name| name == bucket)
            && key.starts_with(grant.prefix.as_str())
    })
}

/// The caller with the right to remove one lock, if it has the right to store that lock.
fn lock_remover(caller: &Caller, bucket: &str, key: &str) -> Caller {
    let mut rights = (*caller.rights).clone();
    if may(caller, Access::Write, bucket, key) {
        let access = [Access::Delete].into();
        rights.grants.push(Grant { bucket: Some(bucket.to_owned()), prefix: key.to_owned(), access });
    }
    Caller { rights: Arc::new(rights), ..caller.clone() }
}

fn read(address: &Address, headers: &HeaderMap) -> S3Result<GetRequest> {
    let Some(key) = address.own_key() else { return Err(super::not_allowed()) };
    // After RFC 9110, an unreadable range counts as missing.
    let range = headers.get(RANGE).and_then(|value| readable(value.to_str().ok()?));
    let range = range.and_then(|range| s3s::dto::Range::parse(&range).ok());
    let range = match range {
        Some(s3s::dto::Range::Int { first, last }) => ByteRange::From { first, last },
        Some(s3s::dto::Range::Suffix { length }) => ByteRange::Suffix { length },
        None => ByteRange::Whole,
    };
    Ok(GetRequest { bucket: address.bucket.clone(), key, range, ..GetRequest::default() })
}

fn described(info: &ObjectInfo, range: &std::ops::Range<u64>, asked: ByteRange, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let partial = asked != ByteRange::Whole && range.end > range.start;
    let mut set = |name, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    };
    set(CONTENT_TYPE, "application/octet-stream".to_owned());
    set(ACCEPT_RANGES, "bytes".to_owned());
    set(CONTENT_LENGTH, range.end.saturating_sub(range.start).to_string());
    set(LAST_MODIFIED, crate::refusal::http_date(info.modified));
    if partial {
        set(CONTENT_RANGE, format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), info.size));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

fn give_back(call: &Call, payload: Payload, error: S3Error) -> S3Error {
    call.return_payload(payload);
    error
}

fn sha256_of(content: &Bytes) -> [u8; 32] {
    finished(digest::Context::new(&digest::SHA256), content)
}

fn finished(mut context: digest::Context, last: &[u8]) -> [u8; 32] {
    context.update(last);
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// The SHA-256 of a body that is not stored.
async fn hashed(payload: &mut Payload) -> S3Result<[u8; 32]> {
    let mut context = digest::Context::new(&digest::SHA256);
    while let Some(piece) = payload.next().await? {
        context.update(&piece);
    }
    Ok(finished(context, &[]))
}

async fn content_hash(mut reader: ObjectReader) -> S3Result<[u8; 32]> {
    let mut context = digest::Context::new(&digest::SHA256);
    while let Some(piece) = reader.next().await {
        context.update(&piece.map_err(translated)?);
    }
    Ok(finished(context, &[]))
}
