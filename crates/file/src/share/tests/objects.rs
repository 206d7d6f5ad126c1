//! The S3 view of a share: keys, listings against a sorted model, and a version and its file in one
//! transaction.

mod crashes;
mod listings;
mod rights;

use std::sync::Arc;

use bytes::Bytes;
use stele_archive::{
    Access, ArchiveError, ByteRange, Caller as Client, CompleteRequest, CompletedPart, DefaultRetention, DeleteRequest,
    Expected, GetRequest, ListVersionsRequest, Metadata, NewUpload, ObjectInfo, PartRequest, Period, PutRequest,
    Retention, RetentionMode, ShareObjects, Timestamp, WriteCondition, upload_key,
};

use super::stage::{NAME, Stage, content, file, read, settle, write};
use crate::files::{Files, Node, Removal};
use crate::share::reading::key_of;
use crate::share::{ObjectView, RemovedVersions, Share};
use crate::{Caller, Changes, FileError, Inode, SetTime};

/// A share and its S3 view, as an administrator's client uses it.
pub struct View {
    pub stage: Stage,
    pub share: Arc<Share>,
    pub objects: ObjectView,
    pub client: Client,
}

impl View {
    pub async fn new(stage: Stage) -> View {
        let share = stage.share().await;
        let objects = ObjectView::new(Arc::clone(&share));
        View { stage, share, objects, client: Client::local(0) }
    }

    pub async fn put(&self, key: &str, data: &Bytes) -> stele_archive::Result<ObjectInfo> {
        self.put_if(key, data, WriteCondition::default()).await
    }

    pub async fn put_if(
        &self,
        key: &str,
        data: &Bytes,
        condition: WriteCondition,
    ) -> stele_archive::Result<ObjectInfo> {
        let request = PutRequest { condition, ..self.request(key, data) };
        self.put_request(request, data).await
    }

    pub fn request(&self, key: &str, data: &Bytes) -> PutRequest {
        PutRequest { bucket: NAME.into(), key: key.into(), length: Some(data.len() as u64), ..PutRequest::default() }
    }

    pub async fn put_request(&self, request: PutRequest, data: &Bytes) -> stele_archive::Result<ObjectInfo> {
        let mut writer = self.objects.put(&self.client, request).await?;
        writer.write(data.clone()).await?;
        writer.finish(Expected::default()).await
    }

    pub async fn get(&self, key: &str) -> stele_archive::Result<Vec<u8>> {
        let located = self.objects.locate(&self.client, Access::Read, key, None).await?;
        if located.directory.is_some() {
            return Ok(Vec::new());
        }
        let request =
            GetRequest { bucket: NAME.into(), key: located.key, range: ByteRange::Whole, ..GetRequest::default() };
        let mut reader = self.stage.archive().await.get(&located.caller, request).await?;
        let mut all = Vec::new();
        while let Some(piece) = reader.next().await {
            all.extend_from_slice(&piece?);
        }
        Ok(all)
    }

    pub async fn delete(&self, key: &str) -> stele_archive::Result<()> {
        let request = DeleteRequest { bucket: NAME.into(), key: key.into(), ..DeleteRequest::default() };
        self.objects.delete(&self.client, request).await.map(drop)
    }

    pub fn find(&self, path: &str) -> crate::Result<Inode> {
        self.share.resolve(path)
    }

    async fn versions(&self, prefix: &str) -> Vec<ObjectInfo> {
        let request =
            ListVersionsRequest { bucket: NAME.into(), prefix: prefix.into(), limit: 1000, ..Default::default() };
        self.objects.list_versions(&self.client, request).await.expect("a listing").versions
    }
}

