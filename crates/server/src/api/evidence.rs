//! Calls for receipts and retention proofs.

use serde::{Deserialize, Serialize};
use stele_archive::{ConsistencyProof, ProofPiece, ProofSelection, Receipt, SignedHead, VersionId};

use super::{Actor, Call};
use crate::failure::Outcome;
use crate::node::Node;

/// The receipt of a stored version, or of another record about the object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReceiptGet {
    pub bucket: String,
    pub key: String,
    pub version: Option<String>,
    pub record: Option<u64>,
}

impl Call for ReceiptGet {
    const NAME: &'static str = "receipt/get";
    const READS: bool = true;
    type Answer = Receipt;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Receipt> {
        let version = self.version.as_deref().map(VersionId::parse).transpose()?;
        Ok(node.archive()?.receipt(&actor.caller(), &self.bucket, &self.key, version, self.record).await?)
    }
}

/// The proof that the log still begins with what an earlier head covers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AuditProve {
    pub from: SignedHead,
    /// The later head to which the proof leads. None: the log as it is now.
    #[serde(default)]
    pub until: Option<SignedHead>,
}

impl Call for AuditProve {
    const NAME: &'static str = "audit/prove";
    const READS: bool = true;
    type Answer = ConsistencyProof;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ConsistencyProof> {
        Ok(node.archive()?.consistency(&actor.caller(), &self.from, self.until.as_ref()).await?)
    }
}

/// Begins an export.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProofBegin {
    pub selection: ProofSelection,
}

/// An export that was begun.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProofBegun {
    pub export: u64,
}

impl Call for ProofBegin {
    const NAME: &'static str = "proof/begin";
    type Answer = ProofBegun;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ProofBegun> {
        let export = node.archive()?.export_proof(&actor.caller(), self.selection).await?;
        Ok(ProofBegun { export: node.proofs.add(actor.uid, export) })
    }
}

/// Asks for the next piece of an export.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProofNext {
    pub export: u64,
}

impl Call for ProofNext {
    const NAME: &'static str = "proof/next";
    /// None: the piece before was the last.
    type Answer = Option<ProofPiece>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Option<ProofPiece>> {
        node.proofs.next(actor.uid, self.export).await
    }
}
