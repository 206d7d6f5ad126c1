//! Receipts verify with the public key alone, and no changed receipt does. A later head is proven
//! to follow.

use super::*;
use crate::testing::put_as;
use crate::{ConsistencyProof, ContentHasher, Receipt};

pub(super) fn key_of(head: &SignedHead) -> Vec<u8> {
    (0..32).map(|at| u8::from_str_radix(&head.public_key[2 * at..2 * at + 2], 16).unwrap()).collect()
}

async fn locked(world: &World) -> Archive {
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, versioning: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "records", new).await.unwrap();
    archive
}

async fn receipt(archive: &Archive, key: &str, logged: Option<u64>) -> Receipt {
    archive.receipt_of_act(&admin(), "records", key, logged.unwrap(), None).await.unwrap()
}

#[tokio::test]
async fn every_kind_of_act_has_a_receipt_that_verifies() {
    let world = World::new(1);
    let archive = locked(&world).await;
    let until = Timestamp::from_secs(1_900_000_000);
    let request = PutRequest {
        bucket: "records".into(),
        key: "ledger".into(),
        retention: Some(Retention { mode: RetentionMode::Governance, until }),
        ..PutRequest::default()
    };
    let stored = put_as(&archive, &admin(), request, b"a record").await.unwrap();
    let version = Some(stored.version);
    let sha256 = Some([7; 32]);
    let put = archive.receipt_of_act(&admin(), "records", "ledger", stored.logged.unwrap(), sha256).await.unwrap();
    let public = key_of(&put.head);
    assert_eq!(put.size_bytes, Some(8));
    assert_eq!(put.sha256.as_deref(), Some("07".repeat(32).as_str()));
    assert_eq!(put.keep_until, Some(until.to_string()));
    assert_eq!(put.legal_hold, Some(false));

    let later = Some(Retention { mode: RetentionMode::Governance, until: until.plus_days(9) });
    let extended = archive.set_retention(&admin(), "records", "ledger", version, later, false).await.unwrap();
    let held = archive.set_legal_hold(&admin(), "records", "ledger", version, true).await.unwrap();
    let marker = DeleteRequest { bucket: "records".into(), key: "ledger".into(), ..DeleteRequest::default() };
    let marker = archive.delete(&admin(), marker).await.unwrap();
    let loose = put_as(
        &archive,
        &admin(),
        PutRequest { bucket: "records".into(), key: "loose".into(), ..PutRequest::default() },
        b"loose",
    )
    .await
    .unwrap();
    let gone = DeleteRequest {
        bucket: "records".into(),
        key: "loose".into(),
        version: Some(loose.version),
        ..DeleteRequest::default()
    };
    let gone = archive.delete(&admin(), gone).await.unwrap();
    let cases = [
        ("SetRetention", "ledger", extended),
        ("SetLegalHold", "ledger", held),
        ("AddDeleteMarker", "ledger", marker.logged),
        ("DeleteObject", "loose", gone.logged),
    ];
    assert_eq!(put.verify(&public), Ok(()));
    for (action, key, logged) in cases {
        let receipt = receipt(&archive, key, logged).await;
        assert_eq!(receipt.action, action);
        assert_eq!(receipt.verify(&public), Ok(()), "{action}");
        assert!(receipt.verify(&[0; 32]).is_err(), "{action}");
    }
    let extension = receipt(&archive, "ledger", extended).await;
    assert_eq!(extension.keep_until, Some(until.plus_days(9).to_string()));
    let disposal = receipt(&archive, "loose", gone.logged).await;
    assert_eq!((disposal.size_bytes, disposal.legal_hold), (Some(5), None), "the record says what was deleted");
    // Nothing to delete: nothing was done.
    let nothing = DeleteRequest { key: "none".into(), version, bucket: "records".into(), ..DeleteRequest::default() };
    assert_eq!(archive.delete(&admin(), nothing).await.unwrap().logged, None);
}

