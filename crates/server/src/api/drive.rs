//! Calls about single drives: clear, online, wipe.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Actor, Call, Done};
use crate::failure::Outcome;
use crate::node::{Node, blocking, membership, wipe};

/// Forgets the recent errors of a drive, by which the pool judges it; its counts stay. If the pool
/// gave the drive up, it takes it back.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Clear {
    pub drive: u32,
}

impl Call for Clear {
    const NAME: &'static str = "drive/clear";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        membership::clear(node, self, actor).await?;
        Ok(Done {})
    }
}

/// Attaches a drive of the pool again, and takes it back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Online {
    pub drive: u32,
    /// An absolute path.
    pub path: PathBuf,
}

impl Call for Online {
    const NAME: &'static str = "drive/online";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        membership::online(node, self, actor).await?;
        Ok(Done {})
    }
}

/// Removes the labels of a drive that is no longer in a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wipe {
    /// An absolute path.
    pub path: PathBuf,
    /// The identity of the drive's former pool, if that is another pool.
    pub pool: Option<String>,
}

impl Call for Wipe {
    const NAME: &'static str = "drive/wipe";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        // Their entries do no harm, and the drives are detached.
        let _ = node.departures.forget(&node.pool).await;
        let status = super::pool::status(node).await?;
        let place = self.path.display().to_string();
        let wipe = async {
            let Wipe { path, pool } = self;
            blocking(move || wipe::drive(Path::new(&path), pool.as_deref(), Some(&status))).await
        };
        node.audited(actor, Wipe::NAME, &place, wipe).await??;
        Ok(Done {})
    }
}
