//! Every framing fault by name, each body cut at every place, and a signed body against its own
//! signer.

use super::*;
use crate::sigv4::{ChunkSigner, SigningKeys, Stamp};
use stele_ground::Dice;

type Taken = Result<(Vec<u8>, Vec<(String, String)>), ChunkError>;

fn take(body: &[u8], cut: &mut dyn FnMut() -> usize, mut dechunker: Dechunker) -> Taken {
    let mut payload = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cut().clamp(1, rest.len()));
        rest = after;
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(data) = dechunker.next(&mut piece)? {
            payload.extend_from_slice(&data);
        }
    }
    Ok((payload, dechunker.finish()?))
}

type Given<'a> = Result<(&'a str, &'a [(&'a str, &'a str)]), ChunkError>;

fn check(body: &str, expected: Given<'_>) {
    let expected = expected.map(|(payload, trailers)| {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        (payload.as_bytes().to_vec(), trailers.iter().map(own).collect::<Vec<_>>())
    });
    let whole = take(body.as_bytes(), &mut || usize::MAX, Dechunker::new(None, false));
    assert_eq!(whole, expected, "{body:?}");
    let mut dice = Dice::new(7);
    for _ in 0..50 {
        let mut cut = || dice.below(5) as usize + 1;
        let cut = take(body.as_bytes(), &mut cut, Dechunker::new(None, false));
        assert_eq!(cut, expected, "{body:?} in pieces");
    }
}

#[test]
fn an_unsigned_body_is_taken_apart_or_refused_by_name() {
    use ChunkError::*;
    check("3\r\nabc\r\n0\r\n\r\n", Ok(("abc", &[])));
    check("0\r\n\r\n", Ok(("", &[])));
    check(
        "a\r\n0123456789\r\n1\r\nx\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
        Ok(("0123456789x", &[("x-amz-checksum-crc32", "AAAAAA==")])),
    );
    check("1\r\nx\r\n0\r\nX-Amz-Checksum-CRC32: AAAAAA== ", Ok(("x", &[("x-amz-checksum-crc32", "AAAAAA==")])));
    check("3\r\nabc\r\n", Err(Incomplete));
    check("3\r\nab", Err(Incomplete));
    check("", Err(Incomplete));
    check("3\r\nabcd\r\n0\r\n\r\n", Err(Framing("no line end after chunk data")));
    check("x\r\nabc\r\n0\r\n\r\n", Err(Framing("malformed chunk size line")));
    check("\r\n", Err(Framing("malformed chunk size line")));
    check("-3\r\nabc\r\n", Err(Framing("malformed chunk size line")));
    check("ffffffffffffffff\r\nabc\r\n", Err(Framing("malformed chunk size line")));
    check(&"1".repeat(2000), Err(Framing("chunk size line too long")));
    check("0\r\nnonsense\r\n\r\n", Err(Trailer("a trailer line is not NAME:VALUE")));
    check(&format!("0\r\na:{}", "b".repeat(20_000)), Err(Trailer("trailers beyond 16 KiB")));
    check(&format!("0\r\n{}\r\n", "a:b\r\n".repeat(20)), Err(Trailer("more than 16 trailers")));
    check("0\r\n\r\nmore", Err(Framing("bytes after the end of the body")));
}

fn signer() -> ChunkSigner {
    let keys = SigningKeys::default();
    let stamp = Stamp::parse("20261120T000000Z").unwrap();
    let key = keys.key("AK", "secret", stamp.date(), "us-east-1", "s3");
    ChunkSigner::new(key, stamp, "us-east-1", "s3", &"5".repeat(64))
}

#[test]
fn a_signed_body_passes_whole_and_fails_at_any_flipped_byte() {
    // The chain below comes from the oracle. The signer only verifies, so the expected signatures
    // are computed from their definition.
    let sign = |previous: &str, kind: &str, hashes: &str| {
        let stamp = "20261120T000000Z\n20261120/us-east-1/s3/aws4_request";
        let text = format!("{kind}\n{stamp}\n{previous}\n{hashes}");
        let key = SigningKeys::default().key("AK", "secret", "20261120", "us-east-1", "s3");
        hex_simd::encode_to_string(aws_lc_rs::hmac::sign(&key, text.as_bytes()).as_ref(), hex_simd::AsciiCase::Lower)
    };
    let sha = |data: &[u8]| {
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data);
        hex_simd::encode_to_string(hash.as_ref(), hex_simd::AsciiCase::Lower)
    };
    let empty = sha(b"");
    let kind = "AWS4-HMAC-SHA256-PAYLOAD";
    let first = sign(&"5".repeat(64), kind, &format!("{empty}\n{}", sha(b"hello")));
    let last = sign(&first, kind, &format!("{empty}\n{empty}"));
    let trailer = "x-amz-checksum-crc32:NhCmhg==";
    let end = sign(&last, "AWS4-HMAC-SHA256-TRAILER", &sha(format!("{trailer}\n").as_bytes()));
    let body = format!(
        "5;chunk-signature={first}\r\nhello\r\n0;chunk-signature={last}\r\n{trailer}\r\nx-amz-trailer-signature:{end}\r\n\r\n"
    );
    let run = |body: &[u8]| take(body, &mut || 3, Dechunker::new(Some(signer()), true));
    let (payload, trailers) = run(body.as_bytes()).unwrap();
    assert_eq!(payload, b"hello");
    assert_eq!(trailers, [("x-amz-checksum-crc32".into(), "NhCmhg==".into())]);
    for index in 0..body.len() - 2 {
        let mut flipped = body.clone().into_bytes();
        flipped[index] ^= 1;
        let outcome = run(&flipped);
        // The line ends of the trailer are not signed, and change nothing.
        assert!(
            outcome.is_err() || outcome == Ok((payload.clone(), trailers.clone())),
            "byte {index} flipped passed: {outcome:?}"
        );
    }
    // The form of minio-go, in pieces of every length.
    let minio = body.replace(&format!("{trailer}\r\n"), &format!("{trailer}\n\r\n"));
    for length in 1..7 {
        let taken = take(minio.as_bytes(), &mut || length, Dechunker::new(Some(signer()), true));
        assert_eq!(taken, Ok((b"hello".to_vec(), trailers.clone())), "{length}");
    }
    let behind = minio.replace("x-amz-trailer-signature", "a:b\r\nx-amz-trailer-signature");
    assert!(run(behind.as_bytes()).is_err());
    let cut = body.find("x-amz-trailer-signature").unwrap();
    assert_eq!(run(&body.as_bytes()[..cut]), Err(ChunkError::Trailer("no x-amz-trailer-signature")));
}
