//! What a request asks of a bucket's policy: its actions, and the facts for the conditions.
//!
//! The frontend asks before it routes a request, with the bucket and key that the wire crate will
//! find. The archive judges.

use super::Frontend;
use crate::query::{Query, decode};
use crate::refusal::{refuse, translated};
use crate::serve::Peer;
use crate::sigv4::Claim;
use crate::wire::{only, plain_elements};
use hyper::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, REFERER, USER_AGENT};
use hyper::{HeaderMap, Method, Uri};
use s3s::dto::CopySource;
use s3s::path::{S3Path, parse_path_style};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use stele_archive::{Actor, ArchiveError, Caller, PolicyRequest, RequestFacts, Timestamp, VersionId};

/// Headers that are condition keys as they stand, with `s3:` before their names.
const HEADERS: [&str; 5] = [
    "x-amz-acl",
    "x-amz-content-sha256",
    "x-amz-metadata-directive",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-customer-algorithm",
];

/// Subresources that decide about the operation on an object, with the actions of GET, PUT and
/// DELETE. Of an action with two names the second is for a named version.
const OF_OBJECTS: [(&str, [&[&str]; 3]); 5] = [
    ("acl", [&["GetObjectAcl", "GetObjectVersionAcl"], &["PutObjectAcl", "PutObjectVersionAcl"], &[]]),
    ("attributes", [&["GetObjectAttributes", "GetObjectVersionAttributes"], &[], &[]]),
    ("legal-hold", [&["GetObjectLegalHold"], &["PutObjectLegalHold"], &[]]),
    ("retention", [&["GetObjectRetention"], &["PutObjectRetention"], &[]]),
    (
        "tagging",
        [
            &["GetObjectTagging", "GetObjectVersionTagging"],
            &["PutObjectTagging", "PutObjectVersionTagging"],
            &["DeleteObjectTagging", "DeleteObjectVersionTagging"],
        ],
    ),
];

/// The same for buckets. AWS has one action for setting and removing most settings.
const OF_BUCKETS: [(&str, [&str; 3]); 22] = [
    ("accelerate", ["GetAccelerateConfiguration", "", ""]),
    ("acl", ["GetBucketAcl", "PutBucketAcl", ""]),
    ("cors", ["GetBucketCORS", "PutBucketCORS", "PutBucketCORS"]),
    ("encryption", ["GetEncryptionConfiguration", "PutEncryptionConfiguration", "PutEncryptionConfiguration"]),
    ("inventory", ["GetInventoryConfiguration", "PutInventoryConfiguration", "PutInventoryConfiguration"]),
    ("lifecycle", ["GetLifecycleConfiguration", "PutLifecycleConfiguration", "PutLifecycleConfiguration"]),
    ("location", ["GetBucketLocation", "", ""]),
    ("logging", ["GetBucketLogging", "PutBucketLogging", ""]),
    ("notification", ["GetBucketNotification", "PutBucketNotification", ""]),
    ("object-lock", ["GetBucketObjectLockConfiguration", "PutBucketObjectLockConfiguration", ""]),
    ("ownershipControls", ["GetBucketOwnershipControls", "PutBucketOwnershipControls", "PutBucketOwnershipControls"]),
    ("policy", ["GetBucketPolicy", "PutBucketPolicy", "DeleteBucketPolicy"]),
    ("policyStatus", ["GetBucketPolicyStatus", "", ""]),
    ("publicAccessBlock", ["GetBucketPublicAccessBlock", "PutBucketPublicAccessBlock", "PutBucketPublicAccessBlock"]),
    ("replication", ["GetReplicationConfiguration", "PutReplicationConfiguration", "PutReplicationConfiguration"]),
    ("requestPayment", ["GetBucketRequestPayment", "", ""]),
    ("tagging", ["GetBucketTagging", "PutBucketTagging", "PutBucketTagging"]),
    ("uploads", ["ListBucketMultipartUploads", "", ""]),
    ("versioning", ["GetBucketVersioning", "PutBucketVersioning", ""]),
    ("versions", ["ListBucketVersions", "", ""]),
    ("website", ["GetBucketWebsite", "", ""]),
    // Each key is judged by itself.
    ("delete", ["", "", ""]),
];

