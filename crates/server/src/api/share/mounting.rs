//! Mounts of shares on the machine of the server.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::found::{open, row_of};
use crate::api::{Actor, Call, Done};
use crate::failure::Outcome;
use crate::node::Node;

/// Mounts a share on the machine of the server, through FUSE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    pub name: String,
    pub directory: PathBuf,
    pub read_only: bool,
}

impl Call for Mount {
    const NAME: &'static str = "share/mount";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        // Not beside a removal, which looks for mounts before it closes the share. While shares are
        // being opened, this waits for them.
        let _turn = node.shares.turn.lock().await;
        let share = open(node, &self.name)?;
        let read_only = self.read_only || row_of(node, &self.name)?.read_only;
        let place = format!("{} at {}", self.name, self.directory.display());
        // The kernel asks the new mount for its root before this answers.
        let act = async { tokio::task::block_in_place(|| node.shares.mount(&share, &self.directory, read_only)) };
        node.audited(actor, Mount::NAME, &place, act).await??;
        Ok(Done {})
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unmount {
    pub directory: PathBuf,
}

impl Call for Unmount {
    const NAME: &'static str = "share/unmount";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        let act = async { tokio::task::block_in_place(|| node.shares.unmount(&self.directory)) };
        node.audited(actor, Unmount::NAME, &self.directory.display().to_string(), act).await??;
        Ok(Done {})
    }
}
