//! Requests and expectations of stock clients, byte by byte: boto3, aws-cli, mc (minio-go), rclone,
//! and the public S3 suites.

use super::http::{Answer, Ask, between, chain, sha256};
use super::server::Server;
use super::wire::{EMPTY, check, expect, server};

fn crc32c(bytes: &[u8]) -> String {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    base64_simd::STANDARD.encode_to_string(sum.to_be_bytes())
}

/// Begins an upload with these headers; returns its id.
async fn begin(server: &Server, target: &str, headers: &[(&str, &str)]) -> String {
    let mut ask = Ask::new(server, "POST", &format!("{target}?uploads"));
    for (name, value) in headers {
        ask = ask.header(name, value);
    }
    let answer = ask.send(server).await;
    expect("an upload", &answer, 200, "");
    between(&answer.text(), "<UploadId>", "</UploadId>").unwrap()
}

/// Sends part 1 with these headers; returns its entity tag.
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

    // A composite in the form of minio-go (bare) and of answers (with the number of parts).
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

#[tokio::test]
async fn what_is_asked_for_is_done_or_refused() {
    let server = server().await;
    check(&server, "a source", Ask::new(&server, "PUT", "/bucket/from").body("x"), 200, "").await;
    let key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    let put = |name: &str, value: &str| Ask::new(&server, "PUT", "/bucket/k").body("x").header(name, value);
    let copy = |name: &str, value: &str| {
        Ask::new(&server, "PUT", "/bucket/k").header("x-amz-copy-source", "/bucket/from").header(name, value)
    };
    let with = "x-amz-server-side-encryption";
    for (name, ask, status, code) in [
        ("SHA-512", put("x-amz-checksum-sha512", "AAAA"), 400, "InvalidRequest"),
        ("MD5 as a checksum", put("x-amz-checksum-md5", "AAAA"), 400, "InvalidRequest"),
        ("xxHash", put("x-amz-checksum-xxhash3", "AAAA"), 400, "InvalidRequest"),
        ("a checksum to come", put("x-amz-checksum-tomorrow", "AAAA"), 400, "InvalidRequest"),
        ("a header of tomorrow", put("x-amz-keep-forever", "true"), 501, "NotImplemented"),
        ("metadata without a name", put("x-amz-meta-", "x"), 400, "InvalidArgument"),
        ("a grant", put("x-amz-grant-read", "id=\"x\""), 400, "AccessControlListNotSupported"),
        ("a grant of a copy", copy("x-amz-grant-full-control", "id=\"x\""), 400, "AccessControlListNotSupported"),
        ("a KMS key alone", put(&format!("{with}-aws-kms-key-id"), "k"), 400, "InvalidArgument"),
        ("a KMS context", put(&format!("{with}-context"), "e30="), 400, "InvalidArgument"),
        ("a bucket key", put(&format!("{with}-bucket-key-enabled"), "true"), 400, "InvalidArgument"),
        (
            "AES256 and a customer key",
            put(with, "AES256")
                .header(&format!("{with}-customer-algorithm"), "AES256")
                .header(&format!("{with}-customer-key"), key)
                .header(&format!("{with}-customer-key-md5"), "hRasmdxgYDKV3nvbahU1MA=="),
            400,
            "InvalidArgument",
        ),
        ("a redirect to nowhere", put("x-amz-website-redirect-location", "nowhere"), 400, "InvalidRedirectLocation"),
        ("a source of another owner", copy("x-amz-source-expected-bucket-owner", "other"), 403, "AccessDenied"),
        ("a source of this owner", copy("x-amz-source-expected-bucket-owner", &server.access_key), 200, ""),
        ("a copy over another", copy("if-match", "\"other\""), 412, "PreconditionFailed"),
        ("a copy over anything", copy("if-none-match", "*"), 412, "PreconditionFailed"),
        ("tags of a copy that are not asked for", copy("x-amz-tagging", "a=1"), 400, "InvalidRequest"),
        ("MFA", Ask::new(&server, "DELETE", "/bucket/k").header("x-amz-mfa", "serial 123456"), 501, "NotImplemented"),
        (
            "a lock on a part",
            Ask::new(&server, "DELETE", "/bucket/k").header("x-amz-object-lock-mode", "COMPLIANCE"),
            400,
            "InvalidArgument",
        ),
    ] {
        check(&server, name, ask, status, code).await;
    }
}

