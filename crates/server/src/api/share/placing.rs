//! The bucket of a new share.

use stele_archive::{BucketChange, Caller, NewBucket};
use stele_file::share::registry::ShareRow;

use super::{can_commit, removed_by_default};
use crate::failure::Outcome;
use crate::node::Node;
use crate::node::shares::failed;

/// The bucket of a share that is made.
pub(super) struct Placed<'a> {
    pub name: &'a str,
    pub is_there: bool,
    pub was_share: bool,
    /// Its settings where it is not there.
    pub new: NewBucket,
}

impl Placed<'_> {
    /// Makes the bucket where it is not there, and the share of it. What was made is taken back
    /// where this fails.
    pub async fn become_share(self, node: &Node, caller: &Caller, row: &mut ShareRow) -> Outcome<()> {
        let Placed { name, is_there, was_share, new } = self;
        let archive = node.archive()?;
        if !is_there {
            archive.create_bucket(caller, name, new).await?;
        }
        let share = async {
            let bucket = archive.bucket(caller, name).await?;
            can_commit(None, row, &bucket)?;
            row.removed.get_or_insert(removed_by_default(&bucket, was_share));
            archive.change_bucket(caller, name, BucketChange::Share).await?;
            node.registry()?.add(name, row).await.map_err(failed)
        };
        let shared = share.await;
        if shared.is_err()
            && !is_there
            && let Err(error) = archive.delete_bucket(&Caller::gateway("making the share"), name).await
        {
            tracing::warn!(%error, bucket = name, "the bucket of a share that was not made is left");
        }
        shared
    }
}
