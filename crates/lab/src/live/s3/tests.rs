use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::live::run::{Load, Of, Round, Setup, Timing, run};
use crate::workload::Alignment;

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
    // Amazon S3 API reference, "Authenticating Requests (AWS Signature Version 4)", GET Bucket
    // (List Stored).
    let host = "examplebucket.s3.amazonaws.com";
    let request = Request { method: "GET", host, path: "/", query: "max-keys=2&prefix=J", hash: &sign::hash(b"") };
    let headers = Signer::new(keys()).headers_at(&request, &[], "20130524T000000Z");
    let signature = "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7\r\n";
    assert!(headers.ends_with(signature), "{headers}");
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
    let early = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
    assert_eq!(whole(early, 1).1, "a");
    let endless = "HTTP/1.1 100 Go on\r\n\r\n".repeat(100_000);
    assert!(read(&endless, 3).unwrap_err().to_string().contains("without end"));
}

#[test]
fn addresses_are_read() {
    let address = |text: &str| text.parse::<S3Address>().unwrap();
    assert_eq!(address("s3+http://host/records").to_string(), "s3+http://host:80/records");
    assert_eq!(address("s3+http://127.0.0.1:9000/records/").place, "127.0.0.1:9000");
    assert_eq!(address("s3+https://host/records").to_string(), "s3://host:443/records");
    assert_eq!(address("s3://h:9/b?ca=/a b/c.pem").to_string(), "s3://h:9/b?ca=/a b/c.pem");
    assert_eq!(address("s3://h/b").trusting(Path::new("c")), Some(address("s3://h/b?ca=c")));
    assert_eq!(address("s3+http://h/b").trusting(Path::new("c")), None);
    for (text, authority) in [("s3://h/b", "h"), ("s3://h:80/b", "h:80"), ("s3+http://[::1]:9/b", "[::1]:9")] {
        assert_eq!(address(text).authority(), authority);
    }
    for text in [
        "s3+http://host",
        "s3+http:///b",
        "s3+http://host/",
        "s3+http://host/a/b",
        "s3+http://h/B",
        "s3+http://h/b?ca=c",
        "s3://h/b?ca=",
        "s3+ftp://h/b",
    ] {
        assert!(text.parse::<S3Address>().is_err(), "{text}");
    }
}

#[test]
fn files_that_hold_no_certificates_are_refused_by_their_name() {
    let path = std::env::temp_dir().join(format!("stele-lab-ca-{}", std::process::id()));
    let trust = |host: &str| Trust::new(host, Some(&path)).map(drop).unwrap_err().to_string();
    assert!(trust("host").contains("--ca"), "{}", trust("host"));
    std::fs::write(&path, "nothing").unwrap();
    assert!(trust("host").contains("holds no certificate"), "{}", trust("host"));
    assert!(trust("no host").contains("no name"), "{}", trust("no host"));
    std::fs::remove_file(&path).unwrap();
}

/// What a server of objects does with puts over objects that it has.
#[derive(Clone, Copy, PartialEq)]
enum Puts {
    Kept,
    /// Every fifth is acknowledged and forgotten.
    Lost,
    /// Every fifth goes to the key of another object too.
    Misplaced,
    /// The bucket has versioning.
    Versions,
}

type Stored = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A server of objects in memory that looks at no signature, for as long as the test. Answers its
/// address and what it has.
fn server(puts: Puts) -> (S3Address, Stored) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let objects = Stored::default();
    let theirs = Arc::clone(&objects);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let objects = Arc::clone(&theirs);
            std::thread::spawn(move || while answer(stream.as_ref().unwrap(), &objects, puts).is_some() {});
        }
    });
    (format!("s3+http://{place}/bench").parse().unwrap(), objects)
}