/// Every place in a JSON value whose text or number can be altered.
pub(super) fn altered(value: &serde_json::Value) -> Vec<serde_json::Value> {
    use serde_json::Value;
    match value {
        Value::String(text) => {
            let digit = |digit: char| if digit == '0' { '1' } else { '0' };
            let last = text.chars().last().map(digit).unwrap_or('0');
            let cut: String = text.chars().take(text.chars().count().saturating_sub(1)).collect();
            let mut all = vec![Value::String(format!("{cut}{last}")), Value::String(format!("{text}0"))];
            if text.to_uppercase() != *text {
                all.push(Value::String(text.to_uppercase()));
            }
            all
        }
        Value::Number(number) => vec![Value::from(number.as_u64().unwrap() + 1), Value::from(0)],
        Value::Bool(bool) => vec![Value::Bool(!bool)],
        Value::Null => vec![Value::from("x")],
        Value::Array(items) => {
            let mut all: Vec<Value> = Vec::new();
            for (at, item) in items.iter().enumerate() {
                for other in altered(item) {
                    let mut items = items.clone();
                    items[at] = other;
                    all.push(Value::Array(items));
                }
                let mut fewer = items.clone();
                fewer.remove(at);
                all.push(Value::Array(fewer));
            }
            all
        }
        Value::Object(fields) => {
            let mut all = Vec::new();
            for (name, value) in fields {
                for other in altered(value) {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), other);
                    all.push(Value::Object(fields));
                }
                let mut fewer = fields.clone();
                fewer.remove(name);
                all.push(Value::Object(fewer));
            }
            // A head of a later version may have more fields; they are not signed and not shown.
            if !fields.contains_key("public_key") {
                let mut more = fields.clone();
                more.insert("note".into(), Value::from("and more"));
                all.push(Value::Object(more));
            }
            all
        }
    }
}

#[tokio::test]
async fn a_receipt_altered_in_any_field_is_refused() {
    let world = World::new(2);
    let archive = locked(&world).await;
    for n in 0..40 {
        put(&archive, "records", &format!("key {n}"), b"data").await.unwrap();
    }
    let stored = put(&archive, "records", "ledger", b"a record").await.unwrap();
    let receipt =
        archive.receipt_of_act(&admin(), "records", "ledger", stored.logged.unwrap(), Some([7; 32])).await.unwrap();
    let public = key_of(&receipt.head);
    receipt.verify(&public).unwrap();
    let json = serde_json::to_value(&receipt).unwrap();
    let changes = altered(&json);
    assert!(changes.len() > 60, "{}", changes.len());
    for change in changes {
        assert_ne!(change, json);
        let Ok(read) = serde_json::from_value::<Receipt>(change.clone()) else { continue };
        // The file's public key is for people; the one that verifies is given.
        assert!(read.verify(&public).is_err(), "{change:#}");
    }
}

#[tokio::test]
async fn a_receipt_states_the_matters_that_hold_the_version() {
    let world = World::new(6);
    let archive = locked(&world).await;
    let stored = put(&archive, "records", "ledger", b"a record").await.unwrap();
    let plain = receipt(&archive, "ledger", stored.logged).await;
    let json = serde_json::to_value(&plain).unwrap();
    assert!(json.get("matters").is_none(), "the text of receipts without matters stays as it was");
    for name in ["smith", "tax"] {
        archive.open_matter(&admin(), name, "a reason").await.unwrap();
        let name_of = VersionName { bucket: "records".into(), key: "ledger".into(), version: Some(stored.version) };
        archive.hold_listed(&admin(), name, vec![name_of], true).await.unwrap();
    }
    let held = receipt(&archive, "ledger", stored.logged).await;
    let public = key_of(&held.head);
    held.verify(&public).unwrap();
    assert_eq!((held.legal_hold, held.matters.clone()), (Some(false), vec!["smith".to_string(), "tax".into()]));
    let lists: [&[&str]; 7] = [
        &[],
        &["smith"],
        &["tax"],
        &["tax", "smith"],
        &["smith", "tax", "x"],
        &["smith,tax"],
        &["smith\nmatter 3 tax"],
    ];
    for list in lists {
        let other = Receipt { matters: list.iter().map(|name| (*name).to_string()).collect(), ..held.clone() };
        assert!(other.verify(&public).is_err(), "{list:?}");
    }
    for change in altered(&serde_json::to_value(&held).unwrap()) {
        let Ok(read) = serde_json::from_value::<Receipt>(change.clone()) else { continue };
        assert!(read.verify(&public).is_err(), "{change:#}");
    }
}

