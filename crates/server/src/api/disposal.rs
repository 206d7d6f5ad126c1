//! Calls for removed versions and their certificates.

use serde::{Deserialize, Serialize};
use stele_archive::{DisposalCertificate, DisposalQuery, Disposed, ExpirationStatus, VersionId};

use super::matters::date;
use super::{Actor, Call, stated};
use crate::failure::Outcome;
use crate::node::Node;

/// A page of the removals of a period.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DisposalList {
    pub from: Option<String>,
    pub to: Option<String>,
    pub bucket: Option<String>,
    pub prefix: String,
    /// The number of a record: the page begins behind it.
    pub after: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DisposedPage {
    pub versions: Vec<Disposed>,
    pub next: Option<u64>,
}

impl Call for DisposalList {
    const NAME: &'static str = "disposal/list";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = DisposedPage;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<DisposedPage> {
        let query = DisposalQuery {
            from: self.from.as_deref().map(date).transpose()?,
            to: self.to.as_deref().map(date).transpose()?,
            bucket: self.bucket,
            prefix: self.prefix,
        };
        let (versions, next) = node.archive()?.disposals(&actor.caller(), &query, self.after).await?;
        Ok(DisposedPage { versions, next })
    }
}

/// The certificate of a removed version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DisposalCertify {
    pub bucket: String,
    pub key: String,
    pub version: String,
    pub record: Option<u64>,
}

impl Call for DisposalCertify {
    const NAME: &'static str = "disposal/certificate";
    const FOR_OFFICERS: bool = true;
    type Answer = DisposalCertificate;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<DisposalCertificate> {
        let (caller, version) = (actor.caller(), VersionId::parse(&self.version)?);
        let archive = node.archive()?;
        Ok(archive.disposal_certificate(&caller, &self.bucket, &self.key, version, self.record).await?)
    }
}

/// How expiration is held back.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DisposalStatus {}

impl Call for DisposalStatus {
    const NAME: &'static str = "disposal/status";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = ExpirationStatus;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ExpirationStatus> {
        Ok(node.archive()?.expiration(&actor.caller()).await?)
    }
}

/// Pauses expiration with a reason, or resumes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DisposalPause {
    /// None: it is resumed.
    #[serde(deserialize_with = "stated")]
    pub reason: Option<String>,
}

impl Call for DisposalPause {
    const NAME: &'static str = "disposal/pause";
    type Answer = ExpirationStatus;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ExpirationStatus> {
        let (archive, caller) = (node.archive()?, actor.caller());
        match self.reason {
            Some(reason) => Ok(archive.pause_expiration(&caller, &reason).await?),
            None => Ok(archive.resume_expiration(&caller).await?),
        }
    }
}

/// Limits expiration. None: no limit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DisposalRate {
    #[serde(deserialize_with = "stated")]
    pub rate: Option<u32>,
}

impl Call for DisposalRate {
    const NAME: &'static str = "disposal/rate";
    type Answer = ExpirationStatus;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ExpirationStatus> {
        Ok(node.archive()?.limit_expiration(&actor.caller(), self.rate).await?)
    }
}

#[cfg(test)]
mod tests;
