//! Calls for acts that take two officers.

use serde::{Deserialize, Serialize};
use stele_archive::{Act, ActRule, People, RequestInfo, VersionId, VersionName};

use super::approval::{Officer, known};
use super::{Actor, Call};
use crate::failure::Outcome;
use crate::node::Node;

/// Every act with its rule.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ActList {}

impl Call for ActList {
    const NAME: &'static str = "act/list";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = Vec<ActRule>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<ActRule>> {
        Ok(node.archive()?.act_rules(&actor.caller()).await?)
    }
}

/// An officer asks to make a rule stricter.
#[derive(Clone, Serialize, Deserialize)]
pub struct ActRestrict {
    pub act: String,
    pub people: People,
    pub officer: Officer,
}

impl Call for ActRestrict {
    const NAME: &'static str = "act/restrict";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, ActRestrict::NAME).await?;
        Ok(node.archive()?.request_restriction(&caller, Act::parse(&self.act)?, self.people).await?)
    }
}

/// An officer asks to accept the clock's alarm.
#[derive(Clone, Serialize, Deserialize)]
pub struct ClockAcceptRequest {
    pub officer: Officer,
}

impl Call for ClockAcceptRequest {
    const NAME: &'static str = "clock/accept/request";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, ClockAcceptRequest::NAME).await?;
        Ok(node.archive()?.request_acceptance(&caller).await?)
    }
}

/// An officer asks to let the master key be exported once.
#[derive(Clone, Serialize, Deserialize)]
pub struct MasterKeyRequestCall {
    pub officer: Officer,
}

impl Call for MasterKeyRequestCall {
    const NAME: &'static str = "master-key/request";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, MasterKeyRequestCall::NAME).await?;
        Ok(node.archive()?.request_export(&caller).await?)
    }
}

/// An officer asks to delete a version in spite of GOVERNANCE.
#[derive(Clone, Serialize, Deserialize)]
pub struct DeleteRequest {
    pub bucket: String,
    pub key: String,
    pub version: String,
    pub reason: String,
    pub officer: Officer,
}

impl Call for DeleteRequest {
    const NAME: &'static str = "disposal/delete";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, DeleteRequest::NAME).await?;
        let version = Some(VersionId::parse(&self.version)?);
        let name = VersionName { bucket: self.bucket, key: self.key, version };
        Ok(node.archive()?.request_deletion(&caller, &name, &self.reason).await?)
    }
}