#[tokio::test]
async fn a_bucket_is_made_as_asked_or_not_at_all() {
    let server = server().await;
    let make = |body: &str| Ask::new(&server, "PUT", "/made").body(body);
    let configured = |inner: &str| make(&format!("<CreateBucketConfiguration>{inner}</CreateBucketConfiguration>"));
    let region = |name: &str| configured(&format!("<LocationConstraint>{name}</LocationConstraint>"));
    for (name, ask, status, code) in [
        ("a grant", make("").header("x-amz-grant-read", "id=x"), 400, "InvalidBucketAclWithObjectOwnership"),
        ("writers own", make("").header("x-amz-object-ownership", "ObjectWriter"), 501, "NotImplemented"),
        ("nobody owns", make("").header("x-amz-object-ownership", "Nobody"), 400, "InvalidArgument"),
        ("a region that is none", region("nowhere"), 400, "InvalidLocationConstraint"),
        ("a directory bucket", configured("<Bucket><Type>Directory</Type></Bucket>"), 501, "NotImplemented"),
        ("a namespace", make("").header("x-amz-bucket-namespace", "account-regional"), 501, "NotImplemented"),
        ("not made by any of these", Ask::new(&server, "HEAD", "/made"), 404, ""),
    ] {
        let head = ask.method == "HEAD";
        let answer = ask.send(&server).await;
        assert!(
            answer.status == status && (head || answer.code() == code),
            "{name}: {}\n{}",
            answer.head,
            answer.text()
        );
    }
    let tags = "<Tags><Tag><Key>who</Key><Value>me &amp; you</Value></Tag></Tags>";
    let owned = configured(tags).header("x-amz-object-ownership", "BucketOwnerEnforced");
    check(&server, "tags", owned, 200, "").await;
    let tagged = Ask::new(&server, "GET", "/made?tagging").send(&server).await.text();
    assert!(tagged.contains("<Key>who</Key><Value>me &amp; you</Value>"), "{tagged}");

    // In the first region of AWS, creating one's own bucket again is allowed, unless the request
    // asks for different settings.
    check(&server, "the same again", configured(tags), 200, "").await;
    check(&server, "without its tags", make(""), 200, "").await;
    let locked = make("").header("x-amz-bucket-object-lock-enabled", "true");
    check(&server, "again, with a lock", locked, 409, "BucketAlreadyOwnedByYou").await;
    let elsewhere = region("eu-west-1");
    check(&server, "again, elsewhere", elsewhere, 409, "BucketAlreadyOwnedByYou").await;
    let other = server.key(stele_archive::Rights::all()).await;
    check(&server, "another's", make("").by(&other), 409, "BucketAlreadyExists").await;
}

#[tokio::test]
async fn parts_and_completions_keep_to_the_upload() {
    let server = server().await;
    let (at, sum) = ("/bucket/k", crc32c(b"a part"));
    let upload = begin(&server, at, &[("x-amz-checksum-algorithm", "CRC32C")]).await;
    let target = format!("{at}?partNumber=1&uploadId={upload}");
    let other = Ask::new(&server, "PUT", &target).body("hello").header("x-amz-checksum-crc32", "NhCmhg==");
    check(&server, "a part with another algorithm", other, 400, "InvalidRequest").await;
    let etag = part(&server, at, &upload, &[("x-amz-checksum-crc32c", &sum)]).await;
    let said = format!("<ChecksumCRC32C>{sum}</ChecksumCRC32C>");
    let complete = |more: &str| completion(&server, at, &upload, &etag, more);
    check(&server, "no checksum of the part", complete(""), 400, "InvalidRequest").await;
    let other = "<ChecksumCRC32>NhCmhg==</ChecksumCRC32>";
    check(&server, "another algorithm's", complete(&format!("{said}{other}")), 400, "InvalidPart").await;
    let kind = complete(&said).header("x-amz-checksum-type", "FULL_OBJECT");
    check(&server, "another type", kind, 400, "InvalidRequest").await;
    let kind = complete(&said).header("x-amz-checksum-type", "NONE");
    check(&server, "a type that is none", kind, 400, "InvalidRequest").await;
    let whole = complete(&said).header("x-amz-checksum-crc32", "NhCmhg==");
    check(&server, "another algorithm's whole", whole, 400, "InvalidRequest").await;
    let count = complete(&said).header("x-amz-checksum-crc32c", &format!("{}-2", crc32c(b"other")));
    check(&server, "another composite", count, 400, "BadDigest").await;
    let size = complete(&said).header("x-amz-mp-object-size", "-6");
    check(&server, "a size below nothing", size, 400, "InvalidArgument").await;
    for wrong in ["6x", "6.0", "x"] {
        let size = complete(&said).header("x-amz-mp-object-size", wrong);
        check(&server, "a size that is no number", size, 400, "InvalidArgument").await;
    }
    check(&server, "as begun", complete(&said).header("x-amz-checksum-type", "COMPOSITE"), 200, "").await;

    let upload = begin(&server, at, &[]).await;
    let etag = part(&server, at, &upload, &[]).await;
    let whole = completion(&server, at, &upload, &etag, "").header("x-amz-checksum-crc32c", &sum);
    check(&server, "a checksum that cannot be compared", whole, 400, "InvalidRequest").await;
    check(&server, "none", completion(&server, at, &upload, &etag, ""), 200, "").await;
}

