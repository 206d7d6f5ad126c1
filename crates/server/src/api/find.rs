//! The search for versions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stele_archive::{FindQuery, FoundVersion};

use super::matters::Selected;
use super::{Actor, Call};
use crate::failure::Outcome;
use crate::node::Node;

/// A page of the versions with these properties.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FindVersions {
    pub selection: Selected,
    pub class: Option<String>,
    pub matter: Option<String>,
    pub size_min: Option<u64>,
    pub size_max: Option<u64>,
    pub content_type: String,
    pub metadata: BTreeMap<String, String>,
    pub after: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FoundPage {
    pub versions: Vec<FoundVersion>,
    pub next: Option<String>,
}

impl Call for FindVersions {
    const NAME: &'static str = "find";
    const READS: bool = true;
    const FOR_OFFICERS: bool = true;
    type Answer = FoundPage;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<FoundPage> {
        let query = FindQuery {
            selection: self.selection.selection()?,
            class: self.class,
            matter: self.matter,
            size_min: self.size_min,
            size_max: self.size_max,
            content_type: self.content_type,
            metadata: self.metadata,
        };
        let (versions, next) = node.archive()?.find(&actor.caller(), &query, self.after.as_deref()).await?;
        Ok(FoundPage { versions, next })
    }
}