fn answer(stream: &TcpStream, objects: &Stored, puts: Puts) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut text = String::new();
        reader.read_line(&mut text).ok().filter(|length| *length > 0).map(|_| text.trim_end().to_owned())
    };
    let first = line()?;
    let mut length = 0;
    loop {
        let header = line()?;
        if header.is_empty() {
            break;
        }
        length = header.strip_prefix("content-length: ").map_or(length, |value| value.parse().unwrap());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (method, target) = first.split_once(' ')?;
    let key = target.split_once(' ')?.0.strip_prefix("/bench/").unwrap_or_default().to_owned();
    let mut objects = objects.lock().unwrap();
    let (mut status, mut content) = ("200 OK", Vec::new());
    match method {
        "PUT" => {
            // The stamps of two writes differ, so that this is a fifth of them, and always the same
            // ones.
            let chosen = objects.contains_key(&key) && body.get(8).is_some_and(|byte| byte % 5 == 0);
            match (puts, chosen) {
                (Puts::Lost, true) => {}
                (Puts::Misplaced, true) => {
                    let other = objects.keys().find(|other| other.contains('/') && **other != key).cloned();
                    objects.insert(other.unwrap(), body.clone());
                    objects.insert(key, body);
                }
                _ => drop(objects.insert(key, body)),
            }
        }
        "DELETE" => {
            objects.remove(&key);
            status = "204 No Content";
        }
        _ if target.contains("?versioning= ") => {
            let status = if puts == Puts::Versions { "<Status>Enabled</Status>" } else { "" };
            content = format!("<VersioningConfiguration>{status}</VersioningConfiguration>").into_bytes();
        }
        _ if key.is_empty() => {
            let given = |name: &str| {
                let (_, query) = target.split_once(' ')?.0.split_once('?')?;
                query.split('&').find_map(|part| part.strip_prefix(name)).map(|value| value.replace("%2F", "/"))
            };
            let (prefix, most) = (given("prefix=")?, given("max-keys=")?.parse().ok()?);
            let keys = objects.keys().filter(|key| key.starts_with(&prefix)).take(most);
            content = keys.map(|key| format!("<Key>{key}</Key>")).collect::<String>().into_bytes();
        }
        _ => content = objects.get(&key)?.clone(),
    }
    drop(objects);
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", content.len());
    let mut stream = stream;
    stream.write_all(&[head.as_bytes(), &content].concat()).ok()
}

/// Until so many accesses were made, or one was found wrong.
fn checked(address: &S3Address, access: u64, enough: u64) -> Result<(), LabError> {
    let content = Content { verify: true, ..Content::default() };
    let opening = Opening { files: 16, writes: true, content, step: access, longest: access, ..Opening::default() };
    let ready = open_with(address, keys(), opening)?;
    let long = Duration::from_secs(60);
    let setup = Setup {
        spec: AccessSpec { name: "test".into(), random: Some(100), read: Some(50), sizes: vec![(access, 100)] },
        alignment: Alignment::Request,
        load: Load::Outstanding(2),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 2,
        timing: Timing { warm_up: Duration(0), round: Duration::from_millis(10), least: long, most: long },
        content,
        of: Of::Data,
        seed: 5,
    };
    let mut made = 0;
    let found = run(&ready, &setup, &mut |_: i64, round: &Round| {
        made += round.read.count() + round.write.count();
        made < enough
    });
    found.map(drop).and(ready.remove())
}

