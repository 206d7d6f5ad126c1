//! Lengths, digests and trailers of payloads, and the errors of their senders.

use super::*;
use crate::dechunk::Dechunker;
use http_body_util::Empty;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::io::AsyncWriteExt;

const PACE: Pace = Pace { silence_max: Duration::from_secs(1), rate_min: 0, grace: Duration::from_secs(1) };

fn payload(pieces: &[&str], length: u64) -> Payload {
    let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece.as_bytes())).collect();
    Payload::new(Source::Held(pieces), length, PACE)
}

async fn outcome(mut payload: Payload) -> Result<String, String> {
    let whole = payload.collect(1000).await.map_err(|error| error.code().as_str().to_owned())?;
    Ok(String::from_utf8(whole.to_vec()).unwrap())
}

async fn check(payload: Payload, expected: Result<&str, &str>) {
    let expected = expected.map(str::to_owned).map_err(str::to_owned);
    assert_eq!(outcome(payload).await, expected);
}

fn sha256(text: &str) -> [u8; 32] {
    digest::digest(&digest::SHA256, text.as_bytes()).as_ref().try_into().unwrap()
}

#[tokio::test]
async fn a_payload_is_what_was_declared_or_refused_by_code() {
    check(payload(&[], 0), Ok("")).await;
    check(payload(&["abc"], 3), Ok("abc")).await;
    check(payload(&["ab", "", "c"], 3), Ok("abc")).await;
    check(payload(&["ab"], 3), Err("IncompleteBody")).await;
    check(payload(&["abcd"], 3), Err("IncompleteBody")).await;
    check(payload(&["a"], 1001), Err("MaxMessageLengthExceeded")).await;
    check(payload(&["ab", "c"], 3).hashed(sha256("abc")), Ok("abc")).await;
    check(payload(&["abd"], 3).hashed(sha256("abc")), Err("XAmzContentSHA256Mismatch")).await;
    check(payload(&[], 0).hashed(sha256("")), Ok("")).await;
}

#[tokio::test]
async fn a_payload_of_unknown_length_ends_where_it_ends() {
    let open = |pieces: &[&str], limit| payload(pieces, 0).of_length_up_to(limit);
    check(open(&[], 3), Ok("")).await;
    check(open(&["ab"], 3), Ok("ab")).await;
    check(open(&["ab", "c"], 3), Ok("abc")).await;
    check(open(&["ab", "cd"], 3), Err("EntityTooLarge")).await;
    let mut payload = open(&["ab"], 3);
    assert_eq!((payload.length(), payload.known_length()), (3, None));
    payload.collect(3).await.unwrap();
    assert_eq!((payload.length(), payload.known_length()), (2, Some(2)));
}

#[tokio::test]
async fn a_chunked_payload_is_checked_against_its_decoded_length() {
    let framed = |pieces: &[&str], length| payload(pieces, length).framed(Dechunker::new(None, false));
    check(framed(&["3\r\nab", "c\r\n0\r\n", "\r\n"], 3), Ok("abc")).await;
    check(framed(&["3\r\nabc\r\n0\r\n\r\n"], 2), Err("IncompleteBody")).await;
    check(framed(&["3\r\nabc\r\n0\r\n\r\n"], 4), Err("IncompleteBody")).await;
    check(framed(&["3\r\nabc\r\n"], 3), Err("IncompleteBody")).await;
    check(framed(&["zz\r\nabc\r\n"], 3), Err("InvalidRequest")).await;
    check(framed(&["3\r\nabc\r\n0\r\nbad\r\n\r\n"], 3), Err("MalformedTrailerError")).await;
    let mut trailed = framed(&["1\r\nx\r\n0\r\na:b\r\n\r\n"], 1);
    assert_eq!(trailed.collect(10).await.unwrap(), "x");
    assert_eq!(trailed.trailers(), [("a".to_owned(), "b".to_owned())]);
}

/// Drives that do not answer for a while hold up the reader, and the sender is no slower for that.
#[tokio::test(start_paused = true)]
async fn only_the_time_of_waiting_for_the_sender_counts_against_it() {
    let (mut sender, receiver) = tokio::io::duplex(4096);
    let (bodies, mut arrived) = tokio::sync::mpsc::channel(1);
    let service = service_fn(move |request: Request<Incoming>| {
        let bodies = bodies.clone();
        async move {
            bodies.send(request.into_body()).await.unwrap();
            std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
        }
    });
    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(receiver), service));
    sender.write_all(b"PUT / HTTP/1.1\r\ncontent-length: 2\r\n\r\na").await.unwrap();
    let pace = Pace { silence_max: Duration::from_secs(30), rate_min: 1024, grace: Duration::from_secs(60) };
    let mut payload = Payload::new(Source::Wire(arrived.recv().await.unwrap()), 2, pace);
    assert_eq!(payload.next().await.unwrap().unwrap(), "a");
    sender.write_all(b"b").await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(payload.next().await.unwrap().unwrap(), "b");
    assert_eq!(payload.next().await.unwrap(), None);
}
