//! The parts that every answer gets: its ids, and an error document that names them.

use super::Frontend;
use crate::operation::Operation;
use crate::payload::Payload;
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue, SERVER};
use hyper::{Response, StatusCode};
use s3s::{Body, S3Error};
use std::time::Duration;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");

/// Number of bytes drained from an unwanted body, so that its sender can read the refusal.
const DRAIN_BYTES: u64 = 1 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// An error as its document.
pub fn refusal(error: S3Error) -> Response<Body> {
    let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    error.to_http_response().unwrap_or_else(|_| {
        // Writing a document of two short texts cannot fail; if it does, the status remains.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        response
    })
}

/// Handles the data that the client still sends after its answer is decided.
pub async fn read_away(response: &mut Response<Body>, rest: Option<Payload>) {
    let Some(mut payload) = rest else {
        return;
    };
    // A client that waits for `100 Continue` has sent nothing; draining would invite it to send.
    let read = !payload.awaits_invitation() && payload.drain(DRAIN_BYTES, DRAIN_TIME).await;
    if !read {
        end_connection(response);
    }
}

/// Ends the connection with this answer. It is also needed if a client that waited for an
/// invitation got an answer without one: botocore takes the status of that answer for the answer to
/// the next request on the connection.
pub fn end_connection(response: &mut Response<Body>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

impl Frontend {
    /// Adds the ids to an answer, and to its document if it is an error.
    pub fn finish(&self, response: &mut Response<Body>, id: &str, resource: &str, head: bool) {
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            name_error(response, id, resource, head);
        }
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(id) {
            headers.insert(HOST_ID, id.clone());
            headers.insert(REQUEST_ID, id);
        }
        headers.insert(SERVER, HeaderValue::from_static("Stele"));
    }
}

/// Corrects answers that the wire crate cannot express.
pub fn correct(operation: Operation, response: &mut Response<Body>) {
    let done = response.status() == StatusCode::OK;
    match operation {
        Operation::GetObjectAttributes => bare_etag(response),
        Operation::PutBucketTagging if done => *response.status_mut() = StatusCode::NO_CONTENT,
        Operation::HeadObject if done && response.headers().contains_key(CONTENT_RANGE) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        _ => {}
    }
}

/// Removes the quotes: GetObjectAttributes is the only operation whose entity tag has none.
fn bare_etag(response: &mut Response<Body>) {
    let Some(document) = response.body().bytes() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(&document) else {
        return;
    };
    let bare = ["\"", "&quot;"].iter().fold(text.to_owned(), |text, quote| {
        text.replace(&format!("<ETag>{quote}"), "<ETag>").replace(&format!("{quote}</ETag>"), "</ETag>")
    });
    if response.headers().contains_key(CONTENT_LENGTH) {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bare.len()));
    }
    *response.body_mut() = Body::from(bytes::Bytes::from(bare));
}

fn name_error(response: &mut Response<Body>, id: &str, resource: &str, head: bool) {
    if head {
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(CONTENT_TYPE);
        return;
    }
    let Some(document) = response.body().bytes() else {
        return;
    };
    const END: &[u8] = b"</Error>";
    let Some(front) = document.strip_suffix(END) else {
        return;
    };
    let mut whole = Vec::with_capacity(document.len() + resource.len() + 256);
    whole.extend_from_slice(front);
    if let Ok(front) = std::str::from_utf8(front)
        && !front.contains("<Message>")
    {
        // The wire crate refuses some requests with the code alone, which clients show as an
        // unknown error.
        let code =
            front.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map_or("", |(code, _)| code);
        whole.extend_from_slice(format!("<Message>{}</Message>", wording(code)).as_bytes());
    }
    whole.extend_from_slice(b"<Resource>");
    for byte in resource.bytes() {
        match byte {
            b'<' => whole.extend_from_slice(b"&lt;"),
            b'>' => whole.extend_from_slice(b"&gt;"),
            b'&' => whole.extend_from_slice(b"&amp;"),
            _ => whole.push(byte),
        }
    }
    whole.extend_from_slice(b"</Resource><RequestId>");
    whole.extend_from_slice(id.as_bytes());
    whole.extend_from_slice(b"</RequestId><HostId>");
    whole.extend_from_slice(id.as_bytes());
    whole.extend_from_slice(b"</HostId></Error>");
    *response.body_mut() = Body::from(whole);
}

// Messages for the codes that the wire crate uses without one.
fn wording(code: &str) -> &'static str {
    match code {
        "InvalidBucketName" => {
            "The specified bucket is not valid: a name has 3 to 63 lower-case letters, digits, dots and hyphens, and begins and ends with a letter or digit."
        }
        "KeyTooLongError" => "Your key is too long: at most 1024 bytes of UTF-8.",
        "InvalidURI" => "Couldn't parse the specified URI: it is not a path of a bucket and a key.",
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "NotImplemented" => "A header or query parameter you provided implies functionality that is not implemented.",
        "IncompleteBody" => "You did not provide the number of bytes specified by the Content-Length HTTP header.",
        "MalformedXML" => {
            "The XML you provided was not well-formed or did not validate against the schema of this operation."
        }
        "InvalidRequest" => {
            "The request is not valid for this operation: a parameter or header is missing or cannot be read."
        }
        "InvalidArgument" => "A parameter or header of the request has a value that cannot be read.",
        _ => "The request was refused before it reached the store; see the code.",
    }
}
