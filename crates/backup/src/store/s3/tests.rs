use super::*;

/// A listing with these elements behind its entries.
fn listing(entries: &[String], ends: &str) -> String {
    let entries = entries.concat();
    format!("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><Name>b</Name>{entries}{ends}</ListBucketResult>\n")
}

fn entry(key: &str) -> String {
    format!("<Contents><Key>{key}</Key><LastModified>1970-01-02T00:00:01.250Z</LastModified><Size>3</Size></Contents>")
}

#[test]
fn a_listing_is_read_as_servers_write_it() {
    let text = listing(
        &[entry("p/keys/0102"), entry("p/keys/a&amp;b"), entry("p/keys/03")],
        "<IsTruncated>false</IsTruncated>",
    );
    let page = Page::parse(&text, Folder::Keys, "p/").unwrap();
    let listed: Vec<_> = page.listed.iter().map(|is| (is.name.text(), is.size, is.stored)).collect();
    assert_eq!((listed, page.next), (vec![("keys/0102", 3, 86_401), ("keys/03", 3, 86_401)], None));
    let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>a&lt;b</NextContinuationToken>";
    let page = Page::parse(&listing(&[], more), Folder::Keys, "").unwrap();
    assert_eq!(page, Page { listed: Vec::new(), next: Some("a<b".to_owned()) });
    assert_eq!(seconds("1970-01-02T00:00:01Z"), Some(86_401));
}

#[test]
fn a_listing_that_is_not_complete_is_an_error() {
    let whole =
        listing(&[entry("keys/01"), entry("keys/02")], "<KeyCount>2</KeyCount><IsTruncated>false</IsTruncated>");
    assert_eq!(Page::parse(&whole, Folder::Keys, "").unwrap().listed.len(), 2);
    for end in 0..whole.trim_end().len() {
        assert!(Page::parse(&whole[..end], Folder::Keys, "").is_err(), "cut at {end}");
    }
    let check = |from: &str, to: &str| {
        let changed = whole.replacen(from, to, 1);
        assert_ne!(changed, whole);
        assert!(matches!(Page::parse(&changed, Folder::Keys, ""), Err(BackupError::Failed(_))), "{from} {to}");
    };
    check("<IsTruncated>false</IsTruncated>", "");
    check(">false<", ">perhaps<");
    check(">false<", ">true<");
    check("<IsTruncated>false<", "<NextContinuationToken></NextContinuationToken><IsTruncated>true<");
    check("<KeyCount>2<", "<KeyCount>3<");
    check("<Size>3</Size>", "<Size>-</Size>");
    check("<Size>3</Size>", "");
    check("T00:00:01.250Z", "");
    check("<Key>keys/01</Key>", "");
    check("</Contents><Contents>", "<Contents>");
}

#[test]
fn a_long_segment_may_take_longer_and_pauses_grow() {
    assert_eq!(patience(0), PATIENCE);
    assert_eq!(patience(64 << 20), PATIENCE + Duration::from_secs(1024));
    let pauses: Vec<u128> = (0..4).map(|attempt| pause(attempt).as_millis()).collect();
    assert_eq!(pauses, [250, 1000, 4000, 16_000]);
}

#[test]
fn only_answers_that_can_change_are_asked_for_again() {
    for status in [409, 429, 500, 502, 503, 504] {
        assert!(is_transient(status, ""), "{status}");
    }
    assert!(is_transient(400, "RequestTimeout"));
    for status in [200, 400, 401, 403, 404, 412, 416, 501, 507] {
        assert!(!is_transient(status, "AccessDenied"), "{status}");
    }
}
