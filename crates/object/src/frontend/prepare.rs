//! Turns a received request into one that the wire crate may route: with a known sender and a
//! bounded body.

use super::answers::bytes_of_answer;
use super::policing::Asked;
use super::posting::{FormAnswer, is_form};
use super::presigned::{QUERY_AUTHENTICATION, hoist};
use super::range::readable;
use super::{Frontend, KeyedPermit, conditions, document, schema, subresource};
use crate::call::Call;
use crate::dechunk::Dechunker;
use crate::payload::{Payload, Source};
use crate::query::{Query, decode};
use crate::refusal::{refuse, translated};
use crate::serve::Peer;
use crate::sigv4::{ChunkSigner, Claim, Parts, PayloadSigning, payload_of};
use crate::wire::verify_document;
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, TRANSFER_ENCODING,
};
use hyper::{HeaderMap, Method, Request, Uri};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;
use std::time::SystemTime;
use stele_archive::{Actor, ArchiveError, Caller, Credentials, IfRange, Timestamp};
use tokio::time::timeout;

/// A request for the wire crate. The permit accounts for a body that is held completely.
pub struct Prepared {
    pub call: Arc<Call>,
    pub request: s3s::HttpRequest,
    /// The request is an upload by a form, which wants an answer of its own.
    pub form: Option<FormAnswer>,
    /// Memory for the document that answers it.
    pub room: Option<KeyedPermit>,
    _held: Option<KeyedPermit>,
}

/// A refused request with its body, which may have to be drained.
pub struct Unfit {
    pub error: S3Error,
    pub payload: Option<Payload>,
}

impl From<S3Error> for Unfit {
    fn from(error: S3Error) -> Unfit {
        Unfit { error, payload: None }
    }
}

pub(super) struct Target {
    pub raw_path: String,
    pub path: String,
    pub query: Query,
    pub bucket: Option<String>,
    pub object: bool,
    // The host name, not the path, names the bucket.
    pub by_host: bool,
}

/// A request's target, its claim, its caller, and the chain of its chunks' signatures.
pub(super) type Admitted = (Target, Option<Claim>, Caller, Option<ChunkSigner>);

