//! Sessions: what temporary credentials may do, and what ends them.

use super::*;
use crate::model::time::DAY;
use crate::state::sessions::SESSIONS;

const HOUR: u64 = 3600;

async fn lender(archive: &Archive, rights: Rights) -> (String, Caller) {
    let key = archive.create_access_key(&admin(), "lender", rights).await.unwrap();
    let caller = archive.credentials(&key.id).await.unwrap().caller;
    (key.id, caller)
}

fn request(policy: Option<&str>) -> SessionRequest {
    SessionRequest { name: "job-1".into(), seconds: HOUR, policy: policy.map(str::to_string) }
}

async fn used(archive: &Archive, session: &NewSession) -> Result<Caller> {
    Ok(archive.session_credentials(&session.id, &session.token).await?.caller)
}

async fn store() -> (World, Archive) {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "records", NewBucket::default()).await.unwrap();
    put(&archive, "records", "a/1", b"data").await.unwrap();
    (world, archive)
}

fn is_expired<T>(answer: Result<T>) -> bool {
    matches!(answer, Err(ArchiveError::ExpiredAccessKey(_)))
}

fn is_denied<T>(answer: Result<T>) -> bool {
    matches!(answer, Err(ArchiveError::Denied(_)))
}

fn read(key: &str) -> GetRequest {
    GetRequest { bucket: "records".into(), key: key.into(), ..GetRequest::default() }
}

async fn may(archive: &Archive, caller: &Caller, action: &'static str, key: Option<&str>) -> bool {
    assert!(archive.is_policed(caller, "records"), "nothing would ask the policy");
    let asked = PolicyRequest { action, key, version: None, prefix: "" };
    archive.permit(caller, "records", &[asked], RequestFacts::default()).await.is_ok()
}

#[tokio::test]
async fn a_session_survives_a_restart_and_ends_in_time() {
    let (world, archive) = store().await;
    let (_, caller) = lender(&archive, Rights::user("records", "")).await;
    let session = archive.create_session(&caller, request(None)).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    let found = archive.session_credentials(&session.id, &session.token).await.unwrap();
    assert_eq!(*found.secret, *session.secret);
    assert_eq!(found.caller.actor, caller.actor, "the audit log names the lending key");
    assert!(archive.get(&found.caller, read("a/1")).await.is_ok());
    world.stage.pass(HOUR * 1000 - 1);
    used(&archive, &session).await.unwrap();
    world.stage.pass(1);
    assert!(is_expired(used(&archive, &session).await));
    world.stage.set_wall(Timestamp(world.stage.now().wall.0 - DAY));
    assert!(is_expired(used(&archive, &session).await), "a clock that is set back revives no session");
}

#[tokio::test]
async fn what_becomes_of_a_key_binds_its_sessions_at_once() {
    let (world, archive) = store().await;
    let (key, caller) = lender(&archive, Rights::user("records", "")).await;
    let session = archive.create_session(&caller, request(None)).await.unwrap();
    archive.narrow_access_key(&admin(), &key, Rights::user("records", "b/")).await.unwrap();
    let narrowed = used(&archive, &session).await.unwrap();
    assert!(is_denied(archive.get(&narrowed, read("a/1")).await), "narrowed");
    archive.revoke_access_key(&admin(), &key).await.unwrap();
    assert!(is_expired(used(&archive, &session).await), "revoked");
    assert!(is_denied(archive.create_session(&narrowed, request(None)).await), "a session makes no session");
    let life = KeyLife::For(HOUR * 500);
    let short = archive.create_expiring_access_key(&admin(), "short", Rights::user("records", ""), life).await.unwrap();
    let caller = archive.credentials(&short.id).await.unwrap().caller;
    let session = archive.create_session(&caller, request(None)).await.unwrap();
    assert_eq!(session.expires, Timestamp(world.stage.now().wall.0 + HOUR * 500), "no longer than its key");
    archive.set_key_life(&admin(), &short.id, KeyLife::For(1000)).await.unwrap();
    world.stage.pass(1000);
    assert!(is_expired(used(&archive, &session).await), "the key's end was brought forward");
}

