//! Malicious requests: each is refused, or does no more than its rights allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::http::{Answer, Ask, sha256};
use super::server::Server;
use stele_archive::{Caller, NewBucket};
use stele_ground::Bytes;
use stele_object::Settings;

async fn server() -> Server {
    let server = Server::start(Settings::default(), Bytes(256 << 20)).await;
    let locked = NewBucket { object_lock: true, ..NewBucket::default() };
    server.archive.create_bucket(&Caller::local(0), "locked", locked).await.unwrap();
    server.archive.create_bucket(&Caller::local(0), "plain", NewBucket::default()).await.unwrap();
    server
}

/// The digest in the form of `Content-MD5`.
fn md5(text: &str) -> String {
    use md5::Digest;
    base64_simd::STANDARD.encode_to_string(md5::Md5::digest(text.as_bytes()))
}

fn expect(name: &str, answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{name}: {}\n{}", answer.head, answer.text());
}

async fn check(server: &Server, name: &str, ask: Ask, status: u16, code: &str) {
    expect(name, &ask.send(server).await, status, code);
}

#[tokio::test]
async fn a_retention_beyond_the_year_9999_is_refused() {
    let server = server().await;
    let put = |until: &str| {
        Ask::new(&server, "PUT", "/locked/k")
            .body("record")
            .header("x-amz-object-lock-mode", "GOVERNANCE")
            .header("x-amz-object-lock-retain-until-date", until)
    };
    check(&server, "the last moment", put("9999-12-31T23:59:59Z"), 200, "").await;
    check(&server, "read", Ask::new(&server, "GET", "/locked/k"), 200, "").await;
    let later = "9999-12-31T23:59:59-23:59";
    check(&server, "in the year 10000 by its offset", put(later), 400, "InvalidArgument").await;
    let document = format!("<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>{later}</RetainUntilDate></Retention>");
    let set = Ask::new(&server, "PUT", "/locked/k?retention").header("content-md5", &md5(&document)).body(document);
    check(&server, "set later", set, 400, "InvalidArgument").await;
    for (method, target) in [("GET", "/locked/k"), ("HEAD", "/locked/k"), ("GET", "/locked/k?retention")] {
        let answer = Ask::new(&server, method, target).send(&server).await;
        assert_eq!(answer.status, 200, "{method} {target}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_presigned_payload_hash_holds_against_a_header() {
    let server = server().await;
    let put = |body: &str| Ask::new(&server, "PUT", "/plain/k").hash(&sha256(b"agreed")).body(body).presigned();
    let send = async |ask: Ask| ask.send_unsigned(&server, false).await;
    let header = "x-amz-content-sha256";
    expect("other bytes", &send(put("other")).await, 400, "XAmzContentSHA256Mismatch");
    let lifted = put("other").smuggle(header, "UNSIGNED-PAYLOAD");
    expect("the hash lifted by a header", &send(lifted).await, 403, "AccessDenied");
    let another = put("other").smuggle(header, &sha256(b"other"));
    expect("another hash in a header", &send(another).await, 403, "AccessDenied");
    let framed = put("5\r\nother\r\n0\r\n\r\n")
        .smuggle(header, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
        .smuggle("x-amz-decoded-content-length", "5");
    expect("framed by a header", &send(framed).await, 403, "AccessDenied");
    check(&server, "nothing was stored", Ask::new(&server, "GET", "/plain/k"), 404, "NoSuchKey").await;
    expect("the bytes agreed upon", &send(put("agreed")).await, 200, "");
    let said_again = put("agreed").smuggle(header, &sha256(b"agreed"));
    expect("and the same hash in a header", &send(said_again).await, 200, "");
    // If the query names none, a header only adds a check.
    let open =
        |hash: &[u8]| Ask::new(&server, "PUT", "/plain/open").body("bytes").presigned().smuggle(header, &sha256(hash));
    expect("a check added", &send(open(b"bytes")).await, 200, "");
    expect("a check added that fails", &send(open(b"others")).await, 400, "XAmzContentSHA256Mismatch");
}

/// Counts the logged bytes.
#[derive(Clone, Default)]
struct Log(Arc<AtomicUsize>);

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.fetch_add(format!("{value:?}").len(), Relaxed);
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_malformed_document_is_not_written_to_the_log() {
    let server = server().await;
    let log = Log::default();
    let _logged = tracing::subscriber::set_default(log.clone());
    let stranger = server.key(stele_archive::Rights::user("elsewhere", "")).await;
    for document in [format!("<{}", "\u{1}".repeat(1 << 20)), format!("<A></{}>", "b".repeat(1 << 20))] {
        let ask = Ask::new(&server, "POST", "/plain?delete").header("content-md5", &md5(&document)).body(document);
        check(&server, "a document that is none", ask.by(&stranger), 400, "MalformedXML").await;
    }
    let logged = log.0.load(Relaxed);
    assert!(logged < 16 << 10, "{logged} bytes were logged");
}

#[tokio::test]
async fn a_key_in_a_cdata_section_is_that_key() {
    let server = server().await;
    for key in ["kept", "wanted"] {
        let put = Ask::new(&server, "PUT", &format!("/plain/{key}")).body(key);
        check(&server, key, put, 200, "").await;
    }
    let document = "<Delete><Object><Key><![CDATA[wanted]]></Key></Object></Delete>";
    let ask = Ask::new(&server, "POST", "/plain?delete").header("content-md5", &md5(document)).body(document);
    let answer = ask.send(&server).await;
    assert!(answer.text().contains("<Deleted><Key>wanted</Key>"), "{}", answer.text());
    check(&server, "deleted", Ask::new(&server, "GET", "/plain/wanted"), 404, "NoSuchKey").await;
    check(&server, "kept", Ask::new(&server, "GET", "/plain/kept"), 200, "").await;
}

#[tokio::test]
async fn one_host_does_not_take_every_connection() {
    let settings = Settings { connections_max: 8, connections_per_peer: 4, ..Settings::default() };
    let server = Server::start(settings, Bytes(64 << 20)).await;
    let ask = |from: [u8; 4]| {
        let (ask, _) = Ask::new(&server, "GET", "/").signed();
        let address = server.address;
        async move {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind((from, 0).into()).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, &ask.bytes()).await;
            (super::http::answer(&mut stream, false).await.status, stream)
        }
    };
    // Each of these got its answer, and stays open.
    let mut idle = Vec::new();
    for _ in 0..4 {
        let (status, stream) = ask([127, 0, 0, 1]).await;
        assert_eq!(status, 200);
        idle.push(stream);
    }
    assert_eq!(ask([127, 0, 0, 1]).await.0, 503, "one more of the same host");
    assert_eq!(ask([127, 0, 0, 2]).await.0, 200, "another host");
    drop(idle);
    // The server notices that they are gone when it next polls them.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
        if ask([127, 0, 0, 1]).await.0 == 200 {
            return;
        }
    }
    panic!("the places of connections that ended are free again");
}
