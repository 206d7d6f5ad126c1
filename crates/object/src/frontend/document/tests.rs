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
    ];
    for (document, expected) in cases {
        let got = plain(Bytes::copy_from_slice(document.as_bytes())).ok();
        assert_eq!(got.as_deref(), expected.map(str::as_bytes), "{document}");
    }
    assert!(plain(Bytes::from_static(b"<K>\xff</K>")).is_err(), "not UTF-8");
}

#[test]
fn a_refusal_of_a_document_quotes_nothing_of_it() {
    let document = format!("<{}", "SECRET".repeat(10_000));
    let error = plain(document.into()).unwrap_err();
    assert!(!format!("{error:?}").contains("SECRET"));
}