impl Frontend {
    /// Prepares a request, or refuses it.
    pub(super) async fn prepare(&self, request: Request<Incoming>, peer: &Peer, id: &str) -> Result<Prepared, Unfit> {
        let (mut parts, incoming) = request.into_parts();
        let invited = parts.headers.contains_key(EXPECT);
        let mut payload = Payload::new(Source::Wire(incoming), 0, self.settings.pace).invited(invited);
        let mut form = None;
        let (target, claim, caller);
        if is_form(&parts.method, &parts.headers) {
            let admitted = self.admit_form(&mut parts, payload, peer, id).await;
            let unfit = |(error, payload)| Unfit { error, payload: Some(payload) };
            let answer;
            ((target, claim, caller, _), payload, answer) = admitted.map_err(unfit)?;
            form = Some(answer);
        } else {
            let admitted = self.admit(&parts.method, &parts.uri, &parts.headers, peer, id).await;
            let signer;
            (target, claim, caller, signer) = match admitted {
                Ok(admitted) => admitted,
                Err(error) => return Err(Unfit { error, payload: Some(payload) }),
            };
            let fitted = self.fit_body(&mut parts.headers, claim.as_ref(), signer, payload);
            payload = match fitted {
                Ok(payload) => payload,
                Err((error, payload)) => return Err(Unfit { error, payload: Some(payload) }),
            };
        }
        join_metadata(&mut parts.headers);
        let presigned = claim.as_ref().is_some_and(|claim| claim.presigned);
        if presigned {
            hoist(&mut parts.headers, &target.query, payload.length());
        }
        let uri = match routed(&parts.uri, &target, presigned) {
            Ok(uri) => uri,
            Err(error) => return Err(Unfit { error, payload: Some(payload) }),
        };
        let copies = parts.headers.contains_key("x-amz-copy-source");
        let streams = subresource::streams(&parts.method, target.object, &target.query, copies);
        let unread = claim.is_none() && !streams;
        let (method, object, length) = (&parts.method, target.object, payload.length());
        let needs_key = subresource::needs_key(method, object, &target.query, streams, length);
        if let Some(why) = needs_key.filter(|_| claim.is_none()) {
            let error = refuse(S3ErrorCode::AccessDenied, why);
            self.audit(&error, &parts.method, &target, peer, id).await;
            return Err(Unfit { error, payload: Some(payload) });
        }
        let turn = match self.turn(&caller.actor).await {
            Ok(turn) => turn,
            Err(error) => return Err(Unfit { error, payload: Some(payload) }),
        };
        let place = (target.bucket.is_some(), object);
        let room = bytes_of_answer(method, place, &target.query, length);
        let room = match self.answer_room(&caller.actor, room).await {
            Ok(room) => room,
            Err(error) => return Err(Unfit { error, payload: Some(payload) }),
        };
        let private = peer.is_private();
        let caller = from_peer(caller, peer, id);
        let mut held = None;
        let mut body = Body::empty();
        let mut streamed = None;
        let mut text = bytes::Bytes::new();
        if streams || unread {
            streamed = Some(payload);
        } else {
            let completes = parts.method == Method::POST && target.object && target.query.has("uploadId");
            let read = self.document(&caller.actor, &parts.headers, &mut payload, completes).await;
            let read = read.and_then(|(document, permit)| match document::is_json(&target.query, &document) {
                true => Ok((document, permit)),
                false => Ok((document::plain(document)?, permit)),
            });
            match read {
                Ok((document, permit)) => {
                    let length = HeaderValue::from(document.len());
                    parts.headers.insert(CONTENT_LENGTH, length);
                    text = document.clone();
                    body = Body::from(document);
                    held = permit;
                }
                Err(error) => return Err(Unfit { error, payload: Some(payload) }),
            }
        }
        let asked = Asked {
            method: &parts.method,
            uri: &uri,
            query: &target.query,
            headers: &parts.headers,
            claim: claim.as_ref(),
            form: form.is_some(),
            peer,
            document: &text,
        };
        let policed = match self.policed(caller, asked).await {
            Ok(policed) => policed,
            Err(error) => return Err(Unfit { error, payload: streamed }),
        };
        if let Err(error) = schema::check(&parts.method, &target.query, &text) {
            return Err(Unfit { error, payload: streamed });
        }
        let mut call = Call::new(id.to_owned(), policed.caller, private, self.metrics.clone(), streamed, turn);
        call.document = text;
        call.facts = policed.facts;
        call.untagged = policed.untagged;
        call.form = form.is_some();
        call.bucket_url = bucket_url(&parts.headers, &target, peer.secure);
        if parts.method == Method::GET || parts.method == Method::HEAD {
            call.if_match = take_text(&mut parts.headers, &IF_MATCH);
            call.if_none_match = take_text(&mut parts.headers, &IF_NONE_MATCH);
            call.if_range = take_text(&mut parts.headers, &IF_RANGE).map(if_range);
            drop_unreadable(&mut parts.headers);
        }
        let call = Arc::new(call);
        if let Err(error) = self.check_owner(&call, &parts.headers, &target).await {
            return Err(Unfit { error, payload: call.take_payload() });
        }
        let mut request = s3s::HttpRequest::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = parts.headers;
        request.extensions_mut().insert(call.clone());
        Ok(Prepared { call, request, form, room, _held: held })
    }

