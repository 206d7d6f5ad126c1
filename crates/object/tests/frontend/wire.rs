//! The protocol byte by byte: signatures, framings and limits, and the code of every refusal.

use std::time::{Duration, SystemTime};

use super::http::{self, Answer, Ask, between, chain, hex, raw, sha256};
use super::server::Server;
use stele_ground::Bytes;
use stele_object::Settings;

pub const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

pub async fn server() -> Server {
    let server = Server::start(Settings::default(), Bytes(256 << 20)).await;
    check(&server, "a bucket", Ask::new(&server, "PUT", "/bucket"), 200, "").await;
    server
}

pub fn expect(name: &str, answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{name}: {}\n{}", answer.head, answer.text());
    let id = answer.header("x-amz-request-id");
    assert!(id.is_some(), "{name}: no request id");
    if !code.is_empty() {
        assert_eq!(http::between(&answer.text(), "<RequestId>", "</RequestId>"), id, "{name}");
        let message = http::between(&answer.text(), "<Message>", "</Message>").unwrap_or_default();
        assert!(message.len() > 10, "{name}: a refusal says why: {}", answer.text());
    }
}

pub async fn check(server: &Server, name: &str, ask: Ask, status: u16, code: &str) {
    expect(name, &ask.send(server).await, status, code);
}

#[tokio::test]
async fn signatures_are_demanded_and_verified() {
    let server = server().await;
    let get = |target: &str| Ask::new(&server, "GET", target);
    let now = SystemTime::now();
    check(&server, "signed", get("/bucket?list-type=2"), 200, "").await;
    check(&server, "a name that is no bucket's", Ask::new(&server, "PUT", "/r1"), 400, "InvalidBucketName").await;
    let nobody = ("AKNOBODY".to_owned(), "secret".to_owned());
    check(&server, "an unknown key", get("/bucket").by(&nobody), 403, "InvalidAccessKeyId").await;
    let guess = (server.access_key.clone(), "guess".to_owned());
    check(&server, "a wrong secret", get("/bucket").by(&guess), 403, "SignatureDoesNotMatch").await;
    let ended = server.expired_key(stele_archive::Rights::all()).await;
    check(&server, "an expired key", get("/bucket").by(&ended), 400, "ExpiredToken").await;
    let stale = get("/bucket").at(now - Duration::from_secs(16 * 60));
    check(&server, "too old", stale, 403, "RequestTimeTooSkewed").await;
    let ahead = get("/bucket").at(now + Duration::from_secs(16 * 60));
    check(&server, "too far ahead", ahead, 403, "RequestTimeTooSkewed").await;
    let slow = get("/bucket?list-type=2").at(now - Duration::from_secs(14 * 60));
    check(&server, "old, but not too old", slow, 200, "").await;
    let bypass = Ask::new(&server, "DELETE", "/bucket/k").smuggle("x-amz-bypass-governance-retention", "true");
    check(&server, "a header put on afterwards", bypass, 403, "AccessDenied").await;
    let other = Ask::new(&server, "PUT", "/bucket/k").body("body").hash(&sha256(b"other"));
    check(&server, "another payload than was signed", other, 400, "XAmzContentSHA256Mismatch").await;
    check(&server, "... which stored nothing", get("/bucket/k"), 404, "NoSuchKey").await;
    let nonsense = Ask::new(&server, "PUT", "/bucket/k").body("body").hash("nonsense");
    check(&server, "a hash that is none", nonsense, 400, "InvalidArgument").await;
    let unsigned = Ask::new(&server, "PUT", "/bucket/k").body("body").hash("UNSIGNED-PAYLOAD");
    check(&server, "an unsigned payload", unsigned, 200, "").await;
    let mut tampered = get("/bucket/k").signed().0;
    tampered.path = "/bucket/l".into();
    expect("another path", &tampered.send_unsigned(&server, false).await, 403, "SignatureDoesNotMatch");
    let anonymous = get("/bucket/k").send_unsigned(&server, false).await;
    expect("no signature", &anonymous, 403, "AccessDenied");
    let second = get("/bucket/k").header("authorization", "AWS AKID:signature");
    expect("version two", &second.send_unsigned(&server, false).await, 400, "InvalidRequest");
    let presigned_second = get("/bucket/k?AWSAccessKeyId=AK&Expires=9999999999&Signature=abc");
    expect("version two, presigned", &presigned_second.send_unsigned(&server, false).await, 400, "InvalidRequest");
    let broken = get("/bucket/k").header("authorization", "AWS4-HMAC-SHA256 nonsense");
    expect("a malformed header", &broken.send_unsigned(&server, false).await, 400, "AuthorizationHeaderMalformed");
    let audited = server.archive.audit_records(&stele_archive::Caller::local(0), 0, 1000).await.unwrap();
    let refusals = audited
        .iter()
        .filter(|record| record.refused.as_ref().is_some_and(|why| why.contains("SignatureDoesNotMatch")));
    assert!(refusals.count() >= 2, "refused signatures are in the audit log");
}