#[tokio::test]
async fn answers_are_those_of_aws() {
    let server = server().await;
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    check(&server, "bucket tags", Ask::new(&server, "PUT", "/bucket?tagging").body(tags), 204, "").await;
    let put = Ask::new(&server, "PUT", "/bucket/k").body("0123456789").header("x-amz-meta-who", "me");
    let put = put.send(&server).await;
    expect("a put", &put, 200, "");
    let etag = put.header("etag").unwrap();
    let attributes = Ask::new(&server, "GET", "/bucket/k?attributes").header("x-amz-object-attributes", "ETag");
    let attributes = attributes.send(&server).await;
    let bare = format!("<ETag>{}</ETag>", etag.trim_matches('"'));
    assert!(attributes.text().contains(&bare), "{}", attributes.text());
    assert_eq!(attributes.header("content-length"), Some(attributes.body.len().to_string()));
    for name in ["x-amz-max-parts", "x-amz-part-number-marker"] {
        let ask = |value: &str| {
            Ask::new(&server, "GET", "/bucket/k?attributes")
                .header("x-amz-object-attributes", "ObjectParts")
                .header(name, value)
        };
        check(&server, name, ask("1x"), 400, "InvalidArgument").await;
        check(&server, name, ask("1"), 200, "").await;
    }

    let head = async |target: &str, range: Option<&str>| {
        let mut ask = Ask::new(&server, "HEAD", target);
        if let Some(range) = range {
            ask = ask.header("range", range);
        }
        ask.send(&server).await
    };
    let ranged = head("/bucket/k", Some("bytes=2-4")).await;
    assert_eq!((ranged.status, ranged.header("content-range").as_deref()), (206, Some("bytes 2-4/10")));
    assert_eq!(ranged.header("content-length").as_deref(), Some("3"));
    assert_eq!(head("/bucket/k?partNumber=1", None).await.status, 206);
    let named = head("/bucket/k?response-content-type=text%2Fx&response-cache-control=no-store", None).await;
    assert_eq!(named.header("content-type").as_deref(), Some("text/x"), "{}", named.head);
    assert_eq!(named.header("cache-control").as_deref(), Some("no-store"), "{}", named.head);
    for name in ["content-type", "cache-control", "content-disposition", "content-encoding", "content-language"] {
        let target = format!("/bucket/k?response-{name}=a%0D%0Ax-other%3A%201");
        for method in ["GET", "HEAD"] {
            let answer = Ask::new(&server, method, &target).send(&server).await;
            assert_eq!((answer.status, answer.header("x-other")), (400, None), "{method} {target}: {}", answer.head);
        }
    }

    let key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    let customer = {
        use md5::Digest;
        base64_simd::STANDARD.encode_to_string(md5::Md5::digest(b"01234567890123456789012345678901"))
    };
    let with = "x-amz-server-side-encryption-customer-";
    let names = [format!("{with}algorithm"), format!("{with}key"), format!("{with}key-md5")];
    let headers = [(names[0].as_str(), "AES256"), (names[1].as_str(), key), (names[2].as_str(), customer.as_str())];
    let upload = begin(&server, "/bucket/a%2Fb", &headers).await;
    let mut ask = Ask::new(&server, "PUT", &format!("/bucket/a%2Fb?partNumber=1&uploadId={upload}")).body("a part");
    for (name, value) in headers {
        ask = ask.header(name, value);
    }
    let sent = ask.send(&server).await;
    assert_eq!(sent.header(&names[2]), Some(customer.clone()), "{}", sent.head);
    let etag = sent.header("etag").unwrap();
    let done = completion(&server, "/bucket/a%2Fb", &upload, &etag, "").send(&server).await;
    let location = format!("<Location>http://{}/bucket/a/b</Location>", server.address);
    assert!(done.text().contains(&location), "{}", done.text());
}