/// The parts of a request that its policy may speak of.
pub struct Asked<'r> {
    pub method: &'r Method,
    /// As the wire crate routes it.
    pub uri: &'r Uri,
    pub query: &'r Query,
    pub headers: &'r HeaderMap,
    pub claim: Option<&'r Claim>,
    /// The request is an upload by a form.
    pub form: bool,
    pub peer: &'r Peer,
    /// The document, if the request has one.
    pub document: &'r [u8],
}

/// A request that the policies let pass.
pub struct Policed {
    /// With the access that they add.
    pub caller: Caller,
    /// By which they judged, if one did.
    pub facts: Option<Arc<RequestFacts>>,
    /// The source of the copy had no tags when they judged, and the copy takes none.
    pub untagged: bool,
}

impl Policed {
    fn by_none(caller: Caller) -> Policed {
        Policed { caller, facts: None, untagged: false }
    }
}

/// The source of a copy.
struct Source {
    bucket: String,
    key: String,
    version: Option<VersionId>,
}

impl Source {
    fn of(asked: &Asked<'_>) -> Option<Source> {
        let header = asked.headers.get("x-amz-copy-source")?.to_str().ok()?;
        // The operation refuses the others.
        let Ok(CopySource::Bucket { bucket, key, version_id }) = CopySource::parse(header) else { return None };
        let version = version_id.as_deref().and_then(|text| VersionId::parse(text).ok());
        Some(Source { bucket: bucket.to_string(), key: key.to_string(), version })
    }
}

/// Whether a copy takes the tags of its source: a part has none, and the request may have others.
fn takes_tags(asked: &Asked<'_>) -> bool {
    let directive = value_of(asked.headers, &HeaderName::from_static("x-amz-tagging-directive"));
    directive != Some("REPLACE") && !asked.query.has("uploadId")
}

impl Frontend {
    /// Lets the policies of the buckets that a request touches judge it.
    pub(super) async fn policed(&self, caller: Caller, asked: Asked<'_>) -> S3Result<Policed> {
        let path = decode(asked.uri.path(), false);
        // The wire crate refuses a path that cannot be parsed.
        let Some(Ok(path)) = path.as_deref().map(parse_path_style) else { return Ok(Policed::by_none(caller)) };
        let place = match &path {
            S3Path::Root if caller.session.is_none() => return Ok(Policed::by_none(caller)),
            S3Path::Root => {
                let facts = self.facts(&caller, &asked)?;
                let listed = self.archive.permit_outside(&caller, "ListAllMyBuckets", &facts).await;
                return listed.map(|()| Policed::by_none(caller)).map_err(translated);
            }
            S3Path::Bucket { bucket } => (bucket.as_ref(), None),
            S3Path::Object { bucket, key } => (bucket.as_ref(), Some(key.as_ref())),
        };
        let source = Source::of(&asked);
        let judged = self.judged(&caller, &asked, place, source.as_ref(), false).await?;
        let is_judged = judged.facts.is_some();
        let Some(source) = source.filter(|_| is_judged && takes_tags(&asked)) else { return Ok(judged) };
        match self.objects.tags(&judged.caller, &source.bucket, &source.key, source.version).await {
            Ok((tags, _)) if tags.is_empty() => Ok(Policed { untagged: true, ..judged }),
            Ok(_) => self.judged(&caller, &asked, place, Some(&source), true).await,
            Err(error @ ArchiveError::Denied(_)) => Err(translated(error)),
            // The copy says what is wrong. A source that comes meanwhile may have tags.
            Err(_) => Ok(Policed { untagged: true, ..judged }),
        }
    }

    /// As on AWS, the copy of a source with tags takes the rights to read and to write tags too.
    async fn judged(
        &self,
        caller: &Caller,
        asked: &Asked<'_>,
        (bucket, key): (&str, Option<&str>),
        source: Option<&Source>,
        tagged: bool,
    ) -> S3Result<Policed> {
        let mut policed = Policed::by_none(caller.clone());
        if self.archive.is_policed(caller, bucket) {
            let all = self.facts(caller, asked)?;
            let mut requests = requests(asked, key)?;
            if tagged {
                requests.push(PolicyRequest { action: "PutObjectTagging", key, version: None, prefix: "" });
            }
            let is_batch = *asked.method == Method::POST && key.is_none() && asked.query.has("delete");
            if !is_batch || !requests.is_empty() {
                let permitted = self.archive.permit(caller, bucket, &requests, all.clone()).await;
                policed.caller = permitted.map_err(translated)?;
            }
            policed.facts = Some(Arc::new(all));
        }
        if let Some(source) = source
            && self.archive.is_policed(&policed.caller, &source.bucket)
        {
            let mut actions = vec![if source.version.is_some() { "GetObjectVersion" } else { "GetObject" }];
            if tagged {
                actions.push(if source.version.is_some() { "GetObjectVersionTagging" } else { "GetObjectTagging" });
            }
            let request =
                |action| PolicyRequest { action, key: Some(&source.key), version: source.version, prefix: "" };
            let requests: Vec<PolicyRequest<'_>> = actions.into_iter().map(request).collect();
            let all = self.facts(&policed.caller, asked)?;
            let permitted = self.archive.permit(&policed.caller, &source.bucket, &requests, all.clone()).await;
            policed = Policed { caller: permitted.map_err(translated)?, facts: Some(Arc::new(all)), untagged: false };
        }
        Ok(policed)
    }

