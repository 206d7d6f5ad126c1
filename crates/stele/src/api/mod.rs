//! What the `stele` command asks of a server, or of the drives directly: version 1 of the administration API.
//!
//! Each call is `POST /v1/NAME` with a JSON body and a JSON answer, over the unix socket of the data directory. A
//! failure is a [`crate::failure::Failure`] with the HTTP status its kind maps to. The actor of every audit record is the peer's uid.

pub mod affected;
pub mod approval;
pub mod archive;
pub mod drive;
pub mod export;
pub mod formats;
pub mod pool;
pub mod top;
pub mod volume;

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Outcome;
use crate::node::Node;

/// Who asks: shown in every audit record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Actor {
    /// The user of this machine, as the kernel says.
    pub uid: u32,
}

impl Actor {
    /// The socket lets in only root and the server's own user, and both may do everything retention allows.
    pub fn caller(self) -> stele_archive::Caller {
        stele_archive::Caller::local(self.uid)
    }
}

/// One call: its name on the wire, its answer, and what it does.
pub trait Call: Serialize + DeserializeOwned + Send + 'static {
    const NAME: &'static str;
    /// Whether the users that `[admin] officers` names may call it: those calls ask for an officer's key, or only look.
    const FOR_OFFICERS: bool = false;
    type Answer: Serialize + DeserializeOwned + Send;

    fn perform(self, node: &Node, actor: &Actor) -> impl Future<Output = Outcome<Self::Answer>> + Send;
}

/// The answer of calls that only succeed or fail.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Done {}