#[tokio::test]
async fn receipts_hold_across_runs_and_for_old_records() {
    let world = World::new(3);
    let archive = locked(&world).await;
    let mut old = Vec::new();
    // A tree that is far behind takes the checkpoints: nothing asks for a receipt after number 100.
    for n in 0..9500u64 {
        let info = put(&archive, "records", &format!("key {n}"), b"data").await.unwrap();
        if n % 1000 == 3 || (1018..1026).contains(&n) {
            old.push((format!("key {n}"), info.logged));
        }
        if n % 900 == 0 {
            archive.step().await.unwrap();
        }
        if n == 100 {
            receipt(&archive, "key 100", info.logged).await;
        }
    }
    for (key, logged) in old.iter().rev() {
        let receipt = receipt(&archive, key, *logged).await;
        assert_eq!(receipt.verify(&key_of(&receipt.head)), Ok(()), "{key}");
    }
    // After another opening the tree is built from the checkpoints.
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    for (key, logged) in &old {
        let found = archive.receipt(&admin(), "records", key, None, None).await.unwrap();
        assert_eq!(found.verify(&key_of(&found.head)), Ok(()), "{key}");
        assert_eq!(Some(found.entry.record), *logged);
    }
}

#[tokio::test]
async fn a_later_head_is_proven_to_follow_from_an_earlier_one() {
    let world = World::new(4);
    let archive = locked(&world).await;
    let mut heads = Vec::new();
    for n in 0..2300 {
        put(&archive, "records", &format!("key {n}"), b"data").await.unwrap();
        if n % 170 == 0 || (1015..1028).contains(&n) {
            heads.push(archive.audit_head().await.unwrap());
        }
        if n % 600 == 0 {
            archive.step().await.unwrap();
        }
    }
    let public = key_of(&heads[0]);
    for head in &heads {
        let proof = archive.consistency(&admin(), head, None).await.unwrap();
        assert_eq!(proof.verify(head, &public), Ok(()), "from {}", head.records);
        let json = serde_json::to_value(&proof).unwrap();
        for change in altered(&json) {
            if let Ok(read) = serde_json::from_value::<ConsistencyProof>(change.clone()) {
                assert!(read.verify(head, &public).is_err(), "from {}: {change:#}", head.records);
            }
        }
        for other in heads.iter().filter(|other| *other != head) {
            assert!(proof.verify(other, &public).is_err(), "{} as {}", head.records, other.records);
        }
    }
    // Another history of a store is not taken for this one.
    let other = World::new(4);
    let forked = locked(&other).await;
    put(&forked, "records", "another", b"history").await.unwrap();
    for n in 0..40 {
        put(&forked, "records", &format!("key {n}"), b"data").await.unwrap();
    }
    let proof = forked.consistency(&admin(), &heads[0], None).await.unwrap();
    assert_eq!(proof.head.public_key, heads[0].public_key);
    assert!(proof.verify(&heads[0], &public).is_err());
}

#[tokio::test]
async fn a_receipt_goes_to_the_actor_to_a_reader_or_to_an_auditor() {
    let world = World::new(5);
    let archive = locked(&world).await;
    let stored = put(&archive, "records", "ledger", b"a record").await.unwrap();
    let record = stored.logged.unwrap();
    let mut writer = Rights::user("records", "");
    writer.grants[0].access = [Access::Write].into();
    let key = archive.create_access_key(&admin(), "writer", writer).await.unwrap();
    let writer = archive.credentials(&key.id).await.unwrap().caller;
    let request = PutRequest { bucket: "records".into(), key: "mine".into(), ..PutRequest::default() };
    let mine = put_as(&archive, &writer, request, b"mine").await.unwrap().logged.unwrap();
    archive.receipt_of_act(&writer, "records", "mine", mine, None).await.unwrap();
    let denied = |answer: Result<Receipt>| assert!(matches!(answer, Err(ArchiveError::Denied(_))), "{answer:?}");
    denied(archive.receipt_of_act(&writer, "records", "ledger", record, None).await);
    denied(archive.receipt_of_act(&writer, "records", "mine", record, None).await);
    denied(archive.receipt(&writer, "records", "mine", None, None).await);
    denied(archive.receipt(&writer, "records", "ledger", None, Some(record)).await);
    let mut auditor = Caller::anonymous();
    auditor.rights = std::sync::Arc::new(Rights { roles: [Role::Auditor].into(), ..Rights::default() });
    archive.receipt(&auditor, "records", "ledger", None, None).await.unwrap();
    // A record about something else is not given under this name.
    let wrong = archive.receipt(&auditor, "records", "mine", None, Some(record)).await;
    assert!(matches!(wrong, Err(ArchiveError::NoSuchThing(_))), "{wrong:?}");
}