#[tokio::test]
async fn a_part_is_read_with_its_own_checksum() {
    let server = server().await;
    let (at, sum) = ("/bucket/k", crc32c(b"a part"));
    let upload = begin(&server, at, &[("x-amz-checksum-algorithm", "CRC32C")]).await;
    let etag = part(&server, at, &upload, &[("x-amz-checksum-crc32c", &sum)]).await;
    let said = format!("<ChecksumCRC32C>{sum}</ChecksumCRC32C>");
    check(&server, "an object", completion(&server, at, &upload, &etag, &said), 200, "").await;
    // The AWS Common Runtime writes the mode in lower case.
    for (method, mode) in [("GET", "ENABLED"), ("HEAD", "ENABLED"), ("GET", "enabled"), ("HEAD", "enabled")] {
        let ask = Ask::new(&server, method, "/bucket/k?partNumber=1").header("x-amz-checksum-mode", mode);
        let answer = ask.send(&server).await;
        assert_eq!(
            (answer.status, answer.header("x-amz-checksum-crc32c")),
            (206, Some(sum.clone())),
            "{}",
            answer.head
        );
        assert_eq!(answer.header("x-amz-mp-parts-count").as_deref(), Some("1"));
    }
}

#[tokio::test]
async fn writes_to_a_suspended_bucket_name_no_version() {
    let server = server().await;
    let versioning = |status: &str| {
        let text = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        Ask::new(&server, "PUT", "/bucket?versioning").body(text)
    };
    check(&server, "versioning", versioning("Enabled"), 200, "").await;
    let put = Ask::new(&server, "PUT", "/bucket/k").body("1").send(&server).await;
    assert!(put.header("x-amz-version-id").is_some_and(|version| version != "null"), "{}", put.head);
    check(&server, "suspending", versioning("Suspended"), 200, "").await;
    let put = Ask::new(&server, "PUT", "/bucket/k").body("2").send(&server).await;
    assert_eq!((put.status, put.header("x-amz-version-id")), (200, None), "{}", put.head);
    let copy = Ask::new(&server, "PUT", "/bucket/l").header("x-amz-copy-source", "/bucket/k").send(&server).await;
    assert_eq!((copy.status, copy.header("x-amz-version-id")), (200, None), "{}", copy.head);
    let upload = begin(&server, "/bucket/m", &[]).await;
    let etag = part(&server, "/bucket/m", &upload, &[]).await;
    let done = completion(&server, "/bucket/m", &upload, &etag, "").send(&server).await;
    assert_eq!((done.status, done.header("x-amz-version-id")), (200, None), "{}", done.head);
    let got = Ask::new(&server, "GET", "/bucket/k").send(&server).await;
    assert_eq!(got.header("x-amz-version-id").as_deref(), Some("null"), "a read names the null version");
}

#[tokio::test]
async fn repeated_metadata_is_one_list() {
    let server = server().await;
    let (mut ask, _) = {
        // The values are signed as one list, as Signature Version 4 requires.
        let ask = Ask::new(&server, "PUT", "/bucket/k").body("x").header("x-amz-meta-who", "me,you");
        ask.signed()
    };
    ask.headers.retain(|(name, _)| name != "x-amz-meta-who");
    let ask = ask.smuggle("x-amz-meta-who", "me").smuggle("x-amz-meta-who", "you");
    expect("a put", &ask.send_unsigned(&server, false).await, 200, "");
    let got = Ask::new(&server, "GET", "/bucket/k").send(&server).await;
    assert_eq!(got.header("x-amz-meta-who").as_deref(), Some("me,you"), "{}", got.head);
}