// The body of a signed aws-chunked upload.
fn chunked(ask: &Ask, seed: &str, pieces: &[&[u8]], trailer: Option<&str>) -> Vec<u8> {
    let key = ask.signing_key();
    let mut previous = seed.to_owned();
    let mut body = Vec::new();
    for piece in pieces.iter().chain(&[&b""[..]]) {
        previous = chain(&key, ask, "AWS4-HMAC-SHA256-PAYLOAD", &previous, &format!("{EMPTY}\n{}", sha256(piece)));
        body.extend_from_slice(format!("{:x};chunk-signature={previous}\r\n", piece.len()).as_bytes());
        if !piece.is_empty() {
            body.extend_from_slice(piece);
            body.extend_from_slice(b"\r\n");
        }
    }
    if let Some(trailer) = trailer {
        let hash = sha256(format!("{trailer}\n").as_bytes());
        let signature = chain(&key, ask, "AWS4-HMAC-SHA256-TRAILER", &previous, &hash);
        body.extend_from_slice(format!("{trailer}\r\nx-amz-trailer-signature:{signature}\r\n").as_bytes());
    }
    body.extend_from_slice(b"\r\n");
    body
}

async fn upload_chunked(server: &Server, length: usize, trailer: Option<&str>, spoil: impl Fn(&mut Vec<u8>)) -> Answer {
    let kind = match trailer {
        Some(_) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        None => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    };
    let mut ask = Ask::new(server, "PUT", "/bucket/chunked")
        .hash(kind)
        .header("content-encoding", "aws-chunked")
        .header("x-amz-decoded-content-length", &length.to_string());
    if trailer.is_some() {
        ask = ask.header("x-amz-trailer", "x-amz-checksum-crc32");
    }
    let (mut signed, seed) = ask.signed();
    let first = vec![b'a'; 70_000];
    signed.body = chunked(&signed, &seed, &[&first, b"tail"], trailer);
    spoil(&mut signed.body);
    signed.send_unsigned(server, false).await
}

fn find(body: &[u8], text: &[u8]) -> usize {
    body.windows(text.len()).position(|window| window == text).unwrap()
}

#[tokio::test]
async fn signed_chunks_are_verified_one_by_one() {
    let server = server().await;
    let crc =
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &[vec![b'a'; 70_000], b"tail".to_vec()].concat());
    let sum = base64_simd::STANDARD.encode_to_string((crc as u32).to_be_bytes());
    let trailer = format!("x-amz-checksum-crc32:{sum}");
    expect("chunks", &upload_chunked(&server, 70_004, None, |_| ()).await, 200, "");
    let stored = Ask::new(&server, "GET", "/bucket/chunked").send(&server).await;
    assert_eq!(stored.body.len(), 70_004);
    assert_eq!(stored.header("content-encoding"), None, "the framing is no part of the object");
    let done = upload_chunked(&server, 70_004, Some(&trailer), |_| ()).await;
    expect("chunks and a trailer", &done, 200, "");
    assert_eq!(done.header("x-amz-checksum-crc32"), Some(sum));

    let flip = |at: usize| move |body: &mut Vec<u8>| body[at] ^= 1;
    expect("a changed byte", &upload_chunked(&server, 70_004, None, flip(500)).await, 403, "SignatureDoesNotMatch");
    let cut = |body: &mut Vec<u8>| body.truncate(find(body, b"\r\n0;"));
    expect("no last chunk", &upload_chunked(&server, 70_004, None, cut).await, 400, "IncompleteBody");
    expect("less than declared", &upload_chunked(&server, 70_005, None, |_| ()).await, 400, "IncompleteBody");
    expect("more than declared", &upload_chunked(&server, 70_003, None, |_| ()).await, 400, "IncompleteBody");
    let bare = |body: &mut Vec<u8>| {
        let at = find(body, b"tail");
        let line = body[..at].iter().rposition(|byte| *byte == b';').unwrap();
        body.drain(line..at - 2);
    };
    expect("an unsigned chunk", &upload_chunked(&server, 70_004, None, bare).await, 403, "SignatureDoesNotMatch");
    let other = upload_chunked(&server, 70_004, Some("x-amz-checksum-crc32:AAAAAA=="), |_| ()).await;
    expect("another checksum in the trailer", &other, 400, "BadDigest");
    let forged = |body: &mut Vec<u8>| {
        let at = find(body, b"x-amz-checksum-crc32:") + 21;
        body[at] = if body[at] == b'A' { b'B' } else { b'A' };
    };
    expect(
        "a forged trailer",
        &upload_chunked(&server, 70_004, Some(&trailer), forged).await,
        403,
        "SignatureDoesNotMatch",
    );
    let missing = |body: &mut Vec<u8>| body.truncate(find(body, b"x-amz-checksum-crc32:"));
    let answer = upload_chunked(&server, 70_004, Some(&trailer), missing).await;
    expect("no trailer", &answer, 400, "MalformedTrailerError");
}

