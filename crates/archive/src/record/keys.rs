//! Record keys. Numbers are big-endian, so that they sort. S3 keys are escaped, so that the bytes
//! behind them cannot be confused with them.
//!
//! In an S3 key, byte 0 becomes 00 FF, and 00 01 ends the key. Keys therefore sort as their bytes
//! do, and 00 02 behind a key is above all its versions. Version numbers are stored inverted: the
//! newest comes first.

use bytes::Bytes;

use crate::model::error::{ArchiveError, Result};

pub(crate) fn number(value: u64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

pub(crate) fn short(value: u32) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

pub(crate) fn pair(first: u64, second: u32) -> Bytes {
    let mut bytes = Vec::with_capacity(12);
    bytes.extend_from_slice(&first.to_be_bytes());
    bytes.extend_from_slice(&second.to_be_bytes());
    bytes.into()
}

/// An object under a matter. No name of a matter has a zero byte.
pub(crate) fn under(matter: &str, object: u64) -> Bytes {
    let mut bytes = all_under(matter);
    bytes.extend_from_slice(&object.to_be_bytes());
    bytes.into()
}

/// The common prefix of all objects under a matter.
pub(crate) fn all_under(matter: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(matter.len() + 9);
    bytes.extend_from_slice(matter.as_bytes());
    bytes.push(0);
    bytes
}

/// The record of the last number that a target's events got.
pub(crate) fn event_head(target: &str) -> Bytes {
    format!("h{target}").into()
}

/// The counter of a target's dropped events.
pub(crate) fn event_dropped(target: &str) -> Bytes {
    format!("d{target}").into()
}

/// When the last of a target's events was dropped.
pub(crate) fn event_last_dropped(target: &str) -> Bytes {
    format!("t{target}").into()
}

/// The number at the end of a key.
pub(crate) fn last_number(key: &[u8]) -> u64 {
    key.last_chunk::<8>().map_or(0, |number| u64::from_be_bytes(*number))
}

pub(crate) fn numbers(first: u64, second: u64) -> Bytes {
    let mut bytes = Vec::with_capacity(16);
    bytes.extend_from_slice(&first.to_be_bytes());
    bytes.extend_from_slice(&second.to_be_bytes());
    bytes.into()
}

/// The common prefix of all keys of a bucket that start with `prefix`.
pub(crate) fn prefix(bucket: u32, prefix: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + prefix.len() + 16);
    bytes.extend_from_slice(&bucket.to_be_bytes());
    for byte in prefix.bytes() {
        bytes.push(byte);
        if byte == 0 {
            bytes.push(0xFF);
        }
    }
    bytes
}

/// The common prefix of all versions or uploads of one key.
pub(crate) fn all_of(bucket: u32, key: &str) -> Vec<u8> {
    let mut bytes = prefix(bucket, key);
    bytes.extend_from_slice(&[0, 1]);
    bytes
}

/// Above all versions of the key, below every other key.
pub(crate) fn behind(bucket: u32, key: &str) -> Bytes {
    let mut bytes = prefix(bucket, key);
    bytes.extend_from_slice(&[0, 2]);
    bytes.into()
}

pub(crate) fn version(bucket: u32, key: &str, number: u64) -> Bytes {
    let mut bytes = all_of(bucket, key);
    bytes.extend_from_slice(&(!number).to_be_bytes());
    bytes.into()
}

pub(crate) fn upload(bucket: u32, key: &str, number: u64) -> Bytes {
    let mut bytes = all_of(bucket, key);
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.into()
}

/// The bucket, the S3 key and the stored number behind it. The caller inverts a version's number.
pub(crate) fn split(record_key: &[u8]) -> Result<(u32, String, u64)> {
    let damaged =
        || ArchiveError::damaged("the catalog", format!("a record key of {} bytes is malformed", record_key.len()));
    let (bucket, rest) = record_key.split_first_chunk::<4>().ok_or_else(damaged)?;
    let (body, number) = rest.split_last_chunk::<8>().ok_or_else(damaged)?;
    let body = body.strip_suffix(&[0, 1]).ok_or_else(damaged)?;
    let mut key = Vec::with_capacity(body.len());
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        key.push(*byte);
        if *byte == 0 && bytes.next() != Some(&0xFF) {
            return Err(damaged());
        }
    }
    let key = String::from_utf8(key).map_err(|_| damaged())?;
    Ok((u32::from_be_bytes(*bucket), key, u64::from_be_bytes(*number)))
}

#[cfg(test)]
mod tests;
