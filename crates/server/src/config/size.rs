//! Sizes in the configuration.

use serde::{Deserialize, Serialize};
use stele_ground::Bytes;

/// Reads `64KiB`, `1.5G` or plain bytes.
pub fn size(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).ok_or_else(|| format!("'{text}' is not a size; write 4096, 64KiB, 1.5GiB or 20TiB"))
}

/// A size in the file: `64MiB` or a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub Bytes);

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.0.0;
        match [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)]
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
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Size(Bytes(bytes))),
            Written::Text(text) => size(&text).map(Size).map_err(serde::de::Error::custom),
        }
    }
}