    // Identifies the caller, and decides whether it is admitted.
    async fn admit(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: &Peer,
        id: &str,
    ) -> S3Result<Admitted> {
        self.check_head(uri, headers)?;
        subresource::check_verb(method)?;
        let target = self.target(uri, headers)?;
        let claim = Claim::of(headers, &target.query);
        let verified = match claim {
            Ok(None) => Ok((None, Caller::anonymous(), None)),
            Ok(Some(claim)) => self.verify(claim, method, headers, &target).await,
            Err(error) => Err(error),
        };
        match verified {
            Ok((claim, caller, signer)) => {
                check_method(method, &target)?;
                conditions::check(method, target.object, &target.query, headers)?;
                Ok((target, claim, caller, signer))
            }
            Err(error) => {
                self.audit(&error, method, &target, peer, id).await;
                Err(error)
            }
        }
    }

    pub(crate) fn check_head(&self, uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
        let names: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let size = names + uri.path().len() + uri.query().map_or(0, str::len);
        if size > self.settings.header_bytes_max {
            return Err(refuse(
                S3ErrorCode::RequestHeaderSectionTooLarge,
                "Your request header and query parameters exceed the maximum allowed size.",
            ));
        }
        // Another server on the way may go by the other one.
        if headers.get_all(HOST).iter().count() > 1 {
            return Err(refuse(S3ErrorCode::InvalidRequest, "A request has one Host header, not several."));
        }
        Ok(())
    }

