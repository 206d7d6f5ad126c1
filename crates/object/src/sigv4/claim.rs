//! A request's claim about its sender, and the check of that claim.

use super::canonical::{self, Parts};
use super::chunk::{ChunkSigner, hex_lower};
use super::keys::SigningKeys;
use super::stamp::Stamp;
use crate::query::Query;
use crate::refusal::refuse;
use aws_lc_rs::{digest, hmac};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, DATE};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::time::{Duration, SystemTime};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The algorithm of Version 4A.
const ALGORITHM_4A: &str = "AWS4-ECDSA-P256-SHA256";
/// Largest deviation of a client's clock, as on AWS.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);
/// The header with the token of a session.
const TOKEN: &str = "x-amz-security-token";
/// The longest validity of a presigned URL.
const PRESIGNED_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// The protection of the payload, as `x-amz-content-sha256` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadSigning {
    /// No signature: TLS or a checksum must protect it.
    Unsigned,
    /// The whole payload has this SHA-256.
    Sha256([u8; 32]),
    /// aws-chunked, every chunk signed, with a signed trailer if `trailer`.
    Chunks { trailer: bool },
    /// aws-chunked, unsigned, with a trailer for a checksum at the end.
    UnsignedChunks,
}

/// The claimed sender of a request, and the signature as proof.
pub struct Claim {
    /// The named access key.
    pub access_key: String,
    /// The region of the signing scope.
    pub region: String,
    /// The protection of the payload.
    pub payload: PayloadSigning,
    /// The token of a session, if the sender has temporary credentials.
    pub token: Option<String>,
    /// Whether the query carried the claim.
    pub presigned: bool,
    service: String,
    stamp: Stamp,
    signed_headers: String,
    signature: String,
    payload_text: String,
    expires: Option<Duration>,
}

impl Claim {
    /// The claim of a request; `None` for an anonymous request.
    pub fn of(headers: &HeaderMap, query: &Query) -> S3Result<Option<Claim>> {
        if query.has("X-Amz-Algorithm") || query.has("X-Amz-Signature") {
            if headers.contains_key(AUTHORIZATION) {
                return Err(refuse(
                    S3ErrorCode::InvalidArgument,
                    "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter or the Authorization header should be specified",
                ));
            }
            return from_query(headers, query).map(Some);
        }
        if query.has("Signature") && query.has("AWSAccessKeyId") {
            return Err(version_two());
        }
        match headers.get(AUTHORIZATION) {
            Some(value) => {
                let text = value.to_str().map_err(|_| malformed("it is not ASCII"))?;
                from_header(text, headers, "s3").map(Some)
            }
            None => Ok(None),
        }
    }

    /// The claim of a request to the service `sts`, whose document `cover` adds before it is
    /// verified.
    pub fn of_sts(headers: &HeaderMap) -> S3Result<Claim> {
        let missing = || refuse(S3ErrorCode::AccessDenied, "Access Denied: this request must be signed.");
        let text = headers.get(AUTHORIZATION).ok_or_else(missing)?;
        let text = text.to_str().map_err(|_| malformed("it is not ASCII"))?;
        from_header(text, headers, "sts")
    }

    /// Makes the claim one to have signed this document. Clients of `sts` need not send its hash;
    /// one that they send must be the right one.
    pub fn cover(&mut self, document: &[u8], headers: &HeaderMap) -> S3Result<()> {
        let hash = hex_lower(digest::digest(&digest::SHA256, document).as_ref());
        if headers.get_all("x-amz-content-sha256").iter().any(|sent| sent.as_bytes() != hash.as_bytes()) {
            return Err(crate::refusal::payload_hash_mismatch());
        }
        self.payload_text = hash;
        Ok(())
    }

