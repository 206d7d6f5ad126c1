//! The server's memory under hostile clients: uploads that crawl, never end or are large, and
//! documents.

use crate::support::server::{Server, good, runtime};
use crate::support::{Place, content};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Caches ([memory] blocks, table, dirty, catalog), in MiB; the first as configured here, the
/// others by default.
const CACHES: u64 = 128 + 64 + 64 + 64;
const BESIDE_CACHES: u64 = 512;

/// Opens a request that announces `length` bytes, sends `sent` of them, and then stops.
async fn hang(server: &Server, method: &str, target: &str, length: u64, sent: usize) -> TcpStream {
    let ask = server.ask(method, target).hash("UNSIGNED-PAYLOAD").header("content-length", &length.to_string());
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&ask.signed().0.bytes()).await.unwrap();
    let piece = vec![7; 64 << 10];
    let mut left = sent;
    while left > 0 {
        // The server may stop reading, or refuse: both bound its memory.
        let now = left.min(piece.len());
        let written = tokio::time::timeout(std::time::Duration::from_secs(2), stream.write_all(&piece[..now])).await;
        if !matches!(written, Ok(Ok(()))) {
            break;
        }
        left -= now;
    }
    stream
}

#[test]
fn memory_stays_bounded_whatever_is_uploaded() {
    let place = Place::new("memory");
    let first = place.up();
    let keys = first.keys();
    drop(first);
    place.edit_config(|text| text.replace("[memory]\n", "[memory]\nblocks = \"128MiB\"\n"));
    let server = place.serve().with_keys(keys);
    place.json(&["bucket", "create", "records"]);
    let held = runtime().block_on(async {
        let server = &server;
        let endless = (0..12).map(|n| async move {
            let target = format!("/records/endless{n}");
            hang(server, "PUT", &target, 5 << 30, 20 << 20).await
        });
        let crawling = (0..120).map(|n| async move {
            let target = format!("/records/crawling{n}");
            hang(server, "PUT", &target, 1 << 20, 1000).await
        });
        let documents = (0..30).map(|_| hang(server, "POST", "/records?delete", 8 << 20, 4 << 20));
        let (mut held, more, documents) = tokio::join!(
            futures_util::future::join_all(endless),
            futures_util::future::join_all(crawling),
            futures_util::future::join_all(documents),
        );
        held.extend(more);
        held.extend(documents);
        // Meanwhile, whole uploads succeed and are read back.
        for n in 0..4 {
            let body = content(n, 40 << 20);
            let ask = server.ask("PUT", &format!("/records/large{n}")).hash("UNSIGNED-PAYLOAD");
            good(ask.body(body.clone()).send(server).await);
            assert!(good(server.ask("GET", &format!("/records/large{n}")).send(server).await).body == body);
        }
        held
    });
    let peak = server.memory("VmHWM:") / 1024;
    println!("peak of {peak} MiB with {} requests under way", held.len());
    assert!(peak < BESIDE_CACHES + CACHES, "{peak} MiB");
    drop(held);
    let listed = good(server.get("/records?list-type=2")).text();
    assert_eq!(listed.matches("<Key>").count(), 4, "what never ended is not there: {listed}");
}