fn code(error: &ArchiveError) -> &'static str {
    match error {
        ArchiveError::NoSuchKey { .. } => "missing",
        ArchiveError::InvalidRequest(_) => "invalid",
        ArchiveError::InvalidArgument(_) => "argument",
        ArchiveError::Denied(_) => "denied",
        ArchiveError::Retained { .. } => "retained",
        ArchiveError::PreconditionFailed(_) => "precondition",
        ArchiveError::Busy(_) => "busy",
        _ => "other",
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: stele_archive::Result<T>, expected: &str) {
    match answer {
        Ok(value) => panic!("{value:?} instead of a refusal ({expected})"),
        Err(error) => assert_eq!(code(&error), expected, "{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_is_a_file_and_a_file_is_an_object() {
    let view = View::new(Stage::new(1)).await;
    let (first, second) = (content(1, 70_000), content(2, 9_000));
    let made = view.put("a/b/report", &first).await.expect("a put");
    assert_eq!((made.size, made.versioned), (70_000, false));
    let inode = view.find("a/b/report").expect("the file is there");
    assert!(read(&view.share, inode).await == first);
    let attributes = view.share.attributes(inode).await.expect("attributes");
    assert_eq!((attributes.size, attributes.mode, attributes.links), (70_000, 0o644, 1));
    let state = view.share.state(inode).expect("a state");
    assert!(state.version.is_some(), "what is put is archived: {state:?}");

    // A change over files is seen over S3, with a new version.
    write(&view.share, inode, 100, &second).await;
    let mut expected = first.to_vec();
    expected[100..9_100].copy_from_slice(&second);
    assert!(view.get("a/b/report").await.expect("a get") == expected);
    // A put over a file that clients of files read, and have changed and not saved.
    write(&view.share, inode, 0, &first).await;
    view.put("a/b/report", &second).await.expect("a put");
    assert_eq!(view.find("a/b/report").expect("the file"), inode, "a put keeps the file's number");
    assert!(read(&view.share, inode).await == second);
    settle(&view.stage, &view.share).await;
    assert!(read(&view.share, inode).await == second);
    assert_eq!(view.share.status().expect("a status").open, 0);
    let later = file(&view.share, "later", &first).await;
    assert!(view.get("later").await.expect("a get of an open file") == first);
    assert!(view.share.state(later).expect("a state").version.is_some());
    view.share
        .rename(&Caller::ROOT, (view.share.root(), b"later"), (view.share.root(), b"now"))
        .await
        .expect("a rename");
    refused(view.get("later").await, "missing");
    assert!(view.get("now").await.expect("a get by the new path") == first);
}

#[tokio::test(start_paused = true)]
async fn the_cache_has_nothing_of_former_content() {
    let view = View::new(Stage::new(2)).await;
    let (first, second) = (content(1, 3 << 20), content(2, 1 << 20));
    let inode = file(&view.share, "f", &first).await;
    let used = view.share.status().expect("a status").cache_used;
    assert!(used >= 3 << 20);
    view.put("f", &second).await.expect("a put");
    assert_eq!(view.share.status().expect("a status").cache_used, 0);
    assert!(read(&view.share, inode).await == second);
    drop(view.objects);
    drop(view.share);
    let share = view.stage.share().await;
    assert!(read(&share, inode).await == second, "content differs after a restart");
    write(&share, inode, 0, &content(3, 10)).await;
    settle(&view.stage, &share).await;
    let mut expected = second.to_vec();
    expected[..10].copy_from_slice(&content(3, 10));
    assert!(read(&share, inode).await == expected);
}

#[tokio::test(start_paused = true)]
async fn keys_that_no_tree_holds_are_refused_with_the_rule() {
    let view = View::new(Stage::new(3)).await;
    view.put("file", &content(1, 10)).await.expect("a put");
    view.put("dir/", &Bytes::new()).await.expect("a directory");
    let link = Node::Link { target: Bytes::from_static(b"file") };
    let root = view.share.root();
    view.share.make(&Caller::ROOT, root, b"link", link, Changes::default()).await.expect("a link");
    let long = format!("d/{}", "n".repeat(256));
    for key in ["a//b", "/a", "a/./b", "../a", "a/..", "//", "/", &long, "file/below", "dir", "link", "link/x", "a\0b"]
    {
        refused(view.put(key, &content(1, 10)).await, "invalid");
    }
    refused(view.put("new/", &content(1, 10)).await, "invalid");
    refused(view.put("file/", &Bytes::new()).await, "invalid");
    for key in ["dir", "file/", "link", "file/below", "nothing"] {
        refused(view.get(key).await, "missing");
    }
    view.put(&format!("d/{}", "n".repeat(255)), &content(1, 10)).await.expect("a name of 255 bytes");
    assert!(view.get("dir/").await.expect("a directory is an object without content").is_empty());
    // A key of the archive's own names no file.
    refused(view.get("0000000000000010").await, "missing");
}

#[tokio::test(start_paused = true)]
async fn a_delete_takes_the_name_and_keeps_directories() {
    for versions in [false, true] {
        let mut stage = Stage::new(4);
        stage.bucket.versioning = versions;
        let view = View::new(stage).await;
        view.put("a/b", &content(1, 10)).await.expect("a put");
        view.delete("a/").await.expect("a directory with names in it is no key");
        assert!(view.find("a/b").is_ok());
        view.delete("a/b").await.expect("a delete");
        view.delete("a/b").await.expect("a missing key is no error");
        view.delete("a/x/y").await.expect("a missing key is no error");
        refused(view.get("a/b").await, "missing");
        assert!(view.find("a").is_ok());
        settle(&view.stage, &view.share).await;
        assert_eq!(view.share.status().expect("a status").removing, 0);
        view.delete("a/").await.expect("an empty directory goes");
        assert_eq!(view.find("a"), Err(FileError::NotFound));
        view.put("a/b", &content(2, 10)).await.expect("the path is free again");
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_hold_for_the_present_content() {
    let view = View::new(Stage::new(5)).await;
    let absent = || WriteCondition { absent: true, etag: None };
    let etag = |tag: &str| WriteCondition { absent: false, etag: Some(tag.to_owned()) };
    let first = view.put_if("k", &content(1, 10), absent()).await.expect("the key is free");
    refused(view.put_if("k", &content(2, 10), absent()).await, "precondition");
    refused(view.put_if("none", &content(2, 10), etag("*")).await, "missing");
    let tag = first.etag.to_string();
    view.put_if("k", &content(2, 10), etag(&tag)).await.expect("the tag is right");
    refused(view.put_if("k", &content(3, 10), etag(&tag)).await, "precondition");
    // A file that no version holds yet exists all the same.
    file(&view.share, "open", &content(4, 10)).await;
    refused(view.put_if("open", &content(5, 10), absent()).await, "precondition");
    refused(view.put_if("open", &content(5, 10), etag(&tag)).await, "precondition");
    let request = |etag: &str| DeleteRequest {
        bucket: NAME.into(),
        key: "k".into(),
        etag: Some(etag.to_owned()),
        ..DeleteRequest::default()
    };
    refused(view.objects.delete(&view.client, request(&tag)).await, "precondition");
    let present = view.versions("k").await[0].etag.to_string();
    view.objects.delete(&view.client, request(&present)).await.expect("the tag is right");
}

#[tokio::test(start_paused = true)]
async fn versions_are_those_of_the_file_of_a_path() {
    let mut stage = Stage::new(6);
    stage.bucket.versioning = true;
    let view = View::new(stage).await;
    let first = view.put("d/f", &content(1, 10)).await.expect("a put");
    let second = view.put("d/f", &content(2, 20)).await.expect("a put");
    let root = view.share.root();
    view.share.rename(&Caller::ROOT, (root, b"d"), (root, b"e")).await.expect("a rename of the directory");
    let listed: Vec<_> =
        view.versions("").await.iter().map(|info| (info.key.clone(), info.version, info.latest)).collect();
    assert_eq!(listed, [("e/f".to_owned(), second.version, true), ("e/f".to_owned(), first.version, false)]);
    let delete = |version| DeleteRequest {
        bucket: NAME.into(),
        key: "e/f".into(),
        version: Some(version),
        ..DeleteRequest::default()
    };
    refused(view.objects.delete(&view.client, delete(second.version)).await, "invalid");
    view.objects.delete(&view.client, delete(first.version)).await.expect("a former version goes");
    assert_eq!(view.versions("").await.len(), 1);
    assert!(view.get("e/f").await.expect("a get") == content(2, 20));
    // Each page goes on behind the last version of the page before.
    for seed in 3..9 {
        view.put("e/f", &content(seed, 10)).await.expect("a put");
        view.put(&format!("e/g{seed}"), &content(seed, 10)).await.expect("a put");
    }
    let whole = view.versions("e/").await;
    let mut paged = Vec::new();
    let mut request = ListVersionsRequest { bucket: NAME.into(), prefix: "e/".into(), limit: 2, ..Default::default() };
    loop {
        let page = view.objects.list_versions(&view.client, request.clone()).await.expect("a page");
        assert!(page.versions.len() <= 2);
        paged.extend(page.versions);
        if !page.truncated {
            break;
        }
        (request.key_marker, request.version_marker) = (page.next_key_marker, page.next_version_marker);
    }
    assert_eq!(paged, whole);
    assert_eq!(whole.len(), 13);
}

#[tokio::test(start_paused = true)]
async fn advice_about_versions_follows_the_setting() {
    for (removed, fate) in
        [(RemovedVersions::Keep, "which keeps all versions"), (RemovedVersions::Delete, "which deletes all versions")]
    {
        let mut stage = Stage::new(6);
        stage.bucket.versioning = true;
        stage.settings.removed_versions = removed;
        let view = View::new(stage).await;
        let version = Some(view.put("f", &content(1, 10)).await.expect("a put").version);
        let request = DeleteRequest { bucket: NAME.into(), key: "f".into(), version, ..DeleteRequest::default() };
        let answer = view.objects.delete(&view.client, request).await;
        let Err(ArchiveError::InvalidRequest(text)) = answer else { panic!("{answer:?}") };
        assert!(text.contains(fate), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn retention_over_s3_commits_the_file() {
    let mut stage = Stage::new(7).committing();
    stage.bucket.default_retention =
        Some(DefaultRetention { mode: RetentionMode::Compliance, period: Period::Days(10) });
    let view = View::new(stage).await;
    let until = Timestamp(view.stage.archive().await.retention_base().0 + 86_400_000);
    let retention = Some(Retention { mode: RetentionMode::Governance, until });
    // The bucket's default holds for what S3 stores.
    let by_default = view.put("default", &content(1, 10)).await.expect("a put");
    assert!(by_default.retention.is_some());
    let request = PutRequest { retention, ..view.request("dated", &content(1, 10)) };
    view.put_request(request, &content(1, 10)).await.expect("a put under retention");
    let later = file(&view.share, "later", &content(1, 10)).await;
    view.objects.set_retention(&view.client, "later", None, retention, false).await.expect("a retention");
    for name in ["default", "dated", "later"] {
        let inode = view.find(name).expect("the file");
        assert!(view.share.state(inode).expect("a state").committed.is_some(), "{name} is not committed");
        let data = vec![content(2, 10)];
        let written = view.share.write(&Caller::ROOT, inode, 0, data, crate::Stability::Unstable).await;
        assert!(matches!(written, Err(FileError::ReadOnly(_))), "{name}: {written:?}");
        refused(view.put(name, &content(2, 10)).await, "denied");
        refused(view.delete(name).await, "denied");
        let removed = view.share.remove(&Caller::ROOT, view.share.root(), name.as_bytes(), Removal::File).await;
        assert!(matches!(removed, Err(FileError::ReadOnly(_))), "{name}: {removed:?}");
    }
    let attributes = view.share.attributes(later).await.expect("attributes");
    assert_eq!((attributes.mode & 0o222, attributes.accessed.seconds as u64), (0, until.0 / 1000));
    // A commit over files is seen over S3, and an officer lifts a GOVERNANCE retention there.
    view.objects.set_retention(&view.client, "later", None, None, true).await.expect("the retention is lifted");
    view.delete("later").await.expect("its retention has ended");
    let over_files = file(&view.share, "files", &content(3, 10)).await;
    let time = crate::Moment::from_nanoseconds(i128::from(until.0) * 1_000_000);
    let changes = Changes { mode: Some(0o444), accessed: Some(SetTime::At(time)), ..Changes::default() };
    view.share.set_attributes(&Caller::ROOT, over_files, changes, None).await.expect("a commit");
    assert_eq!(view.versions("files").await[0].retention.map(|kept| kept.until), Some(until));
    refused(view.put("files", &content(4, 10)).await, "denied");
}

#[tokio::test(start_paused = true)]
async fn an_upload_of_parts_becomes_a_file() {
    let view = View::new(Stage::new(8)).await;
    let archive = view.stage.archive().await;
    let data = content(9, 6 << 20);
    let caller = view.objects.upload(&view.client, "new/parts", true).await.expect("an upload may begin");
    let new = NewUpload { bucket: NAME.into(), key: upload_key("new/parts"), ..NewUpload::default() };
    let upload = archive.create_upload(&caller, new).await.expect("an upload").upload;
    let mut parts = Vec::new();
    for (number, piece) in [(1, data.slice(..5 << 20)), (2, data.slice(5 << 20..))] {
        let part = PartRequest {
            bucket: NAME.into(),
            key: upload_key("new/parts"),
            upload: upload.clone(),
            number,
            length: Some(piece.len() as u64),
            ..PartRequest::default()
        };
        let mut writer = archive.put_part(&caller, part).await.expect("a part");
        writer.write(piece).await.expect("content");
        let etag = writer.finish(Expected::default()).await.expect("a part").etag.to_string();
        parts.push(CompletedPart { number, etag, checksums: Vec::new() });
    }
    assert_eq!(view.find("new"), Err(FileError::NotFound), "an upload under way is no file");
    let complete =
        CompleteRequest { bucket: NAME.into(), key: "new/parts".into(), upload, parts, ..CompleteRequest::default() };
    let made = view.objects.complete(&view.client, complete.clone()).await.expect("a completion");
    let inode = view.find("new/parts").expect("the file");
    assert!(read(&view.share, inode).await == data);
    let again = view.objects.complete(&view.client, complete).await.expect("a repeated completion");
    assert_eq!((again.version, again.etag), (made.version, made.etag));
    assert!(view.get("new/parts").await.expect("a get") == data);
}

#[tokio::test(start_paused = true)]
async fn puts_of_one_new_key_at_once_make_one_file() {
    let mut stage = Stage::new(9).late();
    stage.bucket.versioning = true;
    let view = View::new(stage).await;
    let contents: Vec<Bytes> = (0..8).map(|seed| content(seed, 100)).collect();
    let puts = contents.iter().map(|data| view.put("deep/er/key", data));
    let made = futures_util::future::try_join_all(puts).await.expect("every put is stored");
    assert_eq!(view.versions("").await.len(), made.len());
    let last = view.get("deep/er/key").await.expect("a get");
    assert!(contents.iter().any(|data| *data == last));
}

#[tokio::test(start_paused = true)]
async fn a_file_open_for_writing_is_left_alone() {
    let view = View::new(Stage::new(10)).await;
    let inode = file(&view.share, "busy", &content(1, 10)).await;
    view.share.opened(inode, true).await.expect("an opening");
    refused(view.get("busy").await, "busy");
    refused(view.put("busy", &content(2, 10)).await, "busy");
    view.share.closed(inode, true).await;
    assert!(view.get("busy").await.expect("a get") == content(1, 10));
    view.put("busy", &content(2, 10)).await.expect("a put");
}

#[tokio::test(start_paused = true)]
async fn what_clients_say_of_an_object_outlasts_changes_over_files() {
    // As one body, and in parts.
    for (body_max, length) in [(64 << 20, 4), (6 << 20, 4)] {
        let stage = Stage::new(31);
        let share = stage.share_with_bodies(body_max).await;
        let objects = ObjectView::new(Arc::clone(&share));
        let view = View { stage, share, objects, client: Client::local(0) };
        let entry = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = [entry("content-type", "text/csv"), entry("cache-control", "no-store")].into();
        let metadata = Metadata { headers, user: [entry("hue", &"b".repeat(length))].into() };
        let tags = [entry("project", "north")].into();
        let request = PutRequest { metadata, tags, ..view.request("k", &content(1, 10)) };
        let before = view.put_request(request, &content(1, 10)).await.expect("a put");
        let inode = view.find("k").expect("the file");
        write(&view.share, inode, 0, &content(2, 7 << 20)).await;
        settle(&view.stage, &view.share).await;
        let newest = view.stage.archive().await.newest(&Client::gateway("testing"), NAME, &[key_of(inode.0)]);
        let after = newest.expect("a look").into_iter().flatten().next().expect("the version");
        assert_eq!(after.size, 7 << 20);
        assert_eq!((&after.tags, &after.metadata.headers), (&before.tags, &before.metadata.headers));
        let hue = after.metadata.user.get("hue").map(String::len);
        assert_eq!(hue, Some(length));
        assert_eq!(after.metadata.user.get("stele-path").map(String::as_str), Some("k"));
    }
}