    // The path names the bucket and key, or the host name does under one of our domains.
    pub(super) fn target(&self, uri: &Uri, headers: &HeaderMap) -> S3Result<Target> {
        let invalid = || refuse(S3ErrorCode::InvalidURI, "Couldn't parse the specified URI.");
        let raw_path = uri.path().to_owned();
        let path = decode(&raw_path, false).ok_or_else(invalid)?;
        let query = Query::parse(uri.query()).ok_or_else(invalid)?;
        if let Some(bucket) = self.bucket_of_host(headers) {
            // It comes into a path. An escape or a slash in it would make that the path of another
            // bucket and key than the request was judged and logged by.
            if !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte)) {
                let why = "The specified bucket is not valid: in a host name it has a-z, 0-9, dots and hyphens alone.";
                return Err(refuse(S3ErrorCode::InvalidBucketName, why));
            }
            let object = path.len() > 1;
            let bucket = Some(bucket);
            return Ok(Target { raw_path, path, query, bucket, object, by_host: true });
        }
        let (bucket, key) = match path.trim_start_matches('/').split_once('/') {
            Some((bucket, key)) => (bucket, key),
            None => (path.trim_start_matches('/'), ""),
        };
        let object = !key.is_empty();
        let bucket = (!bucket.is_empty()).then(|| bucket.to_owned());
        Ok(Target { raw_path, path, query, bucket, object, by_host: false })
    }

    /// The bucket that the host name stands for, under one of our domains.
    pub(super) fn bucket_of_host(&self, headers: &HeaderMap) -> Option<String> {
        if self.settings.domains.is_empty() {
            return None;
        }
        let host = headers.get(HOST)?.to_str().ok()?;
        // The case of a host name says nothing, and a bucket has none but lower case.
        let host = host.rsplit_once(':').map_or(host, |(name, _port)| name).to_ascii_lowercase();
        let mut named = self.settings.domains.iter().filter_map(|domain| {
            let rest = host.strip_suffix(domain.to_ascii_lowercase().as_str())?;
            rest.strip_suffix('.').filter(|bucket| !bucket.is_empty())
        });
        named.next().map(str::to_owned)
    }

    async fn verify(
        &self,
        claim: Claim,
        method: &Method,
        headers: &HeaderMap,
        target: &Target,
    ) -> S3Result<(Option<Claim>, Caller, Option<ChunkSigner>)> {
        self.check_region(&claim.region)?;
        let credentials = self.credentials(&claim.access_key, claim.token.as_deref()).await?;
        claim.check_time((self.clock)())?;
        let parts = Parts {
            method: method.as_str(),
            path: &target.path,
            raw_path: &target.raw_path,
            query: &target.query,
            headers,
        };
        let signer = claim.verify(&credentials.secret, &self.keys, &parts)?;
        Ok((Some(claim), credentials.caller, signer))
    }

    /// The credentials of an access key, or of a session if there is a token.
    pub(super) async fn credentials(&self, access_key: &str, token: Option<&str>) -> S3Result<Credentials> {
        let found = match token {
            Some(token) => self.archive.session_credentials(access_key, token).await,
            None => self.archive.credentials(access_key).await,
        };
        found.map_err(|error| match error {
            ArchiveError::NoSuchAccessKey(_) => refuse(
                S3ErrorCode::InvalidAccessKeyId,
                "The AWS Access Key Id you provided does not exist in our records.",
            ),
            ArchiveError::InvalidToken(_) => {
                refuse(S3ErrorCode::InvalidToken, "The provided token is malformed or otherwise invalid.")
            }
            ArchiveError::ExpiredAccessKey(_) => {
                refuse(S3ErrorCode::ExpiredToken, "The provided token or access key has expired.")
            }
            other => translated(other),
        })
    }

    /// Refuses the region of a signature where only our own counts.
    pub(super) fn check_region(&self, region: &str) -> S3Result<()> {
        if self.settings.region_strict && region != self.settings.region {
            return Err(refuse(
                S3ErrorCode::AuthorizationHeaderMalformed,
                format!(
                    "The authorization header is malformed; the region '{region}' is wrong; expecting '{}'",
                    self.settings.region
                ),
            ));
        }
        Ok(())
    }

    // Gives the payload its length, framing and digest.
    #[allow(clippy::result_large_err)]
    fn fit_body(
        &self,
        headers: &mut HeaderMap,
        claim: Option<&Claim>,
        signer: Option<ChunkSigner>,
        payload: Payload,
    ) -> Result<Payload, (S3Error, Payload)> {
        let signing = match claim.map_or_else(|| unclaimed(headers), |claim| Ok(claim.payload)) {
            Ok(signing) => signing,
            Err(error) => return Err((error, payload)),
        };
        let framed = matches!(signing, PayloadSigning::Chunks { .. } | PayloadSigning::UnsignedChunks);
        let length = match body_length(headers, framed) {
            Ok(length) => length,
            Err(error) => return Err((error, payload)),
        };
        let payload = payload.of_length(length);
        headers.remove(AUTHORIZATION);
        headers.remove("x-amz-decoded-content-length");
        if framed {
            strip_framing(headers);
            headers.remove(TRANSFER_ENCODING);
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        Ok(match signing {
            PayloadSigning::Unsigned => payload,
            PayloadSigning::Sha256(hash) => payload.hashed(hash),
            PayloadSigning::Chunks { trailer } => payload.framed(Dechunker::new(signer, trailer)),
            PayloadSigning::UnsignedChunks => payload.framed(Dechunker::new(None, false)),
        })
    }

    // Reads a body completely, within its own limit and those of its key and of all, and verifies
    // its digests.
    async fn document(
        &self,
        actor: &Actor,
        headers: &HeaderMap,
        payload: &mut Payload,
        completes: bool,
    ) -> S3Result<(bytes::Bytes, Option<KeyedPermit>)> {
        let limit = self.settings.document_bytes_max;
        let permit = self.room(actor, payload.length()).await?;
        // A pace that is fair to an upload would let a few senders hold all document memory for
        // hours.
        let Ok(document) = timeout(self.settings.document_patience, payload.collect(limit)).await else {
            return Err(refuse(
                S3ErrorCode::RequestTimeout,
                format!(
                    "The document in your request did not arrive within {} seconds.",
                    self.settings.document_patience.as_secs()
                ),
            ));
        };
        let document = document?;
        if !document.is_empty() {
            verify_document(headers, payload.trailers(), &document, completes)?;
        }
        Ok((document, permit))
    }

    async fn check_owner(&self, call: &Call, headers: &HeaderMap, target: &Target) -> S3Result<()> {
        let expected = headers.get("x-amz-expected-bucket-owner");
        let (Some(expected), Some(bucket)) = (expected, &target.bucket) else {
            return Ok(());
        };
        let info = self.archive.bucket(&call.caller, bucket).await.map_err(translated)?;
        let owner = info.owner.strip_prefix("key ").unwrap_or(&info.owner);
        if expected != owner {
            return Err(refuse(S3ErrorCode::AccessDenied, "Access Denied: the bucket has another owner."));
        }
        Ok(())
    }

    pub(super) async fn audit(&self, error: &S3Error, method: &Method, target: &Target, peer: &Peer, id: &str) {
        self.audit_path(error, method, &target.path, peer, id).await;
    }

    /// Records a refusal of an unidentified sender, as often as the rate of records allows.
    pub(crate) async fn audit_path(&self, error: &S3Error, method: &Method, path: &str, peer: &Peer, id: &str) {
        if !self.audit_allowed() {
            return;
        }
        let origin = match peer.address {
            Some(address) => format!("{} {id}", address.ip()),
            None => id.to_owned(),
        };
        let caller = Caller::anonymous().from(origin);
        let reason = format!("{}: {}", error.code().as_str(), error.message().unwrap_or(""));
        let noted = self.archive.audit_refusal(&caller, method.as_str(), path, &reason).await;
        if let Err(error) = noted {
            tracing::warn!(%error, "a refusal could not be written to the audit log");
        }
    }
}