#[tokio::test]
async fn unsigned_chunks_are_protected_by_their_trailer() {
    let server = server().await;
    let upload = |body: &str, length: usize, announced: Option<&'static str>| {
        let mut ask = Ask::new(&server, "PUT", "/bucket/k")
            .hash("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
            .header("content-encoding", "gzip, aws-chunked")
            .header("x-amz-decoded-content-length", &length.to_string())
            .body(body);
        if let Some(name) = announced {
            ask = ask.header("x-amz-trailer", name);
        }
        ask
    };
    let crc32 = Some("x-amz-checksum-crc32");
    let good = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
    check(&server, "a trailer", upload(good, 5, crc32), 200, "").await;
    let stored = Ask::new(&server, "GET", "/bucket/k").send(&server).await;
    assert_eq!((stored.text().as_str(), stored.header("content-encoding").as_deref()), ("hello", Some("gzip")));
    let bad = good.replace("NhCm", "AAAA");
    check(&server, "another checksum", upload(&bad, 5, crc32), 400, "BadDigest").await;
    let none = "5\r\nhello\r\n0\r\n\r\n";
    check(&server, "announced and missing", upload(none, 5, crc32), 400, "MalformedTrailerError").await;
    let broken = "5\r\nhello\r\n0\r\nnonsense\r\n\r\n";
    check(&server, "no trailer at all", upload(broken, 5, crc32), 400, "MalformedTrailerError").await;
    check(&server, "framing", upload("5\r\nhelloX0\r\n\r\n", 5, None), 400, "InvalidRequest").await;
    check(&server, "a size that is none", upload("x\r\nhello\r\n0\r\n\r\n", 5, None), 400, "InvalidRequest").await;
    check(&server, "the end is missing", upload("5\r\nhello\r\n", 5, None), 400, "IncompleteBody").await;
    let unknown = upload(good, 5, Some("x-amz-checksum-md4"));
    check(&server, "an unknown trailer", unknown, 400, "InvalidRequest").await;
    let other = good.replace("crc32:", "sha512:");
    check(&server, "another checksum than any", upload(&other, 5, None), 400, "InvalidRequest").await;
    let mut undeclared = upload(good, 5, crc32);
    undeclared.headers.retain(|(name, _)| name != "x-amz-decoded-content-length");
    check(&server, "no decoded length", undeclared, 411, "MissingContentLength").await;
}

