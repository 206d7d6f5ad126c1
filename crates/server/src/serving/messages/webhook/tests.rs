use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn the_head_of_an_answer_decides() {
    for (answer, taken, refused) in [
        ("200 OK\r\ncontent-length: 0", true, false),
        // The body never comes.
        ("200 OK\r\ncontent-length: 10", true, false),
        ("204 No Content", true, false),
        ("413 Payload Too Large\r\ncontent-length: 10", false, true),
        ("400 Bad Request\r\ncontent-length: 0", false, true),
        ("429 Too Many Requests\r\ncontent-length: 0", false, false),
        ("503 Service Unavailable\r\ncontent-length: 0", false, false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let webhook = Webhook { read_away: Duration::ZERO, ..Webhook::new(&url, "test").unwrap() };
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
            stream
        };
        let (_open, sent) = tokio::join!(serve, webhook.post_json("{}".into(), Duration::from_secs(60)));
        assert_eq!(sent.is_ok(), taken, "{answer}: {sent:?}");
        assert_eq!(sent.is_err_and(|not_taken| not_taken.is_refused), refused, "{answer}");
    }
}

#[tokio::test]
async fn the_user_of_a_url_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://alice:p%40ss@{}/hook", listener.local_addr().unwrap());
    let webhook = Webhook::new(&url, "test").unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        request.truncate(length);
        String::from_utf8(request).unwrap()
    };
    let (request, sent) = tokio::join!(serve, webhook.post_json("{}".into(), Duration::from_secs(60)));
    assert!(sent.is_ok(), "{sent:?}");
    // alice:p@ss
    assert!(request.contains("authorization: Basic YWxpY2U6cEBzcw==\r\n"), "{request}");
    assert!(!request.contains("alice"), "{request}");
    for (text, expected) in [("a", "a"), ("%41%", "A%"), ("%zz\u{fc}", "%zz\u{fc}"), ("%\u{fc}", "%\u{fc}")] {
        assert_eq!(unescaped(text), expected.as_bytes(), "{text}");
    }
}

#[test]
fn the_secrets_of_a_wrong_url_are_not_shown() {
    for (url, says) in [
        ("htps://alice:p4ss@host/t0ken", "test: the URL 'htps://...' is neither http nor https"),
        ("https://alice:p4ss@ho st/t0ken", "test: the URL 'https://...' is no URL"),
        ("alice:p4ss@host", "test: the URL is"),
    ] {
        let refused = Webhook::new(url, "test").err().unwrap().to_string();
        assert!(refused.contains(says), "{refused}");
        assert!(["alice", "p4ss", "t0ken"].iter().all(|secret| !refused.contains(secret)), "{refused}");
    }
}

/// A reason that changes with each attempt would fill the log.
#[tokio::test]
async fn a_server_that_closes_early_is_told_with_one_reason() {
    for reads in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let webhook = Webhook::new(&format!("http://{}/", listener.local_addr().unwrap()), "test").unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            if reads {
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            }
        };
        let ((), sent) = tokio::join!(serve, webhook.post_json("{}".into(), Duration::from_secs(60)));
        assert_eq!(sent.unwrap_err().why, "it closed the connection before its answer", "reads: {reads}");
    }
}
