//! Listings stay within their prefix, come to an end, and leave no version out. Delete markers are
//! beyond the quota.

use super::*;

async fn bucket(world: &World, new: NewBucket) -> Archive {
    let archive = world.create().await;
    archive.create_bucket(&admin(), "bucket", new).await.unwrap();
    archive
}

async fn begin(archive: &Archive, key: &str) -> String {
    let new = NewUpload { bucket: "bucket".into(), key: key.into(), ..NewUpload::default() };
    archive.create_upload(&admin(), new).await.unwrap().upload
}

fn of_versions(prefix: &str, key_marker: Option<&str>) -> ListVersionsRequest {
    ListVersionsRequest {
        bucket: "bucket".into(),
        prefix: prefix.into(),
        key_marker: key_marker.map(str::to_owned),
        limit: 1000,
        ..ListVersionsRequest::default()
    }
}

fn of_uploads(prefix: &str, key_marker: Option<&str>) -> ListUploadsRequest {
    ListUploadsRequest {
        bucket: "bucket".into(),
        prefix: prefix.into(),
        key_marker: key_marker.map(str::to_owned),
        limit: 1000,
        ..ListUploadsRequest::default()
    }
}

/// The keys of all versions, page by page. Fails where the pages do not come to an end.
async fn all_versions(archive: &Archive, mut request: ListVersionsRequest) -> Vec<(String, VersionId, bool)> {
    let mut all = Vec::new();
    for _ in 0..100 {
        let page = archive.list_versions(&admin(), request.clone()).await.unwrap();
        all.extend(page.versions.into_iter().map(|version| (version.key, version.version, version.latest)));
        if !page.truncated {
            return all;
        }
        request.key_marker = page.next_key_marker;
        request.version_marker = page.next_version_marker;
    }
    panic!("the listing does not come to an end: {all:?}");
}

/// A table of markers against the prefix `b/`.
#[tokio::test]
async fn no_marker_leads_a_listing_out_of_its_prefix() {
    let world = World::new(1);
    let archive = bucket(&world, NewBucket { versioning: true, ..NewBucket::default() }).await;
    let mut uploads = Vec::new();
    let mut versions = Vec::new();
    for key in ["a/secret", "aa", "b/1", "b/2", "c/secret"] {
        versions.push(put(&archive, "bucket", key, b"data").await.unwrap().version);
        uploads.push(begin(&archive, key).await);
    }
    let both = vec!["b/1", "b/2"];
    for (marker, expected) in
        [("a", &both), ("a/secret", &both), ("aa", &both), ("b/", &both), ("b/1", &vec!["b/2"]), ("c", &Vec::new())]
    {
        for version in [None, Some(VersionId::Null), Some(versions[0])] {
            // Where the marker names a key within the prefix, the version decides where in that key
            // the page begins.
            if marker == "b/1" && version.is_some() {
                continue;
            }
            let request = ListVersionsRequest { version_marker: version, ..of_versions("b/", Some(marker)) };
            let page = archive.list_versions(&admin(), request).await.unwrap();
            let keys: Vec<&str> = page.versions.iter().map(|version| version.key.as_str()).collect();
            assert_eq!(keys, *expected, "versions behind `{marker}`, {version:?}");
        }
        for upload in [None, Some(uploads[0].clone())] {
            if marker == "b/1" && upload.is_some() {
                continue;
            }
            let request = ListUploadsRequest { upload_marker: upload.clone(), ..of_uploads("b/", Some(marker)) };
            let page = archive.list_uploads(&admin(), request).await.unwrap();
            let keys: Vec<&str> = page.uploads.iter().map(|upload| upload.key.as_str()).collect();
            assert_eq!(keys, *expected, "uploads behind `{marker}`, {upload:?}");
        }
        let request = ListRequest {
            bucket: "bucket".into(),
            prefix: "b/".into(),
            after: Some(marker.into()),
            limit: 1000,
            ..ListRequest::default()
        };
        let page = archive.list(&admin(), request).await.unwrap();
        let keys: Vec<&str> = page.objects.iter().map(|object| object.key.as_str()).collect();
        assert_eq!(keys, *expected, "objects behind `{marker}`");
    }
}

#[tokio::test]
async fn uploads_under_a_delimiter_are_listed_once_in_pages_of_any_size() {
    let world = World::new(2);
    let archive = bucket(&world, NewBucket::default()).await;
    for key in ["photos/a", "photos/b", "photos/b", "plain", "plain", "videos/a", "videos/b"] {
        begin(&archive, key).await;
    }
    for limit in 1..=5 {
        let mut request = ListUploadsRequest { delimiter: Some("/".into()), limit, ..of_uploads("", None) };
        let mut entries = Vec::new();
        loop {
            let page = archive.list_uploads(&admin(), request.clone()).await.unwrap();
            entries.extend(page.uploads.into_iter().map(|upload| upload.key).chain(page.common_prefixes));
            assert!(entries.len() <= 4, "pages of {limit}: {entries:?}");
            if !page.truncated {
                break;
            }
            request.key_marker = page.next_key_marker;
            request.upload_marker = page.next_upload_marker;
        }
        entries.sort();
        assert_eq!(entries, ["photos/", "plain", "plain", "videos/"], "pages of {limit}");
    }
}

