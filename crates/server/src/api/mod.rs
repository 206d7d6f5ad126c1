//! The calls that the `stele` command sends to a server, or runs on the drives directly: version 1
//! of the administration API.
//!
//! Each call is `POST /v1/NAME` with a JSON body and a JSON answer, over the Unix socket of the
//! data directory. A field that the call does not have is refused ([`strict`]). A failure is a
//! [`crate::failure::Failure`]; its kind decides the HTTP status.
//! The actor of every audit record is the peer's uid.

pub mod acts;
pub mod affected;
pub mod approval;
pub mod archive;
pub mod blocks;
pub mod classes;
pub mod disposal;
pub mod drive;
pub mod evidence;
pub mod export;
pub mod find;
pub mod formats;
pub mod matters;
pub mod notifications;
pub mod pool;
pub mod share;
pub mod strict;
pub mod top;
pub mod volume;

use std::future::Future;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::Outcome;
use crate::node::Node;

/// The actor of a call, shown in every audit record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Actor {
    /// The local user, as the kernel reports it.
    pub uid: u32,
}

impl Actor {
    /// The socket admits only root and the server's own user; both may do everything that retention
    /// allows.
    pub fn caller(self) -> stele_archive::Caller {
        stele_archive::Caller::local(self.uid)
    }
}

/// The header with an officer's key: the JSON of [`approval::Officer`] in base64.
pub const OFFICER_HEADER: &str = "x-stele-officer";

/// One call: its name in the protocol, its answer, and its implementation.
pub trait Call: Serialize + DeserializeOwned + Send + 'static {
    const NAME: &'static str;
    /// Whether the users in `[admin] officers` may call it. Each such call takes an officer's key.
    const FOR_OFFICERS: bool = false;
    /// Whether the call itself carries that key and checks it. If not, the key comes beside it, in
    /// [`OFFICER_HEADER`].
    const CARRIES_KEY: bool = false;
    /// Whether it only reads, and ends where its caller hangs up: callers who ask again and again
    /// while the pool gives no answer take no place each. Every other call goes on to its end, so
    /// that its outcome is recorded and what belongs together is changed together.
    const READS: bool = false;
    type Answer: Serialize + DeserializeOwned + Send;

    fn perform(self, node: &Node, actor: &Actor) -> impl Future<Output = Outcome<Self::Answer>> + Send;
}

/// Reads a field that must be stated: null is `None`, and a missing field is an error. For fields
/// whose `None` takes something away, which a misspelt name must not do.
fn stated<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// The answer of calls that return no data.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Done {}
