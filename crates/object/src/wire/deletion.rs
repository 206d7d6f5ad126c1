//! Deletes one version, or up to a thousand keys with an answer for each.

use super::convert::version_of;
use super::receipt::{self, Act};
use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{refuse, spelled, translated};
use futures_util::StreamExt;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{ArchiveError, DeleteRequest, Deleted, PolicyRequest, RequestFacts};

const KEYS_MAX: usize = 1000;
/// Keys of a batch that a policy judges and that are deleted at a time.
const TOGETHER: usize = 64;

/// DeleteObject.
pub async fn one(wire: &Wire, call: Arc<Call>, request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
    let wanted = receipt::is_wanted(&request.headers);
    let input = request.input;
    if input.if_match_last_modified_time.is_some() || input.if_match_size.is_some() {
        return Err(refuse(
            S3ErrorCode::NotImplemented,
            "Conditions on size or time of a deletion are not implemented; If-Match is.",
        ));
    }
    let etag = input.if_match.map(|condition| match condition.as_etag() {
        Some(etag) => etag.value().to_owned(),
        None => "*".to_owned(),
    });
    let version = version_of(input.version_id.as_deref())?;
    let delete = DeleteRequest {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        version,
        bypass_governance: input.bypass_governance_retention.unwrap_or(false),
        etag,
    };
    let deleted = wire.objects.delete(&call.caller, delete).await.map_err(translated)?;
    // Without versioning the removed object was no version that the client could know.
    let named = deleted.version.filter(|_| version.is_some() || deleted.delete_marker);
    let output = DeleteObjectOutput {
        delete_marker: deleted.delete_marker.then_some(true),
        version_id: named.map(|version| version.to_string()),
        ..DeleteObjectOutput::default()
    };
    let mut response = S3Response::with_status(output, hyper::StatusCode::NO_CONTENT);
    let act = Act { wanted, bucket: &input.bucket, key: &input.key, logged: deleted.logged, sha256: None };
    receipt::add(wire, &call, act, &mut response).await;
    Ok(response)
}

fn check_count(objects: usize) -> S3Result<()> {
    if (1..=KEYS_MAX).contains(&objects) {
        return Ok(());
    }
    let message = format!("a DeleteObjects names 1 to {KEYS_MAX} objects, not {objects}");
    Err(refuse(S3ErrorCode::MalformedXML, message))
}

/// DeleteObjects. A key that may not be deleted does not refuse the whole request.
pub async fn many(wire: &Wire, call: Arc<Call>, request: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
    let digest = ["content-md5", "x-amz-trailer"].iter().any(|name| request.headers.contains_key(*name))
        || request.headers.keys().any(|name| name.as_str().starts_with("x-amz-checksum-"));
    if !digest {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            "Missing required header for this request: Content-MD5 OR x-amz-checksum-*",
        ));
    }
    let input = request.input;
    let objects = input.delete.objects;
    check_count(objects.len())?;
    if objects.iter().any(|object| object.key.is_empty()) {
        return Err(refuse(S3ErrorCode::MalformedXML, "an object of a DeleteObjects has an empty key"));
    }
    // A missing bucket gives one refusal, not a thousand.
    wire.archive.require_bucket(&input.bucket).map_err(translated)?;
    let bypass = input.bypass_governance_retention.unwrap_or(false);
    let mut asked = Vec::with_capacity(objects.len());
    let mut requests = Vec::with_capacity(objects.len());
    for object in objects {
        let version = version_of(object.version_id.as_deref().filter(|text| !text.is_empty()));
        let request = version.and_then(|version| {
            let etag = object.e_tag.as_ref().map(|etag| etag.value().to_owned());
            if object.size.is_some() || object.last_modified_time.is_some() {
                return Err(refuse(
                    S3ErrorCode::NotImplemented,
                    "Conditions on size or time of a deletion are not implemented; ETag is.",
                ));
            }
            Ok(DeleteRequest {
                bucket: input.bucket.clone(),
                key: object.key.clone(),
                version,
                bypass_governance: bypass,
                etag,
            })
        });
        let refused = match request {
            Ok(request) => {
                requests.push(request);
                None
            }
            Err(error) => Some(error),
        };
        asked.push((object.key, object.version_id, refused));
    }
    let mut outcomes = match &call.facts {
        None => wire.objects.delete_many(&call.caller, requests).await,
        Some(facts) => policed(wire, &call, facts, requests).await,
    }
    .into_iter();
    let quiet = input.delete.quiet.unwrap_or(false);
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (key, version, refused) in asked {
        let outcome = match refused {
            Some(error) => Err(error),
            None => outcomes
                .next()
                .map(|outcome| outcome.map_err(translated))
                .unwrap_or_else(|| Err(refuse(S3ErrorCode::InternalError, "This key was not answered for."))),
        };
        match outcome {
            Ok(_) if quiet => {}
            Ok(done) => deleted.push(told(key, version, done)),
            Err(error) => errors.push(told_refusal(key, version, &error)),
        }
    }
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: (!deleted.is_empty()).then_some(deleted),
        errors: (!errors.is_empty()).then_some(errors),
        ..DeleteObjectsOutput::default()
    }))
}

