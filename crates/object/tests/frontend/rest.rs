//! restic's REST protocol over a socket, with every refusal that a repository relies on.

use std::net::SocketAddr;

use aws_lc_rs::digest;
use base64_simd::STANDARD;
use stele_archive::{
    Access, Caller, DefaultRetention, GetRequest, Grant, NewBucket, Period, RetentionMode, Rights, Role, Versioning,
};
use stele_ground::{Bytes, MIB};
use stele_object::{Peer, Rest, Settings, serve_connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::server::Server;

const SECOND: &str = "Accept: application/vnd.x.restic.rest.v2\r\n";

struct Client {
    address: SocketAddr,
    header: String,
}

impl Client {
    fn new(address: SocketAddr, id: &str, secret: &str) -> Client {
        let encoded = STANDARD.encode_to_string(format!("{id}:{secret}"));
        Client { address, header: format!("Authorization: Basic {encoded}\r\n") }
    }

    /// Sends one request with HTTP/1.0, so that the end of the connection ends a list. Returns
    /// status, head and body.
    async fn ask(&self, method: &str, path: &str, more: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let length = if method == "POST" { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
        self.send(format!("{method} {path} HTTP/1.0\r\n{}{length}{more}\r\n", self.header), body).await
    }

    async fn send(&self, head: String, body: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(body).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head, bytes[end + 4..].to_vec())
    }

    async fn status(&self, method: &str, path: &str, body: &[u8]) -> u16 {
        self.ask(method, path, "", body).await.0
    }
}

fn name(content: &[u8]) -> String {
    hex_simd::encode_to_string(digest::digest(&digest::SHA256, content), hex_simd::AsciiCase::Lower)
}

async fn rest(settings: Settings) -> (Server, SocketAddr) {
    let server = Server::start(settings, Bytes(64 * MIB)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let endpoint = Rest::new(server.frontend.clone());
    tokio::spawn(async move {
        while let Ok((stream, from)) = listener.accept().await {
            let peer = Peer { address: Some(from), secure: false, tls: "-" };
            tokio::spawn(serve_connection(stream, peer, endpoint.clone()));
        }
    });
    (server, address)
}

fn appender(bucket: &str) -> Rights {
    let access = [Access::Read, Access::Write, Access::List].into();
    let grant = Grant { bucket: Some(bucket.into()), prefix: String::new(), access };
    Rights { roles: [Role::User].into(), grants: vec![grant], bypass_governance: false }
}

#[tokio::test]
async fn only_the_right_secret_opens() {
    let (server, address) = rest(Settings::default()).await;
    let (id, secret) = (server.access_key.as_str(), server.secret_key.as_str());
    for wrong in
        [Client::new(address, id, "wrong"), Client::new(address, "nobody", secret), Client::new(address, id, "")]
    {
        let (status, head, _) = wrong.ask("GET", "/repository/config", "", b"").await;
        assert_eq!((status, head.contains("www-authenticate: basic")), (401, true), "{head}");
    }
    let (ended, its_secret) = server.expired_key(Rights::all()).await;
    assert_eq!(Client::new(address, &ended, &its_secret).status("GET", "/repository/config", b"").await, 401);
    let none = Client { address, header: String::new() };
    assert_eq!(none.status("POST", "/repository/?create=true", b"").await, 401);
    assert_eq!(Client::new(address, id, secret).status("GET", "/repository/config", b"").await, 404);
    let log = server.archive.audit_records(&Caller::local(0), 0, 100).await.unwrap();
    assert!(format!("{log:?}").contains("GET /repository/config"), "refused senders are in the audit log");
}

#[tokio::test]
async fn a_file_is_stored_once_under_the_hash_of_its_content() {
    let (server, address) = rest(Settings::default()).await;
    let client = Client::new(address, &server.access_key, &server.secret_key);
    assert_eq!(client.status("HEAD", "/repository/config", b"").await, 404);
    assert_eq!(client.status("POST", "/repository/?create=true", b"").await, 200);
    assert_eq!(client.status("POST", "/repository?create=true", b"").await, 200);
    let made = server.archive.bucket(&Caller::local(0), "repository").await.unwrap();
    assert_eq!(made.versioning, Versioning::Enabled, "what is stored over a file over S3 would destroy it");
    // The config is small and named `config`; it is never replaced either.
    assert_eq!(client.status("POST", "/repository/config", b"first").await, 200);
    assert_eq!(client.status("POST", "/repository/config", b"first").await, 200);
    assert_eq!(client.status("POST", "/repository/config", b"second").await, 403);
    assert_eq!(client.ask("GET", "/repository/config", "", b"").await.2, b"first");
    let content: Vec<u8> = (0..300_000_u32).map(|number| ((number * 7) >> 3) as u8).collect();
    let path = format!("/repository/data/{}", name(&content));
    // Another content under this name is refused, and leaves nothing.
    assert_eq!(client.status("POST", &path, b"other").await, 400);
    assert_eq!(client.status("HEAD", &path, b"").await, 404);
    assert_eq!(client.status("POST", &path, &content).await, 200);
    assert_eq!(client.status("POST", &path, &content).await, 200);
    assert_eq!(client.status("POST", &path, b"other").await, 400);
    let (status, head, body) = client.ask("GET", &path, "", b"").await;
    assert!(status == 200 && body == content && head.contains("content-length: 300000"));
    let (status, head, body) = client.ask("GET", &path, "Range: bytes=1000-1999\r\n", b"").await;
    assert!(status == 206 && body == content[1000..2000] && head.contains("content-range: bytes 1000-1999/300000"));
    assert_eq!(client.ask("GET", &path, "Range: bytes=299990-\r\n", b"").await.2, content[299_990..]);
    assert_eq!(client.ask("GET", &path, "Range: bytes=300000-\r\n", b"").await.0, 416);
    let (status, head, body) = client.ask("HEAD", &path, "", b"").await;
    assert!(status == 200 && body.is_empty() && head.contains("content-length: 300000"), "{head}");
    // The key is that of restic's layout for S3, and a file that came over S3 has no other rules.
    let key = format!("data/{}/{}", &name(&content)[..2], name(&content));
    let get = GetRequest { bucket: "repository".into(), key, ..GetRequest::default() };
    assert_eq!(server.archive.head(&Caller::local(0), get).await.unwrap().0.size, 300_000);
    assert_eq!(client.status("DELETE", &path, b"").await, 200);
    assert_eq!(client.status("DELETE", &path, b"").await, 404);
}

#[tokio::test]
async fn requests_outside_the_protocol_are_refused() {
    let (server, address) = rest(Settings::default()).await;
    let client = Client::new(address, &server.access_key, &server.secret_key);
    assert_eq!(client.status("POST", "/repository/?create=true", b"").await, 200);
    let key = format!("/repository/keys/{}", name(b"key"));
    for (method, path, expected) in [
        ("PUT", key.as_str(), 405),
        ("POST", "/repository/", 405),
        ("DELETE", "/repository/", 405),
        ("DELETE", "/repository/keys/", 405),
        ("GET", "/repository/keys/short", 404),
        ("GET", "/repository//config", 404),
        ("GET", "/nothing/keys/", 404),
        ("POST", "/Not-A-Bucket/?create=true", 400),
    ] {
        assert_eq!(client.status(method, path, b"").await, expected, "{method} {path}");
    }
    // Limits: a key has no 2 MiB, a body has a length or chunks, and the head is bounded.
    let head = format!("POST {key} HTTP/1.0\r\n{}Content-Length: 2097152\r\n\r\n", client.header);
    assert_eq!(client.send(head, b"").await.0, 413);
    assert_eq!(client.send(format!("POST {key} HTTP/1.0\r\n{}\r\n", client.header), b"").await.0, 411);
    let long = format!("X-Long: {}\r\n", "x".repeat(40_000));
    assert_eq!(client.ask("GET", "/repository/keys/", &long, b"").await.0, 400);
    assert_eq!(client.status("POST", &key, b"key").await, 200);
}

/// As rustic sends files.
#[tokio::test]
async fn a_file_in_chunks_needs_no_length() {
    let (server, address) = rest(Settings::default()).await;
    let client = Client::new(address, &server.access_key, &server.secret_key);
    assert_eq!(client.status("POST", "/repository/?create=true", b"").await, 200);
    let store = async |path: &str, chunks: &[&[u8]]| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}Transfer-Encoding: chunked\r\n\r\n",
            client.header
        );
        let mut body = Vec::new();
        for chunk in chunks.iter().chain([&b"".as_slice()]) {
            body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        client.send(head, &body).await.0
    };
    assert_eq!(store("/repository/config", &[b"con", b"fig"]).await, 200);
    assert_eq!(store("/repository/config", &[b"config"]).await, 200);
    assert_eq!(store("/repository/config", &[b"other"]).await, 403);
    assert_eq!(client.ask("GET", "/repository/config", "", b"").await.2, b"config");
    let content: Vec<u8> = (0..300_000_u32).map(|number| ((number * 7) >> 3) as u8).collect();
    let path = format!("/repository/data/{}", name(&content));
    assert_eq!(store(&path, &[&content[1..]]).await, 400, "it lacks a byte");
    assert_eq!(client.status("HEAD", &path, b"").await, 404);
    assert_eq!(store(&path, &[&content[..7], &content[7..]]).await, 200);
    assert_eq!(store(&path, &[&content]).await, 200);
    assert_eq!(client.ask("GET", &path, "", b"").await.2, content);
    // The limits hold: a key has at most 1 MiB.
    let long = vec![7; (1 << 20) + 1000];
    for path in [format!("/repository/keys/{}", name(&long)), "/repository/folder/config".to_owned()] {
        assert_eq!(store(&path, &[&long]).await, 413, "{path}");
        assert_eq!(client.status("HEAD", &path, b"").await, 404, "{path}");
    }
}

