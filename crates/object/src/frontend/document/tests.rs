use super::*;

#[test]
fn cdata_becomes_text_and_malformed_documents_are_refused() {
    // (document, the text that the wire crate gets; `None`: refused)
    let cases: &[(&str, Option<&str>)] = &[
        ("", Some("")),
        ("{\"json\": true}", Some("{\"json\": true}")),
        ("<A><B>c</B></A>", Some("<A><B>c</B></A>")),
        ("<?xml version=\"1.0\"?>\n<A/>", Some("<?xml version=\"1.0\"?>\n<A/>")),
        ("<K><![CDATA[key]]></K>", Some("<K>key</K>")),
        ("<K>a<![CDATA[<&>]]>b<![CDATA[]]></K>", Some("<K>a&lt;&amp;&gt;b</K>")),
        ("<K>&amp;</K>", Some("<K>&amp;</K>")),
        ("<K><![CDATA[open</K>", None),
        ("<A></B>", None),
        ("<A", None),
        ("text <", None),
        // More than one element, or text around it.
        ("<A/>tail", None),
        ("head<A/>", None),
        ("<A></A><A/>", None),
        ("<A/><![CDATA[x]]>", None),
        ("<A/>&amp;", None),
        ("<A><B></B>", None),
        ("\u{feff}<A/>\r\n <!-- end --> ", Some("<A/>\r\n <!-- end --> ")),
        ("\u{feff}<K>a<![CDATA[key]]></K>", Some("<K>akey</K>")),
        // References that the wire crate refuses.
        ("<K>a&#1;b&#x1F;&#0;c</K>", Some("<K>a\u{1}b\u{1f}\0c</K>")),
        ("<K>&#x1F600;&#65535;</K>", Some("<K>\u{1f600}\u{ffff}</K>")),
        ("<K>&#13;&#60;&lt;&#xe9;</K>", Some("<K>&#13;&#60;&lt;&#xe9;</K>")),
    ];
    for (document, expected) in cases {
        let got = plain(Bytes::copy_from_slice(document.as_bytes())).ok();
        assert_eq!(got.as_deref(), expected.map(str::as_bytes), "{document}");
    }
    assert!(plain(Bytes::from_static(b"<K>\xff</K>")).is_err(), "not UTF-8");
}

#[test]
fn only_the_document_of_a_policy_is_json() {
    for (query, document, json) in [
        ("policy", " {\"Sid\": \"<b>\"}", true),
        ("policy=&x-id=PutBucketPolicy&X-Amz-Date=1", "{}", true),
        ("policy", "<Policy/>", false),
        ("policy&lifecycle", "{}", false),
        ("lifecycle", "{}", false),
    ] {
        let query = Query::parse(Some(query)).unwrap();
        assert_eq!(is_json(&query, document.as_bytes()), json, "{query:?} {document}");
    }
}

#[test]
fn a_refusal_of_a_document_quotes_nothing_of_it() {
    let document = format!("<{}", "SECRET".repeat(10_000));
    let error = plain(document.into()).unwrap_err();
    assert!(!format!("{error:?}").contains("SECRET"));
}
