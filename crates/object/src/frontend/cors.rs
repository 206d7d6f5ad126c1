//! Requests from the pages of other origins: the browser's question before a request, and the
//! headers of answers.

use super::{Frontend, answer};
use crate::query::decode;
use crate::refusal::refuse;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN, VARY,
};
use hyper::{HeaderMap, Response, Uri};
use s3s::{Body, S3Error, S3ErrorCode};
use stele_archive::CorsRule;

/// Headers that a browser may ask about at once.
const HEADERS_MAX: usize = 100;

/// The origin of a request, and the method and headers that are to be allowed.
pub struct Crossing {
    bucket: String,
    origin: String,
    method: String,
}

impl Frontend {
    /// Answers a browser's question whether it may send a request (OPTIONS).
    pub(super) fn preflight(&self, uri: &Uri, headers: &HeaderMap) -> Response<Body> {
        match self.judge_preflight(uri, headers) {
            Ok(response) => response,
            Err(error) => answer::refusal(error),
        }
    }

    fn judge_preflight(&self, uri: &Uri, headers: &HeaderMap) -> Result<Response<Body>, S3Error> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let missing = |what: &str| {
            refuse(S3ErrorCode::InvalidRequest, format!("Insufficient information. {what} request header needed."))
        };
        let origin = text(ORIGIN).ok_or_else(|| missing("Origin"))?;
        let method = text(ACCESS_CONTROL_REQUEST_METHOD).ok_or_else(|| missing("Access-Control-Request-Method"))?;
        let asked: Vec<String> = text(ACCESS_CONTROL_REQUEST_HEADERS)
            .unwrap_or_default()
            .split(',')
            .map(|name| name.trim().to_ascii_lowercase())
            .filter(|name| !name.is_empty())
            .take(HEADERS_MAX + 1)
            .collect();
        let not_allowed = || {
            let mut error = S3Error::with_message(
                S3ErrorCode::Custom("AccessForbidden".into()),
                "CORSResponse: This CORS request is not allowed. This is usually because the evaluation of Origin, request method / Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.",
            );
            error.set_status_code(hyper::StatusCode::FORBIDDEN);
            error
        };
        if asked.len() > HEADERS_MAX {
            return Err(not_allowed());
        }
        let names: Vec<&str> = asked.iter().map(String::as_str).collect();
        let bucket = self.bucket_named(uri, headers).ok_or_else(not_allowed)?;
        let rule = self.archive.cors_rule(&bucket, origin, method, &names).ok_or_else(not_allowed)?;
        let mut response = Response::new(Body::empty());
        let into = response.headers_mut();
        allow(into, &rule, origin);
        if !asked.is_empty() {
            set(into, ACCESS_CONTROL_ALLOW_HEADERS, &asked.join(", "));
        }
        if let Some(seconds) = rule.max_age {
            into.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(seconds));
        }
        Ok(response)
    }

    /// A request from another origin, if it is one.
    pub(super) fn crossing(&self, method: &str, uri: &Uri, headers: &HeaderMap) -> Option<Crossing> {
        let origin = headers.get(ORIGIN)?.to_str().ok()?.to_owned();
        Some(Crossing { bucket: self.bucket_named(uri, headers)?, origin, method: method.to_owned() })
    }

    /// Adds the headers by which the browser lets the page read an answer.
    pub(super) fn cross(&self, crossing: &Crossing, response: &mut Response<Body>) {
        if let Some(rule) = self.archive.cors_rule(&crossing.bucket, &crossing.origin, &crossing.method, &[]) {
            allow(response.headers_mut(), &rule, &crossing.origin);
        }
    }

    pub(super) fn bucket_named(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        if let Some(bucket) = self.bucket_of_host(headers) {
            return Some(bucket);
        }
        let path = decode(uri.path(), false)?;
        let bucket = path.trim_start_matches('/').split('/').next()?;
        (!bucket.is_empty()).then(|| bucket.to_owned())
    }
}

fn allow(headers: &mut HeaderMap, rule: &CorsRule, origin: &str) {
    if rule.allows_every_origin() {
        set(headers, ACCESS_CONTROL_ALLOW_ORIGIN, "*");
    } else {
        set(headers, ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        set(headers, ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    set(headers, ACCESS_CONTROL_ALLOW_METHODS, &rule.methods.join(", "));
    if !rule.exposed.is_empty() {
        set(headers, ACCESS_CONTROL_EXPOSE_HEADERS, &rule.exposed.join(", "));
    }
    set(headers, VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // The archive lets only visible ASCII into a rule, and the request's own values arrived as
    // headers.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