#[tokio::test]
async fn a_session_policy_takes_rights_away_and_gives_none() {
    let (_world, archive) = store().await;
    let (_, caller) = lender(&archive, Rights::user("records", "a/")).await;
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::records/*"},
        {"Effect": "Deny", "Action": "s3:PutObject", "Resource": "*"}]}"#;
    let session = archive.create_session(&caller, request(Some(policy))).await.unwrap();
    let limited = used(&archive, &session).await.unwrap();
    assert!(may(&archive, &limited, "GetObject", Some("a/1")).await);
    assert!(!may(&archive, &limited, "PutObject", Some("a/1")).await, "denied");
    assert!(!may(&archive, &limited, "DeleteObject", Some("a/1")).await, "not allowed");
    assert!(!may(&archive, &limited, "GetBucketPolicy", None).await, "nor the bucket's settings");
    assert!(archive.permit(&limited, "records", &[], RequestFacts::default()).await.is_err(), "an unknown request");
    assert!(archive.permit_outside(&limited, "ListAllMyBuckets", &RequestFacts::default()).await.is_err());
    let asked = PolicyRequest { action: "GetObject", key: Some("b/1"), version: None, prefix: "" };
    let permitted = archive.permit(&limited, "records", &[asked], RequestFacts::default()).await.unwrap();
    assert!(is_denied(archive.get(&permitted, read("b/1")).await), "its key may not read that");
    let all = r#"{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}"#;
    let session = archive.create_session(&caller, request(Some(all))).await.unwrap();
    let wide = used(&archive, &session).await.unwrap();
    assert_eq!(wide.rights, caller.rights);
    assert!(archive.permit_outside(&wide, "ListAllMyBuckets", &RequestFacts::default()).await.is_ok());
}

#[tokio::test]
async fn no_office_exempts_from_the_policy_of_a_session() {
    let (_world, archive) = store().await;
    let (_, caller) = lender(&archive, Rights::all()).await;
    let policy = r#"{"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}"#;
    let session = archive.create_session(&caller, request(Some(policy))).await.unwrap();
    let limited = used(&archive, &session).await.unwrap();
    for action in ["PutBucketPolicy", "PutBucketObjectLockConfiguration", "PutObjectRetention", "CreateBucket"] {
        assert!(!may(&archive, &limited, action, None).await, "{action}");
    }
    assert!(!may(&archive, &limited, "BypassGovernanceRetention", Some("a/1")).await);
    // Where the bucket does not exist, the session's policy judges alone.
    let asked = PolicyRequest { action: "CreateBucket", key: None, version: None, prefix: "" };
    assert!(is_denied(archive.permit(&limited, "new", &[asked], RequestFacts::default()).await));
}

#[tokio::test]
async fn a_bucket_policy_gives_a_session_what_it_gives_its_key() {
    let (_world, archive) = store().await;
    let (key, caller) = lender(&archive, Rights::user("other", "")).await;
    let policy = format!(
        r#"{{"Statement": {{"Effect": "Allow", "Principal": {{"AWS": "{key}"}}, "Action": "s3:*Object",
            "Resource": "arn:aws:s3:::records/*"}}}}"#
    );
    archive.change_bucket(&admin(), "records", BucketChange::Policy(Some(policy))).await.unwrap();
    let limits = r#"{"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}"#;
    let session = archive.create_session(&caller, request(Some(limits))).await.unwrap();
    let limited = used(&archive, &session).await.unwrap();
    assert!(may(&archive, &caller, "DeleteObject", Some("a/1")).await);
    assert!(may(&archive, &limited, "GetObject", Some("a/1")).await);
    assert!(!may(&archive, &limited, "DeleteObject", Some("a/1")).await);
}

#[tokio::test]
async fn a_token_is_only_what_the_server_sealed() {
    let (_world, archive) = store().await;
    let (_, caller) = lender(&archive, Rights::user("records", "")).await;
    let one = archive.create_session(&caller, request(None)).await.unwrap();
    let other = archive.create_session(&caller, request(None)).await.unwrap();
    let is_invalid = |answer: Result<Credentials>| matches!(answer, Err(ArchiveError::InvalidToken(_)));
    assert!(is_invalid(archive.session_credentials(&one.id, &other.token).await), "of another session");
    let bytes = crate::model::checksum::from_base64(&one.token).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let token = crate::model::checksum::to_base64(&changed);
        assert!(is_invalid(archive.session_credentials(&one.id, &token).await), "byte {at}");
    }
    for token in ["", "x", &"A".repeat(5000)] {
        assert!(is_invalid(archive.session_credentials(&one.id, token).await));
    }
    assert!(is_invalid(archive.session_credentials("STELEAAAAAAAAAAAAAAA", &one.token).await));
    assert!(matches!(archive.credentials(&one.id).await, Err(ArchiveError::NoSuchAccessKey(_))), "without its token");
    let foreign = World::new(9).create().await;
    assert!(is_invalid(foreign.session_credentials(&one.id, &one.token).await), "of another store");
}

#[tokio::test]
async fn a_request_for_a_session_is_checked() {
    let (_world, archive) = store().await;
    let (_, caller) = lender(&archive, Rights::user("records", "")).await;
    let long = format!(
        r#"{{"Statement": {{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::{}"}}}}"#,
        "x".repeat(SESSION_POLICY_BYTES_MAX)
    );
    let principal = r#"{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}}"#;
    for (what, request) in [
        ("too short", SessionRequest { seconds: 899, ..request(None) }),
        ("too long", SessionRequest { seconds: 12 * HOUR + 1, ..request(None) }),
        ("no name", SessionRequest { name: String::new(), ..request(None) }),
        ("a name with blanks", SessionRequest { name: "a b".into(), ..request(None) }),
        ("no policy", request(Some("{}"))),
        ("a principal", request(Some(principal))),
        (
            "an unknown action",
            request(Some(&principal.replace(r#""Principal": "*", "Action": "*""#, r#""Action": "s3:X""#))),
        ),
        ("a long policy", request(Some(&long))),
    ] {
        let made = archive.create_session(&caller, request).await;
        assert!(matches!(made, Err(ArchiveError::InvalidArgument(_))), "{what}");
    }
    assert!(is_denied(archive.create_session(&admin(), request(None)).await), "the operator has no key to lend");
    let policy = r#"{"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}"#;
    let full = SessionRequest {
        name: "n".repeat(64),
        seconds: 12 * HOUR,
        policy: Some(format!("{policy}{}", " ".repeat(SESSION_POLICY_BYTES_MAX - policy.len()))),
    };
    let longest = archive.create_session(&caller, full).await.unwrap();
    used(&archive, &longest).await.unwrap();
}

/// Any key may make sessions, and each one takes a record of a log that is never cut.
#[tokio::test]
async fn sessions_of_a_key_are_bounded() {
    let (world, archive) = store().await;
    let (_, caller) = lender(&archive, Rights::user("records", "")).await;
    let (_, other) = lender(&archive, Rights::user("records", "")).await;
    let records = async || archive.audit_head().await.unwrap().records;
    for _ in 0..SESSIONS.burst {
        archive.create_session(&caller, request(None)).await.unwrap();
    }
    let before = records().await;
    for _ in 0..100 {
        let refused = archive.create_session(&caller, request(None)).await;
        assert!(matches!(refused, Err(ArchiveError::Busy(_))), "beyond the burst");
    }
    assert_eq!(records().await, before, "a refusal takes no record");
    archive.create_session(&other, request(None)).await.unwrap();
    for _ in 0..2 {
        world.stage.pass(SESSIONS.every);
        archive.create_session(&caller, request(None)).await.unwrap();
        assert!(archive.create_session(&caller, request(None)).await.is_err(), "one at a time");
    }
}
