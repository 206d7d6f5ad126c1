//! Reading the document of a policy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::condition::Condition;
use super::pattern::Pattern;
use super::{POLICY_BYTES_MAX, Policy, Principals, Selection, Statement, actions};

const STATEMENTS_MAX: usize = 100;
const VERSIONS: [&str; 2] = ["2012-10-17", "2008-10-17"];

/// JSON in which no object has a member twice: which of two conditions counts must not depend on
/// the reader.
#[derive(Clone, Debug)]
enum Json {
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, a number, a boolean, a list or an object")
            }

            fn visit_str<E>(self, text: &str) -> Result<Json, E> {
                Ok(Json::Text(text.to_owned()))
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Json, E> {
                Ok(Json::Text(flag.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
                Ok(Json::Text(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
                Ok(Json::Text(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
                Ok(Json::Text(number.to_string()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = list.next_element()? {
                    entries.push(entry);
                }
                Ok(Json::List(entries))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Json, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = object.next_entry::<String, Json>()? {
                    if members.insert(name.clone(), value).is_some() {
                        return Err(serde::de::Error::custom(format!("`{name}` is there twice")));
                    }
                }
                Ok(Json::Object(members))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Policy {
    /// Parses the policy of a bucket. The error says what in it cannot be carried out.
    pub fn parse(bucket: &str, document: &str) -> Result<Policy, String> {
        if document.len() > POLICY_BYTES_MAX {
            return Err(format!("a policy has at most {POLICY_BYTES_MAX} bytes, this one has {}", document.len()));
        }
        let json: Json = serde_json::from_str(document).map_err(|error| format!("it is not JSON: {error}"))?;
        read(Scope::Bucket(bucket), json)
    }

    /// Parses the policy of a session, which speaks of any buckets and names no principals. It can
    /// allow every action, since it gives none: it limits what the session's access key may do.
    pub fn parse_session(document: &str) -> Result<Policy, String> {
        if document.len() > POLICY_BYTES_MAX {
            return Err(format!("a policy has at most {POLICY_BYTES_MAX} bytes, this one has {}", document.len()));
        }
        // Its author is any client. With variables a request would choose the patterns, and what
        // they cost.
        if document.contains("${") {
            return Err("the policy of a session has no variables".into());
        }
        let json: Json = serde_json::from_str(document).map_err(|error| format!("it is not JSON: {error}"))?;
        read(Scope::Session, json)
    }
}

type Read<T> = Result<T, String>;

/// What a policy is of.
#[derive(Clone, Copy)]
enum Scope<'b> {
    Bucket(&'b str),
    Session,
}

fn read(scope: Scope<'_>, json: Json) -> Read<Policy> {
    let mut members = object(json, "the policy")?;
    match members.remove("Version").map(|version| text(version, "Version")).transpose()? {
        Some(version) if !VERSIONS.contains(&version.as_str()) => {
            return Err(format!("Version `{version}` is not known; it is 2012-10-17"));
        }
        _ => {}
    }
    if let Some(id) = members.remove("Id") {
        text(id, "Id")?;
    }
    let statements = match members.remove("Statement").ok_or("Missing required field Statement")? {
        Json::List(list) => list,
        one => vec![one],
    };
    none_left(&members, "the policy")?;
    if statements.is_empty() || statements.len() > STATEMENTS_MAX {
        return Err(format!("a policy has 1 to {STATEMENTS_MAX} statements, not {}", statements.len()));
    }
    let statements: Vec<Statement> = statements.into_iter().map(|json| statement(scope, json)).collect::<Read<_>>()?;
    let mut ids = BTreeSet::new();
    for id in statements.iter().filter_map(|statement| statement.id.as_ref()) {
        if !ids.insert(id) {
            return Err(format!("statement id `{id}` is there twice"));
        }
    }
    Ok(Policy { statements })
}

fn statement(scope: Scope<'_>, json: Json) -> Read<Statement> {
    let mut members = object(json, "a statement")?;
    let id = members.remove("Sid").map(|id| text(id, "Sid")).transpose()?.filter(|id| !id.is_empty());
    let effect = text(members.remove("Effect").ok_or("Missing required field Effect")?, "Effect")?;
    let allows = match effect.as_str() {
        "Allow" => true,
        "Deny" => false,
        other => return Err(format!("Invalid effect: {other}; it is Allow or Deny")),
    };
    let named = members.contains_key("Principal") || members.contains_key("NotPrincipal");
    let principals = match scope {
        Scope::Session if named => return Err("the policy of a session names no principals".into()),
        Scope::Session => Principals::Everyone,
        Scope::Bucket(_) => principals_of(&mut members, allows)?,
    };
    let (list, except) = either(&mut members, "Action", "NotAction")?;
    let patterns = texts(list, "Action")?;
    let patterns = match scope {
        Scope::Session => patterns.iter().map(|text| actions::parse_of_session(text)).collect::<Read<_>>()?,
        Scope::Bucket(_) => patterns.iter().map(|text| actions::parse(text, allows && !except)).collect::<Read<_>>()?,
    };
    let actions = Selection { except, patterns };
    let (list, except) = either(&mut members, "Resource", "NotResource")?;
    let patterns = texts(list, "Resource")?;
    let patterns = match scope {
        Scope::Session => patterns.iter().map(|text| resource_of_session(text)).collect::<Read<_>>()?,
        Scope::Bucket(bucket) => patterns.iter().map(|text| resource(bucket, text)).collect::<Read<_>>()?,
    };
    let resources = Selection { except, patterns };
    let conditions = match members.remove("Condition") {
        Some(json) => conditions(json)?,
        None => Vec::new(),
    };
    none_left(&members, "a statement")?;
    Ok(Statement { id, allows, principals, actions, resources, conditions })
}

/// The principals of a statement in the policy of a bucket.
fn principals_of(members: &mut BTreeMap<String, Json>, allows: bool) -> Read<Principals> {
    Ok(match either(members, "Principal", "NotPrincipal")? {
        (json, false) => principals(json)?,
        (_, true) if allows => {
            return Err("NotPrincipal with Allow would allow everyone else; name who is allowed".into());
        }
        (json, true) => match principals(json)? {
            Principals::Keys(keys) => Principals::AllBut(keys),
            _ => return Err("NotPrincipal names access keys, not everyone".into()),
        },
    })
}

/// The member with one of two names, and whether it is the second.
fn either(members: &mut BTreeMap<String, Json>, name: &str, not: &str) -> Read<(Json, bool)> {
    match (members.remove(name), members.remove(not)) {
        (Some(json), None) => Ok((json, false)),
        (None, Some(json)) => Ok((json, true)),
        (None, None) => Err(format!("Missing required field {name}")),
        (Some(_), Some(_)) => Err(format!("a statement has {name} or {not}, not both")),
    }
}

fn principals(json: Json) -> Read<Principals> {
    let names = match json {
        Json::Text(text) if text == "*" => return Ok(Principals::Everyone),
        Json::Object(mut kinds) => {
            let names = kinds.remove("AWS").ok_or("a principal is `*`, or access keys under `AWS`")?;
            none_left(&kinds, "Principal")?;
            texts(names, "Principal")?
        }
        _ => return Err("Invalid principal in policy: it is `*`, or access keys under `AWS`".into()),
    };
    if names.iter().any(|name| name == "*") {
        return Ok(Principals::Everyone);
    }
    names.iter().map(|name| principal(name)).collect::<Read<BTreeSet<_>>>().map(Principals::Keys)
}

/// An access key: its id, or the ARN of a user with that name in any account.
fn principal(name: &str) -> Read<String> {
    let id = match name.strip_prefix("arn:aws:iam::") {
        Some(rest) => rest.split_once(":user/").map(|(_, id)| id),
        None => Some(name),
    };
    let plain = |id: &&str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    id.filter(plain).map(str::to_owned).ok_or_else(|| {
        format!("Invalid principal in policy: `{name}` names no access key; give its id, or arn:aws:iam:::user/ID")
    })
}

fn resource(bucket: &str, text: &str) -> Read<Pattern> {
    let invalid =
        || format!("Policy has invalid resource: `{text}` names neither arn:aws:s3:::{bucket} nor keys in it");
    let path = text.strip_prefix("arn:aws:s3:::").ok_or_else(invalid)?;
    let own = path.strip_prefix(bucket).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '*']));
    if !own && path != "*" && path != "*/*" {
        return Err(invalid());
    }
    Pattern::parse(text, false)
}

fn resource_of_session(text: &str) -> Read<Pattern> {
    if text != "*" && !text.starts_with("arn:aws:s3:::") {
        return Err(format!("Policy has invalid resource: `{text}` is neither `*` nor begins with arn:aws:s3:::"));
    }
    Pattern::parse(text, false)
}

fn conditions(json: Json) -> Read<Vec<Condition>> {
    let mut conditions = Vec::new();
    for (operator, keys) in object(json, "Condition")? {
        for (key, values) in object(keys, &operator)? {
            conditions.push(Condition::parse(&operator, &key, &texts(values, &key)?)?);
        }
    }
    Ok(conditions)
}

fn object(json: Json, what: &str) -> Read<BTreeMap<String, Json>> {
    match json {
        Json::Object(members) => Ok(members),
        _ => Err(format!("{what} is not an object")),
    }
}

fn text(json: Json, what: &str) -> Read<String> {
    match json {
        Json::Text(text) => Ok(text),
        _ => Err(format!("{what} is not text")),
    }
}

/// One text or a list of texts, at least one.
fn texts(json: Json, what: &str) -> Read<Vec<String>> {
    let list = match json {
        Json::List(list) => list.into_iter().map(|one| text(one, what)).collect::<Read<Vec<_>>>()?,
        one => vec![text(one, what)?],
    };
    if list.is_empty() { Err(format!("{what} is empty")) } else { Ok(list) }
}

fn none_left(members: &BTreeMap<String, Json>, what: &str) -> Read<()> {
    match members.keys().next() {
        Some(name) => Err(format!("{what} has an unknown element `{name}`")),
        None => Ok(()),
    }
}
