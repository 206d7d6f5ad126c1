//! Counters at one moment; `stele top` shows their differences.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::pool::StatusView;
use super::{Actor, Call};
use crate::failure::Outcome;
use crate::node::{Node, RunningInterfaces};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SampleView {
    pub status: StatusView,
    pub frontends: Vec<FrontendCounts>,
    pub disks: Vec<DiskCounts>,
}

/// Counters of one frontend. They only rise, except when a connection ends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FrontendCounts {
    pub name: String,
    pub connections: u64,
    /// Requests under way.
    pub under_way: u64,
    pub requests: u64,
    pub failed: u64,
    pub read: u64,
    pub written: u64,
    /// The total time of all requests, in microseconds; `None` if it is not counted.
    pub took_us: Option<u64>,
}

/// The kernel's counters of a drive that is a device.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DiskCounts {
    pub drive: u32,
    pub read: u64,
    pub written: u64,
    /// Milliseconds in which the device was busy.
    pub busy_ms: u64,
}

impl Call for Sample {
    const NAME: &'static str = "top";
    const READS: bool = true;
    type Answer = SampleView;

    async fn perform(self, node: &Node, _: &Actor) -> Outcome<SampleView> {
        let status = super::pool::status(node).await?;
        let disks = status.drives.iter().filter_map(|drive| of_disk(drive.drive, Path::new(&drive.path))).collect();
        let mut frontends = Vec::new();
        if let Some(metrics) = node.running.get().and_then(RunningInterfaces::metrics) {
            let totals = metrics.totals();
            frontends.push(FrontendCounts {
                name: "s3".to_owned(),
                connections: totals.connections,
                under_way: totals.under_way,
                requests: totals.requests,
                failed: totals.failed,
                read: totals.sent,
                written: totals.received,
                took_us: Some(totals.took_us),
            });
        }
        for protocol in [stele_block::Protocol::Nbd, stele_block::Protocol::Iscsi] {
            let mut counts = FrontendCounts { name: protocol.to_string(), ..FrontendCounts::default() };
            let targets = node.exports.directory.list(Some(protocol));
            for connection in targets.iter().flat_map(|target| target.connections()) {
                counts.connections += 1;
                counts.under_way += connection.queue;
                counts.requests += connection.reads + connection.writes + connection.flushes + connection.others;
                counts.failed += connection.errors;
                counts.read += connection.read_bytes;
                counts.written += connection.written_bytes;
            }
            frontends.push(counts);
        }
        Ok(SampleView { status, frontends, disks })
    }
}

/// Reads the kernel's counters, in sectors of 512 bytes for every device.
fn of_disk(drive: u32, path: &Path) -> Option<DiskCounts> {
    let about = std::fs::metadata(path).ok().filter(|about| about.file_type().is_block_device())?;
    let device = about.rdev();
    let (major, minor) = (device >> 8 & 0xfff | device >> 32 & !0xfff, device & 0xff | device >> 12 & !0xff);
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some(DiskCounts {
        drive,
        read: numbers.get(2)?.saturating_mul(512),
        written: numbers.get(6)?.saturating_mul(512),
        busy_ms: *numbers.get(9)?,
    })
}
