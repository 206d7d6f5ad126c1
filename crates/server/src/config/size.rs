//! Sizes in the configuration.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use stele_ground::Bytes;

/// Reads `64KiB`, `1.5G` or plain bytes.
pub fn size(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).ok_or_else(|| match is_too_large(text) {
        true => format!("'{text}' is too large: a size is below 16384 PiB, and that of a volume at most 64 PiB"),
        false => format!("'{text}' is not a size; write 4096, 64KiB, 1.5GiB, 20TiB or 2PiB"),
    })
}

/// Whether a text that is no size would be one with a smaller number.
fn is_too_large(text: &str) -> bool {
    let unit = text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = text.trim().strip_suffix(unit).unwrap_or_default();
    number.parse::<f64>().is_ok() && Bytes::parse(&format!("1{unit}")).is_some()
}

/// A size in the file: `64MiB` or a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub Bytes);

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.0.0;
        match [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)]
            .iter()
            .find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift))
        {
            Some((name, shift)) => serializer.serialize_str(&format!("{}{name}", bytes >> shift)),
            None => serializer.serialize_u64(bytes),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a size in quotes such as \"64MiB\"")
            }
            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(Bytes(bytes)))
            }
            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                let bytes = u64::try_from(bytes).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))?;
                Ok(Size(Bytes(bytes)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                size(text).map(Size).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Written)
    }
}
