//! What a request says of its content and its range holds for every sender.

use super::http::{Answer, Ask, between, sha256};
use super::server::Server;
use super::wire::{check, expect};
use stele_archive::{BucketChange, Caller, NewBucket};
use stele_ground::Bytes;
use stele_object::Settings;

async fn server() -> Server {
    let server = Server::start(Settings::default(), Bytes(256 << 20)).await;
    server.archive.create_bucket(&Caller::local(0), "bucket", NewBucket::default()).await.unwrap();
    server
}

/// The digest in the form of `Content-MD5`.
pub fn md5(text: &str) -> String {
    use md5::Digest;
    base64_simd::STANDARD.encode_to_string(md5::Md5::digest(text.as_bytes()))
}

async fn put(server: &Server, key: &str, body: &str) -> Answer {
    let answer = Ask::new(server, "PUT", &format!("/bucket/{key}")).body(body).send(server).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

#[tokio::test]
async fn a_range_of_another_object_than_the_client_has_is_answered_with_the_whole() {
    let server = server().await;
    let tag = put(&server, "k", "0123456789").await.header("etag").unwrap();
    let read = async |method: &str, condition: &str| {
        let ask = Ask::new(&server, method, "/bucket/k").header("range", "bytes=8-").header("if-range", condition);
        let answer = ask.send(&server).await;
        (answer.status, answer.header("content-range"), answer.header("content-length").unwrap())
    };
    let modified = Ask::new(&server, "HEAD", "/bucket/k").send(&server).await.header("last-modified").unwrap();
    let part = (206, Some("bytes 8-9/10".to_owned()), "2".to_owned());
    let whole = (200, None, "10".to_owned());
    for method in ["GET", "HEAD"] {
        assert_eq!(read(method, &tag).await, part, "{method}");
        assert_eq!(read(method, &modified).await, part, "{method}");
        for other in [&format!("W/{tag}"), "\"d41d8cd98f00b204e9800998ecf8427e\"", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            assert_eq!(read(method, other).await, whole, "{method} {other}");
        }
    }
    let ask = Ask::new(&server, "GET", "/bucket/k").header("if-range", "\"other\"");
    assert_eq!(ask.send(&server).await.status, 200, "a condition without a range");
}

#[tokio::test]
async fn a_refusal_names_the_condition_that_failed() {
    let server = server().await;
    put(&server, "k", "one").await;
    let check = async |method: &str, headers: &[(&str, &str)], condition: &str| {
        let ask =
            headers.iter().fold(Ask::new(&server, method, "/bucket/k"), |ask, (name, value)| ask.header(name, value));
        let answer = ask.send(&server).await;
        expect(condition, &answer, 412, "PreconditionFailed");
        let named = between(&answer.text(), "<Condition>", "</Condition>");
        assert_eq!(named.as_deref(), Some(condition), "{method} {headers:?}: {}", answer.text());
    };
    let (other, early) = ("\"other\"", "Sun, 06 Nov 1994 08:49:37 GMT");
    check("PUT", &[("if-none-match", "*")], "If-None-Match").await;
    check("PUT", &[("if-match", other)], "If-Match").await;
    check("DELETE", &[("if-match", other)], "If-Match").await;
    check("GET", &[("if-match", other)], "If-Match").await;
    check("GET", &[("if-unmodified-since", early)], "If-Unmodified-Since").await;
    put(&server, "other", "two").await;
    let source = ("x-amz-copy-source", "/bucket/other");
    check("PUT", &[source, ("if-none-match", "*")], "If-None-Match").await;
    check("PUT", &[source, ("x-amz-copy-source-if-match", other)], "x-amz-copy-source-If-Match").await;
}

#[tokio::test]
async fn the_hash_of_a_body_holds_without_a_signature_too() {
    let server = server().await;
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/*"}]}"#;
    let change = BucketChange::Policy(Some(policy.into()));
    server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
    let send = async |hash: &str, body: &str| {
        let ask = Ask::new(&server, "PUT", "/bucket/k").body(body).header("x-amz-content-sha256", hash);
        let answer = ask.send_unsigned(&server, false).await;
        (answer.status, answer.code())
    };
    let refused = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(send(&sha256(b"agreed"), "agreed").await, refused(200, ""));
    assert_eq!(send("UNSIGNED-PAYLOAD", "agreed").await, refused(200, ""));
    assert_eq!(send(&sha256(b"agreed"), "other!").await, refused(400, "XAmzContentSHA256Mismatch"));
    assert_eq!(send("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "6;chunk").await, refused(403, "AccessDenied"));
    assert_eq!(send("nonsense", "agreed").await, refused(400, "InvalidArgument"));
    let stored = Ask::new(&server, "GET", "/bucket/k").send(&server).await;
    assert_eq!(stored.text(), "agreed");
}

/// Where everyone may put objects, a sender without a key could fill the pool with parts, and
/// complete nothing.
#[tokio::test]
async fn an_upload_in_parts_needs_a_key_whatever_the_policy_says() {
    let server = server().await;
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/*"}]}"#;
    let change = BucketChange::Policy(Some(policy.into()));
    server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
    check(&server, "a source", Ask::new(&server, "PUT", "/bucket/from").body("x"), 200, "").await;
    let begun = Ask::new(&server, "POST", "/bucket/k?uploads").send(&server).await.text();
    let upload = between(&begun, "<UploadId>", "</UploadId>").unwrap();
    let part = format!("/bucket/k?partNumber=1&uploadId={upload}");
    let asks = [
        Ask::new(&server, "POST", "/bucket/k?uploads"),
        Ask::new(&server, "POST", "/bucket/k?uploads="),
        Ask::new(&server, "PUT", &part).body("a part"),
        Ask::new(&server, "PUT", &part),
        Ask::new(&server, "PUT", &part).header("x-amz-copy-source", "/bucket/from"),
        Ask::new(&server, "POST", &format!("/bucket/k?uploadId={upload}")).body("<CompleteMultipartUpload/>"),
    ];
    for (number, ask) in asks.into_iter().enumerate() {
        let answer = ask.send_unsigned(&server, false).await;
        expect(&format!("request {number}"), &answer, 403, "AccessDenied");
        assert!(answer.text().contains("must be signed"), "{}", answer.text());
    }
    let usage = server.archive.usage(&Caller::local(0), "bucket").await.unwrap();
    assert_eq!((usage.bytes, usage.unfinished), (1, 0));
    let uploads = Ask::new(&server, "GET", "/bucket?uploads").send(&server).await.text();
    assert_eq!(uploads.matches("<UploadId>").count(), 1, "{uploads}");
    let whole = Ask::new(&server, "PUT", "/bucket/k").body("in one").send_unsigned(&server, false).await;
    expect("in one request", &whole, 200, "");
}

#[tokio::test]
async fn a_copy_redirects_where_its_own_request_says() {
    let server = server().await;
    let redirect = "x-amz-website-redirect-location";
    let ask = Ask::new(&server, "PUT", "/bucket/from").body("x").header(redirect, "/old").header("x-amz-meta-a", "b");
    assert_eq!(ask.send(&server).await.status, 200);
    for to in [None, Some("/new")] {
        let mut ask = Ask::new(&server, "PUT", "/bucket/to").header("x-amz-copy-source", "/bucket/from");
        if let Some(to) = to {
            ask = ask.header(redirect, to);
        }
        let answer = ask.send(&server).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let copy = Ask::new(&server, "HEAD", "/bucket/to").send(&server).await;
        assert_eq!((copy.header(redirect).as_deref(), copy.header("x-amz-meta-a").as_deref()), (to, Some("b")));
    }
}

#[tokio::test]
async fn a_small_document_of_great_depth_takes_no_memory() {
    let server = server().await;
    let stranger = server.key(stele_archive::Rights::user("elsewhere", "")).await;
    let document = "<a>".repeat(100_000);
    let ask = Ask::new(&server, "POST", "/bucket?delete").header("content-md5", &md5(&document)).body(document);
    let ask = ask.by(&stranger);
    let answer = ask.send(&server).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "MalformedXML"), "{}", answer.text());
    let field =
        |name: &str, value: &str| format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    let form = |tagging: &str| {
        let file = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--XX--\r\n";
        let body = format!("{}{}{file}", field("key", "k"), field("tagging", tagging));
        Ask::new(&server, "POST", "/bucket").header("content-type", "multipart/form-data; boundary=XX").body(body)
    };
    let deep = form(&"<a>".repeat(10_000)).send_unsigned(&server, false).await;
    assert_eq!((deep.status, deep.code().as_str()), (400, "MalformedXML"), "{}", deep.text());
    let long = form(&"<a>".repeat(20_000)).send_unsigned(&server, false).await;
    let code = "MaxPostPreDataLengthExceededError";
    assert_eq!((long.status, long.code().as_str()), (400, code), "{}", long.text());
}

/// A caller whom only a policy admits may not see the bucket, and no request of his says that he
/// asked to.
#[tokio::test]
async fn a_permitted_batch_of_deletions_records_no_refusal() {
    let server = server().await;
    let user = server.key(stele_archive::Rights::user("elsewhere", "")).await;
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:DeleteObject","Resource":"arn:aws:s3:::bucket/*"}]}"#;
    let change = BucketChange::Policy(Some(policy.into()));
    server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
    put(&server, "k", "x").await;
    let document = "<Delete><Object><Key>k</Key></Object></Delete>";
    let records = async || server.archive.audit_verify(&Caller::local(0), None).await.unwrap().records;
    let before = records().await;
    let md5 = md5(document);
    let ask = Ask::new(&server, "POST", "/bucket?delete").header("content-md5", &md5).body(document).by(&user);
    let answer = ask.send(&server).await;
    assert!(answer.status == 200 && answer.text().contains("<Deleted>"), "{}", answer.text());
    assert_eq!(records().await - before, 1, "the deletion alone");
    let missing =
        Ask::new(&server, "POST", "/none?delete").header("content-md5", &md5).body(document).send(&server).await;
    assert_eq!((missing.status, missing.code().as_str()), (404, "NoSuchBucket"));
}

#[tokio::test]
async fn a_form_carries_out_or_refuses_what_steles_own_headers_ask() {
    let server = server().await;
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/*"}]}"#;
    let change = BucketChange::Policy(Some(policy.into()));
    server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
    let form = |name: &str, value: &str| {
        let field = |name: &str, value: &str| {
            format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let file = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--XX--\r\n";
        let body = format!("{}{}{file}", field("key", "k"), field(name, value));
        Ask::new(&server, "POST", "/bucket").header("content-type", "multipart/form-data; boundary=XX").body(body)
    };
    for (ask, status, code) in [
        // The bucket has no Object Lock, so it can carry out no class.
        (form("x-stele-class", "ledger"), 400, "InvalidRequest"),
        (form("x-stele-foo", "1"), 501, "NotImplemented"),
        (form("x-amz-meta-a", "b").header("x-stele-class", "ledger"), 501, "NotImplemented"),
    ] {
        let answer = ask.send_unsigned(&server, false).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text());
        assert_eq!(Ask::new(&server, "HEAD", "/bucket/k").send(&server).await.status, 404, "nothing is stored");
    }
    assert_eq!(form("x-amz-meta-a", "b").send_unsigned(&server, false).await.status, 204);
}

/// The operations take an empty header for none, so it must not satisfy a policy that demands one.
#[tokio::test]
async fn an_empty_header_does_not_satisfy_a_policy() {
    let server = server().await;
    put(&server, "k", "kept").await;
    let demand = async |condition: &str| {
        let policy = format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Deny","Principal":"*","Action":["s3:PutObject","s3:DeleteObject"],"Resource":"arn:aws:s3:::bucket/*","Condition":{{"Null":{{"{condition}":"true"}}}}}}]}}"#
        );
        let change = BucketChange::Policy(Some(policy));
        server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
    };
    let cases = [
        ("s3:if-match", "if-match"),
        ("s3:if-none-match", "if-none-match"),
        ("aws:Referer", "referer"),
        ("aws:UserAgent", "user-agent"),
        ("s3:object-lock-mode", "x-amz-object-lock-mode"),
        ("s3:object-lock-legal-hold", "x-amz-object-lock-legal-hold"),
        ("s3:object-lock-retain-until-date", "x-amz-object-lock-retain-until-date"),
        ("s3:x-amz-acl", "x-amz-acl"),
        ("s3:x-amz-metadata-directive", "x-amz-metadata-directive"),
        ("s3:x-amz-server-side-encryption", "x-amz-server-side-encryption"),
        ("s3:x-amz-server-side-encryption-customer-algorithm", "x-amz-server-side-encryption-customer-algorithm"),
    ];
    for (condition, header) in cases {
        demand(condition).await;
        for method in ["PUT", "DELETE"] {
            let ask = Ask::new(&server, method, "/bucket/k").header(header, "");
            check(&server, &format!("{method} with an empty {header}"), ask, 403, "AccessDenied").await;
        }
    }
    demand("s3:if-none-match").await;
    let ask = Ask::new(&server, "PUT", "/bucket/new").header("if-none-match", "*").body("x");
    check(&server, "with the header", ask, 200, "").await;
    let stored = Ask::new(&server, "GET", "/bucket/k").send(&server).await;
    assert_eq!(stored.text(), "kept");
}

/// A client that lists keys gets exactly those that were put, and can name them in a document.
#[tokio::test]
async fn a_key_of_control_characters_is_listed_and_deleted() {
    let server = server().await;
    let path = "/bucket/a%01b%0Dc%1F%EF%BF%BF%F0%9F%98%80";
    check(&server, "a put", Ask::new(&server, "PUT", path).body("x"), 200, "").await;
    let listed = Ask::new(&server, "GET", "/bucket?list-type=2").send(&server).await.text();
    let key = between(&listed, "<Key>", "</Key>").unwrap();
    assert_eq!(key, "a&#x1;b&#13;c&#x1f;&#xffff;\u{1f600}");
    let encoded = Ask::new(&server, "GET", "/bucket?list-type=2&encoding-type=url").send(&server).await.text();
    assert!(encoded.contains("<Key>a%01b%0Dc%1F%EF%BF%BF%F0%9F%98%80</Key>"), "{encoded}");
    let document = format!("<Delete><Object><Key>{}</Key></Object></Delete>", key.replace('\u{1f600}', "&#128512;"));
    let ask = Ask::new(&server, "POST", "/bucket?delete").header("content-md5", &md5(&document)).body(document);
    let answer = ask.send(&server).await;
    assert!(answer.text().contains(&format!("<Deleted><Key>{key}</Key></Deleted>")), "{}", answer.text());
    check(&server, "it is gone", Ask::new(&server, "GET", path), 404, "NoSuchKey").await;
}

#[tokio::test]
async fn a_list_of_another_type_than_there_is_is_refused() {
    let server = server().await;
    for (kind, status, code) in
        [("2", 200, ""), ("1", 200, ""), ("3", 400, "InvalidArgument"), ("", 400, "InvalidArgument")]
    {
        let ask = Ask::new(&server, "GET", &format!("/bucket?list-type={kind}"));
        check(&server, &format!("list-type {kind}"), ask, status, code).await;
    }
}

#[tokio::test]
async fn a_copy_source_without_a_key_is_refused_by_its_header() {
    let server = server().await;
    for source in ["/bucket/", "bucket/", "/bucket", "/"] {
        let answer = Ask::new(&server, "PUT", "/bucket/k").header("x-amz-copy-source", source).send(&server).await;
        expect(source, &answer, 400, "InvalidArgument");
        assert!(answer.text().contains("x-amz-copy-source"), "{}", answer.text());
    }
}

#[tokio::test]
async fn the_list_of_buckets_needs_a_signature() {
    let server = server().await;
    for target in ["/", "/?x-id=ListBuckets"] {
        let unsigned = Ask::new(&server, "GET", target).send_unsigned(&server, false).await;
        expect(target, &unsigned, 403, "AccessDenied");
    }
    check(&server, "signed", Ask::new(&server, "GET", "/"), 200, "").await;
}

/// A policy is JSON: what looks like markup in one of its texts is no document.
#[tokio::test]
async fn a_policy_may_speak_of_markup() {
    let server = server().await;
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Sid":"a","Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/<x>/a<b*"}]}"#;
    check(&server, "a policy", Ask::new(&server, "PUT", "/bucket?policy").body(policy), 204, "").await;
    let read = Ask::new(&server, "GET", "/bucket?policy").send(&server).await;
    assert_eq!(read.text(), policy);
}

/// A number with something behind it must not be the number before it: a retention would end, and
/// a lifecycle rule delete, earlier than the document says.
#[tokio::test]
async fn a_number_in_a_document_is_one_to_its_end() {
    let server = server().await;
    let make = Ask::new(&server, "PUT", "/locked").header("x-amz-bucket-object-lock-enabled", "true");
    check(&server, "a bucket with a lock", make, 200, "").await;
    let lock = |period: &str| {
        let document = format!(
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>COMPLIANCE</Mode>{period}</DefaultRetention></Rule></ObjectLockConfiguration>"
        );
        Ask::new(&server, "PUT", "/locked?object-lock").header("content-md5", &md5(&document)).body(document)
    };
    let rule = |action: &str| {
        let document = format!(
            "<LifecycleConfiguration><Rule><ID>x</ID><Status>Enabled</Status><Filter/>{action}</Rule></LifecycleConfiguration>"
        );
        Ask::new(&server, "PUT", "/bucket?lifecycle").header("content-md5", &md5(&document)).body(document)
    };
    for number in ["1.5", "1e3", "1,000", "1_000", "36 5", "10x", "0x10", "", "1<!-- -->e3"] {
        for period in [format!("<Days>{number}</Days>"), format!("<Years>{number}</Years>")] {
            check(&server, &period, lock(&period), 400, "MalformedXML").await;
        }
        for action in [
            format!("<Expiration><Days>{number}</Days></Expiration>"),
            format!(
                "<NoncurrentVersionExpiration><NoncurrentDays>{number}</NoncurrentDays></NoncurrentVersionExpiration>"
            ),
            format!(
                "<NoncurrentVersionExpiration><NoncurrentDays>9</NoncurrentDays><NewerNoncurrentVersions>{number}</NewerNoncurrentVersions></NoncurrentVersionExpiration>"
            ),
            format!(
                "<AbortIncompleteMultipartUpload><DaysAfterInitiation>{number}</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
            ),
        ] {
            check(&server, &action, rule(&action), 400, "MalformedXML").await;
        }
    }
    let rules = Ask::new(&server, "GET", "/bucket?lifecycle");
    check(&server, "no rule is set", rules, 404, "NoSuchLifecycleConfiguration").await;
    check(&server, "days", lock("<Days>30</Days>"), 200, "").await;
    check(&server, "a rule", rule("<Expiration><Days>1000</Days></Expiration>"), 200, "").await;
    let upload =
        "<CompleteMultipartUpload><Part><PartNumber>1x</PartNumber><ETag>a</ETag></Part></CompleteMultipartUpload>";
    let ask = Ask::new(&server, "POST", "/bucket/k?uploadId=0").body(upload);
    check(&server, "a part's number", ask, 400, "MalformedXML").await;
}

/// An escape in the host would be decoded behind the checks: the request would be of another bucket
/// and key than it was judged and logged by.
#[tokio::test]
async fn a_host_names_a_bucket_and_nothing_else() {
    let settings = Settings { domains: vec!["S3.test".into()], ..Settings::default() };
    let server = Server::start(settings, Bytes(256 << 20)).await;
    server.archive.create_bucket(&Caller::local(0), "bucket", NewBucket::default()).await.unwrap();
    put(&server, "kept/k", "kept").await;
    put(&server, "kept/", "too").await;
    let at = |host: &str, method: &str, target: &str| {
        let mut ask = Ask::new(&server, method, target);
        ask.headers = vec![("host".into(), format!("{host}.s3.test"))];
        ask
    };
    check(&server, "a bucket", at("bucket", "GET", "/kept/k"), 200, "").await;
    check(&server, "its list", at("bucket", "GET", "/?list-type=2"), 200, "").await;
    check(&server, "in capitals", at("Bucket", "GET", "/kept/k"), 200, "").await;
    for host in ["bucket%2Fkept", "bucket%2fkept", "bucket/kept", "bucket/kept/k?x=", "bucket/kept/k#", "b%75cket"] {
        check(&server, host, at(host, "GET", "/k"), 400, "InvalidBucketName").await;
        check(&server, host, at(host, "PUT", "/").body("other"), 400, "InvalidBucketName").await;
        check(&server, host, at(host, "DELETE", "/?cors"), 400, "InvalidBucketName").await;
    }
    for (target, kept) in [("/bucket/kept/k", "kept"), ("/bucket/kept/", "too")] {
        assert_eq!(Ask::new(&server, "GET", target).send(&server).await.text(), kept);
    }
}

/// The sender of a condition believes that the write depends on it.
#[tokio::test]
async fn a_condition_that_a_write_does_not_carry_out_is_refused() {
    let server = server().await;
    put(&server, "k", "kept").await;
    let (early, other) = ("Sun, 06 Nov 1994 08:49:37 GMT", "\"other\"");
    for (method, target, header, value) in [
        ("PUT", "/bucket/k", "if-unmodified-since", early),
        ("PUT", "/bucket/k", "content-range", "bytes 0-3/9"),
        ("PUT", "/bucket/k?tagging", "if-match", other),
        ("PUT", "/bucket/k?tagging", "if-none-match", "*"),
        ("PUT", "/bucket?versioning", "if-match", other),
        ("POST", "/bucket/k?uploads", "if-unmodified-since", early),
        ("POST", "/bucket?delete", "if-match", other),
        ("DELETE", "/bucket/k", "if-unmodified-since", early),
        ("DELETE", "/bucket/k", "if-none-match", "*"),
        ("DELETE", "/bucket/k?tagging", "if-match", other),
        ("DELETE", "/bucket/k?uploadId=x", "if-match", other),
    ] {
        let ask = Ask::new(&server, method, target).header(header, value);
        check(&server, &format!("{method} {target} with {header}"), ask, 501, "NotImplemented").await;
    }
    assert_eq!(Ask::new(&server, "GET", "/bucket/k").send(&server).await.text(), "kept");
    for (method, target, header, value, status) in [
        ("PUT", "/bucket/new", "if-none-match", "*", 200),
        ("POST", "/bucket/new?uploads", "if-none-match", "*", 200),
        ("PUT", "/bucket/new", "if-match", "*", 200),
        ("DELETE", "/bucket/new", "if-none-match", "", 204),
    ] {
        let ask = Ask::new(&server, method, target).header(header, value);
        check(&server, &format!("{method} {target} with {header}"), ask, status, "").await;
    }
}

/// No header of a batch is a condition of its keys, so none may satisfy a policy that demands one.
#[tokio::test]
async fn a_policy_that_demands_an_entity_tag_binds_each_key_of_a_batch() {
    let server = server().await;
    let tag = put(&server, "k", "kept").await.header("etag").unwrap();
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:DeleteObject","Resource":"arn:aws:s3:::bucket/*","Condition":{"Null":{"s3:if-match":"true"}}}]}"#;
    let change = BucketChange::Policy(Some(policy.into()));
    server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
    let batch = |condition: &str| {
        let document = format!("<Delete><Object><Key>k</Key>{condition}</Object></Delete>");
        Ask::new(&server, "POST", "/bucket?delete").header("content-md5", &md5(&document)).body(document)
    };
    let without = batch("").send(&server).await;
    assert_eq!((without.status, without.code().as_str()), (200, "AccessDenied"), "{}", without.text());
    let header = batch("").header("if-match", &tag);
    check(&server, "a header", header, 501, "NotImplemented").await;
    assert_eq!(Ask::new(&server, "GET", "/bucket/k").send(&server).await.text(), "kept");
    let answer = batch(&format!("<ETag>{tag}</ETag>")).send(&server).await;
    assert!(answer.text().contains("<Deleted><Key>k</Key></Deleted>"), "{}", answer.text());
    check(&server, "it is gone", Ask::new(&server, "GET", "/bucket/k"), 404, "NoSuchKey").await;
}

/// One of them would be carried out, and the sender would believe in both.
#[tokio::test]
async fn two_subresources_at_once_are_refused() {
    let server = server().await;
    put(&server, "k", "kept").await;
    for (method, target) in [
        ("GET", "/bucket/k?acl&tagging"),
        ("GET", "/bucket?uploads&versions"),
        ("GET", "/bucket?acl&policy"),
        ("PUT", "/bucket?lifecycle&versioning"),
        ("PUT", "/bucket/k?partNumber=1&tagging&uploadId=x"),
        ("POST", "/bucket/k?uploadId=x&uploads"),
        ("DELETE", "/bucket?cors&tagging"),
        ("DELETE", "/bucket/k?tagging&uploadId=x"),
    ] {
        let answer = Ask::new(&server, method, target).send(&server).await;
        expect(&format!("{method} {target}"), &answer, 400, "InvalidArgument");
        assert!(answer.text().contains("Conflicting query string parameters"), "{}", answer.text());
    }
    for target in ["/bucket/k?tagging&versionId=null", "/bucket?prefix=k&versions"] {
        check(&server, target, Ask::new(&server, "GET", target), 200, "").await;
    }
}

/// A server on the way could take the other one for the place that is asked.
#[tokio::test]
async fn a_request_has_one_host() {
    let server = server().await;
    let ask = Ask::new(&server, "GET", "/bucket?list-type=2").smuggle("host", "other.test");
    expect("two", &ask.send_unsigned(&server, false).await, 400, "InvalidRequest");
}

/// The method is a text of the sender too: in the access log it is cut, as all others are.
#[tokio::test]
async fn a_long_method_makes_no_long_line_in_the_access_log() {
    let server = super::wire::server().await;
    check(&server, "a bucket for the log", Ask::new(&server, "PUT", "/logs"), 200, "").await;
    let document = "<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs</TargetBucket><TargetPrefix>l/</TargetPrefix></LoggingEnabled></BucketLoggingStatus>";
    let set = Ask::new(&server, "PUT", "/bucket?logging").header("content-md5", &md5(document)).body(document);
    check(&server, "the log", set, 200, "").await;
    let ask = Ask::new(&server, &"M".repeat(60_000), "/bucket/k");
    // It is refused before its sender is known: no signature is looked at.
    expect("a long method", &ask.send_unsigned(&server, false).await, 405, "MethodNotAllowed");
    server.frontend.store_access_logs(true).await;
    let listed = Ask::new(&server, "GET", "/logs?list-type=2").send(&server).await.text();
    let key = between(&listed, "<Key>", "</Key>").unwrap();
    let log = Ask::new(&server, "GET", &format!("/logs/{key}")).send(&server).await.text();
    assert!(log.contains("REST.MMM") && log.len() < 4096, "{} bytes", log.len());
}

/// The operation takes each of these spellings for the same object.
#[tokio::test]
async fn the_source_of_a_copy_has_one_name_for_policies() {
    let server = server().await;
    put(&server, "secret/k", "x").await;
    put(&server, "open/k", "x").await;
    let user = server.key(stele_archive::Rights::user("bucket", "")).await;
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/*","Condition":{"StringLike":{"s3:x-amz-copy-source":"bucket/secret/*"}}}]}"#;
    let change = BucketChange::Policy(Some(policy.into()));
    server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
    for (source, status) in [
        ("bucket/open/k", 200),
        ("bucket/secret/k", 403),
        ("/bucket/secret/k", 403),
        ("bucket/s%65cret/k", 403),
        ("/bucket%2Fsecret%2Fk", 403),
        ("bucket/secret/k?versionId=null", 403),
    ] {
        let ask = Ask::new(&server, "PUT", "/bucket/copy").header("x-amz-copy-source", source).by(&user);
        assert_eq!(ask.send(&server).await.status, status, "{source}");
    }
}

#[tokio::test]
async fn a_list_in_several_lines_is_one_list() {
    let server = server().await;
    let hash = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    for (first, second, kept) in [("aws-chunked", "gzip", "gzip"), ("gzip", "aws-chunked, br", "gzip,br")] {
        let ask = Ask::new(&server, "PUT", "/bucket/k").hash(hash).header("x-amz-decoded-content-length", "1");
        let (ask, _) = ask.body("1\r\nx\r\n0\r\n\r\n").signed();
        let ask = ask.smuggle("content-encoding", first).smuggle("content-encoding", second);
        let answer = ask.send_unsigned(&server, false).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let head = Ask::new(&server, "HEAD", "/bucket/k").send(&server).await;
        assert_eq!(head.header("content-encoding").as_deref(), Some(kept));
    }
    let tag = put(&server, "k", "x").await.header("etag").unwrap();
    for (name, met, not_met) in [("if-match", 200, 412), ("if-none-match", 304, 200)] {
        let read = async |first: &str, second: &str| {
            let (ask, _) = Ask::new(&server, "GET", "/bucket/k").signed();
            ask.smuggle(name, first).smuggle(name, second).send_unsigned(&server, false).await.status
        };
        assert_eq!(read("\"other\"", &tag).await, met, "{name}");
        assert_eq!(read(&tag, "\"other\"").await, met, "{name}");
        assert_eq!(read("\"other\"", "\"third\"").await, not_met, "{name}");
        // A tag with letters beyond ASCII is one, and no object has it.
        assert_eq!(read("\"\u{e9}\"", "\"other\"").await, not_met, "{name}");
    }
}
