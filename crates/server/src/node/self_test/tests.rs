use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use stele_archive::{Expected, NewBucket, PutRequest, Rights};
use stele_object::Settings;
use tokio::sync::watch;

use super::*;
use crate::serving::{admin, services};

/// The directory of the socket, and what keeps the socket served. Both end with it.
struct Place(PathBuf, watch::Sender<bool>);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A node with an archive, and its interfaces.
async fn serving(name: &str) -> (Arc<Node>, Arc<Frontend>, Place) {
    let node = services::tests::node(&Arc::new(AtomicBool::new(false))).await;
    let dir = std::env::temp_dir().join(format!("stele-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let place = Place(dir, watch::Sender::new(false));
    let socket = place.0.join("socket");
    let listener = admin::listen(&socket, "[admin] socket", false).unwrap();
    let (clock, archive) = (Arc::new(SystemTime::now), node.archive().unwrap().clone());
    let frontend = Frontend::new(archive, Settings::default(), clock, None);
    let _ = node.running.set(RunningInterfaces::new(&frontend, &node, socket));
    tokio::spawn(admin::serve(listener, Arc::clone(&node), place.1.subscribe()));
    (node, frontend, place)
}

fn by_interface(attempts: &[Attempt]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    attempts.iter().for_each(|attempt| *counts.entry(attempt.through.as_str()).or_default() += 1);
    counts
}

/// The alarm quotes the answer: a full socket has allowed nothing.
#[test]
fn a_call_that_found_no_place_is_not_said_to_have_been_allowed() {
    let (refused, answer) = answered(&Failure::new(Kind::Busy, "user 0 has 256 connections").next("wait"));
    assert!(!refused && answer.starts_with("it was not answered") && !answer.contains('\n'), "{answer}");
    let refusal = Failure::new(Kind::Refused, "the version is retained");
    assert_eq!(answered(&refusal), (true, "the version is retained".to_owned()));
    assert!(!answered(&Failure::usage("no field")).0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forbidden_is_refused_by_every_interface() {
    let (node, _frontend, _place) = serving("self-test").await;
    let archive = node.archive().unwrap();
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&Caller::local(0), "locked", new).await.unwrap();
    let result = node.self_test(&Caller::local(0), None).await.unwrap().remove(0);
    assert!(result.passed(), "{result:#?}");
    let counts = by_interface(&result.attempts);
    assert_eq!(counts, BTreeMap::from([("S3", 8), ("administration socket", 2), ("archive", 11)]));
    // Its key ended with the test.
    let log = archive.audit_records(&Caller::local(0), 1, 1000).await.unwrap();
    let over_s3 = log.iter().filter(|record| record.actor == "stele self-test" && record.refused.is_some()).count();
    assert!(over_s3 > 11, "what came through the interfaces is in the log: {over_s3}");
}

/// It was told as something that the store allowed, with exit code 5 and an alarm.
#[tokio::test(flavor = "multi_thread")]
async fn a_self_test_passes_where_commands_have_all_connections() {
    let (node, _frontend, place) = serving("self-test-full").await;
    let archive = node.archive().unwrap();
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&Caller::local(0), "locked", new).await.unwrap();
    let socket = place.0.join("socket");
    let mut held = Vec::new();
    let mut is_full = async || {
        let mut sender = connection::connect(&socket).await.unwrap();
        let listed = connection::call_on(&socket, &mut sender, &crate::api::pool::ShowPool {}).await;
        held.push(sender);
        listed.is_err_and(|failure| failure.kind == Kind::Busy)
    };
    while !is_full().await {}
    let result = node.self_test(&Caller::local(0), None).await.unwrap().remove(0);
    assert!(result.passed(), "{result:#?}");
    assert_eq!(by_interface(&result.attempts)["administration socket"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_interface_allows_is_told() {
    let (node, _frontend, _place) = serving("self-test-allowed").await;
    let (archive, admin) = (node.archive().unwrap(), Caller::local(0));
    archive.create_bucket(&admin, "plain", NewBucket { versioning: true, ..NewBucket::default() }).await.unwrap();
    let request =
        PutRequest { bucket: "plain".into(), key: ".stele/canary".into(), length: Some(1), ..Default::default() };
    let mut writer = archive.put(&admin, request).await.unwrap();
    writer.write(Bytes::from_static(b"x")).await.unwrap();
    let stored = writer.finish(Expected::default()).await.unwrap();
    let key = archive.create_access_key(&admin, "all", Rights::all()).await.unwrap();
    let canary = Canary {
        bucket: "plain".into(),
        key: ".stele/canary",
        version: stored.version.to_string(),
        is_file: false,
        until: stored.modified,
        is_raised: false,
        access_key: key.id.clone(),
        secret: key.secret.clone(),
    };
    let attempts = node.running.get().unwrap().attempt(&canary).await;
    let allowed: Vec<&str> =
        attempts.iter().filter(|attempt| !attempt.refused).map(|attempt| attempt.what.as_str()).collect();
    for what in ["delete the version", "suspend versioning", "delete the bucket"] {
        assert!(allowed.contains(&what), "{what}: {attempts:#?}");
    }
}

#[test]
fn only_refusals_by_the_rules_count() {
    let error = |code: &str| format!("<Error><Code>{code}</Code><Message>why</Message></Error>");
    assert_eq!(judge(403, &error("AccessDenied")), (true, "AccessDenied: why".to_owned()));
    assert!(judge(200, &format!("<DeleteResult>{}</DeleteResult>", error("AccessDenied"))).0);
    for (status, text) in [
        (204, String::new()),
        (200, "<DeleteResult><Deleted><Key>k</Key></Deleted></DeleteResult>".to_owned()),
        (403, error("SignatureDoesNotMatch")),
        (503, error("SlowDown")),
        (400, error("MalformedXML")),
    ] {
        assert!(!judge(status, &text).0, "{status} {text}");
    }
}
