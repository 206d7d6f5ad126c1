//! Makes the inventories whose time has come, one after the other.
//!
//! Failure model: an inventory that could not be made is logged, and tried again after a pause that
//! the archive doubles with each failure. A run that a stop or a crash ends begins anew.

use std::time::Duration;

use stele_archive::{Archive, Caller};

/// Interval at which the server looks for inventories that are due.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Runs until the task is dropped.
pub async fn make(archive: Archive) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let due = match archive.inventories_due() {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!("the inventories that are due could not be read: {error}");
                continue;
            }
        };
        for (bucket, id) in due {
            match archive.run_inventory(&Caller::local(0), &bucket, &id).await {
                Ok(report) => tracing::info!(
                    "inventory {id} of bucket {bucket}: {} objects in {} files, {}/{}",
                    report.objects,
                    report.files,
                    report.destination,
                    report.manifest
                ),
                Err(error) => tracing::warn!("inventory {id} of bucket {bucket} could not be made: {error}"),
            }
        }
    }
}
