//! `[notifications.NAME]`: a target that notifications of buckets may name.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A target of notifications: one of both.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotificationTarget {
    /// URL that gets the events as JSON, by POST.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// File that gets a line of JSON for each event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}