    /// Lets the policy of a bucket judge a request of another protocol by these actions. Returns
    /// the caller with the access that it adds.
    pub(crate) async fn policed_as(
        &self,
        caller: Caller,
        peer: &Peer,
        bucket: &str,
        (key, prefix): (Option<&str>, &str),
        actions: &[&'static str],
    ) -> S3Result<Caller> {
        if !self.archive.is_policed(&caller, bucket) {
            return Ok(caller);
        }
        // What S3 has in its headers and parameters, this request does not have.
        let asked = Asked {
            method: &Method::GET,
            uri: &Uri::default(),
            query: &Query::default(),
            headers: &HeaderMap::new(),
            claim: None,
            peer,
            document: &[],
            form: false,
        };
        let mut facts = self.facts(&caller, &asked)?;
        if key.is_none() {
            facts.set("s3:prefix", prefix);
        }
        let requests: Vec<PolicyRequest<'_>> =
            actions.iter().map(|action| PolicyRequest { action, key, version: None, prefix }).collect();
        self.archive.permit(&caller, bucket, &requests, facts).await.map_err(translated)
    }

    fn facts(&self, caller: &Caller, asked: &Asked<'_>) -> S3Result<RequestFacts> {
        let mut facts = RequestFacts::default();
        let now = (self.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        facts.set("aws:CurrentTime", stele_ground::calendar::moment(now));
        facts.set("aws:EpochTime", now.to_string());
        facts.set("aws:SecureTransport", asked.peer.secure.to_string());
        if let Some(address) = asked.peer.address {
            facts.set("aws:SourceIp", address.ip().to_canonical().to_string());
        }
        if let Actor::Key(id) = &caller.actor {
            facts.set("aws:username", id.clone());
            facts.set("aws:userid", id.clone());
        }
        if let Some(claim) = asked.claim {
            facts.set("s3:signatureversion", "AWS4-HMAC-SHA256");
            facts.set("s3:authType", if claim.presigned { "REST-QUERY-STRING" } else { "REST-HEADER" });
        }
        if asked.form {
            facts.set("s3:authType", "POST");
            // A form without a signature has no key.
            if matches!(caller.actor, Actor::Key(_)) {
                facts.set("s3:signatureversion", "AWS4-HMAC-SHA256");
            }
        }
        let header = |name: HeaderName| value_of(asked.headers, &name);
        for (name, key) in [
            (USER_AGENT, "aws:UserAgent"),
            (REFERER, "aws:Referer"),
            (IF_MATCH, "s3:if-match"),
            (IF_NONE_MATCH, "s3:if-none-match"),
        ] {
            if let Some(value) = header(name) {
                facts.set(key, value);
            }
        }
        for name in HEADERS {
            if let Some(value) = header(HeaderName::from_static(name)) {
                facts.set(&format!("s3:{name}"), value);
            }
        }
        if let Some(source) = header(HeaderName::from_static("x-amz-copy-source")) {
            facts.set("s3:x-amz-copy-source", source_named(source));
        }
        if let Some(prefix) = asked.query.get("prefix") {
            facts.set("s3:prefix", prefix);
        }
        // An empty one has no effect, as an empty header. An empty prefix is one that policies
        // name.
        for (name, key) in [("delimiter", "s3:delimiter"), ("max-keys", "s3:max-keys"), ("versionId", "s3:VersionId")] {
            if let Some(value) = asked.query.get(name).filter(|value| !value.is_empty()) {
                facts.set(key, value);
            }
        }
        self.add_lock(&mut facts, asked, now)?;
        add_tags(&mut facts, asked)?;
        Ok(facts)
    }

    /// The retention and hold that the request asks for, by its headers or its document.
    fn add_lock(&self, facts: &mut RequestFacts, asked: &Asked<'_>, now: u64) -> S3Result<()> {
        let (mut mode, mut until, mut hold) = (None, None, None);
        if asked.query.has("retention") || asked.query.has("legal-hold") {
            // What the operation reads, and nothing else: its headers have no effect.
            let elements = plain_elements(asked.document)?;
            only(
                &elements,
                &["Retention", "Retention/Mode", "Retention/RetainUntilDate", "LegalHold", "LegalHold/Status"],
            )?;
            for element in elements {
                match element.path.as_str() {
                    "Retention/Mode" => once(&mut mode, element.text)?,
                    "Retention/RetainUntilDate" => once(&mut until, element.text)?,
                    "LegalHold/Status" => once(&mut hold, element.text)?,
                    _ => {}
                }
            }
        } else {
            let header =
                |name: &'static str| value_of(asked.headers, &HeaderName::from_static(name)).map(str::to_owned);
            mode = header("x-amz-object-lock-mode");
            until = header("x-amz-object-lock-retain-until-date");
            hold = header("x-amz-object-lock-legal-hold");
        }
        if let Some(mode) = mode {
            facts.set("s3:object-lock-mode", mode);
        }
        if let Some(hold) = hold {
            facts.set("s3:object-lock-legal-hold", hold);
        }
        let parse = |text: &str| s3s::dto::Timestamp::parse(s3s::dto::TimestampFormat::DateTime, text).ok();
        if let Some(until) = until.as_deref().and_then(parse) {
            let until = Timestamp(crate::wire::archive_time(until).0);
            facts.set("s3:object-lock-retain-until-date", stele_ground::calendar::moment(until.seconds()));
            let days = until.seconds().saturating_sub(now).div_ceil(86_400);
            facts.set("s3:object-lock-remaining-retention-days", days.to_string());
        }
        Ok(())
    }
}

/// The value of a header as the operation sees it: an empty one is none, for the wire crate too. A
/// fact of an empty header would satisfy a policy that demands the header, without any effect.
fn value_of<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty())
}

