//! Refuses a field of a request that its call does not have, and names the nearest one that it has.
//!
//! A field that is ignored does something else than its sender wanted: a quota under a misspelt
//! name limits nothing, and an export with misspelt networks is open to all. So each type of a
//! request, also within another one, takes the fields that it has and no other. Fields that may be
//! left out may still be left out: an older client names fewer of them. The list of exports is read
//! in the same way.

use std::cell::RefCell;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Error, Value};

use crate::failure::{Failure, Outcome};

/// Documents that people keep in files and hand on whole: a key as `stele key create` printed it,
/// and a signed head. Each of their fields must be there, so that none is missed.
const DOCUMENTS: [&str; 2] = ["Officer", "SignedHead"];

/// Characters of a name that a message quotes.
const NAME_MAX: usize = 64;

/// Reads a request of the call with this name.
pub fn read<C: DeserializeOwned>(call: &str, body: &[u8]) -> Outcome<C> {
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        let unknown = RefCell::new(None);
        let _ = C::deserialize(Strict { value: &value, unknown: &unknown });
        if let Some(Unknown { name, known }) = unknown.into_inner() {
            let name: String = name.chars().take(NAME_MAX).collect();
            let message = format!("{call} has no field `{name}`, and nothing was done");
            return Err(Failure::usage(message).next(advice(&name, known)));
        }
    }
    serde_json::from_slice(body).map_err(|error| Failure::usage(format!("the body of {call} is not valid: {error}")))
}

/// The first field of a stored document that its type does not have.
pub fn unknown_field<T: DeserializeOwned>(value: &Value) -> Option<String> {
    let unknown = RefCell::new(None);
    let _ = T::deserialize(Strict { value, unknown: &unknown });
    let Unknown { name, .. } = unknown.into_inner()?;
    Some(name.chars().take(NAME_MAX).collect())
}

/// A field that its type does not have, and those that it has.
struct Unknown {
    name: String,
    known: &'static [&'static str],
}

fn advice(name: &str, known: &[&str]) -> String {
    const OLDER: &str = "if a newer command sent it, the server is older: compare `stele --version`";
    let nearest = known.iter().map(|other| (distance(name, other), other)).min();
    match nearest {
        None => format!("leave it out: this call has no fields; {OLDER}"),
        Some((far, other)) if far <= name.chars().count().div_ceil(3) => {
            format!("write `{other}`, or leave it out; {OLDER}")
        }
        Some(_) => format!("leave it out, or write one of: {}; {OLDER}", known.join(", ")),
    }
}

/// How many characters have to be left out, put in or replaced until two words are the same.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (to, wanted) in other.iter().enumerate() {
            let replaced = before + usize::from(letter != *wanted);
            before = row[to + 1];
            row[to + 1] = replaced.min(before + 1).min(row[to] + 1);
        }
    }
    row[other.len()]
}

/// A value of a request. It notes the first field that its type does not have.
#[derive(Clone, Copy)]
struct Strict<'de> {
    value: &'de Value,
    unknown: &'de RefCell<Option<Unknown>>,
}

impl<'de> Strict<'de> {
    fn within(self, value: &'de Value) -> Strict<'de> {
        Strict { value, ..self }
    }
}

impl<'de> IntoDeserializer<'de, Error> for Strict<'de> {
    type Deserializer = Strict<'de>;

