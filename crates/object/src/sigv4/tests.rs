//! The examples that AWS publishes for Signature Version 4 with S3, and forgeries that must fail.

use super::*;
use crate::query::Query;
use hyper::HeaderMap;
use std::time::{Duration, UNIX_EPOCH};

const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn outcome(method: &str, target: &str, headers: &HeaderMap) -> Result<Option<ChunkSigner>, String> {
    let (raw_path, raw_query) = target.split_once('?').unwrap_or((target, ""));
    let path = crate::query::decode(raw_path, false).unwrap();
    let query = Query::parse(Some(raw_query)).unwrap();
    let claim = Claim::of(headers, &query).map_err(|error| error.code().as_str().to_owned())?;
    let claim = claim.ok_or("anonymous")?;
    let parts = Parts { method, path: &path, raw_path, query: &query, headers };
    claim.verify(SECRET, &SigningKeys::default(), &parts).map_err(|error| error.code().as_str().to_owned())
}

fn check(method: &str, target: &str, headers: &HeaderMap, expected: Result<(), &str>) {
    let got = outcome(method, target, headers).map(|_| ());
    assert_eq!(got, expected.map_err(str::to_owned), "{method} {target}");
}

fn authorization(signed: &str, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={KEY}/20130524/us-east-1/s3/aws4_request,SignedHeaders={signed},Signature={signature}"
    )
}

