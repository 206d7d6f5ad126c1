//! Requests beside a change of the rules that bind them: none is refused, and none is stored by
//! rules that are over.

use std::pin::{Pin, pin};
use std::task::Poll;

use super::classes::{active, put_in, store, terms};
use super::*;
use crate::testing::{Gate, MIB};

/// More polls than a request takes.
const ALL: usize = 1_000_000;

/// Polls a future so many times.
async fn polled<F: Future>(mut future: Pin<&mut F>, times: usize) -> Option<F::Output> {
    let mut polls = 0;
    std::future::poll_fn(|cx| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Polls a request so many times, then drives it and a change to their ends; at 0 the change
/// begins. None: the request ended before.
async fn beside<R, C>(
    request: impl Future<Output = R>,
    change: impl Future<Output = C>,
    polls: usize,
) -> Option<(R, C)> {
    let mut request = pin!(request);
    if polls == 0 {
        let (changed, answer) = tokio::join!(biased; change, request);
        return Some((answer, changed));
    }
    match polled(request.as_mut(), polls).await {
        Some(_) => None,
        None => Some(tokio::join!(biased; request, change)),
    }
}

/// Calls `at` with rising numbers of polls, each with a store of its own, until it says that the
/// request ended before the change. Returns how often the change came in between.
fn at_every_poll(seed: u64, mut at: impl AsyncFnMut(&World, usize) -> bool) -> usize {
    for polls in 0.. {
        let (world, gate): (World, Gate) = World::gated(seed, 32 * MIB, 256 << 10);
        gate.close();
        if !gate.drive(at(&world, polls), ALL).expect("it ends") {
            return polls;
        }
    }
    unreachable!("no request takes polls without end")
}

/// The number of the newest record of the audit log.
async fn records(archive: &Archive) -> u64 {
    archive.audit_verify(&admin(), None).await.unwrap().records
}

#[test]
fn what_is_stored_beside_an_activation_has_the_class_in_force() {
    let (mut before, mut after) = (0, 0);
    at_every_poll(16, async |world, polls| {
        let archive = store(world).await;
        active(&archive, "staff", terms(Initiation::Creation, Some(30), 0, ExpiryAction::Delete)).await;
        let stricter = terms(Initiation::Creation, Some(60), 0, ExpiryAction::Keep);
        archive.create_class(&admin(), "staff", stricter, "").await.unwrap();
        let activation = async {
            archive.activate_class(&admin(), "staff", None).await.unwrap();
            records(&archive).await
        };
        let both = beside(put_in(&archive, "record", Some("staff")), activation, polls).await;
        let Some((stored, activated)) = both else { return false };
        let stored = stored.unwrap_or_else(|error| panic!("after {polls} polls: {error}"));
        let class = archive.why(&admin(), "records", "record", None).await.unwrap().class_version;
        let is_before = stored.logged.is_some_and(|logged| logged <= activated) && class == Some(1);
        assert!(is_before || class == Some(2), "after {polls} polls: {class:?}");
        *if is_before { &mut before } else { &mut after } += 1;
        true
    });
    assert!(before > 0 && after > 0, "{before} stored before the activation, {after} after it");
}

/// A refusal is compensated under the key's lock, which the next request has by then. That one
/// waits for the change.
#[test]
fn a_refused_completion_beside_a_change_of_settings_ends() {
    let mut refused = 0;
    at_every_poll(18, async |world, polls| {
        let archive = store(world).await;
        let key = || ("records".to_string(), "large".to_string());
        let ((bucket, name), of) = (key(), key());
        let new = NewUpload { bucket, key: name, ..NewUpload::default() };
        let upload = archive.create_upload(&admin(), new).await.unwrap().upload;
        let request =
            PartRequest { bucket: of.0, key: of.1, upload: upload.clone(), number: 1, ..PartRequest::default() };
        let mut writer = archive.put_part(&admin(), request).await.unwrap();
        writer.write(b"part".to_vec().into()).await.unwrap();
        let etag = writer.finish(Expected::default()).await.unwrap().etag.to_string();
        let parts = vec![CompletedPart { number: 1, etag, checksums: Vec::new() }];
        put_in(&archive, "other", None).await.unwrap();
        let full = BucketChange::Quota(Quota { bytes: None, versions: Some(1) });
        archive.change_bucket(&admin(), "records", full).await.unwrap();
        let (bucket, key) = key();
        let completes = async {
            let request = CompleteRequest { bucket, key, upload, parts, ..CompleteRequest::default() };
            archive.complete_upload(&admin(), request).await
        };
        let officer = admin();
        let change = archive.change_bucket(&officer, "records", BucketChange::Expiry(ExpiryAction::Notify));
        let others = async { tokio::join!(biased; put_in(&archive, "large", None), change) };
        let Some((completed, (stored, changed))) = beside(completes, others, polls).await else { return false };
        changed.unwrap();
        assert!(completed.is_err() && stored.is_err(), "after {polls} polls: the bucket is full");
        refused += 1;
        true
    });
    assert!(refused > 0);
}

#[test]
fn a_change_of_settings_refuses_no_request_beside_it() {
    let part = async |archive: &Archive, upload: &str| {
        let (bucket, key, upload) = ("records".to_string(), "large".to_string(), upload.to_string());
        let request = PartRequest { bucket, key, upload, number: 1, ..PartRequest::default() };
        let mut writer = archive.put_part(&admin(), request).await.unwrap();
        writer.write(b"part".to_vec().into()).await.unwrap();
        let etag = writer.finish(Expected::default()).await.unwrap().etag.to_string();
        CompletedPart { number: 1, etag, checksums: Vec::new() }
    };
    let new_upload = || NewUpload { bucket: "records".into(), key: "large".into(), ..NewUpload::default() };
    for request in ["put", "begin", "complete", "mark", "remove", "tags", "retention"] {
        let (mut earlier, mut later) = (0, 0);
        at_every_poll(17, async |world, polls| {
            let archive = store(world).await;
            let upload = archive.create_upload(&admin(), new_upload()).await.unwrap().upload;
            let parts = vec![part(&archive, &upload).await];
            let stored = put_in(&archive, "stored", None).await.unwrap();
            let version = Some(stored.version);
            let asked = async {
                match request {
                    "put" => put_in(&archive, "record", None).await.map(|info| info.retention),
                    "complete" => {
                        let (bucket, key) = ("records".into(), "large".into());
                        let request = CompleteRequest { bucket, key, upload, parts, ..CompleteRequest::default() };
                        archive.complete_upload(&admin(), request).await.map(|info| info.retention)
                    }
                    "mark" | "remove" => {
                        let version = version.filter(|_| request == "remove");
                        let (bucket, key) = ("records".into(), "stored".into());
                        let request = DeleteRequest { bucket, key, version, ..DeleteRequest::default() };
                        archive.delete(&admin(), request).await.map(|_| None)
                    }
                    "tags" => {
                        let tags = Tags::from([("case".to_string(), "1".to_string())]);
                        archive.set_tags(&admin(), "records", "stored", version, tags).await.map(|_| None)
                    }
                    "retention" => {
                        let until = archive.store().compliance_now().plus_days(3);
                        let asked = Some(Retention { mode: RetentionMode::Compliance, until });
                        let set = archive.set_retention(&admin(), "records", "stored", version, asked, false).await;
                        set.map(|_| None)
                    }
                    _ => archive.create_upload(&admin(), new_upload()).await.map(|_| None),
                }
            };
            let default = DefaultRetention { mode: RetentionMode::Compliance, period: Period::Days(30) };
            let lock = BucketChange::ObjectLock(ObjectLock { default: Some(default) });
            let officer = admin();
            let change = archive.change_bucket(&officer, "records", lock);
            let Some((answer, changed)) = beside(asked, change, polls).await else { return false };
            changed.unwrap();
            let retention = answer.unwrap_or_else(|error| panic!("{request} after {polls} polls: {error}"));
            *if retention.is_some() { &mut later } else { &mut earlier } += 1;
            true
        });
        assert!(earlier > 0, "{request}: no change came in between");
        if ["put", "complete"].contains(&request) {
            assert!(later > 0, "{request}: no request was judged by the new settings");
        }
    }
}