#[tokio::test]
async fn what_is_not_configured_is_said_to_be_so() {
    let server = server().await;
    for (name, status, code) in [
        ("policy", 404, "NoSuchBucketPolicy"),
        ("policyStatus", 404, "NoSuchBucketPolicy"),
        ("cors", 404, "NoSuchCORSConfiguration"),
        ("lifecycle", 404, "NoSuchLifecycleConfiguration"),
        ("replication", 404, "ReplicationConfigurationNotFoundError"),
        ("website", 404, "NoSuchWebsiteConfiguration"),
        ("publicAccessBlock", 404, "NoSuchPublicAccessBlockConfiguration"),
        ("logging", 200, ""),
        ("notification", 200, ""),
        ("accelerate", 200, ""),
        ("requestPayment", 200, ""),
        ("encryption", 200, ""),
    ] {
        check(&server, name, Ask::new(&server, "GET", &format!("/bucket?{name}")), status, code).await;
        check(&server, name, Ask::new(&server, "GET", &format!("/nowhere?{name}")), 404, "NoSuchBucket").await;
        let less = server.key(stele_archive::Rights::user("other", "")).await;
        check(&server, name, Ask::new(&server, "GET", &format!("/bucket?{name}")).by(&less), 403, "AccessDenied").await;
    }
    let rule = |text: &str| {
        let text = format!(
            "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault>{text}</ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>"
        );
        Ask::new(&server, "PUT", "/bucket?encryption").body(text)
    };
    check(&server, "what is so anyway", rule("<SSEAlgorithm>AES256</SSEAlgorithm>"), 200, "").await;
    check(&server, "KMS", rule("<SSEAlgorithm>aws:kms</SSEAlgorithm>"), 501, "NotImplemented").await;
    let key = "<SSEAlgorithm>AES256</SSEAlgorithm><KMSMasterKeyID>k</KMSMasterKeyID>";
    check(&server, "a KMS key", rule(key), 400, "InvalidArgument").await;
    check(
        &server,
        "an algorithm that is none",
        rule("<SSEAlgorithm>ROT13</SSEAlgorithm>"),
        400,
        "InvalidEncryptionAlgorithmError",
    )
    .await;
    check(&server, "the default again", Ask::new(&server, "DELETE", "/bucket?encryption"), 204, "").await;
    let less = server.key(stele_archive::Rights::user("bucket", "")).await;
    let unasked = rule("<SSEAlgorithm>AES256</SSEAlgorithm>").by(&less);
    check(&server, "no right", unasked, 403, "AccessDenied").await;
}

#[tokio::test]
async fn version_two_is_refused_with_the_way_out() {
    let server = server().await;
    let presigned = Ask::new(&server, "GET", "/bucket/k?AWSAccessKeyId=AK&Expires=9999999999&Signature=abc");
    let answer = presigned.send_unsigned(&server, false).await;
    expect("version two, presigned", &answer, 400, "InvalidRequest");
    assert!(answer.text().contains("aws configure set default.s3.signature_version s3v4"), "{}", answer.text());
    let field = |name: &str| format!("--XX\r\nContent-Disposition: form-data; {name}\r\n\r\nx\r\n");
    let fields = ["name=\"key\"", "name=\"AWSAccessKeyId\"", "name=\"file\"; filename=\"f\""].map(field);
    let form = Ask::new(&server, "POST", "/bucket").header("content-type", "multipart/form-data; boundary=XX");
    let answer = form.body(format!("{}--XX--\r\n", fields.concat())).send_unsigned(&server, false).await;
    expect("version two, in a form", &answer, 400, "InvalidRequest");
    assert!(answer.text().contains("boto3"), "{}", answer.text());
}