#[tokio::test]
async fn versions_below_a_null_version_that_went_are_listed() {
    let world = World::new(3);
    let archive = bucket(&world, NewBucket { versioning: true, ..NewBucket::default() }).await;
    let mut numbered = Vec::new();
    for data in [b"1", b"2"] {
        numbered.push(put(&archive, "bucket", "key", data).await.unwrap().version);
    }
    numbered.reverse();
    archive.change_bucket(&admin(), "bucket", BucketChange::Versioning(Versioning::Suspended)).await.unwrap();
    let null = put(&archive, "bucket", "key", b"null").await.unwrap().version;
    assert_eq!(null, VersionId::Null);
    put(&archive, "bucket", "next", b"next").await.unwrap();
    let first = archive.list_versions(&admin(), ListVersionsRequest { limit: 1, ..of_versions("", None) }).await;
    let first = first.unwrap();
    assert_eq!((first.next_key_marker.as_deref(), first.next_version_marker), (Some("key"), Some(VersionId::Null)));
    let removal =
        DeleteRequest { bucket: "bucket".into(), key: "key".into(), version: Some(null), ..DeleteRequest::default() };
    archive.delete(&admin(), removal).await.unwrap();
    for limit in [1, 2, 1000] {
        let behind =
            ListVersionsRequest { version_marker: Some(VersionId::Null), limit, ..of_versions("", Some("key")) };
        let rest = all_versions(&archive, behind).await;
        let expected = [
            ("key".to_owned(), numbered[0], true),
            ("key".to_owned(), numbered[1], false),
            ("next".to_owned(), VersionId::Null, true),
        ];
        assert_eq!(rest, expected, "pages of {limit}");
    }
}

#[tokio::test]
async fn a_delete_marker_is_added_at_the_quota_of_versions() {
    let world = World::new(4);
    let quota = Quota { bytes: Some(1 << 20), versions: Some(2) };
    let archive = bucket(&world, NewBucket { versioning: true, quota, ..NewBucket::default() }).await;
    let first = put(&archive, "bucket", "key", b"1").await.unwrap().version;
    put(&archive, "bucket", "key", b"2").await.unwrap();
    let full = put(&archive, "bucket", "key", b"3").await;
    let told = full.unwrap_err().to_string();
    assert_eq!(told, "bucket `bucket` would exceed its quota of 2 versions; nothing was stored");
    let delete =
        |version| DeleteRequest { bucket: "bucket".into(), key: "key".into(), version, ..DeleteRequest::default() };
    let marker = archive.delete(&admin(), delete(None)).await.unwrap();
    assert!(marker.delete_marker);
    assert_eq!(archive.usage(&admin(), "bucket").await.unwrap().versions, 3, "a marker counts");
    // The quota is exceeded by one: one version less is still no room for another.
    archive.delete(&admin(), delete(Some(first))).await.unwrap();
    let full = put(&archive, "bucket", "key", b"3").await;
    assert!(matches!(full, Err(ArchiveError::QuotaExceeded { .. })), "{full:?}");
    archive.delete(&admin(), delete(marker.version)).await.unwrap();
    put(&archive, "bucket", "key", b"3").await.unwrap();
}

/// Nothing but a count of keys bounds how many deleted ones lie between two that are listed.
#[tokio::test]
async fn a_listing_over_deleted_keys_lets_others_have_the_processor() {
    let world = World::new(8);
    let archive = world.create().await;
    let versioned = NewBucket { versioning: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "bucket", versioned).await.unwrap();
    for number in 0..600 {
        let request = DeleteRequest { bucket: "bucket".into(), key: format!("{number:04}"), ..Default::default() };
        archive.delete(&admin(), request).await.unwrap();
    }
    put(&archive, "bucket", "there", b"x").await.unwrap();
    let request = ListRequest { bucket: "bucket".into(), limit: 1000, ..ListRequest::default() };
    let caller = admin();
    let mut page = std::pin::pin!(archive.list(&caller, request));
    let first = futures_util::poll!(page.as_mut());
    assert!(first.is_pending(), "600 keys in one poll");
    let page = page.await.unwrap();
    assert_eq!(page.objects.iter().map(|info| info.key.as_str()).collect::<Vec<_>>(), ["there"]);
}

/// The last key that a page passes is a directory's own, and the directory has others.
#[tokio::test]
async fn a_page_that_ends_early_skips_no_directory() {
    let world = World::new(9);
    let archive = bucket(&world, NewBucket { versioning: true, ..NewBucket::default() }).await;
    // Directories without files, whose own keys are all that they have.
    let bare: Vec<String> = (0..8).map(|number| format!("y{number}/")).collect();
    for key in ["a", "b", "c", "z/", "z/gone"].into_iter().chain(bare.iter().map(String::as_str)) {
        let request = DeleteRequest { bucket: "bucket".into(), key: key.into(), ..DeleteRequest::default() };
        archive.delete(&admin(), request).await.unwrap();
    }
    put(&archive, "bucket", "z/there", b"x").await.unwrap();
    let request = ListRequest { bucket: "bucket".into(), limit: 1000, may_end_early: true, ..ListRequest::default() };
    for (delimiter, listed) in [(Some("/".to_owned()), "z/"), (None, "z/there")] {
        let mut request = ListRequest { delimiter, ..request.clone() };
        let (mut entries, mut pages) = (Vec::new(), 0);
        loop {
            let page = archive.list(&admin(), request.clone()).await.unwrap();
            entries.extend(page.objects.into_iter().map(|object| object.key).chain(page.common_prefixes));
            pages += 1;
            if !page.truncated {
                break;
            }
            request.token = page.next_token;
        }
        assert_eq!((entries, pages), (vec![listed.to_owned()], 4));
    }
}
