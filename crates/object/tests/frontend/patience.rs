//! Slow clients, endless clients, too many clients; and the end of serving. The tests use pipes, on
//! a clock that advances only when all tasks wait.

use std::time::Duration;

use super::http::Ask;
use super::server::Server;
use super::strict::md5;
use stele_ground::Bytes;
use stele_object::{Pace, Peer, Settings, serve_connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

fn settings() -> Settings {
    Settings {
        connections_max: 2,
        requests_max: 1,
        queue_patience: Duration::from_secs(5),
        head_patience: Duration::from_secs(60),
        pace: Pace { silence_max: Duration::from_secs(30), rate_min: 1024, grace: Duration::from_secs(60) },
        write_patience: Duration::from_secs(60),
        ..Settings::default()
    }
}

/// A pipe to the server, and its task.
fn connect(server: &Server) -> (DuplexStream, JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let peer = Peer { address: None, secure: true, tls: "TLSv1.3" };
    (near, tokio::spawn(serve_connection(far, peer, server.frontend.clone())))
}

/// The server's output until it closes.
async fn rest(stream: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn start() -> Server {
    start_with(settings()).await
}

async fn start_with(settings: Settings) -> Server {
    let server = Server::start(settings, Bytes(64 << 20)).await;
    let (mut stream, task) = connect(&server);
    let ask = Ask::new(&server, "PUT", "/bucket").header("connection", "close").signed().0;
    stream.write_all(&ask.bytes()).await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    task.await.unwrap();
    server
}

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_refused_and_an_idle_connection_closed() {
    let server = start().await;
    let (mut stream, task) = connect(&server);
    let begun = Instant::now();
    stream.write_all(b"GET /bucket HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("<Code>RequestTimeout</Code>"), "{said}");
    assert_eq!(begun.elapsed().as_secs(), 60);
    drop(stream);
    task.await.unwrap();

    let (mut stream, task) = connect(&server);
    let said = rest(&mut stream).await;
    assert_eq!(said, "", "a connection nobody used is closed without a word");
    drop(stream);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_or_drips_is_refused() {
    let server = start().await;
    let upload = Ask::new(&server, "PUT", "/bucket/k").hash("UNSIGNED-PAYLOAD").header("content-length", "1000000");
    let head = upload.signed().0.bytes();

    let (mut stream, _task) = connect(&server);
    let begun = Instant::now();
    stream.write_all(&head).await.unwrap();
    stream.write_all(b"some").await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("<Code>RequestTimeout</Code>"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());

    let (stream, _task) = connect(&server);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let begun = Instant::now();
    writer.write_all(&head).await.unwrap();
    let dripping = tokio::spawn(async move {
        // A byte a second is neither silence nor an upload.
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).await.unwrap();
    let said = String::from_utf8_lossy(&bytes);
    assert!(said.contains("<Code>RequestTimeout</Code>"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(70), "{:?}", begun.elapsed());
    dripping.abort();
}

#[tokio::test(start_paused = true)]
async fn too_many_connections_and_requests_are_told_to_slow_down() {
    let server = start().await;
    let (_first, _one) = connect(&server);
    let (mut second, _two) = connect(&server);
    // Once the second has its answer, both have been admitted.
    let ask = Ask::new(&server, "GET", "/bucket").signed().0;
    second.write_all(&ask.bytes()).await.unwrap();
    let mut byte = [0; 1];
    second.read_exact(&mut byte).await.unwrap();
    let (mut third, _three) = connect(&server);
    let said = rest(&mut third).await;
    assert!(said.starts_with("HTTP/1.1 503") && said.contains("<Code>SlowDown</Code>"), "{said}");
    drop((_first, second));
    _one.await.unwrap();
    _two.await.unwrap();

    // One request may be served; an upload that waits for its body holds the turn.
    let (mut holder, _task) = connect(&server);
    let upload = Ask::new(&server, "PUT", "/bucket/k").hash("UNSIGNED-PAYLOAD").header("content-length", "10");
    holder.write_all(&upload.signed().0.bytes()).await.unwrap();
    tokio::task::yield_now().await;
    let (mut waiter, _task) = connect(&server);
    let begun = Instant::now();
    let ask = Ask::new(&server, "GET", "/bucket").header("connection", "close").signed().0;
    waiter.write_all(&ask.bytes()).await.unwrap();
    let said = rest(&mut waiter).await;
    assert!(said.starts_with("HTTP/1.1 503") && said.contains("<Code>SlowDown</Code>"), "{said}");
    assert_eq!(begun.elapsed().as_secs(), 5);
    let text = server.frontend.metrics().render(None);
    assert!(text.contains("stele_s3_requests_shed_total 1"), "{text}");
    assert!(text.contains("stele_s3_connections_refused_total 1"), "{text}");
}

/// A client that waits for an invitation takes a refusal for the answer to its next request, unless
/// the connection ends with it.
#[tokio::test(start_paused = true)]
async fn an_upload_without_a_turn_is_read_away_or_ends_its_connection() {
    let server = start().await;
    let (mut holder, _task) = connect(&server);
    let upload = Ask::new(&server, "PUT", "/bucket/k").hash("UNSIGNED-PAYLOAD").header("content-length", "10");
    holder.write_all(&upload.clone().signed().0.bytes()).await.unwrap();
    tokio::task::yield_now().await;

    let (mut waiter, task) = connect(&server);
    let invited = upload.clone().header("expect", "100-continue").signed().0;
    waiter.write_all(&invited.bytes()).await.unwrap();
    let said = rest(&mut waiter).await;
    assert!(said.starts_with("HTTP/1.1 503") && said.contains("<Code>SlowDown</Code>"), "{said}");
    assert!(said.contains("connection: close\r\n"), "{said}");
    drop(waiter);
    task.await.unwrap();

    let (mut waiter, _task) = connect(&server);
    for last in [false, true] {
        let ask = upload.clone().header("connection", if last { "close" } else { "keep-alive" });
        waiter.write_all(&[ask.signed().0.bytes(), b"0123456789".to_vec()].concat()).await.unwrap();
    }
    let said = rest(&mut waiter).await;
    assert_eq!(said.matches("HTTP/1.1 503").count(), 2, "{said}");
}

/// XML carries each byte of such a key as a reference of five.
#[tokio::test(start_paused = true)]
async fn listings_that_no_client_takes_have_bounded_memory() {
    let settings = Settings { connections_max: 10, requests_max: 10, answers_bytes_max: 1 << 20, ..settings() };
    let server = start_with(settings).await;
    for number in 0..60 {
        let key = format!("{number}{}", "\u{1}".repeat(1000));
        let put = stele_archive::PutRequest { bucket: "bucket".into(), key, ..Default::default() };
        let writer = server.archive.put(&stele_archive::Caller::local(0), put).await.unwrap();
        writer.finish(Default::default()).await.unwrap();
    }
    let ask = |close: &str| {
        let ask = Ask::new(&server, "GET", "/bucket?max-keys=60").header("connection", close);
        ask.signed().0.bytes()
    };
    let mut untaken = Vec::new();
    for _ in 0..2 {
        let (mut stream, task) = connect(&server);
        stream.write_all(&ask("keep-alive")).await.unwrap();
        // The answer has begun, and most of it waits for its client.
        stream.read_exact(&mut [0; 100]).await.unwrap();
        untaken.push((stream, task));
    }
    let begun = Instant::now();
    let (mut third, _task) = connect(&server);
    third.write_all(&ask("close")).await.unwrap();
    let said = rest(&mut third).await;
    assert!(said.starts_with("HTTP/1.1 503") && said.contains("<Code>SlowDown</Code>"), "{}", &said[..300]);
    assert_eq!(begun.elapsed().as_secs(), 5);

    // One client takes its answer, the other goes away.
    let (mut stream, _task) = untaken.remove(0);
    let mut taken = vec![0; 300_000];
    stream.read_exact(&mut taken).await.unwrap();
    assert!(String::from_utf8_lossy(&taken).contains("&#x1;&#x1;"));
    drop((stream, untaken));
    for _ in 0..3 {
        let (mut stream, _task) = connect(&server);
        stream.write_all(&ask("close")).await.unwrap();
        let said = rest(&mut stream).await;
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("</ListBucketResult>"), "{}", &said[..300]);
    }
}

/// No answer ends such a request.
#[tokio::test(start_paused = true)]
async fn a_request_whose_client_goes_away_is_under_way_no_more() {
    let server = start().await;
    let under_way = async |expected: u64| {
        let count = || server.frontend.metrics().totals().under_way;
        for _ in 0..100_000 {
            if count() == expected {
                return;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(count(), expected);
    };
    // An upload that waits for its body holds the only turn.
    let (mut holder, _task) = connect(&server);
    let upload = Ask::new(&server, "PUT", "/bucket/k").hash("UNSIGNED-PAYLOAD").header("content-length", "10");
    holder.write_all(&upload.signed().0.bytes()).await.unwrap();
    under_way(1).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let (mut waiter, task) = connect(&server);
    waiter.write_all(&Ask::new(&server, "GET", "/bucket").signed().0.bytes()).await.unwrap();
    under_way(2).await;
    drop(waiter);
    task.await.unwrap();
    under_way(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut_off() {
    let server = start().await;
    let caller = stele_archive::Caller::local(0);
    let put = stele_archive::PutRequest { bucket: "bucket".into(), key: "large".into(), ..Default::default() };
    let mut writer = server.archive.put(&caller, put).await.unwrap();
    writer.write(bytes::Bytes::from(vec![7; 4 << 20])).await.unwrap();
    writer.finish(Default::default()).await.unwrap();
    let (mut stream, task) = connect(&server);
    let ask = Ask::new(&server, "GET", "/bucket/large").signed().0;
    stream.write_all(&ask.bytes()).await.unwrap();
    task.await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.len() < 4 << 20, "less than the whole was taken");
}

#[tokio::test(start_paused = true)]
async fn closing_the_doors_lets_a_request_finish_and_takes_no_other() {
    let server = start().await;
    let (mut idle, idle_task) = connect(&server);
    let (mut busy, busy_task) = connect(&server);
    let upload = Ask::new(&server, "PUT", "/bucket/k").hash("UNSIGNED-PAYLOAD").header("content-length", "10");
    busy.write_all(&upload.signed().0.bytes()).await.unwrap();
    busy.write_all(b"first").await.unwrap();
    let frontend = server.frontend.clone();
    let closing = tokio::spawn(async move { frontend.connections().close(Duration::from_secs(20)).await });
    assert_eq!(rest(&mut idle).await, "", "an idle connection is closed at once");
    drop(idle);
    idle_task.await.unwrap();
    // The upload ends on a thread of its own, which the clock must not overtake.
    tokio::time::resume();
    busy.write_all(b"secnd").await.unwrap();
    let said = rest(&mut busy).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    drop(busy);
    busy_task.await.unwrap();
    assert!(closing.await.unwrap(), "all connections were gone in time");
}

#[tokio::test(start_paused = true)]
async fn closing_the_doors_breaks_off_what_does_not_end_in_time() {
    let server = start().await;
    let (mut busy, busy_task) = connect(&server);
    let upload = Ask::new(&server, "PUT", "/bucket/k").hash("UNSIGNED-PAYLOAD").header("content-length", "10");
    busy.write_all(&upload.signed().0.bytes()).await.unwrap();
    busy.write_all(b"first").await.unwrap();
    // Admitted before the connections close.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let begun = Instant::now();
    assert!(
        !server.frontend.connections().close(Duration::from_secs(20)).await,
        "one connection had not ended by itself"
    );
    assert_eq!(begun.elapsed().as_secs(), 20, "the broken connection is gone at once");
    busy_task.await.unwrap();
    // The rest comes too late for an acknowledgement.
    let _ = busy.write_all(b"secnd").await;
    assert_eq!(rest(&mut busy).await, "");
    let (mut next, task) = connect(&server);
    task.await.unwrap();
    assert!(!rest(&mut next).await.contains("200"), "nobody comes in behind closed connections");
}

#[tokio::test(start_paused = true)]
async fn a_stranger_holds_up_nobody() {
    let server = start().await;
    for (method, target, length) in
        [("POST", "/bucket?delete", "8388608"), ("PUT", "/bucket/k", "1000000"), ("PUT", "/bucket?versioning", "9")]
    {
        // No part of the body comes: memory taken before the caller is identified would stay taken.
        let (mut stranger, _task) = connect(&server);
        let ask = Ask::new(&server, method, target).header("content-length", length);
        stranger.write_all(&ask.bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (mut known, _other) = connect(&server);
        let begun = Instant::now();
        let ask = Ask::new(&server, "GET", "/bucket").header("connection", "close").signed().0;
        known.write_all(&ask.bytes()).await.unwrap();
        let said = rest(&mut known).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{method} {target}: {said}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{method} {target}: {:?}", begun.elapsed());
        let said = rest(&mut stranger).await;
        assert!(said.starts_with("HTTP/1.1 403") && said.contains("<Code>AccessDenied</Code>"), "{said}");
        drop((stranger, known));
        _task.await.unwrap();
        _other.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_may_not_drip_for_hours() {
    let server = start().await;
    let (stream, _task) = connect(&server);
    let ask = Ask::new(&server, "POST", "/bucket?delete").hash("UNSIGNED-PAYLOAD").header("content-length", "8388608");
    let head = ask.signed().0.bytes();
    let (mut reader, mut writer) = tokio::io::split(stream);
    writer.write_all(&head).await.unwrap();
    let begun = Instant::now();
    let dripping = tokio::spawn(async move {
        // Twice the required rate of an upload.
        while writer.write_all(&[b' '; 2048]).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).await.unwrap();
    let said = String::from_utf8_lossy(&bytes);
    assert!(said.contains("<Code>RequestTimeout</Code>") && said.contains("60 seconds"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(70), "{:?}", begun.elapsed());
    dripping.abort();
}

#[tokio::test(start_paused = true)]
async fn peers_that_are_refused_hold_little_and_not_for_long() {
    let server = start().await;
    let (_first, _one) = connect(&server);
    let (mut second, _two) = connect(&server);
    let ask = Ask::new(&server, "GET", "/bucket").signed().0;
    second.write_all(&ask.bytes()).await.unwrap();
    second.read_exact(&mut [0]).await.unwrap();
    // None of them reads its answer, or sends anything.
    let begun = Instant::now();
    let mut refused: Vec<_> = (0..129).map(|_| connect(&server)).collect();
    let (mut last, task) = refused.pop().unwrap();
    assert_eq!(rest(&mut last).await, "", "the last one is closed without an answer");
    task.await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    for (_, task) in &mut refused {
        task.await.unwrap();
    }
    assert!(begun.elapsed() <= Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// Its client sends all of the upload before it reads. The connection was reset after 1 MiB, and
/// the answer with it.
#[tokio::test(start_paused = true)]
async fn an_upload_beyond_the_connections_sees_its_answer() {
    let server = start().await;
    let (_first, _one) = connect(&server);
    let (mut second, _two) = connect(&server);
    let ask = Ask::new(&server, "GET", "/bucket").signed().0;
    second.write_all(&ask.bytes()).await.unwrap();
    second.read_exact(&mut [0]).await.unwrap();
    let (mut upload, task) = connect(&server);
    let ask = Ask::new(&server, "PUT", "/bucket/k").hash("UNSIGNED-PAYLOAD").header("content-length", "33554432");
    upload.write_all(&ask.signed().0.bytes()).await.unwrap();
    upload.write_all(&vec![b'x'; 32 << 20]).await.expect("all of the upload is taken");
    let said = rest(&mut upload).await;
    assert!(said.starts_with("HTTP/1.1 503") && said.contains("<Code>SlowDown</Code>"), "{said}");
    drop(upload);
    task.await.unwrap();

    // One without an end is not read for ever.
    let (endless, task) = connect(&server);
    let (_reader, mut writer) = tokio::io::split(endless);
    let begun = Instant::now();
    let mut sent = 0;
    while writer.write_all(&vec![b'x'; 1 << 20]).await.is_ok() {
        sent += 1;
    }
    task.await.unwrap();
    assert!((60..70).contains(&sent) && begun.elapsed() < Duration::from_secs(13), "{sent}, {:?}", begun.elapsed());
}

/// Uploads that send nothing hold the turns of their key, as slowly as a client may be served.
#[tokio::test(start_paused = true)]
async fn slow_requests_of_one_key_leave_turns_for_the_others() {
    let few = Settings { connections_max: 64, requests_max: 8, requests_per_key: 4, ..settings() };
    let server = Server::start(few, Bytes(64 << 20)).await;
    let made = stele_archive::NewBucket::default();
    server.archive.create_bucket(&stele_archive::Caller::local(0), "bucket", made).await.unwrap();
    // Storing a key takes other threads. The clock must not run on while the test waits for them.
    let other = server.key(stele_archive::Rights::all()).await;
    let upload = Ask::new(&server, "PUT", "/bucket/k").hash("UNSIGNED-PAYLOAD").header("content-length", "10");
    let mut slow = Vec::new();
    for _ in 0..8 {
        let (mut stream, task) = connect(&server);
        stream.write_all(&upload.signed().0.bytes()).await.unwrap();
        slow.push((stream, task));
    }
    // Let each of them come as far as it can.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    let listed = Ask::new(&server, "GET", "/bucket").header("connection", "close");
    let (mut stream, _task) = connect(&server);
    stream.write_all(&listed.clone().by(&other).signed().0.bytes()).await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 200"), "another key: {said}");
    assert_eq!(begun.elapsed(), Duration::ZERO, "at once");
    let (mut stream, _task) = connect(&server);
    stream.write_all(&listed.signed().0.bytes()).await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.contains("<Code>SlowDown</Code>"), "the same key: {said}");
}

/// A document takes its memory before it arrives, and may take its time.
#[tokio::test(start_paused = true)]
async fn slow_documents_of_one_key_leave_memory_for_the_others() {
    let many = Settings { connections_max: 64, requests_max: 64, requests_per_key: 32, ..settings() };
    let server = Server::start(many, Bytes(64 << 20)).await;
    let made = stele_archive::NewBucket::default();
    server.archive.create_bucket(&stele_archive::Caller::local(0), "bucket", made).await.unwrap();
    // Storing a key takes other threads. The clock must not run on while the test waits for them.
    let other = server.key(stele_archive::Rights::all()).await;
    let post = Ask::new(&server, "POST", "/bucket?delete").hash("UNSIGNED-PAYLOAD");
    let mut slow = Vec::new();
    for _ in 0..16 {
        let (mut stream, task) = connect(&server);
        let ask = post.clone().header("content-length", "8388608");
        stream.write_all(&ask.signed().0.bytes()).await.unwrap();
        slow.push((stream, task));
    }
    // Let each of them come as far as it can.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    let document = "<Delete><Object><Key>k</Key></Object></Delete>";
    let small = Ask::new(&server, "POST", "/bucket?delete").header("connection", "close").body(document);
    let small = small.header("content-md5", &md5(document));
    let (mut stream, _task) = connect(&server);
    stream.write_all(&small.clone().by(&other).signed().0.bytes()).await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 200"), "another key: {said}");
    assert_eq!(begun.elapsed(), Duration::ZERO, "at once");
    let (mut stream, _task) = connect(&server);
    stream.write_all(&small.signed().0.bytes()).await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.contains("<Code>SlowDown</Code>"), "the same key: {said}");
}
