//! Uploads by a form, as the rest of the frontend sees them: a PUT of the key that the form names.
//!
//! The fields become the headers of that PUT, so a form can ask for nothing that a PUT cannot. It
//! cannot ask for a copy either.

use super::Frontend;
use super::policing::tags_in;
use super::prepare::{Admitted, Target, unclaimed};
use crate::form::{FIELDS_MAX, Fields, FileEnd, SignedPolicy, boundary_of, checked, read_fields};
use crate::payload::Payload;
use crate::refusal::refuse;
use crate::serve::Peer;
use crate::sigv4::{PayloadSigning, encode};
use crate::wire::receipt;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HOST, HeaderName, HeaderValue, LOCATION};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode, Uri};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use stele_archive::Caller;

/// Fields of the signature, which no PUT has as headers.
const OF_SIGNATURE: [&str; 5] =
    ["x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-security-token", "x-amz-signature"];
/// The fields that a PUT has as headers if it is a copy begin with this.
const COPY_SOURCE: &str = "x-amz-copy-source";
/// Fields that are headers under their own names.
const HEADERS: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
];

/// How a form wants to be answered.
pub struct FormAnswer {
    location: String,
    bucket: String,
    key: String,
    status: StatusCode,
    redirect: Option<String>,
}

/// Whether a request is an upload by a form.
pub fn is_form(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::POST && boundary_of(headers).is_some()
}

impl Frontend {
    /// Reads a form up to its file, and turns the request into the PUT that it stands for.
    pub(super) async fn admit_form(
        &self,
        parts: &mut Parts,
        payload: Payload,
        peer: &Peer,
        id: &str,
    ) -> Result<(Admitted, Payload, FormAnswer), (S3Error, Payload)> {
        let mut payload = payload;
        match self.read_form(parts, &mut payload).await {
            Ok((fields, boundary, read, rest)) => match self.judge_form(parts, &fields, peer).await {
                Ok((admitted, range, answer)) => {
                    let read = read.slice(fields.start..);
                    let payload = payload.of_form(FileEnd::new(&boundary), read, rest, range);
                    match hash_of_file(&parts.headers) {
                        Ok(Some(hash)) => Ok((admitted, payload.hashed(hash), answer)),
                        Ok(None) => Ok((admitted, payload, answer)),
                        Err(error) => Err((error, payload)),
                    }
                }
                Err(error) => {
                    if let Ok(target) = self.target(&parts.uri, &parts.headers) {
                        self.audit(&error, &Method::POST, &target, peer, id).await;
                    }
                    Err((error, payload))
                }
            },
            Err(error) => Err((error, payload)),
        }
    }

    /// The fields of a form, its boundary, the bytes read, and how many follow the fields.
    async fn read_form(&self, parts: &Parts, payload: &mut Payload) -> S3Result<(Fields, String, bytes::Bytes, u64)> {
        self.check_head(&parts.uri, &parts.headers)?;
        let boundary = boundary_of(&parts.headers).transpose()?.unwrap_or_default();
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let length: u64 = length.ok_or_else(|| {
            refuse(S3ErrorCode::MissingContentLength, "You must provide the Content-Length HTTP header.")
        })?;
        payload.expect(length);
        let (mut read, mut look_at) = (Vec::new(), 0);
        loop {
            // Not at each piece: a sender of single bytes would have them parsed again and again.
            let piece = match read.len() >= look_at {
                true => None,
                false => payload.next().await?,
            };
            let Some(piece) = piece else {
                if let Some(fields) = read_fields(&read, &boundary)? {
                    let rest = length.saturating_sub(fields.start as u64);
                    return Ok((fields, boundary, read.into(), rest));
                }
                look_at = (2 * read.len()).clamp(read.len() + 1, FIELDS_MAX.max(read.len() + 1));
                match payload.next().await? {
                    Some(piece) => read.extend_from_slice(&piece),
                    None => {
                        return Err(refuse(
                            S3ErrorCode::MalformedPOSTRequest,
                            "The body of your POST request is not well-formed multipart/form-data: it ends before its file.",
                        ));
                    }
                }
                continue;
            };
            read.extend_from_slice(&piece);
        }
    }

    async fn judge_form(
        &self,
        parts: &mut Parts,
        fields: &Fields,
        peer: &Peer,
    ) -> S3Result<(Admitted, (u64, u64), FormAnswer)> {
        let posted = self.target(&parts.uri, &parts.headers)?;
        let bucket = posted.bucket.clone().filter(|_| !posted.object && posted.query.is_empty());
        let bucket = bucket.ok_or_else(super::subresource::not_allowed)?;
        let key = fields
            .get("key")
            .filter(|key| !key.is_empty())
            .ok_or_else(|| refuse(S3ErrorCode::InvalidArgument, "Bucket POST must contain a field named 'key'."))?;
        let mut range = (0, u64::MAX);
        let mut caller = Caller::anonymous();
        if let Some(policy) = SignedPolicy::of(fields)? {
            self.check_region(policy.region)?;
            let credentials = self.credentials(policy.access_key, policy.token).await?;
            policy.verify(&credentials.secret, &self.keys)?;
            let size = checked(&policy.document()?, &bucket, fields, (self.clock)())?;
            range = size.unwrap_or(range);
            caller = credentials.caller;
        }
        let mut path = b"/".to_vec();
        if !posted.by_host {
            path.extend_from_slice(bucket.as_bytes());
            path.push(b'/');
        }
        encode(&mut path, key.as_bytes(), true);
        let uri: Uri = String::from_utf8_lossy(&path)
            .parse()
            .map_err(|_| refuse(S3ErrorCode::KeyTooLongError, "Your key is too long: at most 1024 bytes of UTF-8."))?;
        receipt::refuse_own(&parts.headers)?;
        let headers = headers_of(fields, parts.headers.get(HOST))?;
        let answer = FormAnswer::of(fields, &bucket, key, &parts.headers, &uri, peer)?;
        let target: Target = self.target(&uri, &headers)?;
        parts.method = Method::PUT;
        parts.uri = uri;
        parts.headers = headers;
        Ok(((target, None, caller, None), range, answer))
    }
}