#[tokio::test]
async fn a_url_of_the_sdk_for_javascript_takes_any_body() {
    let server = server().await;
    // It signs the checksum of the body that it has when it signs, which is none.
    let signed = "x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32";
    let put = |target: &str, body: &str| Ask::new(&server, "PUT", &format!("{target}{signed}")).body(body).presigned();
    let sums = |answer: &Answer| ["crc32", "crc64nvme"].map(|name| answer.header(&format!("x-amz-checksum-{name}")));
    let stored = put("/bucket/k?x-id=PutObject&", "hello").send_unsigned(&server, false).await;
    expect("an object", &stored, 200, "");
    assert_eq!(sums(&stored), [None, Some("M3eFcAZSQlc=".into())], "{}", stored.head);
    let empty = put("/bucket/k?x-id=PutObject&", "").send_unsigned(&server, false).await;
    expect("an empty object", &empty, 200, "");
    assert_eq!(sums(&empty), [Some("AAAAAA==".into()), None], "{}", empty.head);
    let upload = begin(&server, "/bucket/m", &[]).await;
    let target = format!("/bucket/m?partNumber=1&uploadId={upload}&x-id=UploadPart&");
    let sent = put(&target, "a part").send_unsigned(&server, false).await;
    expect("a part", &sent, 200, "");
    let etag = sent.header("etag").unwrap();
    expect("a completion", &completion(&server, "/bucket/m", &upload, &etag, "").send(&server).await, 200, "");
    let other = Ask::new(&server, "PUT", "/bucket/k?x-amz-checksum-crc32=NhCmhg%3D%3D").body("hallo").presigned();
    let refused = other.send_unsigned(&server, false).await;
    expect("a checksum of another body", &refused, 400, "BadDigest");
}

#[tokio::test]
async fn a_deletion_without_versioning_names_no_version() {
    let server = server().await;
    for (target, named) in [("/bucket/k", None), ("/bucket/k?versionId=null", Some("null"))] {
        check(&server, "an object", Ask::new(&server, "PUT", "/bucket/k").body("1"), 200, "").await;
        let gone = Ask::new(&server, "DELETE", target).send(&server).await;
        assert_eq!((gone.status, gone.header("x-amz-version-id").as_deref()), (204, named), "{}", gone.head);
    }
}

#[tokio::test]
async fn a_copy_of_an_object_without_a_checksum_gets_one() {
    let server = server().await;
    let upload = begin(&server, "/bucket/m", &[]).await;
    let etag = part(&server, "/bucket/m", &upload, &[("x-amz-checksum-crc32c", &crc32c(b"a part"))]).await;
    let done = completion(&server, "/bucket/m", &upload, &etag, "").send(&server).await;
    expect("a completion", &done, 200, "");
    assert!(!done.text().contains("<Checksum"), "the object has none: {}", done.text());
    let copy = Ask::new(&server, "PUT", "/bucket/copy").header("x-amz-copy-source", "/bucket/m").send(&server).await;
    expect("a copy", &copy, 200, "");
    assert!(copy.text().contains("<ChecksumCRC64NVME>"), "{}", copy.text());
}

#[tokio::test]
async fn version_four_a_is_not_implemented() {
    let server = server().await;
    let algorithm = "AWS4-ECDSA-P256-SHA256";
    let fields = format!("{algorithm} Credential=AK/20300101/s3/aws4_request, SignedHeaders=host, Signature=00");
    let headed = Ask::new(&server, "GET", "/bucket/k").header("authorization", &fields);
    expect("in a header", &headed.send_unsigned(&server, false).await, 501, "NotImplemented");
    let target = format!("/bucket/k?X-Amz-Algorithm={algorithm}&X-Amz-Signature=00");
    expect("presigned", &Ask::new(&server, "GET", &target).send_unsigned(&server, false).await, 501, "NotImplemented");
}

