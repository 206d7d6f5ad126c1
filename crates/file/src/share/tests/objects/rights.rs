//! What an attacker would try: the archive judges every S3 request by the path that it names.

use stele_archive::{Actor, Grant, ListRequest, Rights, Role};

use super::*;

/// A key that may do this below a prefix.
fn limited(prefix: &str, access: &[Access]) -> Client {
    let grant = Grant { bucket: Some(NAME.into()), prefix: prefix.into(), access: access.iter().copied().collect() };
    let rights = Rights { roles: [Role::User].into(), grants: vec![grant], bypass_governance: false };
    let mut client = Client::anonymous();
    client.actor = Actor::Key("limited".into());
    client.rights = Arc::new(rights);
    client
}

#[tokio::test(start_paused = true)]
async fn a_grant_below_a_prefix_reaches_nothing_else() {
    let mut view = View::new(Stage::new(1).committing()).await;
    for key in ["mine/f", "other/f"] {
        view.put(key, &content(1, 10)).await.expect("a put");
    }
    let inode = view.find("other/f").expect("the file");
    let number = format!("{:016x}", inode.0);
    view.client = limited("mine/", &[Access::Read, Access::Write, Access::Delete, Access::List]);
    assert!(view.get("mine/f").await.is_ok());
    for key in ["other/f", "mine", number.as_str(), "other/", "m"] {
        refused(view.get(key).await, "denied");
        refused(view.put(key, &content(2, 10)).await, "denied");
        refused(view.delete(key).await, "denied");
        refused(view.objects.upload(&view.client, key, true).await, "denied");
    }
    for key in ["mine/../other/f", "mine//f", "mine/./f"] {
        refused(view.get(key).await, "invalid");
        refused(view.put(key, &content(2, 10)).await, "invalid");
        refused(view.delete(key).await, "invalid");
    }
    let list =
        |prefix: &str| ListRequest { bucket: NAME.into(), prefix: prefix.into(), limit: 10, ..Default::default() };
    refused(view.objects.list(&view.client, list("")).await, "denied");
    refused(view.objects.list(&view.client, list("other/")).await, "denied");
    assert_eq!(view.objects.list(&view.client, list("mine/")).await.expect("a listing").objects.len(), 1);
    // No right to retain, whatever the gateway itself may do.
    let until = Timestamp(view.stage.archive().await.retention_base().0 + 86_400_000);
    let retention = Some(Retention { mode: RetentionMode::Compliance, until });
    let request = PutRequest { retention, ..view.request("mine/new", &content(1, 10)) };
    refused(view.put_request(request, &content(1, 10)).await, "denied");
    let request = PutRequest { legal_hold: true, ..view.request("mine/new", &content(1, 10)) };
    refused(view.put_request(request, &content(1, 10)).await, "denied");
    refused(view.objects.set_retention(&view.client, "mine/f", None, retention, false).await, "denied");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_key_has_what_the_bucket_offers() {
    let mut view = View::new(Stage::new(2)).await;
    view.put("f", &content(1, 10)).await.expect("a put");
    let admin = std::mem::replace(&mut view.client, Client::anonymous());
    refused(view.get("f").await, "denied");
    let change = stele_archive::BucketChange::Anonymous(stele_archive::AnonymousAccess::Read);
    view.stage.archive().await.change_bucket(&admin, NAME, change).await.expect("a change of the bucket");
    assert!(view.get("f").await.is_ok());
    refused(view.put("f", &content(2, 10)).await, "denied");
    refused(view.delete("f").await, "denied");
    let list = ListRequest { bucket: NAME.into(), limit: 10, ..Default::default() };
    refused(view.objects.list(&view.client, list).await, "denied");
}

#[tokio::test(start_paused = true)]
async fn a_link_leads_an_s3_client_nowhere() {
    let mut view = View::new(Stage::new(3)).await;
    view.put("secret/f", &content(1, 10)).await.expect("a put");
    view.put("mine/", &Bytes::new()).await.expect("a directory");
    let mine = view.find("mine").expect("the directory");
    let link = Node::Link { target: Bytes::from_static(b"../secret") };
    view.share.make(&Caller::ROOT, mine, b"out", link, Changes::default()).await.expect("a link");
    view.client = limited("mine/", &[Access::Read, Access::Write]);
    refused(view.get("mine/out/f").await, "missing");
    refused(view.put("mine/out/f", &content(2, 10)).await, "invalid");
    refused(view.put("mine/out", &content(2, 10)).await, "invalid");
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_names_the_client_and_the_path() {
    let mut view = View::new(Stage::new(4)).await;
    let admin = view.client.clone();
    view.client = limited("", &[Access::Read, Access::Write, Access::Delete]);
    view.put("a/b", &content(1, 10)).await.expect("a put");
    view.put("d/", &Bytes::new()).await.expect("a directory");
    view.delete("a/b").await.expect("a delete");
    let archive = view.stage.archive().await;
    let records = archive.audit_records(&admin, 0, 1000).await.expect("the audit log");
    let told: Vec<String> = records
        .iter()
        .filter(|record| record.actor == "key limited")
        .map(|record| format!("{} {}", record.action, record.detail.clone().unwrap_or_default()))
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    for (told, path) in told.iter().zip(["path `a/b`", "path `d/`", "path `a/b`"]) {
        assert!(told.contains(path), "{told}");
    }
}
