//! Calls about the targets of notifications.

use serde::{Deserialize, Serialize};

use super::{Actor, Call};
use crate::failure::Outcome;
use crate::node::Node;

/// How far one target is behind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetView {
    pub target: String,
    /// The configuration names it.
    pub configured: bool,
    pub pending: u64,
    /// When the oldest pending event happened.
    pub oldest: Option<String>,
    pub dropped: u64,
    pub last_dropped: Option<String>,
    /// Buckets whose rules name it.
    pub buckets: Vec<String>,
}

/// Lists the targets that ever had an event.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct NotificationsList {}

impl Call for NotificationsList {
    const NAME: &'static str = "notifications/list";
    const READS: bool = true;
    type Answer = Vec<TargetView>;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Vec<TargetView>> {
        let lags = node.archive()?.target_lags()?;
        let view = |lag: stele_archive::TargetLag| TargetView {
            target: lag.target,
            configured: lag.configured,
            pending: lag.pending,
            oldest: lag.oldest.map(|oldest| oldest.to_string()),
            dropped: lag.dropped,
            last_dropped: lag.last_dropped.map(|last| last.to_string()),
            buckets: lag.buckets,
        };
        Ok(lags.into_iter().map(view).collect())
    }
}

/// Deletes the events that wait for a target which is no longer in the configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotificationsForget {
    pub target: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForgottenView {
    pub target: String,
    pub deleted: u64,
}

impl Call for NotificationsForget {
    const NAME: &'static str = "notifications/forget";
    type Answer = ForgottenView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ForgottenView> {
        let deleted = node.archive()?.forget_events(&actor.caller(), &self.target).await?;
        Ok(ForgottenView { target: self.target, deleted })
    }
}