    /// Checks the claim against the sender's secret. For a signed chunked payload it returns the
    /// chain that verifies the chunks.
    pub fn verify(&self, secret: &str, keys: &SigningKeys, parts: &Parts<'_>) -> S3Result<Option<ChunkSigner>> {
        self.check_coverage(parts.headers)?;
        let key = keys.key(&self.access_key, secret, self.stamp.date(), &self.region, &self.service);
        let mut encoded = Vec::with_capacity(parts.raw_path.len());
        canonical::encode(&mut encoded, parts.path.as_bytes(), true);
        // Some clients sign the path as they send it, with unencoded reserved characters.
        let genuine = self.matches(&key, parts, &encoded)
            || (encoded != parts.raw_path.as_bytes() && self.matches(&key, parts, parts.raw_path.as_bytes()));
        if !genuine {
            return Err(refuse(
                S3ErrorCode::SignatureDoesNotMatch,
                "The request signature we calculated does not match the signature you provided. Check your key and signing method.",
            ));
        }
        let chained = matches!(self.payload, PayloadSigning::Chunks { .. });
        Ok(chained.then(|| ChunkSigner::new(key, self.stamp, &self.region, &self.service, &self.signature)))
    }

    /// Refuses a claim that is too old, too far ahead, or past its expiry.
    pub fn check_time(&self, now: SystemTime) -> S3Result<()> {
        let signed = self.stamp.instant();
        let ahead = signed.duration_since(now).unwrap_or_default();
        let age = now.duration_since(signed).unwrap_or_default();
        let stale = self.expires.is_none() && age > SKEW_MAX;
        if ahead > SKEW_MAX || stale {
            return Err(refuse(
                S3ErrorCode::RequestTimeTooSkewed,
                "The difference between the request time and the server's time is too large.",
            ));
        }
        if self.expires.is_some_and(|life| age > life) {
            return Err(refuse(S3ErrorCode::AccessDenied, "Request has expired"));
        }
        Ok(())
    }

    // Anyone on the way could add an unsigned header, for example to extend a retention, to bypass
    // one, or to name a class.
    fn check_coverage(&self, headers: &HeaderMap) -> S3Result<()> {
        let signed = |name: &str| self.signed_headers.split(';').any(|found| found == name);
        let uncovered = headers.keys().map(|name| name.as_str()).find(|name| {
            let matters = name.starts_with("x-amz-") || name.starts_with("x-stele-") || *name == "host";
            // On a presigned URL without a payload hash this header only adds a check, so it may be
            // unsigned.
            let harmless = self.presigned && *name == "x-amz-content-sha256";
            matters && !harmless && !signed(name)
        });
        match uncovered {
            None => Ok(()),
            Some(name) => Err(refuse(
                S3ErrorCode::AccessDenied,
                format!("There were headers present in the request which were not signed: {name}"),
            )),
        }
    }

    fn matches(&self, key: &hmac::Key, parts: &Parts<'_>, encoded_path: &[u8]) -> bool {
        let Some(canonical) =
            canonical::request(parts, encoded_path, &self.signed_headers, &self.payload_text, self.presigned)
        else {
            return false;
        };
        let hash = hex_lower(digest::digest(&digest::SHA256, &canonical).as_ref());
        let mut context = hmac::Context::with_key(key);
        let pieces = [
            ALGORITHM,
            "\n",
            self.stamp.text(),
            "\n",
            self.stamp.date(),
            "/",
            &self.region,
            "/",
            &self.service,
            "/aws4_request\n",
            &hash,
        ];
        for piece in pieces {
            context.update(piece.as_bytes());
        }
        let expected = hex_lower(context.sign().as_ref());
        aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_bytes(), self.signature.as_bytes()).is_ok()
    }
}

fn malformed(why: &str) -> S3Error {
    refuse(S3ErrorCode::AuthorizationHeaderMalformed, format!("The authorization header is malformed; {why}."))
}

/// The refusal of Signature Version 2, with the way out of those clients that still presign with
/// it.
pub fn version_two() -> S3Error {
    refuse(
        S3ErrorCode::InvalidRequest,
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256. (aws-cli version 1 and boto3 presign with Signature Version 2 unless told otherwise: aws configure set default.s3.signature_version s3v4, or botocore.config.Config(signature_version='s3v4'))",
    )
}

fn version_four_a() -> S3Error {
    refuse(S3ErrorCode::NotImplemented, "Signature Version 4A is not implemented; sign with AWS4-HMAC-SHA256.")
}

struct Scope {
    access_key: String,
    date: String,
    region: String,
    service: String,
}