/// The source of a copy as policies name it, `BUCKET/KEY`, whether or not the header has a slash in
/// front, escapes or a version.
fn source_named(header: &str) -> String {
    match CopySource::parse(header) {
        Ok(CopySource::Bucket { bucket, key, .. }) => format!("{bucket}/{key}"),
        // The operation refuses the others.
        Ok(_) | Err(_) => header.to_owned(),
    }
}

/// The tags that the request gives an object, by its header or its document.
fn add_tags(facts: &mut RequestFacts, asked: &Asked<'_>) -> S3Result<()> {
    let tags = match asked.headers.get("x-amz-tagging").and_then(|value| value.to_str().ok()) {
        // The document alone counts where there is one.
        _ if asked.query.has("tagging") && *asked.method == Method::PUT => tags_in(asked.document)?,
        Some(text) => {
            let query = Query::parse(Some(text));
            let query =
                query.ok_or_else(|| refuse(S3ErrorCode::InvalidArgument, "The header 'x-amz-tagging' is invalid."))?;
            query.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        }
        None => Vec::new(),
    };
    for (name, value) in tags {
        facts.add("s3:RequestObjectTagKeys", name.clone());
        facts.set(&format!("s3:RequestObjectTag/{name}"), value);
    }
    Ok(())
}

/// The tags of a document, whatever the order of a tag's parts.
pub(super) fn tags_in(document: &[u8]) -> S3Result<Vec<(String, String)>> {
    let elements = plain_elements(document)?;
    let tag = ["Tagging", "Tagging/TagSet", "Tagging/TagSet/Tag", "Tagging/TagSet/Tag/Key", "Tagging/TagSet/Tag/Value"];
    only(&elements, &tag)?;
    let (mut tags, mut name, mut value) = (Vec::new(), None, None);
    for element in elements {
        match element.path.as_str() {
            "Tagging/TagSet/Tag/Key" => once(&mut name, element.text)?,
            "Tagging/TagSet/Tag/Value" => once(&mut value, element.text)?,
            "Tagging/TagSet/Tag" => match (name.take(), value.take()) {
                (Some(name), Some(value)) => tags.push((name, value)),
                _ => return Err(malformed()),
            },
            _ => {}
        }
    }
    Ok(tags)
}

