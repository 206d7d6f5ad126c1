//! Calls about management classes and events.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stele_archive::{
    Binding, Bindings, BucketChange, ClassInfo, ClassTerms, Comparison, Expiring, ExpiringQuery, Initiation,
    RequestInfo, Told, VersionId, VersionName,
};

use super::approval::{Officer, known};
use super::archive::{EXPIRIES, MODES, named};
use super::matters::{Selected, caller, date};
use super::{Actor, Call, stated};
use crate::failure::{Failure, Outcome};
use crate::node::Node;

#[derive(Clone, Serialize, Deserialize)]
pub struct CreateClass {
    pub name: String,
    pub initiation: Initiation,
    /// Days; null: no limit.
    pub retver: Option<u64>,
    pub retmin: u64,
    pub action: String,
    pub mode: String,
    pub description: String,
    pub officer: Option<Officer>,
}

impl Call for CreateClass {
    const NAME: &'static str = "class/create";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = Vec<ClassInfo>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<ClassInfo>> {
        let caller = caller(node, actor, self.officer.as_ref(), CreateClass::NAME).await?;
        let terms = ClassTerms {
            initiation: self.initiation,
            retver: self.retver,
            retmin: self.retmin,
            action: named(&EXPIRIES, "an action at expiry", &self.action)?,
            mode: named(&MODES, "a mode", &self.mode)?,
        };
        Ok(node.archive()?.create_class(&caller, &self.name, terms, &self.description).await?)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClassList {
    /// `None`: every class.
    pub name: Option<String>,
}

impl Call for ClassList {
    const NAME: &'static str = "class/list";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = Vec<ClassInfo>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<ClassInfo>> {
        let archive = node.archive()?;
        match &self.name {
            Some(name) => Ok(archive.class(&actor.caller(), name).await?),
            None => Ok(archive.classes(&actor.caller()).await?),
        }
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub struct ClassActivate {
    pub name: String,
    pub version: Option<u64>,
    pub dry_run: bool,
    pub officer: Option<Officer>,
}

/// The comparison with the version that was active.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActivationView {
    pub name: String,
    pub version: u64,
    pub rules: Vec<Comparison>,
    /// False: a dry run.
    pub activated: bool,
}

impl Call for ClassActivate {
    const NAME: &'static str = "class/activate";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = ActivationView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ActivationView> {
        let caller = caller(node, actor, self.officer.as_ref(), ClassActivate::NAME).await?;
        let archive = node.archive()?;
        let (version, rules) = match self.dry_run {
            true => archive.compare_class(&caller, &self.name, self.version).await?,
            false => archive.activate_class(&caller, &self.name, self.version).await?,
        };
        Ok(ActivationView { name: self.name, version, rules, activated: !self.dry_run })
    }
}

/// One rule of a bucket.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rule {
    pub class: String,
    pub prefix: String,
    pub suffix: String,
    pub tags: BTreeMap<String, String>,
    pub size_min: Option<u64>,
    pub size_max: Option<u64>,
    pub content_type: String,
}

/// Sets the classes of a bucket, or shows them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassBind {
    pub bucket: String,
    /// `None`: show.
    pub change: Option<Bound>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bound {
    #[serde(deserialize_with = "stated")]
    pub default: Option<String>,
    pub rules: Vec<Rule>,
}

/// The classes of a bucket, the rules in words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BoundView {
    pub bucket: String,
    pub default: Option<String>,
    pub rules: Vec<String>,
}

impl Call for ClassBind {
    const NAME: &'static str = "class/bind";
    type Answer = BoundView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<BoundView> {
        let (archive, caller) = (node.archive()?, actor.caller());
        let info = match self.change {
            None => archive.bucket(&caller, &self.bucket).await?,
            Some(bound) => {
                let binding = |rule: Rule| Binding {
                    class: rule.class,
                    prefix: rule.prefix,
                    suffix: rule.suffix,
                    tags: rule.tags,
                    size_min: rule.size_min,
                    size_max: rule.size_max,
                    content_type: rule.content_type,
                };
                let rules = bound.rules.into_iter().map(binding).collect();
                let change = BucketChange::Classes(Bindings { default: bound.default, rules });
                archive.change_bucket(&caller, &self.bucket, change).await?
            }
        };
        let rules = info.classes.rules.iter().map(ToString::to_string).collect();
        Ok(BoundView { bucket: info.name, default: info.classes.default, rules })
    }
}

