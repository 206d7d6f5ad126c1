use std::path::PathBuf;

use axum::response::IntoResponse;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::*;

/// Time limits of these tests. No event of a test comes later than one of them.
const PATIENCE: Duration = Duration::from_millis(50);

const LONG: Duration = Duration::from_secs(3600);

/// A server on a socket of its own, which reads each body.
struct Server {
    path: PathBuf,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    fn start(name: &str, connections: usize, idle: Duration) -> Server {
        let path = std::env::temp_dir().join(format!("stele-http-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let stop = watch::Sender::new(false);
        let allow = move |_: Option<u32>| Allowance { account: None, connections, idle };
        let turn_away = |_: Allowance| StatusCode::SERVICE_UNAVAILABLE.into_response();
        let answer = |_: Option<u32>, request: Request<Incoming>, _: Kept| async move {
            match body(request, 8, PATIENCE).await {
                Ok(bytes) => bytes.into_response(),
                Err((status, reason)) => (status, reason).into_response(),
            }
        };
        let task = tokio::spawn(serve_unix(listener, allow, turn_away, answer, stop.subscribe()));
        Server { path, stop, task }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What the server says until it closes. A connection that it refused may be reset.
async fn rest(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

async fn asked(stream: &mut UnixStream, body: &str) -> String {
    let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = vec![0; 4096];
    let length = stream.read(&mut bytes).await.unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// A closed connection would look like a server that broke off.
#[tokio::test]
async fn a_user_beyond_its_connections_is_told_so() {
    let server = Server::start("told", 1, LONG);
    let mut first = server.connect().await;
    assert!(asked(&mut first, "ask").await.starts_with("HTTP/1.1 200"));
    let mut told = Vec::new();
    for _ in 0..TURNED_AWAY_MAX {
        let mut next = server.connect().await;
        let said = asked(&mut next, "ask").await;
        assert!(said.starts_with("HTTP/1.1 503") && said.contains("connection: close"), "{said}");
        assert_eq!(rest(&mut next).await, "", "the answer ends the connection");
        told.push(next);
    }
    assert!(asked(&mut first, "ask").await.starts_with("HTTP/1.1 200"), "its own connections go on");
}

#[tokio::test]
async fn a_user_far_beyond_its_connections_is_closed_out() {
    let server = Server::start("bound", 2, LONG);
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    for stream in [&mut first, &mut second] {
        let said = asked(stream, "ask").await;
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("ask"), "{said}");
    }
    // They send nothing, and keep the places in which others would be told the reason.
    let mut silent = Vec::new();
    for _ in 0..TURNED_AWAY_MAX {
        silent.push(server.connect().await);
    }
    let mut next = server.connect().await;
    let _ = next.write_all(b"POST / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let read = next.read(&mut [0; 64]).await;
    assert!(read.as_ref().map_or(true, |length| *length == 0), "a further one is closed: {read:?}");
    drop((first, silent));
    // The server notices the end of the first one when it next polls it.
    for _ in 0..100 {
        tokio::task::yield_now().await;
        let mut next = server.connect().await;
        if next.write_all(b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.is_ok()
            && rest(&mut next).await.starts_with("HTTP/1.1 200")
        {
            return;
        }
    }
    panic!("the place of a connection that ended stays taken");
}

#[tokio::test]
async fn a_silent_connection_and_a_body_that_stops_end_in_time() {
    let server = Server::start("silent", 8, PATIENCE);
    let mut silent = server.connect().await;
    assert_eq!(rest(&mut silent).await, "", "it ends");
    let mut stuck = server.connect().await;
    stuck.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nas").await.unwrap();
    let said = rest(&mut stuck).await;
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    let said = asked(&mut server.connect().await, "more than eight bytes").await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
}

#[tokio::test]
async fn a_stop_ends_idle_connections() {
    let server = Server::start("stop", 8, LONG);
    let mut idle = server.connect().await;
    assert!(asked(&mut idle, "ask").await.starts_with("HTTP/1.1 200"));
    server.stop.send_replace(true);
    rest(&mut idle).await;
    while !server.task.is_finished() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn all_peers_together_have_a_bound() {
    let places = Arc::new(Places::default());
    let one = places.enter("one", 2, 3);
    let two = [places.enter("two", 2, 3), places.enter("two", 2, 3)];
    assert!(one.is_some() && two.iter().all(Option::is_some));
    assert!(places.enter("two", 2, 9).is_none(), "a peer at its bound");
    assert!(places.enter("three", 2, 3).is_none(), "all at theirs");
    drop(two);
    assert!(places.enter("three", 2, 3).is_some());
}
