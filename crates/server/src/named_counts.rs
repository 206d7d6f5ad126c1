//! Counts by name in JSON: one object, in the order in which they are kept here.
//!
//! For `#[serde(with = "crate::named_counts")]`.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserializer, Serializer};

pub fn serialize<S: Serializer>(counts: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().map(|(name, count)| (name, count)))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, u64)>, D::Error> {
    struct Counts;

    impl<'de> Visitor<'de> for Counts {
        type Value = Vec<(String, u64)>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an object of counts")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut counts = Vec::new();
            while let Some(count) = map.next_entry()? {
                counts.push(count);
            }
            Ok(counts)
        }
    }

    deserializer.deserialize_map(Counts)
}