#[tokio::test]
async fn lengths_and_sizes_are_bounded() {
    let server = server().await;
    let put = |target: &str| Ask::new(&server, "PUT", target);
    let long = put(&format!("/bucket/{}", "k".repeat(1025)));
    check(&server, "a key too long", long, 400, "KeyTooLongError").await;
    let big = put("/bucket/k").header("content-length", &(6u64 << 30).to_string()).header("expect", "100-continue");
    let answer = big.hash("UNSIGNED-PAYLOAD").send(&server).await;
    expect("an entity too large", &answer, 400, "EntityTooLarge");
    assert!(answer.closed, "a body nobody wants is not waited for");
    let endless = put("/bucket/k").hash("UNSIGNED-PAYLOAD").header("transfer-encoding", "chunked").body("0\r\n\r\n");
    check(&server, "no length", endless, 411, "MissingContentLength").await;
    let mut ask = put("/bucket/k");
    for number in 0..40 {
        ask = ask.header(&format!("x-other-{number}"), &"v".repeat(1000));
    }
    check(&server, "a head too large", ask, 400, "RequestHeaderSectionTooLarge").await;
    let document = Ask::new(&server, "POST", "/bucket?delete=").body(vec![b' '; 9 << 20]);
    check(&server, "a document too large", document, 400, "MaxMessageLengthExceeded").await;
    let md5 = |body: &[u8]| {
        base64_simd::STANDARD.encode_to_string({
            use md5::Digest;
            md5::Md5::digest(body)
        })
    };
    for text in ["", "<", "<Delete>", "<Other/>", "<Delete><Object/></Delete>", "nonsense"] {
        let ask = Ask::new(&server, "POST", "/bucket?delete=").body(text).header("content-md5", &md5(text.as_bytes()));
        let answer = ask.send(&server).await;
        let code = answer.code();
        assert!(["MalformedXML", "MissingRequestBodyError"].contains(&code.as_str()), "{text}: {code}");
    }
    let text = "<Delete><Object><Key>k</Key></Object></Delete>";
    for beside in [format!("{text}tail"), format!("{text}<Delete/>"), format!("head{text}")] {
        let md5 = md5(beside.as_bytes());
        let ask = Ask::new(&server, "POST", "/bucket?delete=").body(beside.clone()).header("content-md5", &md5);
        check(&server, &beside, ask, 400, "MalformedXML").await;
    }
    let empty = Ask::new(&server, "POST", "/bucket?delete=").header("content-md5", &md5(b"")).send(&server).await;
    expect("a deletion of nothing", &empty, 400, "MissingRequestBodyError");
    assert!(empty.text().contains("Request body is empty"), "{}", empty.text());
    let unchecked = Ask::new(&server, "POST", "/bucket?delete=").body(text);
    check(&server, "a deletion without a digest", unchecked, 400, "InvalidRequest").await;
    let wrong = Ask::new(&server, "POST", "/bucket?delete=").body(text).header("content-md5", &md5(b"other"));
    check(&server, "a deletion with another digest", wrong, 400, "BadDigest").await;
    for garbage in
        ["GET\r\n\r\n", "\x01\x02\x03\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"]
    {
        let answer = raw(&server, garbage.as_bytes()).await;
        assert!(answer.status == 400 && answer.closed, "{garbage:?}: {}", answer.head);
    }
    let flood = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(400 << 10));
    assert_eq!(raw(&server, flood.as_bytes()).await.status, 431);
}

#[tokio::test]
async fn an_answer_without_an_invitation_ends_the_connection() {
    let server = server().await;
    let put = |body: &'static str| Ask::new(&server, "PUT", "/bucket/k").body(body).header("expect", "100-continue");
    let empty = put("").send(&server).await;
    assert!(empty.status == 200 && empty.closed, "nothing to invite: {}", empty.head);
    let invited = put("a body").send(&server).await;
    assert!(invited.status == 200 && !invited.closed, "invited: {}", invited.head);
}

#[tokio::test]
async fn a_body_cut_short_stores_nothing() {
    use tokio::io::AsyncWriteExt;
    let server = server().await;
    let (ask, _) =
        Ask::new(&server, "PUT", "/bucket/cut").header("content-length", "1000").hash("UNSIGNED-PAYLOAD").signed();
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&ask.bytes()).await.unwrap();
    stream.write_all(&[b'x'; 500]).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = http::answer(&mut stream, false).await;
    // A client that closes its half may get no answer; if it gets one, it must be this.
    assert!(answer.status == 0 || answer.code() == "IncompleteBody", "{}", answer.head);
    check(&server, "nothing is stored", Ask::new(&server, "GET", "/bucket/cut"), 404, "NoSuchKey").await;
}

