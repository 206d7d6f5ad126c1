//! Bucket policies: who may do what with the keys of one bucket, in the policy language of AWS.
//!
//! A policy adds access to objects, or takes any access away. It never adds a role, the setting of
//! retention or holds, or the bypass of GOVERNANCE. A statement that cannot be carried out to the
//! letter is refused when the policy is set: an unknown element, action, condition key or operator
//! is an error, never ignored.

mod actions;
mod condition;
mod document;
mod pattern;

use std::collections::{BTreeMap, BTreeSet};

use crate::model::principal::Actor;
pub(crate) use actions::Gift;
use condition::Condition;
use pattern::Pattern;

/// Bytes of a policy's document.
pub const POLICY_BYTES_MAX: usize = 20 * 1024;

/// A parsed policy of one bucket.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    statements: Vec<Statement>,
}

#[derive(Clone, PartialEq, Debug)]
struct Statement {
    id: Option<String>,
    allows: bool,
    principals: Principals,
    actions: Selection,
    resources: Selection,
    conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Principals {
    Everyone,
    /// Access keys by their ids.
    Keys(BTreeSet<String>),
    /// Everyone but these. Only in statements that deny.
    AllBut(BTreeSet<String>),
}

/// What a list of patterns selects: what any of them matches, or everything else.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Selection {
    except: bool,
    patterns: Vec<Pattern>,
}

impl Selection {
    fn selects(&self, text: &str, facts: &RequestFacts) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(text, facts)) != self.except
    }
}

/// What a request says about itself, for the conditions of a policy: the values of each condition
/// key. The keys are in lower case; tags keep the case of their names.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RequestFacts(BTreeMap<String, Vec<String>>);

impl RequestFacts {
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.0.insert(normal(key), vec![value.into()]);
    }

    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        self.0.entry(normal(key)).or_default().push(value.into());
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.0.remove(&normal(key));
    }

    /// Bytes of the longest value.
    pub(crate) fn longest(&self) -> usize {
        self.0.values().flatten().map(String::len).max().unwrap_or(0)
    }

    fn values(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    fn first(&self, key: &str) -> Option<&str> {
        self.values(key).first().map(String::as_str)
    }
}

/// The form in which a condition key is looked up. Its case does not matter, except in the name of
/// a tag.
fn normal(key: &str) -> String {
    match key.split_once('/') {
        Some((name, tag)) => format!("{}/{tag}", name.to_ascii_lowercase()),
        None => key.to_ascii_lowercase(),
    }
}

/// What a policy says about one action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A statement denies it; its id, if it has one.
    Denied(Option<String>),
    Allowed,
    /// No statement speaks of it.
    Silent,
}

impl Policy {
    /// The verdict on an action of S3 (`GetObject`) on a key, or on the bucket itself.
    pub(crate) fn judge(
        &self,
        bucket: &str,
        actor: &Actor,
        action: &str,
        key: Option<&str>,
        facts: &RequestFacts,
    ) -> Verdict {
        let resource = match key {
            Some(key) => format!("arn:aws:s3:::{bucket}/{key}"),
            None => format!("arn:aws:s3:::{bucket}"),
        };
        let action = format!("s3:{action}").to_ascii_lowercase();
        let mut verdict = Verdict::Silent;
        for statement in &self.statements {
            let applies = statement.principals.include(actor)
                && statement.actions.selects(&action, facts)
                && statement.resources.selects(&resource, facts)
                && statement.conditions.iter().all(|condition| condition.holds(facts));
            match (applies, statement.allows) {
                (true, false) => return Verdict::Denied(statement.id.clone()),
                (true, true) => verdict = Verdict::Allowed,
                (false, _) => {}
            }
        }
        verdict
    }

    /// Whether a policy of a session allows the action: a statement does, and none denies it.
    pub(crate) fn allows(
        &self,
        bucket: &str,
        actor: &Actor,
        action: &str,
        key: Option<&str>,
        facts: &RequestFacts,
    ) -> bool {
        self.judge(bucket, actor, action, key, facts) == Verdict::Allowed
    }

    /// Whether a condition asks for the tags of the existing object.
    pub(crate) fn asks_for_tags(&self) -> bool {
        let mut keys =
            self.statements.iter().flat_map(|statement| &statement.conditions).map(|condition| condition.key());
        keys.any(|key| key.starts_with("s3:existingobjecttag/"))
    }

    /// Whether everyone is allowed something, on no condition that names an address or a caller.
    pub fn is_public(&self) -> bool {
        const NARROWING: [&str; 3] = ["aws:sourceip", "aws:username", "aws:userid"];
        self.statements.iter().any(|statement| {
            statement.allows
                && statement.principals == Principals::Everyone
                && !statement
                    .conditions
                    .iter()
                    .any(|condition| condition.is_narrow() && NARROWING.contains(&condition.key()))
        })
    }

    /// The ids of the access keys that the policy names.
    pub(crate) fn keys(&self) -> BTreeSet<&str> {
        self.statements
            .iter()
            .filter_map(|statement| statement.principals.keys())
            .flatten()
            .map(String::as_str)
            .collect()
    }
}

/// What a policy that allows an action gives. Everything else takes a role or a grant of the access
/// key.
pub(crate) fn gift_of(action: &str) -> Option<Gift> {
    actions::gift(action)
}

impl Principals {
    fn keys(&self) -> Option<&BTreeSet<String>> {
        match self {
            Principals::Everyone => None,
            Principals::Keys(keys) | Principals::AllBut(keys) => Some(keys),
        }
    }

    fn include(&self, actor: &Actor) -> bool {
        let named = |keys: &BTreeSet<String>| matches!(actor, Actor::Key(id) if keys.contains(id));
        match self {
            Principals::Everyone => true,
            Principals::Keys(keys) => named(keys),
            Principals::AllBut(keys) => !named(keys),
        }
    }
}

#[cfg(test)]
mod tests;