/// A page of the versions whose retention ends in a period.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassExpiring {
    pub before: String,
    /// `None`: also those that ended long ago.
    #[serde(default)]
    pub from: Option<String>,
    /// `None`: all buckets.
    #[serde(default)]
    pub bucket: Option<String>,
    #[serde(default)]
    pub prefix: String,
    pub after: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExpiringPage {
    pub versions: Vec<Expiring>,
    pub next: Option<String>,
}

impl Call for ClassExpiring {
    const NAME: &'static str = "class/expiring";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = ExpiringPage;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ExpiringPage> {
        let from = self.from.as_deref().map(date).transpose()?;
        let query = ExpiringQuery { from, before: date(&self.before)?, bucket: self.bucket, prefix: self.prefix };
        let (versions, next) = node.archive()?.expiring(&actor.caller(), &query, self.after.as_deref()).await?;
        Ok(ExpiringPage { versions, next })
    }
}

/// Tells the event of one version.
#[derive(Clone, Serialize, Deserialize)]
pub struct EventTell {
    pub bucket: String,
    pub key: String,
    pub version: Option<String>,
    pub at: String,
    pub officer: Option<Officer>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventView {
    /// The end of the retention, on the compliance clock.
    pub until: String,
}

impl Call for EventTell {
    const NAME: &'static str = "event/tell";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = EventView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<EventView> {
        let caller = caller(node, actor, self.officer.as_ref(), EventTell::NAME).await?;
        let version = self.version.as_deref().map(VersionId::parse).transpose()?;
        let at = date(&self.at)?;
        let until = node.archive()?.tell_event(&caller, &self.bucket, &self.key, version, at).await?;
        Ok(EventView { until: until.to_string() })
    }
}

/// Tells the event of a page of selected versions.
#[derive(Clone, Serialize, Deserialize)]
pub struct EventSelect {
    pub selection: Selected,
    pub at: String,
    pub dry_run: bool,
    pub after: Option<String>,
    pub officer: Option<Officer>,
}

impl Call for EventSelect {
    const NAME: &'static str = "event/select";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = Told;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Told> {
        let caller = caller(node, actor, self.officer.as_ref(), EventSelect::NAME).await?;
        let (at, selection) = (date(&self.at)?, self.selection.selection()?);
        let told = node.archive()?.tell_events(&caller, &selection, at, self.dry_run, self.after.as_deref());
        Ok(told.await?)
    }
}

/// An officer asks to take an event back.
#[derive(Clone, Serialize, Deserialize)]
pub struct EventRevoke {
    pub bucket: String,
    pub key: String,
    pub version: Option<String>,
    pub officer: Officer,
}

impl Call for EventRevoke {
    const NAME: &'static str = "event/revoke";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, EventRevoke::NAME).await?;
        let version = self.version.as_deref().map(VersionId::parse).transpose()?;
        let name = VersionName { bucket: self.bucket, key: self.key, version };
        Ok(node.archive()?.request_revocation(&caller, &name).await?)
    }
}

/// Reads `CLASS:prefix=hr/,tag=kind=book,min=1024`. `size` reads sizes.
pub fn parse_rule(text: &str, size: impl Fn(&str) -> Result<u64, String>) -> Outcome<Rule> {
    let wrong = |what: &str| {
        Failure::usage(format!("'{text}' is no rule: {what}"))
            .next("write CLASS:prefix=hr/,suffix=.pdf,tag=KEY=VALUE,min=SIZE,max=SIZE,type=image/")
    };
    let (class, conditions) = text.split_once(':').ok_or_else(|| wrong("it names no class"))?;
    let mut rule = Rule { class: class.into(), ..Rule::default() };
    let mut named = BTreeSet::new();
    for condition in conditions.split(',') {
        let (name, value) = condition.split_once('=').ok_or_else(|| wrong("a condition has no value"))?;
        // A second one would take the place of the first one: fewer versions would get the class.
        if name != "tag" && !named.insert(name) {
            return Err(wrong(&format!("{name} is there twice; make a rule for each")));
        }
        let bytes = || size(value).map_err(|error| wrong(&error));
        match name {
            "prefix" => rule.prefix = value.into(),
            "suffix" => rule.suffix = value.into(),
            "type" => rule.content_type = value.into(),
            "min" => rule.size_min = Some(bytes()?),
            "max" => rule.size_max = Some(bytes()?),
            "tag" => {
                let (key, value) = value.split_once('=').ok_or_else(|| wrong("a tag is KEY=VALUE"))?;
                if rule.tags.insert(key.into(), value.into()).is_some() {
                    return Err(wrong(&format!("the tag {key} is there twice; make a rule for each")));
                }
            }
            _ => return Err(wrong("it has a condition of another name")),
        }
    }
    Ok(rule)
}

#[cfg(test)]
mod tests;
