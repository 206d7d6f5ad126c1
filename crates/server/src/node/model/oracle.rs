//! The conditions that must hold after each step, and at the end of a history.

use std::sync::atomic::Ordering::Relaxed;

use stele_archive::{Archive, ArchiveError, DeleteRequest, GetRequest, RetentionMode, VersionId};

use super::{BUCKET, Checked, Record, Violation, World, content, root};
use crate::failure::Kind;
use crate::node::Opening;
use crate::node::rebuild::RebuildOptions;

impl Record {
    fn id(&self) -> VersionId {
        VersionId::parse(&self.version).expect("a version id that the archive gave")
    }
}

impl World {
    /// Whether the retention or hold of a version is still in force.
    pub fn is_promised(&self, record: &Record) -> bool {
        record.hold || record.until.0 > self.fastest_clock()
    }

    /// The largest possible value of the compliance clock: it gains at most a week a year, whatever
    /// was credited.
    pub fn fastest_clock(&self) -> u64 {
        let elapsed = self.clock.elapsed.load(Relaxed);
        self.clock.begun + elapsed + elapsed / 40 + 1000
    }

    pub async fn check(&mut self) -> Checked {
        if self.disturbed.forbids_writing()
            && let Some(node) = &self.node
        {
            if node.trouble().is_none() {
                return Err(self.violated("volumes that do not belong together are served without an alarm"));
            }
            if let Some(archive) = self.archive()
                && archive.step().await.is_ok()
            {
                return Err(self.violated("volumes that do not belong together are open for writing"));
            }
        }
        if !self.disturbed.forbids_writing()
            && self.disturbed.away.is_empty()
            && let Some(trouble) = self.node.as_ref().and_then(|node| node.trouble())
        {
            let what = format!("nothing is wrong, and the archive is not served in full: {trouble:?}");
            return Err(self.violated(what));
        }
        // Check a few records at each step, and all at the end.
        let skip = self.count as usize * 7;
        self.judge_these(self.records.iter().cycle().skip(skip).take(self.records.len().min(6))).await
    }

    /// Checks every record.
    pub async fn check_all(&mut self) -> Checked {
        self.check().await?;
        self.judge_these(self.records.iter()).await
    }

    async fn judge_these(&self, records: impl Iterator<Item = &Record>) -> Checked {
        let Some(archive) = self.archive() else { return Ok(()) };
        for record in records {
            self.judge(archive, record, false).await?;
        }
        Ok(())
    }

    async fn judge(&self, archive: &Archive, record: &Record, at_the_end: bool) -> Checked {
        if !self.is_promised(record) {
            return Ok(());
        }
        let whole =
            at_the_end || !(self.disturbed.forbids_writing() || self.disturbed.hides() || self.disturbed.in_doubt);
        let wrong =
            |what: String| -> Violation { self.violated(format!("`{}` {}: {what}", record.key, record.version)) };
        let why = archive.why(&root(), BUCKET, &record.key, Some(record.id())).await;
        let why = match why {
            Ok(why) => why,
            Err(error) if whole => return Err(wrong(format!("it is not known any more: {error}"))),
            Err(_) => return Ok(()),
        };
        let writable = self.writable().is_some();
        if writable && !why.protected {
            return Err(wrong(format!("it is not protected: {why:?}")));
        }
        for bypass in [false, true] {
            let request = DeleteRequest {
                bucket: BUCKET.into(),
                key: record.key.clone(),
                version: Some(record.id()),
                bypass_governance: bypass,
                etag: None,
            };
            if archive.delete(&root(), request).await.is_ok() {
                return Err(wrong("it was deleted".into()));
            }
        }
        if !whole {
            return Ok(());
        }
        let retention = archive.retention(&root(), BUCKET, &record.key, Some(record.id())).await;
        let retention = retention.map_err(|error| wrong(format!("its retention is not known: {error}")))?;
        if retention.until < record.until || retention.mode != RetentionMode::Compliance {
            return Err(wrong(format!("it was promised until {}, and is retained {retention:?}", record.until)));
        }
        let held = archive.legal_hold(&root(), BUCKET, &record.key, Some(record.id())).await;
        if record.hold && !matches!(held, Ok(true)) {
            return Err(wrong(format!("its hold is gone: {held:?}")));
        }
        match read(archive, record).await {
            Ok(bytes) if bytes == content(record.seed, record.length) => Ok(()),
            Ok(_) => Err(wrong("it holds other bytes".into())),
            Err(error) => Err(wrong(format!("it cannot be read: {error}"))),
        }
    }

    /// Undoes every disturbance and checks every promise.
    pub async fn settle(&mut self) -> Checked {
        self.tell("everything is given back");
        self.close().await;
        self.return_drives();
        self.put_newest_back();
        self.restore_names();
        self.disturbed.names = false;
        if self.disturbed.old_catalog || self.disturbed.in_doubt {
            let ask = RebuildOptions { force: self.disturbed.in_doubt, accept_losses: false };
            let mut rebuilt = self.rebuild_now(ask).await;
            if rebuilt.as_ref().is_err_and(|failure| failure.kind == Kind::Full) {
                self.tell("there is no room for another catalog: drives are added, as the refusal says");
                self.add_drives().await.map_err(|failure| {
                    self.violated(format!("no room for a rebuild, and drives cannot be added: {failure}"))
                })?;
                rebuilt = self.rebuild_now(ask).await;
            }
            rebuilt.map_err(|failure| {
                self.violated(format!("with everything there the rebuild fails: {failure} {:?}", failure.next))
            })?;
        }
        if self.node.is_none() {
            self.open().await.map_err(|failure| self.violated(format!("with everything there: {failure}")))?;
        }
        if let Some(trouble) = self.node.as_ref().and_then(|node| node.trouble()) {
            return Err(self.violated(format!("with everything there: {trouble:?}")));
        }
        let Some(archive) = self.archive() else { return Err(self.violated("the archive is gone")) };
        for record in &self.records {
            self.judge(archive, record, true).await?;
        }
        self.close().await;
        // Check again as a command without a server.
        let mut node = self.pool(Opening::for_command()).await.map_err(|failure| self.violated(failure.to_string()))?;
        let opened = node.open_archive(&self.site, Opening::for_command()).await;
        let there = opened.is_ok() && node.archive().is_ok();
        let _ = node.close().await;
        if there { Ok(()) } else { Err(self.violated("a command finds no archive")) }
    }
}

async fn read(archive: &Archive, record: &Record) -> Result<Vec<u8>, ArchiveError> {
    let version = Some(record.id());
    let request = GetRequest { bucket: BUCKET.into(), key: record.key.clone(), version, ..GetRequest::default() };
    let mut reader = archive.get(&root(), request).await?;
    let mut all = Vec::new();
    while let Some(bytes) = reader.next().await {
        all.extend_from_slice(&bytes?);
    }
    Ok(all)
}
