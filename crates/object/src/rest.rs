//! restic's REST protocol, versions 1 and 2, over the objects of buckets.
//!
//! A repository is a bucket, or a prefix of one. Its files are objects under the keys of restic's
//! own S3 layout, so that a repository can be read over either protocol. The archive decides about
//! rights, retention and quotas, as for S3. A repository of its own bucket fits retention best:
//! default retention, quota and protection level belong to buckets.
//!
//! Files are immutable. A file is stored only if no file has its name, and acknowledged only if its
//! content has the SHA-256 that is its name. A repeated upload of the same content is answered like
//! the first one.
//!
//! Clients identify themselves by HTTP basic authentication with an access key. The secret itself
//! is on the wire, so the server offers this protocol without TLS only on a loopback address.
//!
//! Turns, counters and the audit log's rate are those of the S3 frontend; connections are counted
//! apart.

mod address;
mod file;
mod listing;

use crate::call::Call;
use crate::frontend::{Frontend, answer};
use crate::metrics::Metrics;
use crate::operation::Operation;
use crate::payload::{Payload, Source};
use crate::refusal::{refuse, translated};
use crate::serve::{Connections, Endpoint, Peer};
use crate::settings::Settings;
use address::{Address, Place};
use aws_lc_rs::{constant_time, digest};
use futures_util::future::BoxFuture;
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderValue, SERVER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;
use std::time::Instant;
use stele_archive::{Archive, ArchiveError, Caller, NewBucket};
use zeroize::Zeroizing;

/// The endpoint of restic's REST protocol.
pub struct Rest {
    frontend: Arc<Frontend>,
    connections: Connections,
}

impl Rest {
    /// Serves the archive of the S3 frontend, within its limits. Connections have limits of their
    /// own.
    pub fn new(frontend: Arc<Frontend>) -> Arc<Rest> {
        let connections = Connections::new(frontend.settings());
        Arc::new(Rest { frontend, connections })
    }

    fn archive(&self) -> &Archive {
        &self.frontend.archive
    }

    async fn answer_one(&self, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let started = Instant::now();
        let metrics = self.frontend.metrics();
        let under_way = metrics.request();
        let head = *request.method() == Method::HEAD;
        let uninvited = request.headers().contains_key(EXPECT) && request.body().is_end_stream();
        let (mut response, operation) = self.serve(request, &peer).await;
        if uninvited {
            answer::end_connection(&mut response);
        }
        if head && !response.status().is_success() {
            *response.body_mut() = Body::empty();
            response.headers_mut().remove(CONTENT_TYPE);
        }
        response.headers_mut().insert(SERVER, HeaderValue::from_static("Stele"));
        drop(under_way);
        metrics.answered(operation, response.status().as_u16(), started.elapsed());
        response
    }

    async fn serve(&self, request: Request<Incoming>, peer: &Peer) -> (Response<Body>, Operation) {
        let id = self.frontend.next_id();
        let (parts, incoming) = request.into_parts();
        let invited = parts.headers.contains_key(EXPECT);
        let mut payload = Payload::new(Source::Wire(incoming), 0, self.settings().pace).invited(invited);
        let (address, caller) = match self.admit(&parts, peer, &id).await {
            Ok(admitted) => admitted,
            Err(mut response) => {
                answer::read_away(&mut response, Some(payload)).await;
                return (response, Operation::Unknown);
            }
        };
        let turn = match self.frontend.turn(&caller.actor).await {
            Ok(turn) => turn,
            Err(error) => {
                let mut response = refusal(error);
                answer::read_away(&mut response, Some(payload)).await;
                return (response, Operation::Unknown);
            }
        };
        let (operation, length) = match operation_of(&parts, &address) {
            Ok(found) => found,
            Err(mut response) => {
                drop(turn);
                answer::read_away(&mut response, Some(payload)).await;
                return (response, Operation::Unknown);
            }
        };
        payload = match length {
            BodyLength::Said(length) => payload.of_length(length),
            BodyLength::UpTo(limit) => payload.of_length_up_to(limit),
        };
        let caller = match self.policed(caller, peer, operation, &address).await {
            Ok(caller) => caller,
            Err(error) => {
                drop(turn);
                let mut response = refusal(error);
                answer::read_away(&mut response, Some(payload)).await;
                return (response, operation);
            }
        };
        let origin = match peer.address {
            Some(address) => format!("{} {id}", address.ip()),
            None => id.clone(),
        };
        let private = peer.is_private();
        let sends = parts.method == Method::POST;
        let streamed = sends.then_some(payload);
        let call = Call::new(id, caller.from(origin), private, self.frontend.shared_metrics(), streamed, turn);
        let call = Arc::new(call);
        let answered = match (operation, address.place) {
            (Operation::RestCreate, _) => self.create(&call, &address).await,
            (Operation::RestList, Place::List(kind)) => self.list(call.clone(), &address, kind, &parts.headers).await,
            (Operation::RestHead, Place::File(_)) => self.head(&call, &address, &parts.headers).await,
            (Operation::RestGet, Place::File(_)) => self.get(call.clone(), &address, &parts.headers).await,
            (Operation::RestDelete, Place::File(file)) => self.remove(&call, &address, file).await,
            (Operation::RestPut, Place::File(file)) => self.put(&call, &address, file).await,
            _ => Err(not_allowed()),
        };
        let mut response = answered.unwrap_or_else(refusal);
        let rest = call.take_payload();
        if rest.is_some() {
            call.give_up_turn();
        }
        answer::read_away(&mut response, rest).await;
        (response, operation)
    }