#[test]
fn the_published_examples_verify_and_their_forgeries_do_not() {
    let get = authorization(
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
    let base = [
        ("host", "examplebucket.s3.amazonaws.com"),
        ("range", "bytes=0-9"),
        ("x-amz-content-sha256", EMPTY),
        ("x-amz-date", "20130524T000000Z"),
        ("authorization", get.as_str()),
    ];
    check("GET", "/test.txt", &headers(&base), Ok(()));
    check("HEAD", "/test.txt", &headers(&base), Err("SignatureDoesNotMatch"));
    check("GET", "/test.tx", &headers(&base), Err("SignatureDoesNotMatch"));
    check("GET", "/test.txt?a=1", &headers(&base), Err("SignatureDoesNotMatch"));
    let mut forged = base;
    forged[1].1 = "bytes=0-10";
    check("GET", "/test.txt", &headers(&forged), Err("SignatureDoesNotMatch"));
    let mut smuggled = base.to_vec();
    smuggled.push(("x-amz-bypass-governance-retention", "true"));
    check("GET", "/test.txt", &headers(&smuggled), Err("AccessDenied"));

    let put = authorization(
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    );
    let put = [
        ("host", "examplebucket.s3.amazonaws.com"),
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("authorization", put.as_str()),
    ];
    check("PUT", "/test%24file.text", &headers(&put), Ok(()));

    let list = authorization(
        "host;x-amz-content-sha256;x-amz-date",
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    );
    let list = [
        ("host", "examplebucket.s3.amazonaws.com"),
        ("x-amz-content-sha256", EMPTY),
        ("x-amz-date", "20130524T000000Z"),
        ("authorization", list.as_str()),
    ];
    check("GET", "/?max-keys=2&prefix=J", &headers(&list), Ok(()));
    check("GET", "/?prefix=J&max-keys=2", &headers(&list), Ok(()));
}

#[test]
fn the_published_presigned_url_verifies_and_expires() {
    let target = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let host = headers(&[("host", "examplebucket.s3.amazonaws.com")]);
    check("GET", target, &host, Ok(()));
    check("PUT", target, &host, Err("SignatureDoesNotMatch"));
    let long = target.replace("86400", "604801");
    check("GET", &long, &host, Err("AuthorizationQueryParametersError"));
    let minus = target.replace("86400", "-1");
    check("GET", &minus, &host, Err("AuthorizationQueryParametersError"));

    let query = Query::parse(target.split_once('?').map(|(_, query)| query)).unwrap();
    let claim = Claim::of(&host, &query).unwrap().unwrap();
    let signed = UNIX_EPOCH + Duration::from_secs(1_369_353_600);
    let at = |seconds: i64| {
        let moved = if seconds < 0 {
            signed - Duration::from_secs(seconds.unsigned_abs())
        } else {
            signed + Duration::from_secs(seconds.unsigned_abs())
        };
        claim.check_time(moved).map_err(|error| error.code().as_str().to_owned())
    };
    assert_eq!(at(0), Ok(()));
    assert_eq!(at(86_400), Ok(()));
    assert_eq!(at(86_401), Err("AccessDenied".into()));
    assert_eq!(at(-901), Err("RequestTimeTooSkewed".into()));
}

#[test]
fn the_published_chunk_chain_verifies_and_breaks_where_it_is_broken() {
    let authorization = authorization(
        "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class",
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
    );
    let headers = headers(&[
        ("host", "s3.amazonaws.com"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("authorization", authorization.as_str()),
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        ("content-encoding", "aws-chunked"),
        ("x-amz-decoded-content-length", "66560"),
        ("content-length", "66824"),
    ]);
    let chain = || outcome("PUT", "/examplebucket/chunkObject.txt", &headers).unwrap().unwrap();
    let chunks: [(usize, &[u8]); 3] = [
        (65536, b"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (1024, b"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (0, b"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ];
    let mut signer = chain();
    for (length, signature) in chunks {
        signer.update(&vec![b'a'; length]);
        assert!(signer.chunk(signature));
    }
    let mut signer = chain();
    signer.update(&vec![b'b'; 65536]);
    assert!(!signer.chunk(chunks[0].1));
    let mut reordered = chain();
    reordered.update(&[b'a'; 1024]);
    assert!(!reordered.chunk(chunks[1].1));
}

#[test]
fn malformed_claims_get_the_code_aws_documents() {
    let cases: &[(&[(&'static str, &str)], &str)] = &[
        (&[("authorization", "AWS AKID:sig")], "InvalidRequest"),
        (&[("authorization", "Bearer x")], "InvalidArgument"),
        (&[("authorization", "AWS4-HMAC-SHA256 Credential=a")], "AuthorizationHeaderMalformed"),
        (
            &[(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=a/20130524/r/ec2/aws4_request, SignedHeaders=host, Signature=0",
            )],
            "AuthorizationHeaderMalformed",
        ),
        (
            &[(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request, SignedHeaders=host, Signature=0",
            )],
            "AccessDenied",
        ),
        (
            &[
                (
                    "authorization",
                    "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request, SignedHeaders=host, Signature=0",
                ),
                ("x-amz-date", "20130524T000000Z"),
            ],
            "InvalidRequest",
        ),
        (
            &[
                (
                    "authorization",
                    "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request, SignedHeaders=host, Signature=0",
                ),
                ("x-amz-date", "20130524T000000Z"),
                ("x-amz-content-sha256", "abc"),
            ],
            "InvalidArgument",
        ),
        (
            &[
                (
                    "authorization",
                    "AWS4-HMAC-SHA256 Credential=a/20130525/r/s3/aws4_request, SignedHeaders=host, Signature=0",
                ),
                ("x-amz-date", "20130524T000000Z"),
            ],
            "AuthorizationHeaderMalformed",
        ),
        (&[], "anonymous"),
    ];
    for (pairs, code) in cases {
        check("GET", "/b/k", &headers(pairs), Err(code));
    }
}

#[test]
fn stamps_are_read_and_written_alike() {
    for (text, seconds) in [
        ("19700101T000000Z", Some(0)),
        ("20130524T000000Z", Some(1_369_353_600)),
        ("20000229T235959Z", Some(951_868_799)),
        ("21000229T000000Z", None),
        ("20231301T000000Z", None),
        ("20230100T000000Z", None),
        ("20230101T240000Z", None),
        ("2023-01-01T00:00", None),
    ] {
        let parsed = Stamp::parse(text);
        let instant = seconds.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(parsed.map(|stamp| stamp.instant()), instant, "{text}");
        if let Some(instant) = instant {
            assert_eq!(Stamp::of(instant).text(), text);
        }
    }
}

/// Bytes that an attacker may send in place of those of a real claim.
const PIECES: [&str; 16] = [
    "AWS4-HMAC-SHA256",
    "Credential=",
    "/20130524/us-east-1/s3/aws4_request",
    "SignedHeaders=",
    "Signature=",
    ",",
    ";",
    "/",
    "=",
    "%",
    "%zz",
    "%F0%9F",
    "\u{fffd}",
    "",
    "20130524T000000Z",
    "host",
];

#[test]
fn no_claim_a_stranger_can_make_panics_or_verifies() {
    let mut dice = stele_ground::Dice::new(20_261_120);
    let mut verified = 0;
    for _ in 0..20_000 {
        let mut text = || (0..dice.below(12)).map(|_| *dice.pick(&PIECES).unwrap()).collect::<String>();
        let names = ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders"];
        let raw = names.map(|name| format!("{name}={}", text())).join("&") + &format!("&X-Amz-Signature={}", text());
        let Some(query) = Query::parse(Some(&raw)) else { continue };
        let mut map = HeaderMap::new();
        for name in ["authorization", "x-amz-date", "x-amz-content-sha256", "host"] {
            if let Ok(value) = text().parse() {
                map.insert(name, value);
            }
        }
        for query in [query, Query::default()] {
            if let Ok(Some(claim)) = Claim::of(&map, &query) {
                let parts = Parts { method: "GET", path: "/b/k", raw_path: "/b/k", query: &query, headers: &map };
                verified += usize::from(claim.verify(SECRET, &SigningKeys::default(), &parts).is_ok());
            }
        }
    }
    assert_eq!(verified, 0);
}