#[test]
fn what_a_server_forgets_or_puts_elsewhere_is_found() {
    for access in [512, 4096, 12_288] {
        let (address, objects) = server(Puts::Kept);
        checked(&address, access, 300).unwrap();
        assert!(objects.lock().unwrap().is_empty(), "all is removed");
    }
    for (puts, why) in [(Puts::Lost, "acknowledged is lost"), (Puts::Misplaced, "never written there")] {
        let error = checked(&server(puts).0, 4096, u64::MAX).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_server_without_tls_is_told_from_one_with_it() {
    let error = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    let said = secure::said(&std::io::Error::new(std::io::ErrorKind::InvalidData, error)).unwrap();
    assert!(said.contains("s3+http://"), "{said}");
}

/// What a server with TLS does of a request in plain words.
#[test]
fn a_server_that_ends_the_connection_at_once_may_want_tls() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address: S3Address = format!("s3+http://{}/b", listener.local_addr().unwrap()).parse().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let error = open_with(&address, keys(), Opening::default()).unwrap_err();
    assert!(matches!(&error, LabError::Unreachable(text) if text.ends_with("is reached by s3://")), "{error:?}");
}

#[test]
fn a_bucket_that_keeps_versions_is_written_only_with_destroy() {
    let (address, objects) = server(Puts::Versions);
    let opened = |destroy| open_with(&address, keys(), Opening { destroy, ..Opening::default() });
    let error = opened(false).unwrap_err();
    assert!(matches!(&error, LabError::Refused(text) if text.contains("keeps each version")), "{error}");
    assert!(objects.lock().unwrap().is_empty(), "not even the mark is put");
    assert!(opened(true).unwrap().description.contains("what is put stays"));
    // A server that says nothing of versions is no reason to refuse.
    let ready = open_with(&server(Puts::Kept).0, keys(), Opening::default()).unwrap();
    assert!(!ready.description.contains("version"), "{}", ready.description);
}

#[test]
fn objects_of_several_lengths_are_not_checked() {
    let address = "s3+http://127.0.0.1:1/bench".parse().unwrap();
    let content = Content { verify: true, ..Content::default() };
    for (step, longest) in [(4096, 8192), (512, 4096), (1536, 1536), (100, 100)] {
        let error = open_with(&address, keys(), Opening { step, longest, content, ..Opening::default() }).unwrap_err();
        assert!(error.to_string().contains("one length"), "{error}");
    }
}

#[test]
fn objects_that_were_kept_stay_the_laboratorys_when_fewer_are_removed() {
    let (address, objects) = server(Puts::Kept);
    let spec = AccessSpec { name: "test".into(), random: Some(100), read: Some(100), sizes: vec![(512, 100)] };
    // More kept objects than a page of keys has hide the mark, which sorts behind them.
    let opened_with =
        |files: u32| open_with(&address, keys(), Opening { files, step: 512, longest: 512, ..Opening::default() });
    let many = (0..1_000).map(|number| (format!("{PREFIX}512/{number:07}"), Vec::new()));
    objects.lock().unwrap().extend(many);
    assert!(matches!(opened_with(4), Err(LabError::Refused(_))), "without a mark");
    objects.lock().unwrap().insert(MARK.into(), Vec::new());
    opened_with(4).unwrap();
    // A key that only begins as the mark does is none.
    objects.lock().unwrap().remove(MARK);
    objects.lock().unwrap().insert(format!("{MARK}-other"), Vec::new());
    assert!(matches!(opened_with(4), Err(LabError::Refused(_))), "another mark");
    objects.lock().unwrap().clear();
    let opened = |files: u32| {
        let opening = Opening { files, step: 512, longest: 512, ..Opening::default() };
        let ready = open_with(&address, keys(), opening).unwrap();
        let AccessMethod::S3(bucket) = &ready.way else { panic!("{ready:?}") };
        bucket.prepare(&spec, &AtomicBool::new(false)).unwrap();
        Arc::clone(bucket)
    };
    // Kept: nothing is removed.
    drop(opened(16));
    opened(4).remove().unwrap();
    assert_eq!(objects.lock().unwrap().len(), 12 + 1, "and the mark");
    opened(16).remove().unwrap();
    assert!(objects.lock().unwrap().is_empty(), "all is removed");
    // What has another name is not the laboratory's, and needs --destroy again.
    objects.lock().unwrap().insert(format!("{PREFIX}letter"), Vec::new());
    let opening = Opening { destroy: true, ..Opening::default() };
    open_with(&address, keys(), opening).unwrap().remove().unwrap();
    assert_eq!(objects.lock().unwrap().len(), 1);
    assert!(matches!(open_with(&address, keys(), Opening::default()), Err(LabError::Refused(_))));
}