#[tokio::test]
async fn a_key_that_may_not_delete_removes_locks_alone() {
    let (server, address) = rest(Settings::default()).await;
    let owner = Client::new(address, &server.access_key, &server.secret_key);
    assert_eq!(owner.status("POST", "/repository/?create=true", b"").await, 200);
    let (id, secret) = server.key(appender("repository")).await;
    let agent = Client::new(address, &id, &secret);
    assert_eq!(agent.status("POST", "/another/?create=true", b"").await, 403);
    assert_eq!(agent.status("POST", "/repository/config", b"config").await, 200);
    for folder in ["keys", "snapshots", "data", "index", "locks"] {
        let path = format!("/repository/{folder}/{}", name(folder.as_bytes()));
        assert_eq!(agent.status("POST", &path, folder.as_bytes()).await, 200, "{path}");
        let expected = if folder == "locks" { 200 } else { 403 };
        assert_eq!(agent.status("DELETE", &path, b"").await, expected, "{path}");
        assert_eq!(owner.status("HEAD", &path, b"").await, if folder == "locks" { 404 } else { 200 }, "{path}");
    }
    assert_eq!(agent.status("DELETE", "/repository/config", b"").await, 403);
    // A key for another bucket removes no lock here.
    let lock = format!("/repository/locks/{}", name(b"lock"));
    assert_eq!(agent.status("POST", &lock, b"lock").await, 200);
    let (id, secret) = server.key(appender("another")).await;
    assert_eq!(Client::new(address, &id, &secret).status("DELETE", &lock, b"").await, 403);
    assert_eq!(agent.status("DELETE", &lock, b"").await, 200);
}