/// The caller with its address, the request's id and its session, for the audit record.
pub(super) fn from_peer(caller: Caller, peer: &Peer, id: &str) -> Caller {
    let mut origin = match peer.address {
        Some(address) => format!("{} {id}", address.ip()),
        None => id.to_owned(),
    };
    if let Some(session) = &caller.session {
        origin = format!("{origin} session {} {}", session.id, session.name);
    }
    caller.from(origin)
}

fn check_method(method: &Method, target: &Target) -> S3Result<()> {
    match *method {
        Method::GET if target.bucket.is_none() => Ok(()),
        Method::GET | Method::HEAD | Method::PUT | Method::POST | Method::DELETE if target.bucket.is_some() => {
            subresource::check(method, target.object, &target.query)
        }
        _ => Err(subresource::not_allowed()),
    }
}

// The length of the payload without framing.
fn body_length(headers: &HeaderMap, framed: bool) -> S3Result<u64> {
    let number = |name: &str| {
        let value = headers.get(name)?;
        Some(value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok()))
    };
    let missing = || refuse(S3ErrorCode::MissingContentLength, "You must provide the Content-Length HTTP header.");
    if framed {
        return match number("x-amz-decoded-content-length") {
            None => Err(missing()),
            Some(None) => Err(refuse(S3ErrorCode::InvalidArgument, "x-amz-decoded-content-length must be a number")),
            Some(Some(length)) => Ok(length),
        };
    }
    match number("content-length") {
        Some(Some(length)) => Ok(length),
        Some(None) => Err(missing()),
        None if headers.contains_key(TRANSFER_ENCODING) => Err(missing()),
        None => Ok(0),
    }
}

// `aws-chunked` is the coding of the framing, and not stored.
fn strip_framing(headers: &mut HeaderMap) {
    // The list may come in several lines.
    let lines: Option<Vec<&str>> = headers.get_all(CONTENT_ENCODING).iter().map(|line| line.to_str().ok()).collect();
    let Some(lines) = lines.filter(|lines| !lines.is_empty()) else { return };
    let codings = lines.iter().flat_map(|line| line.split(',')).map(str::trim);
    let rest: Vec<&str> = codings.filter(|coding| *coding != "aws-chunked").collect();
    match HeaderValue::from_str(&rest.join(",")) {
        Ok(rest) if !rest.is_empty() => {
            headers.insert(CONTENT_ENCODING, rest);
        }
        _ => {
            headers.remove(CONTENT_ENCODING);
        }
    }
}

