//! The number of a drive in JSON: null if it has none. For `#[serde(with = "number")]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stele_array::NOT_A_MEMBER;

pub fn serialize<S: Serializer>(drive: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    Some(*drive).filter(|drive| *drive != NOT_A_MEMBER).serialize(serializer)
}

/// Earlier versions wrote the number that stands for none.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(NOT_A_MEMBER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Shown {
        #[serde(with = "super")]
        drive: u32,
    }

    #[test]
    fn a_drive_without_a_number_is_null_and_both_forms_are_read() {
        for (drive, written) in [(7, r#"{"drive":7}"#), (NOT_A_MEMBER, r#"{"drive":null}"#)] {
            assert_eq!(serde_json::to_string(&Shown { drive }).unwrap(), written);
            assert_eq!(serde_json::from_str::<Shown>(written).unwrap(), Shown { drive });
        }
        let earlier: Shown = serde_json::from_str(r#"{"drive":4294967295}"#).unwrap();
        assert_eq!(earlier, Shown { drive: NOT_A_MEMBER });
    }
}
