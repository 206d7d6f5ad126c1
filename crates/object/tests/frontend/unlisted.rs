//! Keys that are missing, to callers that may not list the bucket.

use std::collections::BTreeSet;

use super::http::{Ask, between};
use super::server::Server;
use super::wire::{check, expect, server};
use stele_archive::{Access, AnonymousAccess, BucketChange, Caller, Grant, Rights, Role};

/// A key with this access below `prefix` of the bucket.
async fn key(server: &Server, access: &[Access], prefix: &str) -> (String, String) {
    let access: BTreeSet<Access> = access.iter().copied().collect();
    let grants = vec![Grant { bucket: Some("bucket".into()), prefix: prefix.into(), access }];
    server.key(Rights { roles: [Role::User].into(), grants, bypass_governance: false }).await
}

async fn change(server: &Server, change: BucketChange) {
    server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_may_not_list_learns_of_no_missing_key() {
    let server = server().await;
    check(&server, "an object", Ask::new(&server, "PUT", "/bucket/there").body("here"), 200, "").await;
    let reader = key(&server, &[Access::Read, Access::Write], "").await;
    let lister = key(&server, &[Access::Read, Access::List], "").await;
    let elsewhere = key(&server, &[Access::Read, Access::List], "else/").await;
    let ask = |method: &str, target: &str, key: &(String, String)| Ask::new(&server, method, target).by(key);
    check(&server, "what is there", ask("GET", "/bucket/there", &reader), 200, "").await;
    for target in ["/bucket/none", "/bucket/none?versionId=null", "/bucket/none?tagging"] {
        check(&server, target, ask("GET", target, &reader), 403, "AccessDenied").await;
        let missing = if target.contains("versionId") { "NoSuchVersion" } else { "NoSuchKey" };
        check(&server, target, ask("GET", target, &lister), 404, missing).await;
    }
    let attributes = |key| ask("GET", "/bucket/none?attributes", key).header("x-amz-object-attributes", "ETag");
    check(&server, "attributes", attributes(&reader), 403, "AccessDenied").await;
    check(&server, "attributes", attributes(&lister), 404, "NoSuchKey").await;
    for (key, status) in [(&reader, 403), (&lister, 404)] {
        let head = ask("HEAD", "/bucket/none", key).send(&server).await;
        assert_eq!((head.status, head.body.len()), (status, 0), "{}", head.head);
    }
    let copy = |key| ask("PUT", "/bucket/copy", key).header("x-amz-copy-source", "/bucket/none");
    check(&server, "the source of a copy", copy(&reader), 403, "AccessDenied").await;
    // The listing of another prefix tells nothing of this key, and these answers tell nothing more.
    check(&server, "another prefix", ask("GET", "/bucket/none", &elsewhere), 403, "AccessDenied").await;
    check(&server, "its own", ask("GET", "/bucket/else/none", &elsewhere), 404, "NoSuchKey").await;
    check(&server, "no bucket", ask("GET", "/other/none", &reader), 404, "NoSuchBucket").await;
    // A write tells what it did, as on AWS.
    let write = ask("PUT", "/bucket/none", &reader).header("if-match", "\"00000000000000000000000000000000\"");
    check(&server, "a write on a condition", write.body("x"), 404, "NoSuchKey").await;
}

#[tokio::test]
async fn a_hidden_key_is_as_missing_as_any() {
    let server = server().await;
    let versioned = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    check(&server, "versions", Ask::new(&server, "PUT", "/bucket?versioning").body(versioned), 200, "").await;
    check(&server, "an object", Ask::new(&server, "PUT", "/bucket/k").body("here"), 200, "").await;
    check(&server, "a marker", Ask::new(&server, "DELETE", "/bucket/k"), 204, "").await;
    let reader = key(&server, &[Access::Read], "").await;
    let read = Ask::new(&server, "GET", "/bucket/k").by(&reader).send(&server).await;
    expect("under a marker", &read, 403, "AccessDenied");
    assert_eq!(read.header("x-amz-delete-marker"), None);
    let read = Ask::new(&server, "GET", "/bucket/k").send(&server).await;
    expect("to one that may list", &read, 404, "NoSuchKey");
    assert_eq!(read.header("x-amz-delete-marker").as_deref(), Some("true"));
}

#[tokio::test]
async fn a_policy_decides_who_learns_of_a_missing_key() {
    let server = server().await;
    let read = async |key: Option<&(String, String)>, target: &str| {
        let ask = Ask::new(&server, "GET", target);
        let answer = match key {
            Some(key) => ask.by(key).send(&server).await,
            None => ask.send_unsigned(&server, false).await,
        };
        (answer.status, answer.code())
    };
    let (denied, missing) = ((403, "AccessDenied".to_owned()), (404, "NoSuchKey".to_owned()));
    for (access, answer) in [(AnonymousAccess::Read, &denied), (AnonymousAccess::ReadAndList, &missing)] {
        change(&server, BucketChange::Anonymous(access)).await;
        assert_eq!(read(None, "/bucket/none").await, *answer, "{access:?}");
    }
    check(&server, "an object", Ask::new(&server, "PUT", "/bucket/k").body("open"), 200, "").await;
    for (what, answer) in [("", &(200, String::new())), ("?tagging", &denied), ("?acl", &denied)] {
        assert_eq!(read(None, &format!("/bucket/k{what}")).await, *answer, "what everyone may read: {what}");
    }
    change(&server, BucketChange::Anonymous(AnonymousAccess::None)).await;
    let (reader, lister) =
        (key(&server, &[Access::Read], "").await, key(&server, &[Access::Read, Access::List], "").await);
    let policy = format!(
        r#"{{"Statement":[
            {{"Effect":"Allow","Principal":"*","Action":["s3:GetObject","s3:GetObjectTagging"],
              "Resource":"arn:aws:s3:::bucket/*"}},
            {{"Effect":"Allow","Principal":{{"AWS":"{}"}},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::bucket",
              "Condition":{{"StringLike":{{"s3:prefix":"own/*"}}}}}},
            {{"Effect":"Deny","Principal":{{"AWS":"{}"}},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::bucket"}}]}}"#,
        reader.0, lister.0
    );
    change(&server, BucketChange::Policy(Some(policy))).await;
    assert_eq!(read(None, "/bucket/none").await, denied, "everyone");
    assert_eq!(read(None, "/bucket/k?tagging").await, (200, String::new()), "tags that the policy shows");
    assert_eq!(read(None, "/bucket/k?acl").await, denied, "an owner that it does not");
    assert_eq!(read(Some(&reader), "/bucket/none").await, denied, "outside of what it may list");
    assert_eq!(read(Some(&reader), "/bucket/own/none").await, missing, "within what it may list");
    assert_eq!(read(Some(&lister), "/bucket/none").await, denied, "a grant that the policy denies");
    let answer = Ask::new(&server, "GET", "/bucket/none").by(&reader).send(&server).await;
    let message = between(&answer.text(), "<Message>", "</Message>").unwrap();
    assert!(message.contains("does not exist, or"), "{message}");
    // Nothing was refused by the archive.
    let log = server.archive.audit_records(&Caller::local(0), 1, 1000).await.unwrap();
    assert!(log.iter().all(|record| record.refused.is_none()), "{log:?}");
}
