//! Uploads that stop or crawl in the middle, beside one that does not, over sockets and over pipes.

use std::time::Duration;

use super::http::{self, Ask};
use super::server::Server;
use stele_archive::Options;
use stele_ground::Bytes;
use stele_object::{Pace, Peer, Settings, serve_connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bytes that an upload sends before it falls silent: a piece and the beginning of the next.
const BEGUN: usize = 600_000;

/// Memory for some twenty uploads that have begun their second piece. Silence alone ends none of
/// them.
async fn start() -> Server {
    // More than a paused clock passes while a busy machine keeps the volume's thread waiting.
    let pace = Pace { silence_max: Duration::from_secs(1 << 20), rate_min: 1, grace: Duration::from_secs(1 << 20) };
    let options = Options { in_flight: Bytes(12 << 20), ..Server::options() };
    let server = Server::with(Settings { pace, ..Settings::default() }, Bytes(256 << 20), options).await;
    let answer = Ask::new(&server, "PUT", "/bucket").send(&server).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    server
}

fn begun(server: &Server, name: usize) -> Vec<u8> {
    let ask = Ask::new(server, "PUT", &format!("/bucket/silent-{name}"))
        .hash("UNSIGNED-PAYLOAD")
        .header("content-length", "5242880");
    let mut bytes = ask.signed().0.bytes();
    bytes.resize(bytes.len() + BEGUN, 7);
    bytes
}

#[tokio::test]
async fn an_upload_is_served_beside_a_hundred_that_have_fallen_silent() {
    let server = start().await;
    let mut silent = Vec::new();
    for name in 0..100 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&begun(&server, name)).await.unwrap();
        silent.push(stream);
    }
    let content = vec![5; 2 << 20];
    let honest = async {
        let put = Ask::new(&server, "PUT", "/bucket/honest").body(content.clone()).send(&server).await;
        assert_eq!(put.status, 200, "{}", put.text());
        Ask::new(&server, "GET", "/bucket/honest").send(&server).await
    };
    let answer = timeout(Duration::from_secs(120), honest).await.expect("it waits for room that silent uploads keep");
    assert!(answer.body == content);
    // The silent uploads were not ended for it: one that continues is stored.
    let mut back = silent.swap_remove(50);
    back.write_all(&vec![7; 5_242_880 - BEGUN]).await.unwrap();
    let answer = timeout(Duration::from_secs(120), http::answer(&mut back, false)).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let stored = Ask::new(&server, "GET", "/bucket/silent-50").send(&server).await;
    assert!(stored.body == vec![7; 5_242_880]);
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_served_beside_many_that_drip() {
    let server = start().await;
    let mut drips = Vec::new();
    for name in 0..60 {
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve_connection(
            far,
            Peer { address: None, secure: true, tls: "TLSv1.3" },
            server.frontend.clone(),
        ));
        let head = begun(&server, name);
        let (mut reader, mut writer) = tokio::io::split(near);
        let dripping = tokio::spawn(async move {
            writer.write_all(&head).await.unwrap();
            while writer.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let answered = tokio::spawn(async move { reader.read_u8().await });
        drips.push((dripping, answered));
    }
    let content = vec![5; 2 << 20];
    let put = Ask::new(&server, "PUT", "/bucket/honest").body(content).send(&server);
    // The paused clock passes by itself while the volume's own thread works: patience is counted in
    // real time.
    let begun = std::time::Instant::now();
    let impatience = async {
        while begun.elapsed() < Duration::from_secs(120) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let put = tokio::select! {
        put = put => put,
        () = impatience => panic!("it waits for room that dripping uploads keep"),
    };
    assert_eq!(put.status, 200, "{}", put.text());
    for (dripping, answered) in drips {
        assert!(!answered.is_finished() && !dripping.is_finished(), "no upload was ended for the other");
        dripping.abort();
    }
}