    /// The addressed place and the caller, or the answer to a request that is not admitted.
    async fn admit(&self, parts: &Parts, peer: &Peer, id: &str) -> Result<(Address, Caller), Response<Body>> {
        self.frontend.check_head(&parts.uri, &parts.headers).map_err(refusal)?;
        let caller = match self.identify(&parts.headers).await {
            Ok(caller) => caller,
            Err(error) => {
                self.frontend.audit_path(&error, &parts.method, parts.uri.path(), peer, id).await;
                let mut response = refusal(error);
                if response.status() == StatusCode::UNAUTHORIZED {
                    let challenge = HeaderValue::from_static("Basic realm=\"Stele\", charset=\"UTF-8\"");
                    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                }
                return Err(response);
            }
        };
        let address = Address::parse(parts.uri.path())
            .ok_or_else(|| refusal(refuse(S3ErrorCode::NoSuchKey, "there is no such file of a repository")))?;
        Ok((address, caller))
    }

    /// The caller with the access that the bucket's policy adds, unless the policy refuses the
    /// request.
    async fn policed(&self, caller: Caller, peer: &Peer, operation: Operation, address: &Address) -> S3Result<Caller> {
        let key = address.own_key();
        let (key, prefix, actions): (_, _, &[&'static str]) = match (operation, address.place) {
            (Operation::RestGet | Operation::RestHead, _) => (key, String::new(), &["GetObject"]),
            (Operation::RestPut, _) => (key, String::new(), &["PutObject"]),
            // A removal takes away versions.
            (Operation::RestDelete, _) => (key, String::new(), &["DeleteObject", "DeleteObjectVersion"]),
            (_, Place::List(kind)) => (None, address.folder(kind), &["ListBucket"]),
            _ => (None, address.prefix.clone(), &["ListBucket"]),
        };
        self.frontend.policed_as(caller, peer, &address.bucket, (key.as_deref(), &prefix), actions).await
    }

    async fn identify(&self, headers: &HeaderMap) -> S3Result<Caller> {
        let Some((id, secret)) = headers.get(AUTHORIZATION).and_then(basic) else {
            return Err(unauthorized("this takes an access key and its secret, by basic authentication"));
        };
        let wrong = || unauthorized("there is no such access key, it has expired, or its secret is another");
        let known = match self.archive().credentials(&id).await {
            Ok(known) => Some(known),
            Err(ArchiveError::NoSuchAccessKey(_) | ArchiveError::ExpiredAccessKey(_)) => None,
            Err(other) => return Err(translated(other)),
        };
        // Hashes have one length, so that the time of the comparison says nothing of the secret. An
        // unknown key takes as long as a known one.
        let hash = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
        let right = hash(known.as_ref().map_or("", |known| known.secret.as_str()));
        let same = constant_time::verify_slices_are_equal(right.as_ref(), hash(&secret).as_ref()).is_ok();
        known.filter(|_| same).map(|known| known.caller).ok_or_else(wrong)
    }

    /// Creates a repository: the bucket, if the caller may create buckets and it is missing. The
    /// folders of the protocol need no creation.
    async fn create(&self, call: &Call, address: &Address) -> S3Result<Response<Body>> {
        let (archive, caller) = (self.archive(), &call.caller);
        match archive.bucket(caller, &address.bucket).await {
            Ok(_) => return Ok(done()),
            Err(ArchiveError::NoSuchBucket(_)) => {}
            Err(other) => return Err(translated(other)),
        }
        // With versions a key without the right to delete cannot destroy a file over S3 either, by
        // storing another one.
        let new = NewBucket { region: self.settings().region.clone(), versioning: true, ..NewBucket::default() };
        match archive.create_bucket(caller, &address.bucket, new).await {
            Ok(_) | Err(ArchiveError::BucketExists { .. }) => Ok(done()),
            Err(error) => Err(translated(error)),
        }
    }
}

impl Endpoint for Rest {
    fn settings(&self) -> &Settings {
        self.frontend.settings()
    }