fn once(into: &mut Option<String>, text: String) -> S3Result<()> {
    match into.replace(text) {
        None => Ok(()),
        Some(_) => Err(malformed()),
    }
}

fn malformed() -> S3Error {
    refuse(
        S3ErrorCode::MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}

/// The actions of a request, by its method and subresource.
fn requests<'r>(asked: &'r Asked<'_>, key: Option<&'r str>) -> S3Result<Vec<PolicyRequest<'r>>> {
    let version = asked.query.get("versionId").and_then(|text| VersionId::parse(text).ok());
    let prefix = asked.query.get("prefix").unwrap_or_default();
    let request = |action| PolicyRequest { action, key, version, prefix };
    let actions = match key {
        Some(_) => of_object(asked)?,
        None => of_bucket(asked)?,
    };
    Ok(actions.into_iter().filter(|action| !action.is_empty()).map(request).collect())
}

fn verb(method: &Method) -> usize {
    match *method {
        Method::PUT => 1,
        Method::DELETE => 2,
        _ => 0,
    }
}

/// Two subresources at once could be judged as one operation and routed as another. Every request
/// with two is refused before.
fn one_of<T: Copy>(asked: &Asked<'_>, table: &[(&str, T)]) -> S3Result<Option<T>> {
    let mut named = table.iter().filter(|(name, _)| asked.query.has(name));
    match (named.next(), named.next()) {
        (_, Some(_)) => Err(refuse(
            S3ErrorCode::InvalidArgument,
            "Conflicting query string parameters: a request names one subresource.",
        )),
        (found, None) => Ok(found.map(|(_, actions)| *actions)),
    }
}

fn of_object(asked: &Asked<'_>) -> S3Result<Vec<&'static str>> {
    let versioned = asked.query.has("versionId");
    let mut actions = Vec::new();
    let bypasses = asked.headers.get("x-amz-bypass-governance-retention");
    if bypasses.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true")) {
        actions.push("BypassGovernanceRetention");
    }
    if let Some(of) = one_of(asked, &OF_OBJECTS)? {
        let names = of.get(verb(asked.method)).copied().unwrap_or_default();
        actions.extend(names.get(usize::from(versioned)).or_else(|| names.first()));
        if asked.query.has("attributes") {
            actions.push(if versioned { "GetObjectVersion" } else { "GetObject" });
        }
        return Ok(actions);
    }
    let upload = asked.query.has("uploadId");
    match *asked.method {
        Method::GET | Method::HEAD if upload => actions.push("ListMultipartUploadParts"),
        Method::GET | Method::HEAD if versioned => actions.push("GetObjectVersion"),
        Method::GET | Method::HEAD => actions.push("GetObject"),
        Method::DELETE if upload => actions.push("AbortMultipartUpload"),
        Method::DELETE if versioned => actions.push("DeleteObjectVersion"),
        Method::DELETE => actions.push("DeleteObject"),
        _ => {
            actions.push("PutObject");
            for (header, action) in [
                ("x-amz-tagging", "PutObjectTagging"),
                ("x-amz-object-lock-mode", "PutObjectRetention"),
                ("x-amz-object-lock-legal-hold", "PutObjectLegalHold"),
            ] {
                if asked.headers.contains_key(header) {
                    actions.push(action);
                }
            }
            // A class sets a retention.
            if names_class(asked) && !actions.contains(&"PutObjectRetention") {
                actions.push("PutObjectRetention");
            }
        }
    }
    Ok(actions)
}

/// Whether the request names a management class, by its header or by a tag.
fn names_class(asked: &Asked<'_>) -> bool {
    let tags = asked.headers.get("x-amz-tagging").and_then(|value| value.to_str().ok());
    let by_tag = tags.and_then(|text| Query::parse(Some(text))).is_some_and(|tags| tags.has("stele:class"));
    by_tag || asked.headers.contains_key("x-stele-class")
}

fn of_bucket(asked: &Asked<'_>) -> S3Result<Vec<&'static str>> {
    if let Some(of) = one_of(asked, &OF_BUCKETS)? {
        return Ok(of.get(verb(asked.method)).copied().into_iter().collect());
    }
    Ok(vec![match *asked.method {
        Method::PUT => "CreateBucket",
        Method::DELETE => "DeleteBucket",
        Method::POST => "",
        _ => "ListBucket",
    }])
}
