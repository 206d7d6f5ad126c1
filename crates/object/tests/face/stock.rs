//! What stock clients send and expect, byte by byte: boto3, aws-cli, mc (minio-go), rclone, and the public S3 suites.

use super::http::{Ask, between, chain, sha256};
use super::server::Server;
use super::wire::{EMPTY, check, expect, server};

fn crc32c(bytes: &[u8]) -> String {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    base64_simd::STANDARD.encode_to_string(sum.to_be_bytes())
}

/// Begins an upload with these headers; its id.
async fn begin(server: &Server, target: &str, headers: &[(&str, &str)]) -> String {
    let mut ask = Ask::new(server, "POST", &format!("{target}?uploads"));
    for (name, value) in headers {
        ask = ask.header(name, value);
    }
    let answer = ask.send(server).await;
    expect("an upload", &answer, 200, "");
    between(&answer.text(), "<UploadId>", "</UploadId>").unwrap()
}

/// Sends part 1 with these headers; its entity tag.
async fn part(server: &Server, target: &str, upload: &str, headers: &[(&str, &str)]) -> String {
    let mut ask = Ask::new(server, "PUT", &format!("{target}?partNumber=1&uploadId={upload}")).body("a part");
    for (name, value) in headers {
        ask = ask.header(name, value);
    }
    let answer = ask.send(server).await;
    expect("a part", &answer, 200, "");
    answer.header("etag").unwrap()
}

/// The completion of part 1 alone, with these elements beside its entity tag.
fn completion(server: &Server, target: &str, upload: &str, etag: &str, more: &str) -> Ask {
    Ask::new(server, "POST", &format!("{target}?uploadId={upload}")).body(format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag>{more}</Part></CompleteMultipartUpload>"
    ))
}

#[tokio::test]
async fn a_completion_names_the_checksum_of_the_object() {
    let server = server().await;
    let (at, sum) = ("/bucket/whole", crc32c(b"a part"));
    let kind = ("x-amz-checksum-type", "FULL_OBJECT");
    let upload = begin(&server, at, &[("x-amz-checksum-algorithm", "CRC32C"), kind]).await;
    let etag = part(&server, at, &upload, &[("x-amz-checksum-crc32c", &sum)]).await;
    let complete = |sum: &str| {
        completion(&server, at, &upload, &etag, "").header("x-amz-checksum-crc32c", sum).header(kind.0, kind.1)
    };
    check(&server, "another checksum", complete(&crc32c(b"other")), 400, "BadDigest").await;
    let done = complete(&sum).send(&server).await;
    expect("the checksum of the object", &done, 200, "");
    assert!(done.text().contains(&format!("<ChecksumCRC32C>{sum}</ChecksumCRC32C>")), "{}", done.text());

    // A composite, as minio-go names it (bare) and as answers write it (with the number of parts).
    let raw = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, b"a part") as u32;
    let composite = crc32c(&raw.to_be_bytes());
    for said in [composite.clone(), format!("{composite}-1")] {
        let upload = begin(&server, at, &[("x-amz-checksum-algorithm", "CRC32C")]).await;
        let etag = part(&server, at, &upload, &[("x-amz-checksum-crc32c", &sum)]).await;
        let parts = format!("<ChecksumCRC32C>{sum}</ChecksumCRC32C>");
        let complete = completion(&server, at, &upload, &etag, &parts).header("x-amz-checksum-crc32c", &said);
        check(&server, "a composite", complete, 200, "").await;
    }
}

