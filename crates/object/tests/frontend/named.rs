//! Bodies that their clients name by the BLAKE3 of the content.

use super::http::{Ask, between};
use super::wire::{check, expect, server};

const HEADER: &str = "x-stele-content-blake3";

fn blake3_of(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex().to_string()
}

#[tokio::test]
async fn the_blake3_of_a_body_is_verified_and_confirmed() {
    let server = server().await;
    let put = |path: &str, body: &str, named: &str| {
        Ask::new(&server, "PUT", path).hash("UNSIGNED-PAYLOAD").header(HEADER, named).body(body)
    };
    let name = blake3_of("a record");
    let stored = put("/bucket/k", "a record", &name).send(&server).await;
    expect("a put", &stored, 200, "");
    assert_eq!(stored.header(HEADER), Some(name.clone()));
    // No client takes this tag for an MD5.
    let tag = format!("\"{}-0\"", &name[..32]);
    assert_eq!(stored.header("etag"), Some(tag.clone()));
    let read = Ask::new(&server, "GET", "/bucket/k").header("if-match", &tag).send(&server).await;
    expect("a read on the condition of the tag", &read, 200, "");
    assert_eq!((read.text().as_str(), read.header("x-amz-mp-parts-count")), ("a record", None));

    let other = put("/bucket/other", "a record", &blake3_of("another"));
    check(&server, "another body", other, 400, "BadDigest").await;
    check(&server, "... which stored nothing", Ask::new(&server, "GET", "/bucket/other"), 404, "NoSuchKey").await;
    for wrong in ["", "00", "xyz", &name[1..], &format!("{name}00")] {
        check(&server, wrong, put("/bucket/other", "a record", wrong), 400, "InvalidDigest").await;
    }
    let twice = put("/bucket/other", "a record", &name).header(HEADER, &name);
    assert!(twice.send(&server).await.status >= 400, "a header that is there twice");
    let smuggled = Ask::new(&server, "PUT", "/bucket/other").body("a record").smuggle(HEADER, &name);
    check(&server, "a header that no signature covers", smuggled, 403, "AccessDenied").await;
    let read = Ask::new(&server, "GET", "/bucket/k").header(HEADER, &name);
    check(&server, "a read", read, 501, "NotImplemented").await;

    // With the MD5 as well, which is verified and makes the tag.
    let md5 = put("/bucket/md5", "a record", &name).header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    check(&server, "another MD5", md5, 400, "BadDigest").await;
}

#[tokio::test]
async fn a_part_is_verified_and_its_object_has_the_usual_tag() {
    let server = server().await;
    let begun = Ask::new(&server, "POST", "/bucket/parts?uploads").send(&server).await;
    let upload = between(&begun.text(), "<UploadId>", "</UploadId>").unwrap();
    let path = format!("/bucket/parts?partNumber=1&uploadId={upload}");
    let part = |named: &str| Ask::new(&server, "PUT", &path).header(HEADER, named).body("one part");
    check(&server, "another part", part(&blake3_of("another")), 400, "BadDigest").await;
    let stored = part(&blake3_of("one part")).send(&server).await;
    expect("a part", &stored, 200, "");
    assert_eq!(stored.header(HEADER), Some(blake3_of("one part")));
    let tag = stored.header("etag").unwrap();
    assert!(!tag.contains('-'), "{tag}");
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part></CompleteMultipartUpload>"
    );
    let path = format!("/bucket/parts?uploadId={upload}");
    let done = Ask::new(&server, "POST", &path).body(list.as_str()).send(&server).await;
    expect("a completion", &done, 200, "");
    assert!(between(&done.text(), "<ETag>", "</ETag>").unwrap().contains("-1"), "{}", done.text());
}
