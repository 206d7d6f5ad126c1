//! Bucket policies and the block of public access, as they change what a caller may do.

use super::*;

const DAY: u64 = 86_400_000;

async fn archive(world: &World) -> (Archive, String) {
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "records", new).await.unwrap();
    put(&archive, "records", "open/a", b"a").await.unwrap();
    put(&archive, "records", "closed/b", b"b").await.unwrap();
    let key = archive.create_access_key(&admin(), "reader", Rights::user("other", "")).await.unwrap();
    (archive, key.id)
}

async fn set(archive: &Archive, statements: &str) -> Result<BucketInfo> {
    let policy = format!(r#"{{"Version":"2012-10-17","Statement":[{statements}]}}"#);
    archive.change_bucket(&admin(), "records", BucketChange::Policy(Some(policy))).await
}

fn on(action: &'static str, key: &'static str) -> PolicyRequest<'static> {
    PolicyRequest { action, key: Some(key), version: None, prefix: "" }
}

/// The content, as a frontend reads it: the policy first.
async fn read(archive: &Archive, caller: &Caller, key: &'static str) -> Result<Vec<u8>> {
    let caller = archive.permit(caller, "records", &[on("GetObject", key)], RequestFacts::default()).await?;
    let request = GetRequest { bucket: "records".into(), key: key.into(), ..GetRequest::default() };
    let mut reader = archive.get(&caller, request).await?;
    let mut content = Vec::new();
    while let Some(piece) = reader.next().await.transpose()? {
        content.extend_from_slice(&piece);
    }
    Ok(content)
}

fn denied<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    assert!(matches!(result, Err(ArchiveError::Denied(_))), "{what}: {result:?}");
}

#[tokio::test]
async fn a_policy_opens_what_it_names_and_nothing_else() {
    let world = World::new(1);
    let (archive, key) = archive(&world).await;
    let reader = archive.credentials(&key).await.unwrap().caller;
    denied("before there is a policy", read(&archive, &reader, "open/a").await);
    set(
        &archive,
        &format!(
            r#"{{"Effect":"Allow","Principal":{{"AWS":"{key}"}},"Action":"s3:GetObject","Resource":"arn:aws:s3:::records/open/*"}}"#
        ),
    )
    .await
    .unwrap();
    assert_eq!(read(&archive, &reader, "open/a").await.unwrap(), b"a");
    denied("another key of the bucket", read(&archive, &reader, "closed/b").await);
    denied("another caller", read(&archive, &Caller::anonymous(), "open/a").await);
    let permitted =
        archive.permit(&reader, "records", &[on("GetObject", "open/a")], RequestFacts::default()).await.unwrap();
    let delete = DeleteRequest { bucket: "records".into(), key: "open/a".into(), ..DeleteRequest::default() };
    denied("another action with the access of this one", archive.delete(&permitted, delete).await);
}

#[tokio::test]
async fn a_denial_binds_administrators_but_for_the_policy_itself() {
    let world = World::new(2);
    let (archive, _) = archive(&world).await;
    let key = archive.create_access_key(&admin(), "all", Rights::all()).await.unwrap().id;
    let everything = archive.credentials(&key).await.unwrap().caller;
    set(
        &archive,
        r#"{"Sid":"Sealed","Effect":"Deny","Principal":"*","Action":"*","Resource":["arn:aws:s3:::records","arn:aws:s3:::records/*"]}"#,
    )
    .await
    .unwrap();
    denied("reading", read(&archive, &everything, "open/a").await);
    let permit = async |action| {
        let request = PolicyRequest { action, key: None, version: None, prefix: "" };
        archive.permit(&everything, "records", &[request], RequestFacts::default()).await
    };
    denied("a setting", permit("PutBucketVersioning").await);
    permit("DeleteBucketPolicy").await.unwrap();
    // An officer's protection of records is not for a policy to stop.
    let hold =
        archive.permit(&everything, "records", &[on("PutObjectLegalHold", "open/a")], RequestFacts::default()).await;
    hold.unwrap();
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let refused = log.iter().find(|record| record.refused.as_ref().is_some_and(|reason| reason.contains("`Sealed`")));
    assert!(refused.is_some(), "{log:?}");
}