#[tokio::test]
async fn a_mistyped_element_about_keeping_changes_nothing() {
    let server = server().await;
    let made = Ask::new(&server, "PUT", "/kept").header("x-amz-bucket-object-lock-enabled", "true");
    check(&server, "a bucket with a lock", made, 200, "").await;
    let set = |query: &str, text: &str| Ask::new(&server, "PUT", &format!("/kept?{query}")).body(text.to_owned());
    let default = "<DefaultRetention><Mode>COMPLIANCE</Mode><Days>30</Days></DefaultRetention>";
    let lock = |rule: &str| {
        let text = format!(
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>{rule}</ObjectLockConfiguration>"
        );
        set("object-lock", &text)
    };
    check(&server, "a default", lock(&format!("<Rule>{default}</Rule>")), 200, "").await;
    let mistyped = format!("<Rules>{default}</Rules>");
    check(&server, "rules", lock(&mistyped), 400, "MalformedXML").await;
    let prefixed = format!("<s:Rule xmlns:s='urn:s'>{default}</s:Rule>");
    check(&server, "a prefix", lock(&prefixed), 400, "MalformedXML").await;
    let kept = Ask::new(&server, "GET", "/kept?object-lock").send(&server).await;
    assert!(kept.text().contains("<Days>30</Days>"), "{}", kept.text());

    let lifecycle = |expiration: &str| {
        let text = format!(
            "<LifecycleConfiguration><Rule><ID>a</ID><Filter/><Status>Enabled</Status>{expiration}</Rule></LifecycleConfiguration>"
        );
        set("lifecycle", &text)
    };
    let expiration = |limit: &str| {
        let days = "<NoncurrentDays>3</NoncurrentDays>";
        lifecycle(&format!("<NoncurrentVersionExpiration>{days}{limit}</NoncurrentVersionExpiration>"))
    };
    let limit = "<NewerNoncurrentVersions>5</NewerNoncurrentVersions>";
    check(&server, "a rule", expiration(limit), 200, "").await;
    let mistyped = "<NewerNoncurrentVersion>5</NewerNoncurrentVersion>";
    check(&server, "a limit that is none", expiration(mistyped), 400, "MalformedXML").await;
    let versions = "<VersioningConfiguration><Status>Enabled</Status><Stat>Suspended</Stat></VersioningConfiguration>";
    check(&server, "two states", set("versioning", versions), 400, "MalformedXML").await;
    let deletion = "<Delete><Object><Key>k</Key><VersionID>1</VersionID></Object></Delete>";
    let several = Ask::new(&server, "POST", "/kept?delete").body(deletion);
    check(&server, "a version under another name", several, 400, "MalformedXML").await;
}

#[tokio::test]
async fn a_mistyped_element_about_reports_changes_nothing() {
    let server = server().await;
    let set = |query: &str, text: &str| Ask::new(&server, "PUT", &format!("/bucket?{query}")).body(text.to_owned());
    let logging = |element: &str| {
        let target = "<TargetBucket>bucket</TargetBucket><TargetPrefix>log/</TargetPrefix>";
        set("logging", &format!("<BucketLoggingStatus><{element}>{target}</{element}></BucketLoggingStatus>"))
    };
    check(&server, "an access log", logging("LoggingEnabled"), 200, "").await;
    check(&server, "one under another name", logging("LoggingEnable"), 400, "MalformedXML").await;
    let kept = Ask::new(&server, "GET", "/bucket?logging").send(&server).await;
    assert!(kept.text().contains("log/"), "the log goes on: {}", kept.text());
    let inventory = |filter: &str| {
        let to = "<Bucket>arn:aws:s3:::bucket</Bucket><Format>CSV</Format>";
        let text = format!(
            "<InventoryConfiguration><Destination><S3BucketDestination>{to}</S3BucketDestination></Destination>\
             <IsEnabled>true</IsEnabled>{filter}<Id>a</Id><IncludedObjectVersions>Current</IncludedObjectVersions>\
             <Schedule><Frequency>Daily</Frequency></Schedule></InventoryConfiguration>"
        );
        set("inventory&id=a", &text)
    };
    check(&server, "an inventory", inventory("<Filter><Prefix>a/</Prefix></Filter>"), 200, "").await;
    let mistyped = "<Filters><Prefix>a/</Prefix></Filters>";
    check(&server, "an inventory of more", inventory(mistyped), 400, "MalformedXML").await;
    let tags = |element: &str| {
        let tag = format!("<Tag><Key>class</Key><{element}>secret</{element}></Tag>");
        set("tagging", &format!("<Tagging><TagSet>{tag}</TagSet></Tagging>"))
    };
    check(&server, "tags", tags("Value"), 204, "").await;
    check(&server, "a tag without its value", tags("Val"), 400, "MalformedXML").await;
}
