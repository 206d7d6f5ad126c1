//! Uploads by a form: what their fields say of the file, and how policies see them.

use super::http::{Ask, sha256};
use super::server::Server;
use super::strict::md5;
use base64_simd::STANDARD;
use stele_archive::{BucketChange, Caller, NewBucket, Rights};
use stele_ground::Bytes;
use stele_object::Settings;

async fn server(policy: &str) -> Server {
    let server = Server::start(Settings::default(), Bytes(256 << 20)).await;
    server.archive.create_bucket(&Caller::local(0), "bucket", NewBucket::default()).await.unwrap();
    let change = BucketChange::Policy(Some(policy.into()));
    server.archive.change_bucket(&Caller::local(0), "bucket", change).await.unwrap();
    server
}

/// A form that stores `content` as the object `k`.
fn form(server: &Server, fields: &[(&str, &str)], content: &str) -> Ask {
    let field = |(name, value): &(&str, &str)| {
        format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let fields: String = std::iter::once(&("key", "k")).chain(fields).map(field).collect();
    let head = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
    Ask::new(server, "POST", "/bucket")
        .header("content-type", "multipart/form-data; boundary=XX")
        .body(format!("{fields}{head}{content}\r\n--XX--\r\n"))
}

/// The same with a policy that the key signs. It allows the fields `more`.
fn signed_form(server: &Server, key: &(String, String), more: &[(&str, &str)], content: &str) -> Ask {
    let ask = Ask::new(server, "POST", "/bucket").by(key);
    let (credential, date) = (format!("{}/{}", key.0, ask.scope()), ask.stamp());
    let conditions = format!(
        r#"{{"bucket":"bucket"}},{{"key":"k"}},{{"x-amz-algorithm":"AWS4-HMAC-SHA256"}},{{"x-amz-credential":"{credential}"}},{{"x-amz-date":"{date}"}}"#
    );
    let allowed: String = more.iter().map(|(name, value)| format!(r#",{{"{name}":"{value}"}}"#)).collect();
    let policy = format!(r#"{{"expiration":"2099-01-01T00:00:00Z","conditions":[{conditions}{allowed}]}}"#);
    let policy = STANDARD.encode_to_string(policy);
    let signature = ask.signature_of(&policy);
    let fields = [
        ("policy", policy.as_str()),
        ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
        ("x-amz-credential", &credential),
        ("x-amz-date", &date),
        ("x-amz-signature", &signature),
    ];
    form(server, &[&fields[..], more].concat(), content)
}

#[tokio::test]
async fn the_digests_of_a_form_hold_for_its_file() {
    let everyone = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/*"}]}"#;
    let server = server(everyone).await;
    let (right, other) = (sha256(b"agreed"), sha256(b"other"));
    let check = async |name: &str, value: &str, status: u16, code: &str| {
        let answer = form(&server, &[(name, value)], "agreed").send_unsigned(&server, false).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{name}: {value}");
        let stored = Ask::new(&server, "HEAD", "/bucket/k").send(&server).await.status;
        assert_eq!(stored, if status == 204 { 200 } else { 404 }, "{name}: {value}");
        let gone = Ask::new(&server, "DELETE", "/bucket/k").send(&server).await.status;
        assert_eq!(gone, 204);
    };
    check("x-amz-content-sha256", &right, 204, "").await;
    check("x-amz-content-sha256", "UNSIGNED-PAYLOAD", 204, "").await;
    check("x-amz-content-sha256", &other, 400, "XAmzContentSHA256Mismatch").await;
    check("x-amz-content-sha256", "nonsense", 400, "InvalidArgument").await;
    // Its file is in no chunks.
    check("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", 400, "InvalidArgument").await;
    check("Content-MD5", &md5("agreed"), 204, "").await;
    check("Content-MD5", &md5("other"), 400, "BadDigest").await;
}

/// It became a copy of another object, beside what the form's policy and the bucket's said of it.
#[tokio::test]
async fn a_form_copies_nothing() {
    let everyone = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:PutObject","s3:GetObject"],"Resource":"arn:aws:s3:::bucket/*"}]}"#;
    let server = server(everyone).await;
    Ask::new(&server, "PUT", "/bucket/other").body("other").send(&server).await;
    let user = server.key(Rights::user("bucket", "")).await;
    for name in ["x-amz-copy-source", "X-Amz-Copy-Source", "x-amz-copy-source-if-match"] {
        let fields = [(name, "/bucket/other")];
        for ask in [form(&server, &fields, "content"), signed_form(&server, &user, &fields, "content")] {
            let answer = ask.send_unsigned(&server, false).await;
            assert_eq!((answer.status, answer.code().as_str()), (400, "InvalidArgument"), "{name}: {}", answer.text());
            assert_eq!(Ask::new(&server, "HEAD", "/bucket/k").send(&server).await.status, 404, "{name}");
        }
    }
    // A header of the request is no field of the form.
    let smuggled = form(&server, &[], "content").header("x-amz-copy-source", "/bucket/other");
    let answer = smuggled.send_unsigned(&server, false).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    assert_eq!(Ask::new(&server, "GET", "/bucket/k").send(&server).await.text(), "content");
}

/// As on AWS. A policy that forbids other versions of the signature refused it.
#[tokio::test]
async fn a_signed_form_tells_policies_the_version_of_its_signature() {
    let deny = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/*","Condition":{"StringNotEquals":{"s3:signatureversion":"AWS4-HMAC-SHA256"}}},{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/*"}]}"#;
    let server = server(deny).await;
    let user = server.key(Rights::user("bucket", "")).await;
    let signed = signed_form(&server, &user, &[], "content").send_unsigned(&server, false).await;
    assert_eq!(signed.status, 204, "{}", signed.text());
    let unsigned = form(&server, &[], "content").send_unsigned(&server, false).await;
    assert_eq!((unsigned.status, unsigned.code().as_str()), (403, "AccessDenied"));
}
