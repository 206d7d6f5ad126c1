//! Calls about named matters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stele_archive::{Caller, Counted, Listed, MatterInfo, RequestInfo, Selection, Timestamp, VersionId, VersionName};
use stele_ground::calendar::parse_moment;

use super::approval::{Officer, known};
use super::{Actor, Call};
use crate::failure::{Failure, Kind, Outcome};
use crate::moment::is_before_1970;
use crate::node::Node;

/// The officer with the key, or the user at the socket if that user administers the server.
pub(super) async fn caller(node: &Node, actor: &Actor, officer: Option<&Officer>, what: &str) -> Outcome<Caller> {
    match officer {
        // Such a key may decide about the matter `rebuild` alone.
        Some(officer) if node.archive()?.is_suspended(&officer.access_key) => Err(Failure::new(
            Kind::Refused,
            "the matter `rebuild` suspends this key, which may decide about that matter only",
        )),
        Some(officer) => known(node, actor, officer, what).await,
        None if node.serves_user(actor.uid) || actor.uid == 0 => Ok(actor.caller()),
        None => Err(Failure::new(Kind::Refused, "an officer shows its key: give --officer FILE")),
    }
}

/// Versions with these properties, as the command line states them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Selected {
    pub bucket: String,
    pub prefix: String,
    pub tags: BTreeMap<String, String>,
    pub stored_after: Option<String>,
    pub stored_before: Option<String>,
}

/// A day, which begins at midnight UTC, or a moment.
pub(super) fn date(text: &str) -> Outcome<Timestamp> {
    let day = format!("{text}T00:00:00Z");
    let seconds = parse_moment(text).or_else(|| parse_moment(&day));
    seconds.map(Timestamp::from_secs).ok_or_else(|| {
        let what = match is_before_1970(text) || is_before_1970(&day) {
            true => "lies before 1970, where time begins here",
            false => "is not a date",
        };
        Failure::usage(format!("'{text}' {what}")).next("write 2026-04-02 or 2026-04-02T12:00:00Z, in UTC")
    })
}

impl Selected {
    pub(super) fn selection(self) -> Outcome<Selection> {
        Ok(Selection {
            bucket: self.bucket,
            prefix: self.prefix,
            tags: self.tags,
            stored_after: self.stored_after.as_deref().map(date).transpose()?,
            stored_before: self.stored_before.as_deref().map(date).transpose()?,
        })
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub struct MatterOpen {
    pub name: String,
    pub reason: String,
    pub officer: Option<Officer>,
}

impl Call for MatterOpen {
    const NAME: &'static str = "matter/open";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = MatterInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<MatterInfo> {
        let caller = caller(node, actor, self.officer.as_ref(), MatterOpen::NAME).await?;
        Ok(node.archive()?.open_matter(&caller, &self.name, &self.reason).await?)
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MatterList {}

impl Call for MatterList {
    const NAME: &'static str = "matter/list";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = Vec<MatterInfo>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<MatterInfo>> {
        Ok(node.archive()?.matters(&actor.caller()).await?)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatterShow {
    pub name: String,
}

impl Call for MatterShow {
    const NAME: &'static str = "matter/show";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = MatterInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<MatterInfo> {
        Ok(node.archive()?.matter(&actor.caller(), &self.name).await?)
    }
}

/// A page of the versions under a matter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatterVersions {
    pub name: String,
    pub after: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VersionsUnder {
    /// BUCKET/KEY@VERSION
    pub versions: Vec<String>,
    pub next: Option<u64>,
}

impl Call for MatterVersions {
    const NAME: &'static str = "matter/versions";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = VersionsUnder;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<VersionsUnder> {
        let (page, next) = node.archive()?.matter_versions(&actor.caller(), &self.name, self.after).await?;
        let written = |name: VersionName| {
            let version = name.version.map(|version| format!("@{version}")).unwrap_or_default();
            format!("{}/{}{version}", name.bucket, name.key)
        };
        Ok(VersionsUnder { versions: page.into_iter().map(written).collect(), next })
    }
}

/// Counts a page of a selection, and changes nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatterCount {
    pub name: String,
    pub selection: Selected,
    pub after: Option<String>,
}

impl Call for MatterCount {
    const NAME: &'static str = "matter/count";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = Counted;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Counted> {
        let (archive, selection) = (node.archive()?, self.selection.selection()?);
        Ok(archive.count_selected(&actor.caller(), Some(&self.name), &selection, self.after.as_deref()).await?)
    }
}

/// Begins to put a matter on a selection, or to release it.
#[derive(Clone, Serialize, Deserialize)]
pub struct MatterSelect {
    pub name: String,
    pub selection: Selected,
    /// False: release.
    pub put: bool,
    pub officer: Option<Officer>,
}

impl Call for MatterSelect {
    const NAME: &'static str = "matter/select";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = MatterInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<MatterInfo> {
        let caller = caller(node, actor, self.officer.as_ref(), MatterSelect::NAME).await?;
        let selection = self.selection.selection()?;
        Ok(node.archive()?.hold_selected(&caller, &self.name, selection, self.put).await?)
    }
}

/// One listed version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Named {
    pub bucket: String,
    pub key: String,
    pub version: Option<String>,
}

/// Puts a matter on listed versions, or releases them.
#[derive(Clone, Serialize, Deserialize)]
pub struct MatterHold {
    pub name: String,
    pub versions: Vec<Named>,
    /// False: release.
    pub put: bool,
    pub officer: Option<Officer>,
}

impl Call for MatterHold {
    const NAME: &'static str = "matter/hold";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = Vec<Listed>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<Listed>> {
        let caller = caller(node, actor, self.officer.as_ref(), MatterHold::NAME).await?;
        let mut list = Vec::with_capacity(self.versions.len());
        for Named { bucket, key, version } in self.versions {
            let version = version.as_deref().map(VersionId::parse).transpose()?;
            list.push(VersionName { bucket, key, version });
        }
        Ok(node.archive()?.hold_listed(&caller, &self.name, list, self.put).await?)
    }
}

/// An officer asks to close a matter.
#[derive(Clone, Serialize, Deserialize)]
pub struct MatterClose {
    pub name: String,
    pub officer: Officer,
}

impl Call for MatterClose {
    const NAME: &'static str = "matter/close";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, MatterClose::NAME).await?;
        Ok(node.archive()?.request_close(&caller, &self.name).await?)
    }
}