#[tokio::test]
async fn a_store_that_gives_no_receipts_keeps_no_tree() {
    let world = World::new(6);
    let archive = locked(&world).await;
    let stored = put(&archive, "records", "ledger", b"a record").await.unwrap();
    archive.step().await.unwrap();
    assert!(archive.store().receipts().tree().await.is_none());
    receipt(&archive, "ledger", stored.logged).await;
    assert!(archive.store().receipts().tree().await.is_some());
}

/// Receipts for what is in the log already share one head, and one signature over it.
#[tokio::test]
async fn receipts_of_acts_that_are_durable_together_share_a_head() {
    let world = World::new(8);
    let archive = locked(&world).await;
    let mut acts = Vec::new();
    for n in 0..2100 {
        let key = format!("key {n}");
        let logged = put(&archive, "records", &key, b"data").await.unwrap().logged;
        acts.push((key, logged));
    }
    let first = receipt(&archive, &acts[0].0, acts[0].1).await;
    assert!(first.head.records >= acts[2099].1.unwrap(), "it counts all that is durable");
    for (key, logged) in [&acts[1], &acts[1023], &acts[1030], &acts[2099]] {
        let next = receipt(&archive, key, *logged).await;
        assert_eq!(next.head, first.head, "{key}");
        assert_eq!(next.verify(&key_of(&next.head)), Ok(()), "{key}");
    }
    let logged = put(&archive, "records", "later", b"data").await.unwrap().logged;
    let later = receipt(&archive, "later", logged).await;
    assert_eq!(later.head.records, first.head.records + 1);
    assert_eq!(later.verify(&key_of(&later.head)), Ok(()));
}

/// Receipts asked for at once, of which some requests go away in the middle.
#[tokio::test]
async fn receipts_asked_for_at_once_share_a_signature() {
    let world = World::new(10);
    let archive = locked(&world).await;
    let mut acts = Vec::new();
    for n in 0..9 {
        let key = format!("key {n}");
        let logged = put(&archive, "records", &key, b"data").await.unwrap().logged;
        acts.push((key, logged));
    }
    let alone = receipt(&archive, &acts[0].0, acts[0].1).await;
    assert_eq!((alone.format.as_str(), &alone.group), ("stele receipt 1", &None), "nobody else asks");
    for (count, dropped) in [(2, 0), (3, 1), (5, 0), (8, 3), (9, 8)] {
        let mut asked: Vec<_> =
            acts[..count].iter().map(|(key, logged)| Box::pin(receipt(&archive, key, *logged))).collect();
        for one in &mut asked {
            assert!(futures_util::poll!(one).is_pending(), "it lets the others run");
        }
        asked.drain(..dropped).for_each(drop);
        let all = futures_util::future::join_all(asked).await;
        for given in &all {
            let public = key_of(&given.head);
            assert_eq!(given.verify(&public), Ok(()), "{count}, {dropped}: {given:?}");
            assert_eq!(given.signature, all[0].signature);
            let group = given.group.clone().unwrap();
            assert_eq!(group.count, count as u64, "those that went away are signed for");
            // Another's place is none of its own.
            for other in all.iter().filter(|other| *other != given) {
                assert!(Receipt { group: other.group.clone(), ..given.clone() }.verify(&public).is_err());
            }
            let as_first = Receipt { group: None, format: "stele receipt 1".into(), ..given.clone() };
            assert!(as_first.verify(&public).is_err());
            assert!(Receipt { format: "stele receipt 1".into(), ..given.clone() }.verify(&public).is_err());
            let json = serde_json::to_value(given).unwrap();
            for change in altered(&json).into_iter().filter(|change| *change != json) {
                let Ok(read) = serde_json::from_value::<Receipt>(change.clone()) else { continue };
                assert!(read.verify(&public).is_err(), "{change:#}");
            }
        }
    }
}