    fn metrics(&self) -> &Metrics {
        self.frontend.metrics()
    }

    fn connections(&self) -> &Connections {
        &self.connections
    }

    fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move { self.answer_one(request, peer).await })
    }
}

/// The length of a body. restic says it, and rustic sends its files in chunks without one.
enum BodyLength {
    Said(u64),
    UpTo(u64),
}

/// The operation of a request, and the length of its body.
#[allow(clippy::result_large_err)]
fn operation_of(parts: &Parts, address: &Address) -> Result<(Operation, BodyLength), Response<Body>> {
    let creates = parts.uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "create=true"));
    let operation = match (&parts.method, &address.place) {
        (&Method::POST, Place::Repository) if creates => Operation::RestCreate,
        (&Method::GET, Place::List(_)) => Operation::RestList,
        (&Method::GET, Place::File(_)) => Operation::RestGet,
        (&Method::HEAD, Place::File(_)) => Operation::RestHead,
        (&Method::DELETE, Place::File(_)) => Operation::RestDelete,
        (&Method::POST, Place::File(_)) => Operation::RestPut,
        _ => return Err(refusal(not_allowed())),
    };
    let limit = match address.place {
        Place::File(file) if operation == Operation::RestPut => file.length_max(),
        _ => 0,
    };
    let said = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let length = match (said, parts.headers.contains_key(TRANSFER_ENCODING)) {
        (Some(length), _) => length,
        (None, true) if operation == Operation::RestPut => return Ok((operation, BodyLength::UpTo(limit))),
        (None, false) if operation != Operation::RestPut => 0,
        (None, _) => {
            let error = refuse(S3ErrorCode::MissingContentLength, "the request must state the length of its body");
            return Err(refusal(error));
        }
    };
    if length > limit {
        let mut error = refuse(S3ErrorCode::EntityTooLarge, format!("the body may have at most {limit} bytes here"));
        error.set_status_code(StatusCode::PAYLOAD_TOO_LARGE);
        return Err(refusal(error));
    }
    Ok((operation, BodyLength::Said(length)))
}

/// The access key and the secret of basic authentication.
fn basic(header: &HeaderValue) -> Option<(String, Zeroizing<String>)> {
    let (scheme, encoded) = header.to_str().ok()?.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(base64_simd::STANDARD.decode_to_vec(encoded.trim().as_bytes()).ok()?);
    let (id, secret) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((id.to_owned(), Zeroizing::new(secret.to_owned())))
}

fn unauthorized(message: &'static str) -> S3Error {
    let mut error = refuse(S3ErrorCode::AccessDenied, message);
    error.set_status_code(StatusCode::UNAUTHORIZED);
    error
}

fn not_allowed() -> S3Error {
    refuse(S3ErrorCode::MethodNotAllowed, "the protocol has no such method for this path")
}

fn done() -> Response<Body> {
    Response::new(Body::empty())
}

/// A refusal as text: restic shows the status, and people read the rest.
fn refusal(error: S3Error) -> Response<Body> {
    let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = error.message().unwrap_or_else(|| status.canonical_reason().unwrap_or("refused"));
    let mut response = Response::new(Body::from(format!("{text}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests;
