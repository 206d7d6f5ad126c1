use super::*;

fn keys() -> Keys {
    Keys {
        access: "AKIAIOSFODNN7EXAMPLE".into(),
        secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
        token: None,
        region: "us-east-1".into(),
    }
}

#[test]
fn a_signature_is_that_of_the_published_example() {
    // Amazon S3 API reference, "Authenticating Requests (AWS Signature Version 4)", GET Bucket (List Objects).
    let host = "examplebucket.s3.amazonaws.com";
    let request = Request { method: "GET", host, path: "/", query: "max-keys=2&prefix=J", body: b"" };
    let headers = request.headers_at(&keys(), "20130524T000000Z");
    let signature = "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7\r\n";
    assert!(headers.ends_with(signature), "{headers}");
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (seconds, text) in [
        (0, "19700101T000000Z"),
        (951_782_399, "20000228T235959Z"),
        (951_782_400, "20000229T000000Z"),
        (1_369_353_600, "20130524T000000Z"),
        (4_107_542_399, "21000228T235959Z"),
        (4_107_542_400, "21000301T000000Z"),
    ] {
        assert_eq!(sign::stamp(seconds), text);
    }
}

#[test]
fn keys_are_found_in_the_section_of_the_profile() {
    let text = "[default]\naws_access_key_id = A\naws_secret_access_key=b\n[other]\naws_access_key_id=C\n\
                aws_secret_access_key = d=e\naws_session_token=t\n[half]\naws_access_key_id=E\n";
    let found =
        |profile: &str| Keys::parse(text, profile, "r".into()).map(|keys| (keys.access, keys.secret, keys.token));
    assert_eq!(found("default"), Some(("A".into(), "b".into(), None)));
    assert_eq!(found("other"), Some(("C".into(), "d=e".into(), Some("t".into()))));
    assert_eq!((found("half"), found("none")), (None, None));
}

#[test]
fn answers_are_read_whole_and_bad_ones_are_errors() {
    let read = |text: &str, room: usize| {
        let mut into = vec![0; room];
        let (answer, keeps) = http::read(&mut text.as_bytes(), &mut into)?;
        Ok::<_, std::io::Error>((answer.status, String::from_utf8(into).unwrap_or_default(), answer.text, keeps))
    };
    let whole = |text, room| read(text, room).unwrap();
    assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 3), (200, "abc".into(), String::new(), true));
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n";
    assert_eq!(whole(chunked, 3), (200, "abc".into(), String::new(), false));
    assert_eq!(whole(chunked, 0).2, "abc");
    assert_eq!(whole("HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", 3), (404, "\0\0\0".into(), "no".into(), true));
    assert_eq!(whole("HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 204 No\r\n\r\n", 0).0, 204);
    for bad in [
        "",
        "SSH-2.0-x\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc",
    ] {
        assert!(read(bad, 3).is_err(), "{bad:?}");
    }
}

#[test]
fn addresses_are_read() {
    let address = |text: &str| text.parse::<Address>().unwrap();
    assert_eq!(address("s3+http://host/records").to_string(), "s3+http://host:80/records");
    assert_eq!(address("s3+http://127.0.0.1:9000/records/").place, "127.0.0.1:9000");
    for text in
        ["s3://host/b", "s3+http://host", "s3+http:///b", "s3+http://host/", "s3+http://host/a/b", "s3+http://h/B"]
    {
        assert!(text.parse::<Address>().is_err(), "{text}");
    }
}