/// A caller without the role of a user gets what the policy allows, and not what its own idle
/// grants say.
#[tokio::test]
async fn a_policy_does_not_wake_grants_that_do_not_count() {
    let world = World::new(3);
    let (archive, _) = archive(&world).await;
    let idle = Rights { roles: [Role::Auditor].into(), ..Rights::user("records", "") };
    let key = archive.create_access_key(&admin(), "auditor", idle).await.unwrap().id;
    let auditor = archive.credentials(&key).await.unwrap().caller;
    set(
        &archive,
        r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::records/open/*"}"#,
    )
    .await
    .unwrap();
    let permitted =
        archive.permit(&auditor, "records", &[on("GetObject", "open/a")], RequestFacts::default()).await.unwrap();
    let delete = DeleteRequest { bucket: "records".into(), key: "open/a".into(), ..DeleteRequest::default() };
    denied("deleting", archive.delete(&permitted, delete).await);
}

/// A request of several actions takes each of them: the one that a policy allows carries no other.
#[tokio::test]
async fn a_policy_allows_no_action_along_with_another_one() {
    let world = World::new(10);
    let (archive, _) = archive(&world).await;
    let anonymous = Caller::anonymous();
    let allow = async |actions: &str| {
        let statement =
            format!(r#"{{"Effect":"Allow","Principal":"*","Action":[{actions}],"Resource":"arn:aws:s3:::records/*"}}"#);
        set(&archive, &statement).await.unwrap();
    };
    let permit = async |actions: [&'static str; 2]| {
        let requests = actions.map(|action| on(action, "open/a"));
        archive.permit(&anonymous, "records", &requests, RequestFacts::default()).await.unwrap()
    };
    let write = async |caller: &Caller| {
        let request = PutRequest { bucket: "records".into(), key: "open/a".into(), ..PutRequest::default() };
        crate::testing::put_as(&archive, caller, request, b"another").await.map(drop)
    };
    let stored = archive.tags(&admin(), "records", "open/a", None).await.unwrap().1;
    let remove = async |caller: &Caller| {
        let (bucket, key, version) = ("records".into(), "open/a".into(), Some(stored));
        archive.delete(caller, DeleteRequest { bucket, key, version, ..DeleteRequest::default() }).await.map(drop)
    };
    allow(r#""s3:PutObjectTagging","s3:DeleteObject""#).await;
    denied("a write with tags", write(&permit(["PutObject", "PutObjectTagging"]).await).await);
    denied("... in another order", write(&permit(["PutObjectTagging", "PutObject"]).await).await);
    denied("a removal of versions", remove(&permit(["DeleteObject", "DeleteObjectVersion"]).await).await);
    allow(r#""s3:PutObjectTagging","s3:PutObject","s3:DeleteObject*""#).await;
    write(&permit(["PutObject", "PutObjectTagging"]).await).await.unwrap();
    remove(&permit(["DeleteObject", "DeleteObjectVersion"]).await).await.unwrap();
    // What a caller may do by itself takes no policy.
    allow(r#""s3:PutObject""#).await;
    archive.change_bucket(&admin(), "records", BucketChange::Anonymous(AnonymousAccess::Read)).await.unwrap();
    write(&permit(["PutObject", "GetObject"]).await).await.unwrap();
    denied("tags that it may not set", write(&permit(["PutObject", "PutObjectTagging"]).await).await);
}

/// A policy gives neither the bypass of GOVERNANCE nor the setting of retention.
#[tokio::test]
async fn a_policy_shortens_no_retention() {
    let world = World::new(4);
    let (archive, key) = archive(&world).await;
    let caller = archive.credentials(&key).await.unwrap().caller;
    let resource = r#""Resource":["arn:aws:s3:::records","arn:aws:s3:::records/*"]"#;
    set(&archive, &format!(r#"{{"Effect":"Allow","Principal":"*","Action":"s3:*",{resource}}}"#)).await.unwrap();
    let until = archive.store().compliance_now().plus_days(10);
    let retention = Some(Retention { mode: RetentionMode::Governance, until });
    archive.set_retention(&admin(), "records", "open/a", None, retention, false).await.unwrap();
    let (_, stored) = archive.tags(&admin(), "records", "open/a", None).await.unwrap();
    let requests = ["DeleteObjectVersion", "BypassGovernanceRetention", "PutObjectRetention", "PutObjectLegalHold"];
    let requests = requests.map(|action| on(action, "open/a"));
    let permitted = archive.permit(&caller, "records", &requests, RequestFacts::default()).await.unwrap();
    assert!(!permitted.rights.bypass_governance);
    let delete = DeleteRequest {
        bucket: "records".into(),
        key: "open/a".into(),
        version: Some(stored),
        bypass_governance: true,
        ..DeleteRequest::default()
    };
    let refused = archive.delete(&permitted, delete).await;
    assert!(matches!(refused, Err(ArchiveError::Retained { .. })), "{refused:?}");
    let shorter = Some(Retention { mode: RetentionMode::Governance, until: Timestamp(until.0 - DAY) });
    denied("retention", archive.set_retention(&permitted, "records", "open/a", None, shorter, true).await);
    denied("a hold", archive.set_legal_hold(&permitted, "records", "open/a", None, true).await);
}

#[tokio::test]
async fn tags_of_the_object_are_looked_up() {
    let world = World::new(5);
    let (archive, _) = archive(&world).await;
    set(
        &archive,
        r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::records/*",
            "Condition":{"StringEquals":{"s3:ExistingObjectTag/Public":"yes"}}}"#,
    )
    .await
    .unwrap();
    denied("without the tag", read(&archive, &Caller::anonymous(), "open/a").await);
    let tags = Tags::from([("Public".to_owned(), "yes".to_owned())]);
    archive.set_tags(&admin(), "records", "open/a", None, tags).await.unwrap();
    assert_eq!(read(&archive, &Caller::anonymous(), "open/a").await.unwrap(), b"a");
    denied("another object", read(&archive, &Caller::anonymous(), "closed/b").await);
}

#[tokio::test]
async fn the_version_of_a_condition_is_that_of_the_request() {
    let world = World::new(8);
    let (archive, _) = archive(&world).await;
    let stored = put(&archive, "records", "open/a", b"of today").await.unwrap().version;
    set(
        &archive,
        &format!(
            r#"{{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::records/*",
                "Condition":{{"StringEquals":{{"s3:VersionId":"{stored}"}}}}}}"#
        ),
    )
    .await
    .unwrap();
    // A frontend that says more than the request asks for: a batch, or the source of a copy.
    let said = || {
        let mut facts = RequestFacts::default();
        facts.set("s3:VersionId", stored.to_string());
        facts
    };
    let anonymous = Caller::anonymous();
    let of = |version| [PolicyRequest { version, ..on("GetObject", "open/a") }];
    for (version, opens) in [(None, false), (Some(stored), true)] {
        let caller = archive.permit(&anonymous, "records", &of(version), said()).await.unwrap();
        let request = GetRequest { bucket: "records".into(), key: "open/a".into(), version, ..GetRequest::default() };
        assert_eq!(archive.get(&caller, request).await.is_ok(), opens, "{version:?}");
    }
}

#[tokio::test]
async fn a_share_has_no_conditions_on_tags_of_objects() {
    let world = World::new(9);
    let archive = world.create().await;
    let asks = r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::BUCKET/*",
        "Condition":{"StringEquals":{"s3:ExistingObjectTag/Public":"yes"}}}]}"#;
    for bucket in ["before", "after"] {
        archive.create_bucket(&admin(), bucket, NewBucket::default()).await.unwrap();
        let policy = BucketChange::Policy(Some(asks.replace("BUCKET", bucket)));
        let (first, second) = match bucket {
            "before" => (policy, BucketChange::Share),
            _ => (BucketChange::Share, policy),
        };
        archive.change_bucket(&admin(), bucket, first).await.unwrap();
        let refused = archive.change_bucket(&admin(), bucket, second).await;
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("ExistingObjectTag")), "{refused:?}");
    }
}

#[tokio::test]
async fn the_block_of_public_access_outbids_policy_and_anonymous_access() {
    let world = World::new(6);
    let (archive, key) = archive(&world).await;
    let public = r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::records/*"}"#;
    set(&archive, public).await.unwrap();
    let change = async |change| archive.change_bucket(&admin(), "records", change).await;
    change(BucketChange::Anonymous(AnonymousAccess::Read)).await.unwrap();
    assert_eq!(read(&archive, &Caller::anonymous(), "open/a").await.unwrap(), b"a");
    assert_eq!(archive.is_policy_public(&admin(), "records").await.unwrap(), Some(true));
    let block =
        |acls, policy| AccessBlock { block_acls: acls, ignore_acls: acls, block_policy: policy, restrict: policy };
    change(BucketChange::AccessBlock(Some(block(true, false)))).await.unwrap();
    assert_eq!(read(&archive, &Caller::anonymous(), "open/a").await.unwrap(), b"a", "by the policy");
    change(BucketChange::AccessBlock(Some(block(true, true)))).await.unwrap();
    denied("everything is blocked", read(&archive, &Caller::anonymous(), "open/a").await);
    let caller = archive.credentials(&key).await.unwrap().caller;
    assert_eq!(read(&archive, &caller, "open/a").await.unwrap(), b"a", "a caller with a key is not the public");
    denied("a public policy", set(&archive, public).await);
    denied("anonymous access", change(BucketChange::Anonymous(AnonymousAccess::ReadAndList)).await);
    assert_eq!(archive.is_policy_public(&admin(), "records").await.unwrap(), Some(false));
}

#[tokio::test]
async fn a_policy_names_only_keys_that_exist_and_survives_a_rebuild() {
    let world = World::new(7);
    let (archive, _) = archive(&world).await;
    let of = |key: &str| {
        format!(
            r#"{{"Effect":"Deny","Principal":{{"AWS":"{key}"}},"Action":"s3:*","Resource":"arn:aws:s3:::records/*"}}"#
        )
    };
    let refused = set(&archive, &of("STELENOBODY")).await;
    assert!(matches!(&refused, Err(ArchiveError::InvalidArgument(why)) if why.contains("STELENOBODY")), "{refused:?}");
    let key = archive.create_access_key(&admin(), "all", Rights::all()).await.unwrap().id;
    set(&archive, &of(&key)).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    let world = World { catalog: std::sync::Arc::new(stele_catalog::MemoryCatalog::new()), ..world };
    let filled = Archive::fill(&world.foundation(), &world.options, Rebuild::default()).await.unwrap();
    let (archive, _) = filled.adopt(world.foundation(), world.options.clone()).await.unwrap();
    let caller = archive.credentials(&key).await.unwrap().caller;
    denied("after a rebuild", read(&archive, &caller, "open/a").await);
}