/// The SHA-256 that the form says of its file.
fn hash_of_file(headers: &HeaderMap) -> S3Result<Option<[u8; 32]>> {
    match unclaimed(headers)? {
        PayloadSigning::Unsigned => Ok(None),
        PayloadSigning::Sha256(hash) => Ok(Some(hash)),
        PayloadSigning::Chunks { .. } | PayloadSigning::UnsignedChunks => Err(refuse(
            S3ErrorCode::InvalidArgument,
            "The field x-amz-content-sha256 says that the file comes in chunks, and that of a form does not.",
        )),
    }
}

/// The headers of the PUT that a form stands for.
fn headers_of(fields: &Fields, host: Option<&HeaderValue>) -> S3Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(host) = host {
        headers.insert(HOST, host.clone());
    }
    for (name, value) in fields.iter() {
        let text;
        let (name, value) = match name {
            // It would make a copy of the upload, and its file would be read away.
            name if name.starts_with(COPY_SOURCE) => {
                return Err(refuse(
                    S3ErrorCode::InvalidArgument,
                    format!("The form has a field '{name}': a form uploads its file, and copies nothing."),
                ));
            }
            "acl" => ("x-amz-acl", value),
            "tagging" => {
                text = tags_of(value)?;
                ("x-amz-tagging", text.as_str())
            }
            name if HEADERS.contains(&name) => (name, value),
            name if name.starts_with("x-amz-") && !OF_SIGNATURE.contains(&name) => (name, value),
            // The PUT carries them out or refuses them.
            name if name.starts_with("x-stele-") => (name, value),
            _ => continue,
        };
        let invalid = || refuse(S3ErrorCode::InvalidArgument, format!("The field '{name}' of the form is invalid."));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        headers.insert(header, HeaderValue::from_str(value).map_err(|_| invalid())?);
    }
    Ok(headers)
}

/// The tags of a form's document, in the form of the header.
fn tags_of(document: &str) -> S3Result<String> {
    let tags = tags_in(document.as_bytes())?;
    let mut text = Vec::new();
    for (at, (name, value)) in tags.iter().enumerate() {
        if at > 0 {
            text.push(b'&');
        }
        encode(&mut text, name.as_bytes(), false);
        text.push(b'=');
        encode(&mut text, value.as_bytes(), false);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

impl FormAnswer {
    fn of(
        fields: &Fields,
        bucket: &str,
        key: &str,
        headers: &HeaderMap,
        uri: &Uri,
        peer: &Peer,
    ) -> S3Result<FormAnswer> {
        let status = match fields.get("success_action_status") {
            Some("200") => StatusCode::OK,
            Some("201") => StatusCode::CREATED,
            // As on AWS: any other value counts as the usual one.
            _ => StatusCode::NO_CONTENT,
        };
        let redirect = fields.get("success_action_redirect").or_else(|| fields.get("redirect"));
        let is_url = |url: &&str| {
            url.parse::<Uri>()
                .is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some())
        };
        let redirect = redirect.filter(|url| !url.is_empty() && is_url(url)).map(str::to_owned);
        let scheme = if peer.secure { "https" } else { "http" };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let location = format!("{scheme}://{host}{}", uri.path());
        Ok(FormAnswer { location, bucket: bucket.to_owned(), key: key.to_owned(), status, redirect })
    }

    /// Turns the answer of the PUT into that of the form.
    pub fn finish(self, response: &mut Response<Body>) {
        if response.status() != StatusCode::OK {
            return;
        }
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
        if let Some(url) = self.redirect {
            let mut query = Vec::new();
            for (name, value) in [("bucket", &self.bucket), ("key", &self.key), ("etag", &etag)] {
                query.push(if query.is_empty() && !url.contains('?') { b'?' } else { b'&' });
                query.extend_from_slice(name.as_bytes());
                query.push(b'=');
                encode(&mut query, value.as_bytes(), false);
            }
            if let Ok(url) = HeaderValue::from_str(&format!("{url}{}", String::from_utf8_lossy(&query))) {
                response.headers_mut().insert(LOCATION, url);
                *response.status_mut() = StatusCode::SEE_OTHER;
                return;
            }
        }
        *response.status_mut() = self.status;
        if let Ok(location) = HeaderValue::from_str(&self.location) {
            response.headers_mut().insert(LOCATION, location);
        }
        if self.status == StatusCode::CREATED {
            let document = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?><PostResponse><Location>{}</Location><Bucket>{}</Bucket><Key>{}</Key><ETag>{}</ETag></PostResponse>",
                escaped(&self.location),
                escaped(&self.bucket),
                escaped(&self.key),
                escaped(&etag)
            );
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(document.len()));
            *response.body_mut() = Body::from(bytes::Bytes::from(document));
        }
    }
}

fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}
