//! Calls about what takes two people. A retention officer shows who it is by its key; who sits at the socket is known besides.

use serde::{Deserialize, Serialize};
use stele_archive::{Caller, RequestInfo};

use super::{Actor, Call};
use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;

/// A retention officer, known by the key that `stele key create --json` printed.
#[derive(Clone, Serialize, Deserialize)]
pub struct Officer {
    pub access_key: String,
    pub secret_key: String,
}

/// The officer as a caller, who is also the user of this machine at the socket. A wrong secret is recorded.
async fn known(node: &Node, actor: &Actor, officer: &Officer, what: &str) -> Outcome<Caller> {
    let archive = node.archive()?;
    // Also of a key that the matter `rebuild` suspends: the archive lets it decide about that matter, and nothing else.
    let found = archive.officer_credentials(&officer.access_key).await;
    let said = officer.secret_key.as_bytes();
    let reason = match found {
        Ok(known) => match aws_lc_rs::constant_time::verify_slices_are_equal(known.secret.as_bytes(), said) {
            Ok(()) => return Ok(known.caller.at(actor.uid)),
            Err(_) => "the secret is another",
        },
        Err(stele_archive::ArchiveError::NoSuchAccessKey(_)) => "there is no such key, or it is not approved yet",
        Err(error) => return Err(error.into()),
    };
    // As text, and cut: what was typed may be anything.
    let id: String = officer.access_key.chars().take(64).collect();
    let refused = format!("key {id}: {reason}");
    archive.audit_refusal(&actor.caller(), what, "", &refused).await?;
    Err(Failure::new(Kind::Refused, refused))
}

/// An officer asks that the time the store was closed count.
#[derive(Clone, Serialize, Deserialize)]
pub struct ClockCredit {
    pub officer: Officer,
}

impl Call for ClockCredit {
    const NAME: &'static str = "clock/credit";
    const FOR_OFFICERS: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, ClockCredit::NAME).await?;
        Ok(node.archive()?.request_credit(&caller).await?)
    }
}

/// An officer asks that the matter `rebuild` end.
#[derive(Clone, Serialize, Deserialize)]
pub struct CatalogRelease {
    pub officer: Officer,
}

impl Call for CatalogRelease {
    const NAME: &'static str = "catalog/release";
    const FOR_OFFICERS: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, CatalogRelease::NAME).await?;
        Ok(node.archive()?.request_release(&caller).await?)
    }
}

/// Everything that waits for approval.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Requests {}

impl Call for Requests {
    const NAME: &'static str = "approve/list";
    const FOR_OFFICERS: bool = true;
    type Answer = Vec<RequestInfo>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<RequestInfo>> {
        Ok(node.archive()?.requests(&actor.caller()).await?)
    }
}

/// Approves a request, or refuses it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Approve {
    pub id: String,
    /// None: the user at the socket, where no officer is left or to take back what was asked for.
    pub officer: Option<Officer>,
    pub refuse: bool,
}

/// What was done, in words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApprovedView {
    pub done: String,
}

impl Call for Approve {
    const NAME: &'static str = "approve";
    const FOR_OFFICERS: bool = true;
    type Answer = ApprovedView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ApprovedView> {
        let caller = match &self.officer {
            Some(officer) => known(node, actor, officer, Approve::NAME).await?,
            None if node.serves_user(actor.uid) || actor.uid == 0 => actor.caller(),
            None => return Err(Failure::new(Kind::Refused, "an officer shows its key: give --officer FILE")),
        };
        let archive = node.archive()?;
        let done = match self.refuse {
            true => {
                archive.refuse_request(&caller, &self.id).await?;
                format!("request {} is refused", self.id)
            }
            false => archive.approve(&caller, &self.id).await?,
        };
        Ok(ApprovedView { done })
    }
}