#[tokio::test]
async fn a_method_that_does_not_fit_never_falls_back_to_another_operation() {
    let server = server().await;
    let put = Ask::new(&server, "PUT", "/bucket/k").body("kept");
    check(&server, "an object", put, 200, "").await;
    for (method, target) in [
        ("DELETE", "/bucket?versioning"),
        ("DELETE", "/bucket?object-lock"),
        ("DELETE", "/bucket?acl"),
        ("DELETE", "/bucket/k?retention"),
        ("DELETE", "/bucket/k?legal-hold"),
        ("DELETE", "/bucket/k?acl"),
        ("PUT", "/bucket/k?uploads"),
        ("PUT", "/bucket?versions"),
        ("HEAD", "/bucket/k?tagging"),
        ("POST", "/bucket?uploads"),
        ("PATCH", "/bucket/k"),
        ("PUT", "/"),
    ] {
        let answer = Ask::new(&server, method, target).send(&server).await;
        assert_eq!(answer.status, 405, "{method} {target}: {} {}", answer.head, answer.text());
    }
    let half = Ask::new(&server, "PUT", "/bucket/k?uploadId=x").body("other");
    check(&server, "an upload without a part", half, 400, "InvalidArgument").await;
    let half = Ask::new(&server, "PUT", "/bucket/k?partNumber=1").body("other");
    check(&server, "a part without an upload", half, 400, "InvalidArgument").await;
    let versioned = Ask::new(&server, "PUT", "/bucket/k?versionId=null").body("other");
    check(&server, "a put of a version", versioned, 400, "InvalidArgument").await;
    for (method, target) in [
        ("GET", "/bucket?abac"),
        ("PUT", "/bucket?abac"),
        ("PUT", "/bucket/k?abac"),
        ("PUT", "/bucket?logging"),
        ("GET", "/bucket/k?torrent"),
        ("PUT", "/bucket/k?renameObject"),
        ("PUT", "/bucket/k?renameObject=x"),
        ("PUT", "/bucket/k?encryption"),
        ("GET", "/bucket?metadataConfiguration"),
        ("POST", "/bucket?metadataConfiguration"),
        ("DELETE", "/bucket?metadataConfiguration"),
        ("PUT", "/bucket?metadataInventoryTable"),
        ("PUT", "/bucket?metadataJournalTable"),
    ] {
        let ask = Ask::new(&server, method, target).body(if method == "PUT" { "<X/>" } else { "" });
        let answer = ask.send(&server).await;
        let refused = answer.status == 501 || answer.code() == "MalformedXML";
        assert!(refused, "{method} {target}: {} {}", answer.head, answer.text());
    }
    let form =
        Ask::new(&server, "POST", "/bucket").header("content-type", "multipart/form-data; boundary=x").body("--x--");
    check(&server, "a form without a file", form, 400, "MalformedPOSTRequest").await;
    let kept = Ask::new(&server, "GET", "/bucket/k").send(&server).await;
    assert_eq!(kept.text(), "kept");
}

#[tokio::test]
async fn reads_are_answered_as_http_has_it() {
    let server = server().await;
    let body: Vec<u8> = (0..200_000u32).map(|at| at as u8).collect();
    let put = Ask::new(&server, "PUT", "/bucket/a%2Fb%20%C3%A4").body(body.clone());
    check(&server, "a put", put, 200, "").await;
    let whole = Ask::new(&server, "GET", "/bucket/a%2Fb%20%C3%A4").send(&server).await;
    assert_eq!((whole.status, whole.body == body), (200, true));
    let slashed = Ask::new(&server, "GET", "/bucket/a/b%20%C3%A4").send(&server).await;
    assert_eq!(slashed.status, 200, "a slash is a slash however it is written");
    let head = Ask::new(&server, "HEAD", "/bucket/a/b%20%C3%A4").send(&server).await;
    assert_eq!((head.status, head.header("content-length").as_deref(), head.body.len()), (200, Some("200000"), 0));
    let none = Ask::new(&server, "HEAD", "/bucket/none").send(&server).await;
    assert_eq!((none.status, none.body.len()), (404, 0));
    let ask = Ask::new(&server, "GET", "/bucket/a/b%20%C3%A4").header("if-none-match", &whole.header("etag").unwrap());
    let unchanged = ask.send(&server).await;
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, whole.header("etag")));
    assert_eq!(unchanged.header("content-type"), None, "a cache would take it over");
    let ask = Ask::new(&server, "GET", "/bucket/a/b%20%C3%A4").header("range", "bytes=199990-");
    let part = ask.send(&server).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &body[199_990..]));
    let ask = Ask::new(&server, "GET", "/bucket/a/b%20%C3%A4").header("range", "bytes=200000-");
    let behind = ask.send(&server).await;
    expect("behind the end", &behind, 416, "InvalidRange");
    assert_eq!(behind.header("content-range").as_deref(), Some("bytes */200000"));
    let invalid = Ask::new(&server, "GET", "/bucket/%FF");
    check(&server, "a key that is not UTF-8", invalid, 400, "InvalidURI").await;
}

