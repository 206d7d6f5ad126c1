use super::*;
use bytes::Bytes;
use s3s::{S3ErrorCode, S3Result};
use std::time::{Duration, UNIX_EPOCH};

const BOUNDARY: &str = "XX";

fn form(fields: &[(&str, &str)], file: &str) -> Vec<u8> {
    let mut text = String::new();
    for (name, value) in fields {
        text.push_str(&format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"));
    }
    text.push_str("--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"C:\\\\dir\\\\a b.txt\"\r\n");
    text.push_str(&format!("Content-Type: text/plain\r\n\r\n{file}\r\n--XX--\r\n"));
    text.into_bytes()
}

fn read(bytes: &[u8]) -> S3Result<Option<Fields>> {
    read_fields(bytes, BOUNDARY)
}

#[test]
fn the_fields_are_read_once_they_are_whole() {
    let bytes = form(&[("Key", "in/${filename}"), ("policy", "p"), ("x-amz-meta-A", "1\r\n2")], "content");
    let fields = read(&bytes).unwrap().unwrap();
    assert_eq!(fields.get("key"), Some("in/a b.txt"));
    assert_eq!((fields.get("policy"), fields.get("x-amz-meta-a")), (Some("p"), Some("1\r\n2")));
    assert!(bytes[fields.start..].starts_with(b"content\r\n--XX--"));
    // Cut anywhere before the content, the answer is to wait. It is never another one.
    for cut in 0..bytes.len() {
        let part = read(&bytes[..cut]).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(part.is_some(), cut >= fields.start, "cut at {cut}");
    }
}

#[test]
fn what_is_no_form_is_refused() {
    let head = "Content-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
    for (text, why) in [
        ("hello world".to_owned(), "does not begin"),
        ("--XX--\r\n".to_owned(), "no file"),
        (format!("--XX\r\n{head}--XX--\r\n"), "no file"),
        (format!("--XX\r\n{head}--XX\r\n{head}--XX"), "twice"),
        ("--XXY\r\n".to_owned(), "alone"),
        ("--XX\r\nContent-Type: a\r\n\r\n".to_owned(), "no name"),
        ("--XX\r\nnonsense\r\n\r\n".to_owned(), "no colon"),
    ] {
        let error = read(text.as_bytes()).expect_err(&text);
        assert!(error.message().unwrap().contains(why), "{text}: {error}");
    }
    assert_eq!(
        *read(&[b"--XX\r\n".as_slice(), &[b'a'; FIELDS_MAX]].concat()).unwrap_err().code(),
        S3ErrorCode::MaxPostPreDataLengthExceededError
    );
}

fn content(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut end = FileEnd::new(BOUNDARY);
    let mut content = Vec::new();
    for piece in pieces {
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(part) = end.next(&mut piece) {
            content.extend_from_slice(&part);
        }
        assert!(piece.is_empty(), "nothing is left behind");
    }
    (content, end.is_found())
}

#[test]
fn the_file_ends_at_its_boundary_however_the_bytes_arrive() {
    let file = b"a\r\nb\r\r\n--X\r\n-\r\n--Xcontent\r";
    let whole = [file.as_slice(), b"\r\n--XX--\r\nrest"].concat();
    for first in 0..whole.len() {
        for second in first..whole.len() {
            let got = content(&[&whole[..first], &whole[first..second], &whole[second..]]);
            assert_eq!(got, (file.to_vec(), true), "cut at {first} and {second}");
        }
    }
    let single: Vec<&[u8]> = whole.chunks(1).collect();
    assert_eq!(content(&single), (file.to_vec(), true));
    assert!(!content(&[file]).1, "without its boundary");
}

fn judge(conditions: &str, fields: &[(&str, &str)]) -> Result<Option<(u64, u64)>, String> {
    let document = format!(r#"{{"expiration":"2030-01-01T00:00:00.000Z","conditions":[{conditions}]}}"#);
    let bytes = form(fields, "");
    let fields = read(&bytes).unwrap().unwrap();
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    checked(document.as_bytes(), "b", &fields, now).map_err(|error| error.message().unwrap_or_default().to_owned())
}

#[test]
fn every_condition_holds_and_every_field_is_spoken_of() {
    let fields = [("key", "user/a"), ("policy", "p"), ("x-amz-signature", "s"), ("x-ignore-me", "1")];
    let all = r#"{"bucket":"b"},["starts-with","$key","user/"],["content-length-range",1,"10"]"#;
    assert_eq!(judge(all, &fields), Ok(Some((1, 10))));
    let narrower = format!(r#"{all},["content-length-range",5,7],["content-length-range",0,1000]"#);
    assert_eq!(judge(&narrower, &fields), Ok(Some((5, 7))), "each range holds");
    for (conditions, why) in [
        (r#"{"bucket":"c"},["starts-with","$key","user/"]"#, "failed"),
        (r#"{"bucket":"b"},["starts-with","$key","other/"]"#, "failed"),
        (r#"{"bucket":"b"},["eq","$key","user/"]"#, "failed"),
        (r#"{"bucket":"b"},["eq","$key","user/a"],{"acl":"private"}"#, "failed"),
        (r#"{"bucket":"b"}"#, "Extra input fields: key"),
        (r#"["eq","$key","user/a"]"#, "Extra input fields: bucket"),
        (r#"["like","$key","user/a"]"#, "Invalid"),
        (r#"{"a":"1","b":"2"}"#, "Invalid"),
        (r#"["eq","key","user/a"]"#, "Invalid"),
    ] {
        let said = judge(conditions, &fields).expect_err(conditions);
        assert!(said.contains(why), "{conditions}: {said}");
    }
    let with_more = [fields.as_slice(), &[("x-amz-meta-x", "1")]].concat();
    assert!(judge(all, &with_more).expect_err("a field more").contains("x-amz-meta-x"));
}

#[test]
fn a_policy_is_over_at_its_expiration() {
    let fields = read(&form(&[("key", "a")], "")).unwrap().unwrap();
    let at = |seconds| {
        let document = br#"{"expiration":"2027-01-15T08:00:00Z","conditions":[{"bucket":"b"},["eq","$key","a"]]}"#;
        checked(document, "b", &fields, UNIX_EPOCH + Duration::from_secs(seconds)).is_ok()
    };
    assert!(at(1_799_999_999) && !at(1_800_000_000));
    for document in ["", "{}", r#"{"expiration":"soon","conditions":[]}"#, r#"{"expiration":"2040-01-01T00:00:00Z"}"#] {
        assert!(checked(document.as_bytes(), "b", &fields, UNIX_EPOCH).is_err(), "{document}");
    }
}
