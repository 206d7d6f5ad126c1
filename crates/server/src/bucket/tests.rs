use super::*;

#[test]
fn values_of_a_query_are_encoded() {
    assert_eq!(encoded("a/b c+~"), "a%2Fb%20c%2B~");
}

/// A client of this place, and the runtime that carries its requests.
fn client(place: &str) -> (BucketClient, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let entered = runtime.enter();
    let text = || "text".to_owned();
    let keys = Keys { access: text(), secret: text(), token: None, region: text() };
    let Ok(bucket) = BucketClient::open(place, "place", keys) else { panic!("{place}") };
    drop(entered);
    (bucket, runtime)
}

/// Asks a server that answers each connection like this. Gives the outcome, and the number of
/// connections.
fn asked(answer: &'static str, headers: &[(&str, &str)]) -> (Result<BucketResponse>, usize) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("s3+http://{}/bucket", listener.local_addr().unwrap());
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut request = [0; 4096];
            let _ = connection.read(&mut request);
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    let (bucket, _runtime) = client(&place);
    let ask = BucketRequest { method: "GET", path: "/bucket/name", query: "", headers, max: 10 };
    let outcome = bucket.with_attempts(1).ask(ask, b"");
    (outcome, count.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn only_its_own_schemes_name_a_bucket() {
    let (bucket, _runtime) = client("s3://example.org:8443/bucket/heads/");
    assert_eq!((bucket.port, bucket.tls.is_some(), bucket.prefix()), (8443, true, "heads/"));
    // Not as a place without TLS.
    for other in ["https://example.org/bucket", "http://example.org/bucket", "S3://example.org/bucket", "example.org/b"]
    {
        let keys = Keys { access: String::new(), secret: String::new(), token: None, region: String::new() };
        let Err(failure) = BucketClient::open(other, "place", keys) else { panic!("{other} is taken") };
        assert!(failure.next.contains("s3+http://"), "{failure}");
    }
}

#[test]
fn a_port_without_a_listener_is_an_unreachable_store() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (bucket, _runtime) = client(&format!("s3+http://{free}/bucket"));
    let ask = BucketRequest { method: "GET", path: "/bucket/name", query: "", headers: &[], max: 10 };
    match bucket.with_attempts(1).ask(ask, b"") {
        Err(BackupError::Unreachable(told)) => assert!(told.contains("cannot reach"), "{told}"),
        other => panic!("{:?}", other.map(|answer| answer.status)),
    }
}

/// What the requests said of their bodies when so many of this length were stored one after
/// another, each answered by `answer`: the hash that was signed, and whether there was a
/// BLAKE3. And whether the last one counts as repeated.
fn claims(count: usize, length: usize, answer: fn(&Told) -> String) -> (Vec<(bool, bool)>, bool) {
    use std::io::{BufRead, BufReader, Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("s3+http://{}/bucket", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&heads);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut reader = BufReader::new(connection.unwrap());
            let mut told = Told { number: lock(&noted).len(), ..Told::default() };
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                match line.trim_end().split_once(": ") {
                    Some(("content-length", value)) => length = value.parse().unwrap(),
                    Some(("x-amz-content-sha256", value)) => told.sha256 = value.len() == 64,
                    Some((CONTENT_BLAKE3, value)) => told.blake3 = Some(value.to_owned()),
                    _ if line == "\r\n" => {
                        reader.read_exact(&mut vec![0; length]).unwrap();
                        lock(&noted).push((told.sha256, told.blake3.is_some()));
                        reader.get_mut().write_all(answer(&told).as_bytes()).unwrap();
                        told = Told { number: told.number + 1, ..Told::default() };
                    }
                    _ => {}
                }
                line.clear();
            }
        }
    });
    let (bucket, _runtime) = client(&place);
    let ask = BucketRequest { method: "PUT", path: "/bucket/name", query: "", headers: &[], max: 10 };
    let body = BucketBody::copy(&vec![7; length]);
    let answers: Vec<BucketResponse> = (0..count).map(|_| bucket.send(ask, &body).unwrap()).collect();
    assert!(answers.iter().all(|answer| answer.status == 200));
    let heads = lock(&heads).clone();
    (heads, answers.last().is_some_and(|answer| answer.repeated))
}

/// A request as the server of a test reads it.
#[derive(Default)]
struct Told {
    number: usize,
    sha256: bool,
    blake3: Option<String>,
}

fn plain_success(_: &Told) -> String {
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()
}

fn confirmation(told: &Told) -> String {
    let confirmed = told.blake3.as_ref().map(|blake3| format!("{CONTENT_BLAKE3}: {blake3}\r\n"));
    format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{}\r\n", confirmed.unwrap_or_default())
}

/// Refuses requests with a BLAKE3 alone.
fn refusal(told: &Told, status: &str) -> String {
    match told.blake3 {
        Some(_) => format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"),
        None => plain_success(told),
    }
}

#[test]
fn a_server_that_confirms_the_blake3_gets_no_sha256() {
    let (both, blake3) = ((true, true), (false, true));
    assert_eq!(claims(3, NAMED_MIN, confirmation), (vec![both, blake3, blake3], false));
}