#[tokio::test]
async fn ten_thousand_versions_of_a_key_are_listed_in_order() {
    let server = server().await;
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    check(&server, "versioning", Ask::new(&server, "PUT", "/bucket?versioning").body(on), 200, "").await;
    // Directly into the archive: the test concerns the listing.
    let caller = stele_archive::Caller::local(0);
    let mut made = Vec::new();
    for number in 0..10_000u32 {
        let put = stele_archive::PutRequest { bucket: "bucket".into(), key: "k".into(), ..Default::default() };
        let mut writer = server.archive.put(&caller, put).await.unwrap();
        writer.write(bytes::Bytes::from(number.to_string())).await.unwrap();
        made.push(writer.finish(Default::default()).await.unwrap().version.to_string());
    }
    made.reverse();
    let (mut seen, mut marker) = (Vec::new(), String::new());
    loop {
        let answer = Ask::new(&server, "GET", &format!("/bucket?versions{marker}")).send(&server).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        seen.extend(text.split("<VersionId>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned()));
        if !text.contains("<IsTruncated>true</IsTruncated>") {
            break;
        }
        let next = http::between(&text, "<NextVersionIdMarker>", "</NextVersionIdMarker>").unwrap();
        marker = format!("&key-marker=k&version-id-marker={next}");
    }
    assert_eq!(seen.len(), 10_000);
    assert!(seen == made, "newest first");
    let oldest = Ask::new(&server, "GET", &format!("/bucket/k?versionId={}", made[9_999])).send(&server).await;
    assert_eq!(oldest.text(), "0");
    let _ = hex(b"");
}

#[tokio::test]
async fn a_full_store_says_so_and_goes_on_reading() {
    let server = Server::start(Settings::default(), Bytes(24 << 20)).await;
    check(&server, "a bucket", Ask::new(&server, "PUT", "/bucket"), 200, "").await;
    let mut stored = 0;
    let full = loop {
        let answer =
            Ask::new(&server, "PUT", &format!("/bucket/{stored}")).body(vec![b'x'; 1 << 20]).send(&server).await;
        if answer.status != 200 {
            break answer;
        }
        stored += 1;
        assert!(stored < 100, "24 MiB cannot take so much");
    };
    expect("a full pool", &full, 507, "InsufficientStorage");
    let listed = Ask::new(&server, "GET", "/bucket?list-type=2").send(&server).await.text();
    assert_eq!(listed.matches("<Key>").count(), stored, "what was refused is not there");
    check(&server, "reading", Ask::new(&server, "GET", "/bucket/0"), 200, "").await;
    check(&server, "deleting", Ask::new(&server, "DELETE", "/bucket/0"), 204, "").await;
}

#[tokio::test]
async fn a_bucket_offers_to_everyone_what_it_says_and_no_more() {
    use stele_archive::{AnonymousAccess, BucketChange, Caller};
    let server = server().await;
    check(&server, "an object", Ask::new(&server, "PUT", "/bucket/k").body("open"), 200, "").await;
    let unsigned = async |method: &str, target: &str| {
        let answer = Ask::new(&server, method, target).body("x").send_unsigned(&server, false).await;
        (answer.status, answer.code())
    };
    let denied = (403, "AccessDenied".to_owned());
    for (access, get, list) in [
        (AnonymousAccess::None, denied.clone(), denied.clone()),
        (AnonymousAccess::Read, (200, String::new()), denied.clone()),
        (AnonymousAccess::ReadAndList, (200, String::new()), (200, String::new())),
    ] {
        let change = BucketChange::Anonymous(access);
        server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
        assert_eq!(unsigned("GET", "/bucket/k").await, get, "{access:?}");
        assert_eq!(unsigned("GET", "/bucket?list-type=2").await, list, "{access:?}");
        for (method, target) in [
            ("PUT", "/bucket/k"),
            ("DELETE", "/bucket/k"),
            ("PUT", "/other"),
            ("DELETE", "/bucket"),
            ("POST", "/bucket/k?uploads"),
            ("PUT", "/bucket/k?legal-hold"),
            ("GET", "/bucket?versioning"),
        ] {
            let (status, code) = unsigned(method, target).await;
            assert!(status >= 400, "{access:?} {method} {target}: {status} {code}");
        }
    }
    let overridden = unsigned("GET", "/bucket/k?response-content-type=text/html").await;
    assert_eq!(overridden, (400, "InvalidRequest".to_owned()));
}

#[tokio::test]
async fn a_quota_is_kept_and_named() {
    use stele_archive::{BucketChange, Caller, Quota};
    let server = server().await;
    let change = BucketChange::Quota(Quota { bytes: Some(1000), versions: None });
    server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
    check(&server, "within", Ask::new(&server, "PUT", "/bucket/a").body(vec![1; 900]), 200, "").await;
    check(&server, "beyond", Ask::new(&server, "PUT", "/bucket/b").body(vec![1; 200]), 403, "QuotaExceeded").await;
    check(&server, "nothing half-stored", Ask::new(&server, "GET", "/bucket/b"), 404, "NoSuchKey").await;
    check(&server, "deleting", Ask::new(&server, "DELETE", "/bucket/a"), 204, "").await;
    check(&server, "within again", Ask::new(&server, "PUT", "/bucket/b").body(vec![1; 200]), 200, "").await;
    let begun = Ask::new(&server, "POST", "/bucket/c?uploads").send(&server).await.text();
    let upload = between(&begun, "<UploadId>", "</UploadId>").unwrap();
    let part = |number: u32| {
        let target = format!("/bucket/c?partNumber={number}&uploadId={upload}");
        Ask::new(&server, "PUT", &target).body(vec![1; 500])
    };
    check(&server, "a part within", part(1), 200, "").await;
    check(&server, "a part beyond", part(2), 403, "QuotaExceeded").await;
    let ask = Ask::new(&server, "DELETE", &format!("/bucket/c?uploadId={upload}"));
    check(&server, "aborting", ask, 204, "").await;
    check(&server, "within once more", Ask::new(&server, "PUT", "/bucket/d").body(vec![1; 700]), 200, "").await;
}

#[tokio::test]
async fn every_audit_record_names_the_access_key() {
    use stele_archive::Caller;
    let server = server().await;
    check(&server, "a put", Ask::new(&server, "PUT", "/bucket/k").body("x"), 200, "").await;
    let key = server.key(stele_archive::Rights::user("bucket", "mine/")).await;
    check(&server, "refused", Ask::new(&server, "PUT", "/bucket/k").body("y").by(&key), 403, "AccessDenied").await;
    let records = server.archive.audit_records(&Caller::local(0), 0, 1000).await.unwrap();
    let of = |key: &str| records.iter().filter(|record| record.actor.contains(key)).collect::<Vec<_>>();
    let done = of(&server.access_key);
    assert!(done.iter().any(|record| record.action == "PutObject" && record.refused.is_none()), "{done:?}");
    assert!(done.iter().all(|record| record.origin.as_deref().is_some_and(|from| from.starts_with("127.0.0.1"))));
    assert!(of(&key.0).iter().any(|record| record.refused.is_some()), "{records:?}");
}

/// Of `a record`.
const SHA256: &str = "9b700ce8298dbf0750b1d83f36b0733424d6fcce95f86bc5a456b5eb0296697e";

fn receipt_of(answer: &Answer) -> stele_archive::Receipt {
    let text = answer.header("x-stele-receipt").unwrap_or_else(|| panic!("no receipt: {}", answer.head));
    let json = base64_simd::STANDARD.decode_to_vec(text).unwrap();
    serde_json::from_slice(&json).unwrap()
}

#[tokio::test]
async fn an_act_answers_with_a_receipt_where_the_request_asks_for_one() {
    let server = server().await;
    let public = server.archive.audit_head().await.unwrap().public_key;
    let public: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&public[2 * at..2 * at + 2], 16).unwrap()).collect();
    let ask = |method: &str, path: &str| Ask::new(&server, method, path).header("x-stele-receipt", "1");
    let make = Ask::new(&server, "PUT", "/locked").header("x-amz-bucket-object-lock-enabled", "true");
    check(&server, "a bucket with a lock", make, 200, "").await;

    let put = ask("PUT", "/locked/ledger").body("a record").send(&server).await;
    expect("a put", &put, 200, "");
    let receipt = receipt_of(&put);
    assert_eq!(receipt.verify(&public), Ok(()));
    assert_eq!((receipt.action.as_str(), receipt.size_bytes), ("PutObject", Some(8)));
    assert_eq!(receipt.sha256.as_deref(), Some(SHA256), "the signature covered the payload");
    assert_eq!(receipt.version.as_deref(), put.header("x-amz-version-id").as_deref());

    let copy = ask("PUT", "/locked/copy").header("x-amz-copy-source", "/locked/ledger").send(&server).await;
    expect("a copy", &copy, 200, "");
    let copied = receipt_of(&copy);
    assert_eq!(copied.verify(&public), Ok(()));
    assert_eq!((copied.key.as_str(), &copied.blake3), ("copy", &receipt.blake3));

    let begun = Ask::new(&server, "POST", "/locked/parts?uploads").send(&server).await;
    let upload = http::between(&begun.text(), "<UploadId>", "</UploadId>").unwrap();
    let path = format!("/locked/parts?partNumber=1&uploadId={upload}");
    let part = Ask::new(&server, "PUT", &path).body("one part").send(&server).await;
    let etag = part.header("etag").unwrap();
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let done = ask("POST", &format!("/locked/parts?uploadId={upload}")).body(list.as_str()).send(&server).await;
    expect("a completion", &done, 200, "");
    let completed = receipt_of(&done);
    assert_eq!(completed.verify(&public), Ok(()));
    assert_eq!(completed.parts, Some(vec![(8, 1)]));

    let hold = "<LegalHold><Status>ON</Status></LegalHold>";
    let held = ask("PUT", "/locked/ledger?legal-hold").body(hold).send(&server).await;
    expect("a hold", &held, 200, "");
    assert_eq!(receipt_of(&held).legal_hold, Some(true));
    let until = "<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2091-01-01T00:00:00Z</RetainUntilDate></Retention>";
    let kept = ask("PUT", "/locked/ledger?retention").body(until).send(&server).await;
    expect("a retention", &kept, 200, "");
    assert_eq!(receipt_of(&kept).keep_until.as_deref(), Some("2091-01-01T00:00:00.000Z"));
    let marker = ask("DELETE", "/locked/copy").send(&server).await;
    expect("a delete marker", &marker, 204, "");
    assert_eq!(receipt_of(&marker).action, "AddDeleteMarker");
    let version = copy.header("x-amz-version-id").unwrap();
    let gone = ask("DELETE", &format!("/locked/copy?versionId={version}")).send(&server).await;
    expect("a delete", &gone, 204, "");
    let gone = receipt_of(&gone);
    assert_eq!((gone.verify(&public), gone.action.as_str()), (Ok(()), "DeleteObject"));

    // A deletion of nothing succeeds and has no receipt.
    let nothing = ask("DELETE", &format!("/locked/copy?versionId={version}")).send(&server).await;
    expect("a delete of nothing", &nothing, 204, "");
    assert!(nothing.header("x-stele-receipt").is_none() && nothing.header("x-stele-receipt-error").is_some());
    // Where the request does not ask there is none; elsewhere, or with another value, the header is
    // refused.
    let plain = Ask::new(&server, "PUT", "/locked/plain").body("x").send(&server).await;
    assert!(plain.header("x-stele-receipt").is_none());
    check(&server, "a read", ask("GET", "/locked/ledger"), 501, "NotImplemented").await;
    let other = Ask::new(&server, "PUT", "/locked/k").header("x-stele-receipt", "yes").body("x");
    check(&server, "another value", other, 400, "InvalidArgument").await;
    let class = Ask::new(&server, "PUT", "/locked/k").header("x-stele-class", "ledger").body("x");
    check(&server, "a class that was never made", class, 400, "InvalidRequest").await;
    let unknown = Ask::new(&server, "PUT", "/locked/k").header("x-stele-other", "ledger").body("x");
    check(&server, "another header", unknown, 501, "NotImplemented").await;
}