#[tokio::test]
async fn a_log_that_was_changed_gives_no_receipts() {
    use crate::record::{AUDIT, CHECKPOINTS, keys};
    for what in ["a missing record", "a missing checkpoint"] {
        let world = World::new(7);
        let archive = locked(&world).await;
        let mut stored = None;
        for n in 0..1100 {
            stored = put(&archive, "records", &format!("key {n}"), b"data").await.unwrap().logged;
        }
        archive.step().await.unwrap();
        let change = match what {
            "a missing record" => stele_catalog::Transaction::new().delete(AUDIT, keys::number(1060)),
            _ => stele_catalog::Transaction::new().delete(CHECKPOINTS, keys::number(1)),
        };
        world.catalog.commit(change).await.unwrap();
        let answer = archive.receipt_of_act(&admin(), "records", "key 1099", stored.unwrap(), None).await;
        assert!(matches!(answer, Err(ArchiveError::Damaged { .. })), "{what}: {answer:?}");
    }
}

#[test]
fn content_is_hashed_whole_or_part_by_part() {
    let data = content(1, 10_000);
    let hashed = |parts: Option<&[(u64, u64)]>, pieces: usize| {
        let mut hasher = ContentHasher::new(parts);
        data.chunks(pieces).for_each(|piece| hasher.update(piece));
        hasher.finish().blake3
    };
    let over = |sizes: &[usize]| {
        let (mut at, mut hasher) = (0, blake3::Hasher::new());
        for size in sizes {
            hasher.update(blake3::hash(&data[at..at + size]).as_bytes());
            at += size;
        }
        *hasher.finalize().as_bytes()
    };
    for pieces in [1, 7, 3000, 10_000] {
        assert_eq!(hashed(None, pieces), *blake3::hash(&data).as_bytes());
        assert_eq!(hashed(Some(&[(3000, 3), (1000, 1)]), pieces), over(&[3000, 3000, 3000, 1000]), "{pieces}");
        assert_eq!(hashed(Some(&[(10_000, 1)]), pieces), over(&[10_000]));
    }
}

#[test]
fn a_path_that_a_client_chose_is_not_taken_for_the_stores_own_words() {
    use crate::evidence::receipt::{content_in, own_part};
    let zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let ones = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let row = |detail: String| crate::record::audit::AuditRow {
        time: Timestamp(1),
        actor: Actor::Local(1),
        action: Action::PutObject,
        bucket: Some("share".into()),
        key: Some("file".into()),
        version: None,
        refused: None,
        detail: Some(detail),
        origin: None,
    };
    let cases = [
        format!("8 bytes, blake3 {ones}"),
        format!("8 bytes, blake3 {ones}, COMPLIANCE until 2033-11-20T18:17:05.225Z, legal hold"),
        format!("upload 7 bytes, 2 parts, 8 bytes, blake3 {ones}").replace("7 bytes", "7"),
        format!("path `a`; 8 bytes, blake3 {ones}"),
        format!("path `9 bytes, blake3 {zeros}`; 8 bytes, blake3 {ones}"),
        format!("path `x`; 9 bytes, blake3 {zeros}`; 8 bytes, blake3 {ones}"),
    ];
    for detail in cases {
        assert_eq!(content_in(&row(detail.clone())), Some((8, [1; 32])), "{detail}");
    }
    assert_eq!(content_in(&row(format!("path `9 bytes, blake3 {zeros}"))), None);
    assert_eq!(own_part("path `x until 2099`; none"), "none");
}

/// In a bucket without versions the null version is another one after each write.
#[tokio::test]
async fn a_receipt_of_an_earlier_null_version_does_not_state_the_present_one() {
    let world = World::new(9);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    let first = put(&archive, "plain", "k", b"the first").await.unwrap();
    archive.set_tags(&admin(), "plain", "k", None, Tags::new()).await.unwrap();
    let tagged = first.logged.unwrap() + 1;
    let second = put(&archive, "plain", "k", b"the second content").await.unwrap();
    for (record, size, held) in
        [(first.logged.unwrap(), Some(9), None), (tagged, None, None), (second.logged.unwrap(), Some(18), Some(false))]
    {
        let receipt = archive.receipt(&admin(), "plain", "k", None, Some(record)).await.unwrap();
        assert_eq!((receipt.size_bytes, receipt.legal_hold), (size, held), "record {record}");
        receipt.verify(&key_of(&receipt.head)).unwrap();
    }
}