// Joins metadata in several lines into one list, as in HTTP; it was signed in that form.
fn join_metadata(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-amz-meta-")).cloned().collect();
    for name in names {
        let values: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
        if values.len() > 1
            && let Ok(joined) = HeaderValue::from_bytes(&values.join(&b","[..]))
        {
            headers.insert(name, joined);
        }
    }
}

// The URL of the bucket, in the form in which the sender addressed it.
fn bucket_url(headers: &HeaderMap, target: &Target, secure: bool) -> String {
    let bucket = target.bucket.as_deref().unwrap_or_default();
    match headers.get(HOST).and_then(|host| host.to_str().ok()) {
        None => format!("/{bucket}"),
        Some(host) => {
            let scheme = if secure { "https" } else { "http" };
            let path = if target.by_host { String::new() } else { format!("/{bucket}") };
            format!("{scheme}://{host}{path}")
        }
    }
}

// The URI for routing by the wire crate: path-style, and without the parameters of authentication.
fn routed(uri: &Uri, target: &Target, presigned: bool) -> S3Result<Uri> {
    let by_host = target.bucket.as_ref().filter(|_| target.by_host);
    if by_host.is_none() && !presigned {
        return Ok(uri.clone());
    }
    let mut text = String::with_capacity(uri.path().len() + 64);
    if let Some(bucket) = by_host {
        text.push('/');
        text.push_str(bucket);
    }
    text.push_str(uri.path());
    let mut separator = '?';
    for piece in uri.query().unwrap_or("").split('&').filter(|piece| !piece.is_empty()) {
        let name = piece.split('=').next().unwrap_or(piece);
        let name = decode(name, true).unwrap_or_default().to_ascii_lowercase();
        if presigned && QUERY_AUTHENTICATION.contains(&name.as_str()) {
            continue;
        }
        text.push(separator);
        text.push_str(piece);
        separator = '&';
    }
    text.parse().map_err(|_| refuse(S3ErrorCode::InvalidURI, "Couldn't parse the specified URI."))
}

/// A list, which may come in several lines. What is no text in it stays part of it: an entity tag
/// with such letters is that of no object.
fn take_text(headers: &mut HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Vec<_> = headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
    let text = lines.join(",");
    headers.remove(name);
    (!text.trim().is_empty()).then_some(text)
}

/// How the body of a request without a signature comes: only a header tells.
pub(super) fn unclaimed(headers: &HeaderMap) -> S3Result<PayloadSigning> {
    let Some(value) = headers.get("x-amz-content-sha256") else { return Ok(PayloadSigning::Unsigned) };
    match payload_of(value.to_str().unwrap_or_default())? {
        PayloadSigning::Chunks { .. } => Err(refuse(
            S3ErrorCode::AccessDenied,
            "The body is said to have signed chunks, and the request has no signature.",
        )),
        signing => Ok(signing),
    }
}

/// What is no date is an entity tag, and one that cannot be read is that of no object.
fn if_range(text: String) -> IfRange {
    let seconds = |date: SystemTime| date.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match httpdate::parse_http_date(&text) {
        Ok(date) => IfRange::Modified(Timestamp::from_secs(seconds(date))),
        Err(_) => IfRange::Tag(text),
    }
}

// After RFC 9110, an unreadable range or date counts as missing.
fn drop_unreadable(headers: &mut HeaderMap) {
    let text =
        |headers: &HeaderMap, name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("").to_owned());
    if let Some(range) = text(headers, &RANGE) {
        match readable(&range).and_then(|range| HeaderValue::try_from(range).ok()) {
            Some(range) => headers.insert(RANGE, range),
            None => headers.remove(RANGE),
        };
    }
    for name in [IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE] {
        if text(headers, &name).is_some_and(|date| httpdate::parse_http_date(&date).is_err()) {
            headers.remove(&name);
        }
    }
}
