//! Calls that take two people. A retention officer's key identifies the officer; the socket
//! identifies the local user, too.

use serde::{Deserialize, Serialize};
use stele_archive::{Caller, RequestInfo, Role};

use super::{Actor, Call};
use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;

/// A retention officer, identified by the key that `stele key create --json` printed.
#[derive(Clone, Serialize, Deserialize)]
pub struct Officer {
    pub access_key: String,
    pub secret_key: String,
}

/// Authenticates the officer, and returns the caller together with the local user at the socket. A
/// wrong secret is recorded.
pub(super) async fn known(node: &Node, actor: &Actor, officer: &Officer, what: &str) -> Outcome<Caller> {
    let archive = node.archive()?;
    // Accept a key that the matter `rebuild` suspends: the archive lets it decide about that
    // matter, and nothing else.
    let found = archive.officer_credentials(&officer.access_key).await;
    let said = officer.secret_key.as_bytes();
    let reason = match found {
        Ok(known) => match aws_lc_rs::constant_time::verify_slices_are_equal(known.secret.as_bytes(), said) {
            Ok(()) => return Ok(known.caller.at(actor.uid)),
            Err(_) => "the secret is another",
        },
        Err(stele_archive::ArchiveError::NoSuchAccessKey(_)) => "there is no such key, or it is not approved yet",
        Err(stele_archive::ArchiveError::ExpiredAccessKey(_)) => "the key has expired",
        Err(error) => return Err(error.into()),
    };
    // The typed text is untrusted: cut it.
    let id: String = officer.access_key.chars().take(64).collect();
    let refused = format!("key {id}: {reason}");
    archive.audit_refusal(&actor.caller(), what, "", &refused).await?;
    Err(Failure::new(Kind::Refused, refused))
}

/// Checks the key that an officer shows beside a call that only reads. A key that the matter
/// `rebuild` suspends opens the list of requests alone, among which is the one about that matter.
pub async fn check_shown(node: &Node, actor: &Actor, officer: Option<Officer>, call: &str) -> Outcome<()> {
    let refuse =
        |message: &str| Err(Failure::new(Kind::Refused, message).next("let STELE_OFFICER name the key's file"));
    let Some(officer) = officer else { return refuse("an officer shows its key, also to read") };
    let caller = known(node, actor, &officer, call).await?;
    if !caller.has(Role::RetentionOfficer) {
        return refuse("the key that was shown is no retention officer's");
    }
    if call != ListRequests::NAME && node.archive()?.is_suspended(&officer.access_key) {
        return refuse("the matter `rebuild` suspends this key, which may decide about that matter only");
    }
    Ok(())
}

/// An officer asks to count the time in which the store was closed.
#[derive(Clone, Serialize, Deserialize)]
pub struct ClockCredit {
    pub officer: Officer,
}

impl Call for ClockCredit {
    const NAME: &'static str = "clock/credit";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, ClockCredit::NAME).await?;
        Ok(node.archive()?.request_credit(&caller).await?)
    }
}

/// An officer asks to end the matter `rebuild`.
#[derive(Clone, Serialize, Deserialize)]
pub struct CatalogRelease {
    pub officer: Officer,
}

impl Call for CatalogRelease {
    const NAME: &'static str = "catalog/release";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = RequestInfo;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<RequestInfo> {
        let caller = known(node, actor, &self.officer, CatalogRelease::NAME).await?;
        Ok(node.archive()?.request_release(&caller).await?)
    }
}

/// Lists the requests that wait for approval.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListRequests {}

impl Call for ListRequests {
    const NAME: &'static str = "approve/list";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = Vec<RequestInfo>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<RequestInfo>> {
        Ok(node.archive()?.requests(&actor.caller()).await?)
    }
}

/// Approves or refuses a request.
#[derive(Clone, Serialize, Deserialize)]
pub struct ApproveRequest {
    pub id: String,
    /// `None`: the user at the socket, if no officer is left, or to withdraw the request.
    pub officer: Option<Officer>,
    pub refuse: bool,
}

/// The effect, in words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApprovedView {
    pub done: String,
}

impl Call for ApproveRequest {
    const NAME: &'static str = "approve";
    const FOR_OFFICERS: bool = true;
    const CARRIES_KEY: bool = true;
    type Answer = ApprovedView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ApprovedView> {
        let caller = match &self.officer {
            Some(officer) => known(node, actor, officer, ApproveRequest::NAME).await?,
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