    fn into_deserializer(self) -> Strict<'de> {
        self
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(values) => {
                visitor.visit_seq(SeqDeserializer::new(values.iter().map(|value| self.within(value))))
            }
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.as_str(), self.within(value)));
                visitor.visit_map(MapDeserializer::new(fields))
            }
            value => value.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Value::Object(given) = self.value
            && !DOCUMENTS.contains(&name)
            && let Some(unknown) = given.keys().find(|given| !fields.contains(&given.as_str()))
        {
            self.unknown.borrow_mut().get_or_insert_with(|| Unknown { name: unknown.clone(), known: fields });
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::archive::{AuditVerify, CreateBucket, SetBucket};
    use crate::api::disposal::DisposalPause;
    use crate::api::export::AddExport;
    use crate::api::matters::{MatterClose, MatterHold};
    use crate::api::pool::{AddDrives, ShowPool};
    use crate::api::share::SetShare;

    /// Whether the body is read, and else what it is told.
    fn said<C: DeserializeOwned>(body: &str) -> Option<String> {
        read::<C>("a/call", body.as_bytes()).err().map(|failure| {
            assert_eq!(failure.kind, crate::failure::Kind::Usage);
            failure.to_string()
        })
    }

    #[test]
    fn a_field_that_no_call_has_is_refused_with_the_nearest_one() {
        let bucket =
            |more: &str| format!(r#"{{"name":"b","lock":false,"versioning":false,"public_read":false{more}}}"#);
        assert_eq!(said::<CreateBucket>(&bucket("")), None);
        for (body, words) in [
            (bucket(r#","qouta":5"#), ["a/call has no field `qouta`", "write `quota`"]),
            (bucket(r#","quota_version":5"#), ["no field `quota_version`", "write `quota_versions`"]),
            (bucket(r#","owner_of_it":"anna""#), ["no field `owner_of_it`", "one of: name, lock"]),
        ] {
            let said = said::<CreateBucket>(&body).unwrap_or_default();
            assert!(words.iter().all(|word| said.contains(word)), "{body}: {said}");
        }
        // Null changes something here; under another name it would not.
        let none = said::<SetBucket>(r#"{"name":"b","versioning":false,"lock":false,"qouta":null}"#);
        assert!(none.is_some_and(|said| said.contains("write `quota`")));
        assert!(said::<ShowPool>(r#"{"verbose":true}"#).is_some_and(|said| said.contains("this call has no fields")));
        // A misspelt field that must be there is told by its name, too.
        let reason = said::<DisposalPause>(r#"{"raeson":"audit"}"#).unwrap_or_default();
        assert!(reason.contains("no field `raeson`") && reason.contains("write `reason`"), "{reason}");
    }

    #[test]
    fn types_within_a_request_take_no_other_field_either() {
        let export = |access: &str| {
            format!(r#"{{"volume":"v","name":null,"protocol":"nbd","read_only":false,"access":{{{access}}}}}"#)
        };
        assert_eq!(said::<AddExport>(&export(r#""networks":["10.0.0.0/8"]"#)), None);
        let said_of = said::<AddExport>(&export(r#""netwroks":["10.0.0.0/8"]"#)).unwrap_or_default();
        assert!(said_of.contains("no field `netwroks`") && said_of.contains("write `networks`"), "{said_of}");
        let share = said::<SetShare>(r#"{"name":"s","options":{"read_onyl":true}}"#).unwrap_or_default();
        assert!(share.contains("write `read_only`"), "{share}");
        let held = r#"{"name":"m","versions":[{"bucket":"b","key":"k","versoin":"1"}],"put":true,"officer":null}"#;
        assert!(said::<MatterHold>(held).is_some_and(|said| said.contains("write `version`")));
    }

    #[test]
    fn fewer_fields_and_whole_documents_are_read() {
        assert_eq!(said::<AddDrives>(r#"{"drives":["/dev/sdk@4"],"size":null}"#), None);
        let officer = r#"{"access_key":"A","secret_key":"B","awaits":"6fz6774z"}"#;
        assert_eq!(said::<MatterClose>(&format!(r#"{{"name":"m","officer":{officer}}}"#)), None);
        let head =
            r#"{"store":"s","records":1,"link":"l","root":"r","time":"t","public_key":"k","signature":"g","x":1}"#;
        assert_eq!(said::<AuditVerify>(&format!(r#"{{"anchor":{head}}}"#)), None);
        for broken in ["", "null", "{", r#"{"reason":"a","reason":"b"}"#, r#"{"reason":7}"#] {
            let said = said::<DisposalPause>(broken).unwrap_or_default();
            assert!(said.contains("the body of a/call is not valid"), "{broken}: {said}");
        }
    }

    #[test]
    fn words_are_as_far_apart_as_letters_that_have_to_change() {
        for (one, other, far) in
            [("", "", 0), ("", "abc", 3), ("quota", "quota", 0), ("qouta", "quota", 2), ("lock", "block", 1)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (far, far), "{one}, {other}");
        }
    }
}