// `AKID/20130524/us-east-1/s3/aws4_request`; the access key itself may contain slashes.
fn scope(credential: &str, expected: &str) -> Result<Scope, &'static str> {
    let mut parts = credential.rsplitn(5, '/');
    let (terminal, service, region, date, access_key) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next());
    let (Some(terminal), Some(service), Some(region), Some(date), Some(access_key)) =
        (terminal, service, region, date, access_key)
    else {
        return Err("the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"");
    };
    if terminal != "aws4_request" {
        return Err("the Credential must end in \"aws4_request\"");
    }
    if service != expected {
        return Err(match expected {
            "s3" => "the service in the Credential must be \"s3\"",
            _ => "the service in the Credential must be \"sts\"",
        });
    }
    if access_key.is_empty() || access_key.len() > 128 {
        return Err("the Credential names no access key");
    }
    Ok(Scope {
        access_key: access_key.to_owned(),
        date: date.to_owned(),
        region: region.to_owned(),
        service: service.to_owned(),
    })
}

fn from_header(text: &str, headers: &HeaderMap, service: &str) -> S3Result<Claim> {
    if text.starts_with("AWS ") {
        return Err(version_two());
    }
    if text.starts_with(ALGORITHM_4A) {
        return Err(version_four_a());
    }
    let Some(rest) = text.strip_prefix(ALGORITHM) else {
        return Err(refuse(
            S3ErrorCode::InvalidArgument,
            "Unsupported Authorization Type; only AWS4-HMAC-SHA256 is accepted",
        ));
    };
    let (mut credential, mut signed_headers, mut signature) = (None, None, None);
    for field in rest.split(',') {
        match field.trim().split_once('=') {
            Some(("Credential", value)) => credential = Some(value),
            Some(("SignedHeaders", value)) => signed_headers = Some(value),
            Some(("Signature", value)) => signature = Some(value),
            _ => return Err(malformed("it has a field other than Credential, SignedHeaders and Signature")),
        }
    }
    let credential = credential.ok_or_else(|| malformed("it lacks Credential"))?;
    let signed_headers = signed_headers.ok_or_else(|| malformed("it lacks SignedHeaders"))?;
    let signature = signature.ok_or_else(|| malformed("it lacks Signature"))?;
    let scope = scope(credential, service).map_err(malformed)?;
    let stamp = stamp_of(headers)?;
    if scope.date != stamp.date() {
        return Err(malformed("the date in the Credential is not that of x-amz-date"));
    }
    // Only clients of S3 have to state the hash of the payload.
    let unstated = (service != "s3").then_some("UNSIGNED-PAYLOAD");
    let Some(payload_text) = text_header(headers, "x-amz-content-sha256").or(unstated) else {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            "Missing required header for this request: x-amz-content-sha256",
        ));
    };
    Ok(Claim {
        access_key: scope.access_key,
        region: scope.region,
        payload: payload_of(payload_text)?,
        token: text_header(headers, TOKEN).map(str::to_owned),
        presigned: false,
        service: scope.service,
        stamp,
        signed_headers: signed_headers.to_owned(),
        signature: signature.to_owned(),
        payload_text: payload_text.to_owned(),
        expires: None,
    })
}