#[test]
fn other_servers_get_a_sha256_of_every_body() {
    let (both, sha256) = ((true, true), (true, false));
    assert_eq!(claims(3, NAMED_MIN, plain_success), (vec![both, sha256, sha256], false));
    let refusals: [fn(&Told) -> String; 3] = [
        |told| refusal(told, "400 Bad Request"),
        |told| refusal(told, "403 Forbidden"),
        |told| refusal(told, "501 Not Implemented"),
    ];
    for refusing in refusals {
        assert_eq!(claims(2, NAMED_MIN, refusing), (vec![both, sha256, sha256], false));
    }
    assert_eq!(claims(1, NAMED_MIN - 1, confirmation), (vec![sha256], false));
}

#[test]
fn a_body_that_is_not_confirmed_any_more_is_sent_again_with_its_sha256() {
    let once = |told: &Told| if told.number == 0 { confirmation(told) } else { plain_success(told) };
    let (both, blake3, sha256) = ((true, true), (false, true), (true, false));
    assert_eq!(claims(2, NAMED_MIN, once), (vec![both, blake3, sha256], true));
}

#[test]
fn the_content_of_an_object_is_not_searched_for_an_error() {
    let content = "<Code>a</Code>";
    let of = |status: u16, body: &'static str| {
        BucketResponse { status, head: HeaderMap::new(), body: body.into(), repeated: false }.code()
    };
    assert_eq!((of(200, content), of(206, content)), (String::new(), String::new()));
    assert_eq!(of(400, content), "a");
}

#[test]
fn an_object_that_is_too_long_is_damaged_and_asked_for_once() {
    let told = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n01234567890";
    let untold = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n";
    for answer in [told, untold] {
        let (outcome, connections) = asked(answer, &[]);
        let Err(BackupError::Damaged(text)) = outcome else { panic!("{:?}", outcome.map(|answer| answer.body)) };
        assert!(text.contains("/bucket/name is longer than 10 bytes"), "{text}");
        assert_eq!(connections, 1);
        // A server that does not know parts says nothing about the object.
        assert!(matches!(asked(answer, &[("range", "bytes=0-9")]).0, Err(BackupError::Failed(_))));
    }
    let (outcome, _) = asked("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789", &[]);
    assert_eq!(outcome.map(|answer| answer.body.len()), Ok(10));
}

/// A client of a server that answers `each` requests on a connection with ten bytes, and then
/// closes it; and the number of its connections.
fn closing(each: usize) -> (BucketClient, tokio::runtime::Runtime, Arc<std::sync::atomic::AtomicUsize>) {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("s3+http://{}/bucket", listener.local_addr().unwrap());
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut reader = BufReader::new(connection.unwrap());
            for _ in 0..each {
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    assert!(reader.read_line(&mut line).unwrap() > 0);
                }
                reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789").unwrap();
            }
        }
    });
    let (bucket, runtime) = client(&place);
    (bucket, runtime, count)
}

#[test]
fn a_connection_is_used_until_the_server_closes_it() {
    let (bucket, runtime, count) = closing(3);
    let ask = BucketRequest { method: "GET", path: "/bucket/name", query: "", headers: &[], max: 10 };
    for asked in 0..9 {
        let answer = bucket.send(ask, &BucketBody::copy(b"")).unwrap();
        assert_eq!((answer.status, answer.body.as_slice(), answer.repeated), (200, &b"0123456789"[..], false));
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), asked / 3 + 1);
        if asked % 3 == 2 {
            // The end is on its way. The connection is not used once it has come.
            // None is kept where it had come with the answer.
            let Some(mut link) = lock(&bucket.kept).pop() else { continue };
            while runtime.block_on(link.is_ready()) {
                std::thread::yield_now();
            }
            lock(&bucket.kept).push(link);
        }
    }
}

#[test]
fn a_buffer_that_was_given_back_takes_a_later_answer() {
    let (bucket, _runtime, _) = closing(usize::MAX);
    let ask = BucketRequest { method: "GET", path: "/bucket/name", query: "", headers: &[], max: 10 };
    let of = |bucket: &BucketClient| bucket.send(ask, &BucketBody::copy(b"")).unwrap().body;
    let buffer = Vec::with_capacity(4096);
    let place = buffer.as_ptr();
    bucket.give_back(buffer);
    let body = of(&bucket);
    assert_eq!((body.as_slice(), body.as_ptr() == place), (&b"0123456789"[..], true));
    let other = of(&bucket);
    assert_ne!(other.as_ptr(), place, "it is still in use");
    bucket.give_back(Vec::with_capacity(BUFFER_MAX + 1));
    bucket.give_back(Vec::new());
    assert!(lock(&bucket.buffers).is_empty());
}

#[test]
fn a_server_without_tls_is_told_as_one() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("s3://{}/bucket", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.read(&mut vec![0; 16 << 10]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        // The client ends the connection.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (bucket, _runtime) = client(&place);
    let ask = BucketRequest { method: "GET", path: "/bucket/name", query: "", headers: &[], max: 10 };
    match bucket.with_attempts(1).ask(ask, b"") {
        Err(BackupError::Failed(told)) => assert!(told.contains("s3+http://"), "{told}"),
        other => panic!("{:?}", other.map(|answer| answer.status)),
    }
}