#[tokio::test]
async fn retention_of_the_bucket_keeps_every_file() {
    let (server, address) = rest(Settings::default()).await;
    let kept = DefaultRetention { mode: RetentionMode::Governance, period: Period::Days(1) };
    let new = NewBucket { object_lock: true, default_retention: Some(kept), ..NewBucket::default() };
    server.archive.create_bucket(&Caller::local(0), "kept", new).await.unwrap();
    let owner = Client::new(address, &server.access_key, &server.secret_key);
    let (data, lock) = (format!("/kept/data/{}", name(b"data")), format!("/kept/locks/{}", name(b"lock")));
    assert_eq!(owner.status("POST", &data, b"data").await, 200);
    let (status, _, text) = owner.ask("DELETE", &data, "", b"").await;
    assert!(status == 403 && String::from_utf8_lossy(&text).contains("retained in GOVERNANCE mode until"), "{text:?}");
    assert_eq!(owner.status("HEAD", &data, b"").await, 200);
    // A lock goes away, and its retained version stays.
    let (id, secret) = server.key(appender("kept")).await;
    for client in [&owner, &Client::new(address, &id, &secret)] {
        assert_eq!(client.status("POST", &lock, b"lock").await, 200);
        assert_eq!(client.status("DELETE", &lock, b"").await, 200);
        assert_eq!(client.status("HEAD", &lock, b"").await, 404);
    }
}

#[tokio::test]
async fn lists_have_names_or_names_and_sizes() {
    let (server, address) = rest(Settings::default()).await;
    let client = Client::new(address, &server.access_key, &server.secret_key);
    assert_eq!(client.status("POST", "/repository/?create=true", b"").await, 200);
    assert_eq!(client.ask("GET", "/repository/index/", "", b"").await.2, b"[]\n");
    let mut expected = Vec::new();
    for number in 0..1_234_u32 {
        let content = number.to_string();
        expected.push((name(content.as_bytes()), content.len()));
        let path = format!("/repository/data/{}", name(content.as_bytes()));
        assert_eq!(client.status("POST", &path, content.as_bytes()).await, 200);
    }
    expected.sort();
    let (_, head, body) = client.ask("GET", "/repository/data/", SECOND, b"").await;
    assert!(head.contains("content-type: application/vnd.x.restic.rest.v2"), "{head}");
    let listed: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let listed: Vec<(String, usize)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["name"].as_str().unwrap().to_owned(), file["size"].as_u64().unwrap() as usize))
        .collect();
    assert_eq!(listed, expected);
    let (_, head, body) = client.ask("GET", "/repository/data", "", b"").await;
    assert!(head.contains("content-type: application/vnd.x.restic.rest.v1"), "{head}");
    let names: Vec<String> = serde_json::from_slice(&body).unwrap();
    assert_eq!(names, expected.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
}