#[tokio::test]
async fn a_signed_trailer_as_minio_go_writes_it() {
    let server = server().await;
    let upload = async |trailer_of: &dyn Fn(&str, &str) -> String| {
        let mut ask = Ask::new(&server, "PUT", "/bucket/mc")
            .hash("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER")
            .header("x-amz-decoded-content-length", "5")
            .header("x-amz-trailer", "x-amz-checksum-crc32c");
        let seed;
        (ask, seed) = ask.signed();
        let (key, kind) = (ask.signing_key(), "AWS4-HMAC-SHA256-PAYLOAD");
        let first = chain(&key, &ask, kind, &seed, &format!("{EMPTY}\n{}", sha256(b"hello")));
        let last = chain(&key, &ask, kind, &first, &format!("{EMPTY}\n{EMPTY}"));
        let trailer = format!("x-amz-checksum-crc32c:{}\n", crc32c(b"hello"));
        let end = chain(&key, &ask, "AWS4-HMAC-SHA256-TRAILER", &last, &sha256(trailer.as_bytes()));
        let trailer = trailer_of(&trailer, &end);
        ask.body = format!("5;chunk-signature={first}\r\nhello\r\n0;chunk-signature={last}\r\n{trailer}").into_bytes();
        ask.send_unsigned(&server, false).await
    };
    let minio = |trailer: &str, end: &str| format!("{trailer}\r\nx-amz-trailer-signature:{end}\r\n\r\n");
    let done = upload(&minio).await;
    expect("as minio-go has it", &done, 200, "");
    assert_eq!(done.header("x-amz-checksum-crc32c"), Some(crc32c(b"hello")));
    let forged = |trailer: &str, end: &str| minio(trailer, &end.replace(&end[..4], "0000"));
    expect("another signature", &upload(&forged).await, 403, "SignatureDoesNotMatch");
    let cut = |trailer: &str, _: &str| format!("{trailer}\r\n");
    expect("no signature", &upload(&cut).await, 400, "MalformedTrailerError");
    let more = |trailer: &str, end: &str| format!("{trailer}\r\nother:1\r\nx-amz-trailer-signature:{end}\r\n\r\n");
    let answer = upload(&more).await;
    assert_eq!(answer.status, 400, "only the signature may follow the empty line: {}", answer.text());
}

#[tokio::test]
async fn a_bucket_goes_with_its_unfinished_uploads_and_never_with_a_version() {
    let server = server().await;
    let upload = begin(&server, "/bucket/half", &[]).await;
    part(&server, "/bucket/half", &upload, &[]).await;
    begin(&server, "/bucket/other", &[]).await;
    check(&server, "an object", Ask::new(&server, "PUT", "/bucket/k").body("kept"), 200, "").await;
    check(&server, "with an object", Ask::new(&server, "DELETE", "/bucket"), 409, "BucketNotEmpty").await;
    let listed = Ask::new(&server, "GET", "/bucket?uploads").send(&server).await.text();
    assert_eq!(listed.matches("<UploadId>").count(), 2, "a refused deletion aborts nothing: {listed}");
    let less = server.key(stele_archive::Rights::user("bucket", "")).await;
    check(&server, "no right", Ask::new(&server, "DELETE", "/bucket").by(&less), 403, "AccessDenied").await;
    check(&server, "no object", Ask::new(&server, "DELETE", "/bucket/k"), 204, "").await;
    check(&server, "with uploads", Ask::new(&server, "DELETE", "/bucket"), 204, "").await;
    check(&server, "gone", Ask::new(&server, "GET", "/bucket?uploads"), 404, "NoSuchBucket").await;

    let locked = Ask::new(&server, "PUT", "/locked").header("x-amz-bucket-object-lock-enabled", "true");
    check(&server, "a locked bucket", locked, 200, "").await;
    begin(&server, "/locked/half", &[]).await;
    let held = Ask::new(&server, "PUT", "/locked/k").body("held").header("x-amz-object-lock-legal-hold", "ON");
    check(&server, "a held version", held, 200, "").await;
    check(&server, "a marker", Ask::new(&server, "DELETE", "/locked/k"), 204, "").await;
    check(&server, "with a held version", Ask::new(&server, "DELETE", "/locked"), 409, "BucketNotEmpty").await;
    let listed = Ask::new(&server, "GET", "/locked?uploads").send(&server).await.text();
    assert_eq!(listed.matches("<UploadId>").count(), 1, "{listed}");
}
