//! Pages of the table's directory: a chunk and an index page of any content. A chunk must survive
//! encoding and decoding.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_array::table::PAGE;
use stele_array::table::directory::{INDEX, decode_chunk, decode_index, encode_chunk};

fuzz_target!(|input: &[u8]| {
    let _ = decode_chunk(Bytes::copy_from_slice(input));
    let mut page = input.to_vec();
    page.resize(PAGE, 0);
    let page = Bytes::from(page);
    let entries = decode_chunk(page.clone()).expect("a whole page is a chunk");
    assert_eq!(encode_chunk(&entries), page);
    let listed = decode_index(page).expect("a whole page is an index page");
    assert!(listed.iter().all(|(slot, _, entry)| (*slot as usize) < INDEX && entry.place().is_some()));
});
