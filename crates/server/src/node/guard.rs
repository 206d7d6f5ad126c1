//! Prevents the deletion of volumes that carry retained records.

use std::pin::Pin;
use std::sync::Arc;

use stele_archive::Guard;
use stele_array::Command;
use stele_array::server::PoolServer;
use stele_ground::VolumeId;

/// Protects the volumes below the archive while it retains a record.
pub(super) struct VolumeGuard {
    pub pool: Arc<PoolServer>,
    /// Each volume with its owner.
    pub volumes: Vec<(VolumeId, String)>,
}

impl Guard for VolumeGuard {
    fn protect(&self, retained: bool) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
        let (pool, volumes) = (Arc::clone(&self.pool), self.volumes.clone());
        Box::pin(async move {
            for (volume, owner) in volumes {
                let protected = pool.command(Command::Protect { volume, owner, retained }).await;
                protected.map_err(|error| error.to_string())?;
            }
            Ok(())
        })
    }
}
