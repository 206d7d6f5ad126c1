//! The parts that every answer gets: its ids, and an error document that names them.

use super::Frontend;
use crate::operation::Operation;
use crate::payload::Payload;
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue, SERVER};
use hyper::{HeaderMap, Method, Response, StatusCode};
use s3s::{Body, S3Error};
use std::time::Duration;
use stele_archive::check_bucket_name;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");

/// Number of bytes drained from an unwanted body, so that its sender can read the refusal.
const DRAIN_BYTES: u64 = 1 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// The end of an error's document.
const END: &[u8] = b"</Error>";

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
            // Under a domain, the host may name the bucket.
            let bucket = resource.split('/').nth(1).filter(|_| self.settings.domains.is_empty());
            name_error(response, id, (resource, bucket), head);
        }
        if status == StatusCode::NOT_MODIFIED {
            // A cache takes the headers of this answer over into the answer that it has.
            *response.body_mut() = Body::empty();
            response.headers_mut().remove(CONTENT_TYPE);
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

/// The condition that is not met if this request is answered with 412, in the words of AWS. None:
/// it has none, or conditions of which each may fail by itself.
pub fn condition_of(method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    let stands = |name: &&'static str| headers.get(*name).is_some_and(|value| !value.is_empty());
    let first = |names: [&'static str; 2]| names.into_iter().find(stands);
    if *method == Method::GET {
        // Of each pair, the date counts only without the entity tag.
        return first(["If-Match", "If-Unmodified-Since"]);
    }
    let conditions = [
        Some("If-None-Match").filter(stands),
        Some("If-Match").filter(stands),
        first(["x-amz-copy-source-If-Match", "x-amz-copy-source-If-Unmodified-Since"]),
        first(["x-amz-copy-source-If-None-Match", "x-amz-copy-source-If-Modified-Since"]),
    ];
    let mut named = conditions.into_iter().flatten();
    named.next().filter(|_| named.next().is_none())
}

/// Names the condition in the document of a 412. Clients tell by it that a key exists already from
/// a key that has changed.
pub fn name_condition(condition: Option<&str>, response: &mut Response<Body>) {
    let document = response.body().bytes().filter(|_| response.status() == StatusCode::PRECONDITION_FAILED);
    let (Some(condition), Some(document)) = (condition, document) else {
        return;
    };
    if let Some(front) = document.strip_suffix(END) {
        let element = format!("<Condition>{condition}</Condition>");
        let whole = [front, element.as_bytes(), END].concat();
        *response.body_mut() = Body::from(bytes::Bytes::from(whole));
    }
}

/// Writes as references what a parser of XML does not read as it stands: it takes a carriage return
/// for a line feed, and most refuse other control characters, U+FFFE and U+FFFF. As on AWS, the key
/// of a listing is then at least written exactly. Only whole documents have any, and no object's
/// content is one.
pub fn refer_to_controls(operation: Operation, response: &mut Response<Body>) {
    let is_document = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/xml");
    let is_content = operation == Operation::GetObject && response.status().is_success();
    let Some(document) = response.body().bytes().filter(|_| is_document && !is_content) else {
        return;
    };
    let Some(whole) = std::str::from_utf8(&document).ok().filter(|text| text.contains(is_control)).map(referred) else {
        return;
    };
    if response.headers().contains_key(CONTENT_LENGTH) {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(whole.len()));
    }
    *response.body_mut() = Body::from(bytes::Bytes::from(whole));
}

fn is_control(letter: char) -> bool {
    matches!(letter, '\0'..' ' | '\u{fffe}' | '\u{ffff}') && !matches!(letter, '\t' | '\n')
}

fn referred(text: &str) -> String {
    let mut whole = String::with_capacity(text.len() + 64);
    for letter in text.chars() {
        match letter {
            '\r' => whole.push_str("&#13;"),
            letter if is_control(letter) => whole.push_str(&format!("&#x{:x};", u32::from(letter))),
            letter => whole.push(letter),
        }
    }
    whole
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

fn name_error(response: &mut Response<Body>, id: &str, (resource, bucket): (&str, Option<&str>), head: bool) {
    if head {
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(CONTENT_TYPE);
        return;
    }
    let Some(document) = response.body().bytes() else {
        return;
    };
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
        let why = bucket.filter(|_| code == "InvalidBucketName").and_then(why_no_bucket);
        let message = why.unwrap_or_else(|| wording(code).to_owned());
        let message = quick_xml::escape::escape(&message);
        whole.extend_from_slice(format!("<Message>{message}</Message>").as_bytes());
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

/// The rule that the name of a bucket breaks, if it breaks one.
fn why_no_bucket(bucket: &str) -> Option<String> {
    check_bucket_name(bucket).err().map(|error| format!("The specified bucket is not valid: {error}."))
}

// Messages for the codes that the wire crate uses without one.
fn wording(code: &str) -> &'static str {
    match code {
        "InvalidBucketName" => {
            "The specified bucket is not valid: a name has 3 to 63 lower-case letters, digits, dots and hyphens, and begins and ends with a letter or digit. It has no two dots in a row, does not begin with xn-- and is no IP address."
        }
        "KeyTooLongError" => "Your key is too long: at most 1024 bytes of UTF-8.",
        "InvalidURI" => "Couldn't parse the specified URI: it is not a path of a bucket and a key.",
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "NotImplemented" => "A header or query parameter you provided implies functionality that is not implemented.",
        "MissingRequestBodyError" => "Request body is empty: this operation takes an XML document.",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_bucket_is_refused_by_the_rule_it_breaks() {
        for (path, rule) in [
            ("/xn--abc", "reserved"),
            ("/192.168.1.1/key", "IP address"),
            ("/a..b/", "dots must stand"),
            ("/A", "3 to 63"),
        ] {
            let body = Body::from(bytes::Bytes::from("<Error><Code>InvalidBucketName</Code></Error>"));
            let mut response = Response::new(body);
            name_error(&mut response, "ID", (path, path.split('/').nth(1)), false);
            let body = response.body().bytes().unwrap_or_default();
            let text = String::from_utf8_lossy(&body).into_owned();
            assert!(text.contains(&format!("<Resource>{path}")) && text.contains(rule), "{text}");
        }
    }

    #[test]
    fn a_condition_is_named_if_it_is_the_one_that_failed() {
        let check = |method: Method, names: &[&'static str], named: Option<&str>| {
            let any = HeaderValue::from_static("*");
            let headers: HeaderMap =
                names.iter().copied().map(|name| (HeaderName::from_static(name), any.clone())).collect();
            assert_eq!(condition_of(&method, &headers), named, "{method} {names:?}");
        };
        check(Method::PUT, &["if-none-match"], Some("If-None-Match"));
        check(Method::POST, &["if-match"], Some("If-Match"));
        check(Method::DELETE, &["if-match"], Some("If-Match"));
        check(Method::GET, &["if-unmodified-since", "if-none-match"], Some("If-Unmodified-Since"));
        check(Method::GET, &["if-match", "if-unmodified-since"], Some("If-Match"));
        let (tag, other, date) =
            ("x-amz-copy-source-if-match", "x-amz-copy-source-if-none-match", "x-amz-copy-source-if-unmodified-since");
        check(Method::PUT, &[tag, date], Some("x-amz-copy-source-If-Match"));
        check(Method::PUT, &[date], Some("x-amz-copy-source-If-Unmodified-Since"));
        check(Method::PUT, &[other], Some("x-amz-copy-source-If-None-Match"));
        check(Method::PUT, &[tag, "if-none-match"], None);
        check(Method::PUT, &["content-type"], None);
    }

    #[test]
    fn a_control_character_in_a_document_is_a_reference() {
        let text = "<Key>a\rb\n\t\u{1}\0\u{ffff}\u{85}é</Key>";
        let sent = |operation: Operation, kind: &'static str| {
            let mut response = Response::new(Body::from(bytes::Bytes::from(text)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
            refer_to_controls(operation, &mut response);
            let body = response.body().bytes().unwrap_or_default();
            assert_eq!(response.headers().get(CONTENT_LENGTH), Some(&HeaderValue::from(body.len())));
            String::from_utf8_lossy(&body).into_owned()
        };
        let referred = "<Key>a&#13;b\n\t&#x1;&#x0;&#xffff;\u{85}é</Key>";
        assert_eq!(sent(Operation::ListObjectsV2, "application/xml"), referred);
        assert_eq!(sent(Operation::CompleteMultipartUpload, "application/xml"), referred);
        assert_eq!(sent(Operation::ListObjectsV2, "application/json"), text);
        assert_eq!(sent(Operation::GetObject, "application/xml"), text, "content is not touched");
    }
}