fn from_query(headers: &HeaderMap, query: &Query) -> S3Result<Claim> {
    let wrong = |why: &str| refuse(S3ErrorCode::AuthorizationQueryParametersError, why.to_owned());
    let field = |name: &str| {
        query.get(name).ok_or_else(|| {
            wrong(
                "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
            )
        })
    };
    let algorithm = field("X-Amz-Algorithm")?;
    if algorithm == ALGORITHM_4A {
        return Err(version_four_a());
    }
    if algorithm != ALGORITHM {
        return Err(wrong("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
    }
    let scope = scope(field("X-Amz-Credential")?, "s3")
        .map_err(|why| wrong(&format!("Error parsing the X-Amz-Credential parameter; {why}.")))?;
    let stamp = Stamp::parse(field("X-Amz-Date")?)
        .ok_or_else(|| wrong("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""))?;
    if scope.date != stamp.date() {
        return Err(wrong("Invalid credential date; it is not that of X-Amz-Date."));
    }
    let expires = field("X-Amz-Expires")?;
    let seconds: u64 = match expires.strip_prefix('-').unwrap_or(expires).parse() {
        Err(_) => return Err(wrong("X-Amz-Expires should be a number")),
        Ok(_) if expires.starts_with('-') => {
            return Err(wrong("X-Amz-Expires must be non-negative"));
        }
        Ok(seconds) if seconds > PRESIGNED_SECONDS_MAX => {
            return Err(wrong(
                "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds",
            ));
        }
        Ok(seconds) => seconds,
    };
    // The payload is unknown when the URL is signed, unless its hash was made part of the query. A
    // hash in the query was signed, so no header can override it.
    let named = query.get("X-Amz-Content-Sha256");
    let hoisted = named.unwrap_or("UNSIGNED-PAYLOAD");
    let sent = text_header(headers, "x-amz-content-sha256");
    let several = headers.get_all("x-amz-content-sha256").iter().count() > 1;
    if several || named.is_some() && headers.contains_key("x-amz-content-sha256") && sent != named {
        return Err(refuse(
            S3ErrorCode::AccessDenied,
            "The header x-amz-content-sha256 says something else than the payload hash that was signed.",
        ));
    }
    let payload = payload_of(sent.unwrap_or(hoisted))?;
    if matches!(payload, PayloadSigning::Chunks { .. }) {
        return Err(refuse(S3ErrorCode::NotImplemented, "A presigned URL cannot carry signed chunks."));
    }
    let signed_headers = field("X-Amz-SignedHeaders")?;
    let covered = signed_headers.split(';').any(|name| name == "x-amz-content-sha256");
    let payload_text = match text_header(headers, "x-amz-content-sha256") {
        Some(sent) if covered => sent,
        _ => hoisted,
    };
    Ok(Claim {
        access_key: scope.access_key,
        region: scope.region,
        payload,
        token: token_of(headers, query)?,
        presigned: true,
        service: scope.service,
        stamp,
        signed_headers: signed_headers.to_owned(),
        signature: field("X-Amz-Signature")?.to_owned(),
        payload_text: payload_text.to_owned(),
        expires: Some(Duration::from_secs(seconds)),
    })
}

// A token in a header that is signed counts as one in the query does. Two of them must be one.
fn token_of(headers: &HeaderMap, query: &Query) -> S3Result<Option<String>> {
    match (query.get("X-Amz-Security-Token"), text_header(headers, TOKEN)) {
        (Some(named), Some(sent)) if named != sent => {
            Err(refuse(S3ErrorCode::InvalidToken, "The provided token is malformed or otherwise invalid."))
        }
        (named, sent) => Ok(named.or(sent).map(str::to_owned)),
    }
}

fn text_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn stamp_of(headers: &HeaderMap) -> S3Result<Stamp> {
    let required =
        || refuse(S3ErrorCode::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header");
    if let Some(text) = text_header(headers, "x-amz-date") {
        return Stamp::parse(text).ok_or_else(required);
    }
    let date = headers.get(DATE).and_then(|value| value.to_str().ok()).ok_or_else(required)?;
    let instant = httpdate::parse_http_date(date).map_err(|_| required())?;
    Ok(Stamp::of(instant))
}

/// What the header `x-amz-content-sha256` says of the body.
pub fn payload_of(text: &str) -> S3Result<PayloadSigning> {
    match text {
        "UNSIGNED-PAYLOAD" => Ok(PayloadSigning::Unsigned),
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(PayloadSigning::UnsignedChunks),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Ok(PayloadSigning::Chunks { trailer: false }),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Ok(PayloadSigning::Chunks { trailer: true }),
        "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" | "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER" => {
            Err(version_four_a())
        }
        _ => {
            let mut hash = [0u8; 32];
            let decoded = (text.len() == 64)
                .then(|| hex_simd::decode(text.as_bytes(), hex_simd::Out::from_slice(&mut hash)).is_ok());
            if decoded != Some(true) {
                return Err(refuse(
                    S3ErrorCode::InvalidArgument,
                    "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.",
                ));
            }
            Ok(PayloadSigning::Sha256(hash))
        }
    }
}