// Each key by itself: what the policy allows for one must not reach another. Many at a time, so
// that they share commits; of a share one after another, as without a policy.
async fn policed(
    wire: &Wire,
    call: &Call,
    facts: &RequestFacts,
    requests: Vec<DeleteRequest>,
) -> Vec<Result<Deleted, ArchiveError>> {
    let is_share = requests.first().is_some_and(|request| wire.objects.is_share(&request.bucket));
    let together = if is_share { 1 } else { TOGETHER };
    let deletions = requests.into_iter().map(|request| policed_one(wire, call, facts, request));
    futures_util::stream::iter(deletions).buffered(together).collect().await
}

async fn policed_one(
    wire: &Wire,
    call: &Call,
    facts: &RequestFacts,
    request: DeleteRequest,
) -> Result<Deleted, ArchiveError> {
    let action = if request.version.is_some() { "DeleteObjectVersion" } else { "DeleteObject" };
    let asked = |action| PolicyRequest { action, key: Some(&request.key), version: request.version, prefix: "" };
    let mut actions = vec![asked(action)];
    if request.bypass_governance {
        actions.push(asked("BypassGovernanceRetention"));
    }
    let mut facts = facts.clone();
    // The condition of a key is in the document; no header of a batch is one.
    match request.etag.as_deref() {
        Some("*") => facts.set("s3:if-match", "*"),
        Some(etag) => facts.set("s3:if-match", format!("\"{etag}\"")),
        None => {}
    }
    let caller = wire.archive.permit(&call.caller, &request.bucket, &actions, facts).await?;
    wire.objects.delete(&caller, request).await
}

fn told(key: String, asked: Option<String>, done: Deleted) -> DeletedObject {
    let version = done.version.map(|version| version.to_string());
    DeletedObject {
        key: Some(key),
        delete_marker: done.delete_marker.then_some(true),
        delete_marker_version_id: done.delete_marker.then_some(version).flatten(),
        version_id: asked.filter(|text| !text.is_empty()),
    }
}

fn told_refusal(key: String, asked: Option<String>, error: &S3Error) -> Error {
    let (code, message) = spelled(error);
    Error { code: Some(code), key: Some(key), message: Some(message), version_id: asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_objects_that_is_too_long_names_the_limit() {
        assert!(check_count(1).is_ok() && check_count(KEYS_MAX).is_ok());
        for count in [0, KEYS_MAX + 1] {
            let refused = check_count(count).unwrap_err();
            assert_eq!(*refused.code(), S3ErrorCode::MalformedXML);
            assert!(refused.message().is_some_and(|text| text.contains("1 to 1000")), "{refused:?}");
        }
    }
}
