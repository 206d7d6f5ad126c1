//! The administrator's steps.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use stele_archive::{BucketChange, Protection, Retention, RetentionMode, Surroundings, VersionId};
use stele_array::server::DrivePlace;
use stele_array::{Command, DriveStatus, Reply};
use stele_block::Protocol;

use super::{BUCKET, Checked, DAY, DRIVES, World, disk, root};
use crate::api::volume as volumes;
use crate::api::{Actor, Call, archive as calls, export, pool};
use crate::drives::DriveArgument;
use crate::failure::Outcome;
use crate::node::Opening;
use crate::node::rebuild::{BROKEN_OFF, RebuildOptions};

/// Number of kinds of steps. A step that the pool's state does not allow is an attempt that must be
/// refused.
const STEPS: u64 = 27;

/// The preferred steps of a history, so that short histories reach deep: names and rebuilds, older
/// catalogs, missing drives during extensions, old pools restored, clocks and officers, and all
/// steps alike.
pub const THEMES: [&[u64]; 6] = [
    &[0, 6, 11, 13, 13, 20, 22],
    &[0, 4, 8, 12, 16, 17, 17, 20],
    &[0, 1, 4, 4, 4, 8, 14, 15, 20, 21, 23],
    &[0, 4, 11, 18, 19, 19, 20],
    &[0, 7, 8, 10, 11, 24, 25, 25],
    &[],
];

impl World {
    pub async fn step(&mut self) -> Checked {
        let themed = !self.theme.is_empty() && self.dice.below(5) > 0;
        let step = match themed {
            true => self.theme[self.dice.below(self.theme.len() as u64) as usize],
            false => self.dice.below(STEPS),
        };
        self.take(step).await?;
        self.check().await
    }

    pub async fn take(&mut self, step: u64) -> Checked {
        match step {
            0..=3 => self.put_some().await,
            4 => self.strengthen().await,
            5 => self.release().await,
            6 => self.command_on_a_volume().await,
            7 => self.keys_and_levels().await,
            8 | 9 => self.let_time_pass().await,
            10 => self.set_the_clock().await,
            11 => self.restart(true).await,
            12 => self.restart(false).await,
            13 => self.rename_volumes().await,
            14 => self.take_drives().await,
            15 => self.bring_drives_back().await,
            16 => self.copy_catalog().await,
            17 => self.put_catalog_back().await,
            18 => self.copy_pool().await,
            19 => self.put_pool_back().await,
            20 | 21 => self.rebuild().await,
            22 => self.break_a_rebuild_off().await,
            23 => self.raise_all().await,
            24 => self.stay_closed().await,
            25 => self.credit().await,
            _ => self.remove_heads().await,
        }
    }

    pub async fn put_some(&mut self) -> Checked {
        let before = self.records.len();
        for _ in 0..1 + self.dice.below(4) {
            if self.put().await.is_err() {
                break;
            }
        }
        self.tell(format!("{} records are stored", self.records.len() - before));
        Ok(())
    }

    /// Extends a retention, or sets a hold.
    async fn strengthen(&mut self) -> Checked {
        if self.records.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(self.records.len() as u64) as usize;
        let hold = self.dice.below(2) == 0;
        let mut record = self.records[at].clone();
        let version = VersionId::parse(&record.version).ok();
        let Some(archive) = self.writable() else { return Ok(()) };
        if hold {
            if archive.set_legal_hold(&root(), BUCKET, &record.key, version, true).await.is_ok() {
                record.hold = true;
            }
        } else {
            let until = record.until.plus_days(400);
            let retention = Some(Retention { mode: RetentionMode::Compliance, until });
            if archive.set_retention(&root(), BUCKET, &record.key, version, retention, true).await.is_ok() {
                record.until = until;
            }
        }
        self.tell(format!("`{}` is kept until {}, hold {}", record.key, record.until, record.hold));
        self.records[at] = record;
        Ok(())
    }

    /// Extends every retention, in notes far behind the first ones.
    pub async fn raise_all(&mut self) -> Checked {
        self.raise(0..self.records.len()).await
    }

    pub async fn raise(&mut self, records: Range<usize>) -> Checked {
        let until = self.clock.now().wall.plus_days(500);
        let Some(archive) = self.writable().cloned() else { return Ok(()) };
        for record in self.records.get_mut(records.clone()).unwrap_or_default() {
            let version = VersionId::parse(&record.version).ok();
            let retention = Some(Retention { mode: RetentionMode::Compliance, until });
            if archive.set_retention(&root(), BUCKET, &record.key, version, retention, false).await.is_ok() {
                record.until = until;
            }
        }
        self.tell(format!("the retentions {records:?} are raised"));
        Ok(())
    }

    /// Kills a rebuild on its way. The archive must be unchanged, or the next rebuild must repair
    /// it.
    async fn break_a_rebuild_off(&mut self) -> Checked {
        if self.disturbed.forbids_writing() || !self.disturbed.away.is_empty() || self.disturbed.in_doubt {
            return Ok(());
        }
        let stage = 1 + self.dice.below(5);
        self.break_off_at(stage).await
    }

    pub async fn break_off_at(&mut self, stage: u64) -> Checked {
        self.close().await;
        self.tell(format!("a rebuild is broken off at stage {stage}"));
        let ask = RebuildOptions { force: true, accept_losses: false };
        let Ok(mut node) = self.pool(Opening::for_server()).await else { return Ok(()) };
        node.breaks_off = Some(stage);
        match node.rebuild_here(&self.site, ask).await {
            Ok(_) => return Err(self.violated("it was not broken off")),
            Err(failure) if failure.error == BROKEN_OFF => {}
            Err(failure) => {
                self.tell(format!("refused before: {failure}"));
                let _ = self.open().await;
                return self.must_open();
            }
        }
        if stage >= 4 {
            (self.old_catalog, self.old_pool) = (None, None);
            self.names.0 = self.config().map_or_else(|_| String::new(), |config| config.archive.catalog_volume);
        }
        if stage == 4 {
            let repeated = self.rebuild_now(ask).await;
            repeated.map_err(|failure| self.violated(format!("a repeat fails: {failure}")))?;
        } else {
            let _ = self.open().await;
        }
        self.must_open()
    }

    /// Lifts a hold, and tries to shorten a retention.
    async fn release(&mut self) -> Checked {
        if self.records.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(self.records.len() as u64) as usize;
        let mut record = self.records[at].clone();
        let version = VersionId::parse(&record.version).ok();
        let Some(archive) = self.writable() else { return Ok(()) };
        if archive.set_legal_hold(&root(), BUCKET, &record.key, version, false).await.is_ok() {
            record.hold = false;
        }
        let _ = archive.set_retention(&root(), BUCKET, &record.key, version, None, true).await;
        let _ = archive.delete_bucket(&root(), BUCKET).await;
        self.tell(format!("`{}` is released from its hold", record.key));
        self.records[at] = record;
        Ok(())
    }

    /// Runs any command of `stele volume`, `stele export` and `stele pool remove`, with any
    /// existing name, through the server or on the drives.
    async fn command_on_a_volume(&mut self) -> Checked {
        let names = ["catalog", "data", "catalog-2", "spare", "copy", "snap", self.names.0.as_str()];
        let pick = |dice: &mut stele_ground::Dice| names[dice.below(names.len() as u64) as usize].to_owned();
        let (volume, other) = (pick(&mut self.dice), pick(&mut self.dice));
        let what = self.dice.below(8);
        let told = format!("command {what} on volume {volume} and {other}");
        let offline = self.dice.below(4) == 0;
        if offline {
            self.close().await;
            let Ok(node) = self.pool(Opening::for_command()).await else { return Ok(()) };
            self.node = Some(node);
        }
        self.tell(if offline { format!("{told}, without a server") } else { told });
        if let Some(node) = &self.node {
            let _ = command(node, what, volume, other).await;
        }
        if offline {
            self.restart(true).await?;
        }
        Ok(())
    }

    async fn keys_and_levels(&mut self) -> Checked {
        let what = self.dice.below(3);
        self.tell(format!("keys and levels {what}"));
        let Some(node) = &self.node else { return Ok(()) };
        let Ok(archive) = node.archive() else { return Ok(()) };
        let create = calls::CreateKey {
            name: "someone".into(),
            roles: vec!["retention-officer".into()],
            every_role: false,
            ..calls::CreateKey::default()
        };
        match what {
            0 => {
                if let Ok(key) = create.perform(node, &Actor { uid: 0 }).await {
                    self.is_no_officer(&key.access_key).await?;
                }
            }
            1 => {
                if let Ok(key) = create.perform(node, &Actor { uid: 0 }).await {
                    let _ = calls::KeyRevoke { id: key.access_key }.perform(node, &Actor { uid: 0 }).await;
                }
            }
            _ => {
                for level in [Protection::Compliance, Protection::Basic] {
                    let _ = archive.change_bucket(&root(), BUCKET, BucketChange::Protection(level)).await;
                }
            }
        }
        Ok(())
    }

    pub async fn let_time_pass(&mut self) -> Checked {
        for _ in 0..20 {
            self.pass(40_000);
            if let Some(archive) = self.writable() {
                let _ = archive.step().await;
            }
        }
        self.send_head().await;
        self.tell("a quarter of an hour passes");
        Ok(())
    }

    async fn set_the_clock(&mut self) -> Checked {
        let days = self.dice.below(4000);
        self.clock.ahead.store(days * DAY, Relaxed);
        self.tell(format!("the clock is set {days} days ahead, and accepted"));
        if let Some(archive) = self.writable() {
            let _ = archive.step().await;
            let _ = archive.accept_clock(&root()).await;
            let _ = archive.step().await;
        }
        Ok(())
    }

    async fn restart(&mut self, in_order: bool) -> Checked {
        self.tell(if in_order { "the server is restarted" } else { "the server is killed and started" });
        match in_order {
            true => self.close().await,
            false => {
                // The drives stay as they are; the next opening replays the log.
                if let Some(node) = self.node.take() {
                    node.kill().await;
                }
            }
        }
        self.pass(10_000);
        let _ = self.open().await;
        self.must_open()
    }

    /// If nothing is missing, the server must start.
    fn must_open(&self) -> Checked {
        match self.node.is_some() || !self.disturbed.away.is_empty() {
            true => Ok(()),
            false => Err(self.violated("no drive is missing, and the server does not start")),
        }
    }

    async fn rename_volumes(&mut self) -> Checked {
        let names = ["catalog", "data", "nope", "spare", "copy", self.names.0.as_str()];
        let mut pick = || names[self.dice.below(names.len() as u64) as usize].to_owned();
        let chosen = match pick() {
            catalog if catalog == self.names.1 => (catalog, self.names.1.clone()),
            catalog => (catalog, pick()),
        };
        self.name_volumes(chosen).await
    }

    pub async fn name_volumes(&mut self, chosen: (String, String)) -> Checked {
        self.close().await;
        self.disturbed.names = chosen != self.names;
        self.tell(format!("stele.toml names {chosen:?}"));
        self.write_names(&chosen);
        let _ = self.open().await;
        self.must_open()
    }

    pub fn restore_names(&mut self) {
        let names = self.names.clone();
        self.write_names(&names);
    }

    fn write_names(&self, names: &(String, String)) {
        let mut config = self.config().expect("the configuration");
        (config.archive.catalog_volume, config.archive.data_volume) = names.clone();
        config.write(&self.site.config_path).expect("the configuration");
    }

    async fn take_drives(&mut self) -> Checked {
        if !self.disturbed.away.is_empty() || self.disturbed.set_back {
            return Ok(());
        }
        let mut away: Vec<u32> = (0..1 + self.dice.below(2)).map(|_| self.dice.below(DRIVES.into()) as u32).collect();
        away.sort_unstable();
        away.dedup();
        self.take_these(away).await
    }

    pub async fn take_these(&mut self, away: Vec<u32>) -> Checked {
        self.close().await;
        for drive in &away {
            let from = self.dir.join(format!("drives/{drive}.img"));
            std::fs::rename(from, self.dir.join(format!("{drive}.away"))).expect("a drive");
        }
        self.tell(format!("drives {away:?} are taken away"));
        self.disturbed.away = away;
        let _ = self.open().await;
        Ok(())
    }

    pub fn return_drives(&mut self) {
        for drive in std::mem::take(&mut self.disturbed.away) {
            let to = self.dir.join(format!("drives/{drive}.img"));
            std::fs::rename(self.dir.join(format!("{drive}.away")), to).expect("a drive");
        }
    }

    /// Adds three drives as large as the first: a catalog's three copies fit before stripes have
    /// moved.
    pub async fn add_drives(&mut self) -> Outcome<()> {
        let size = std::fs::metadata(self.dir.join("drives/0.img")).expect("a drive").len();
        let place = |drive| DriveArgument(DrivePlace::new(self.dir.join(format!("drives/{drive}.img")), drive));
        let drives: Vec<DriveArgument> = (DRIVES..DRIVES + 3).map(place).collect();
        self.open().await?;
        crate::config::add_drives(&self.site.config_path, &drives)?;
        if let Some(node) = &self.node {
            pool::AddDrives { drives, size: Some(size), grow_later: true, destroy: false }
                .perform(node, &Actor { uid: 0 })
                .await?;
        }
        self.close().await;
        Ok(())
    }

    pub async fn bring_drives_back(&mut self) -> Checked {
        if self.disturbed.away.is_empty() {
            return Ok(());
        }
        self.close().await;
        self.return_drives();
        self.tell("the drives come back");
        let _ = self.open().await;
        self.must_open()
    }

    /// Copies the catalog, in the middle of a session or between two.
    pub async fn copy_catalog(&mut self) -> Checked {
        if self.disturbed.forbids_writing() || !self.disturbed.away.is_empty() {
            return Ok(());
        }
        let Some(node) = &self.node else { return Ok(()) };
        let Ok(handle) = node.pool.volume(&self.names.0) else { return Ok(()) };
        if let Some(content) = disk::read(&handle).await {
            self.old_catalog = Some((self.openings, content));
            self.tell("the catalog is copied");
            // Later changes reach the data volume before the copy can be restored.
            let _ = self.put().await;
            self.let_time_pass().await?;
        }
        Ok(())
    }

    /// Writes the copy over the catalog volume, with no server running.
    pub async fn put_catalog_back(&mut self) -> Checked {
        let usable = !self.disturbed.forbids_writing() && self.disturbed.away.is_empty();
        let Some((_, content)) = self.old_catalog.take().filter(|_| usable) else { return Ok(()) };
        self.close().await;
        let Ok(node) = self.pool(Opening::for_server()).await else { return Ok(()) };
        let Ok(handle) = node.pool.volume(&self.names.0) else { return Ok(()) };
        let written = disk::write(&handle, &content).await;
        let _ = node.close().await;
        if written.is_none() {
            return Err(self.violated("the copy of the catalog could not be put back"));
        }
        self.disturbed.old_catalog = true;
        self.tell("the older catalog is put back");
        let _ = self.open().await;
        Ok(())
    }

    pub async fn copy_pool(&mut self) -> Checked {
        if self.disturbed.forbids_writing() || !self.disturbed.away.is_empty() || self.disturbed.in_doubt {
            return Ok(());
        }
        self.close().await;
        let copy = self.dir.join("old");
        disk::copy_folder(&self.dir.join("drives"), &copy).expect("room for a copy of the drives");
        self.old_pool = Some((self.openings, copy));
        self.tell("all drives are copied");
        let _ = self.open().await;
        let _ = self.put().await;
        self.let_time_pass().await
    }

    pub async fn put_pool_back(&mut self) -> Checked {
        // Without the heads nothing reveals that a whole pool was rolled back:
        // SEMANTICS/retention.md says so.
        let usable = !self.disturbed.forbids_writing() && self.disturbed.away.is_empty() && !self.disturbed.in_doubt;
        let usable = usable && !self.headless;
        let Some((at, copy)) = self.old_pool.take().filter(|(at, _)| usable && *at < self.openings) else {
            return Ok(());
        };
        if self.config().is_ok_and(|config| config.archive.catalog_volume != self.names_at(at)) {
            return Ok(());
        }
        self.close().await;
        let newest = self.dir.join("newest");
        std::fs::rename(self.dir.join("drives"), &newest).expect("the drives");
        std::fs::rename(&copy, self.dir.join("drives")).expect("the drives");
        self.newest = Some(newest);
        self.old_catalog = None;
        self.disturbed.set_back = true;
        self.tell("all drives are put back to the copy");
        let _ = self.open().await;
        self.must_open()
    }

    /// Only a rebuild changes the catalog's name, and a rebuild drops older copies of the pool.
    fn names_at(&self, _: u64) -> String {
        self.names.0.clone()
    }

    pub fn put_newest_back(&mut self) {
        if let Some(newest) = self.newest.take() {
            let _ = std::fs::remove_dir_all(self.dir.join("drives"));
            std::fs::rename(newest, self.dir.join("drives")).expect("the drives");
            self.disturbed.set_back = false;
        }
    }

    async fn rebuild(&mut self) -> Checked {
        // If the pool was rolled back, the result of a rebuild would vanish with it.
        if self.disturbed.set_back {
            return Ok(());
        }
        let ask = RebuildOptions { force: self.dice.below(2) == 0, accept_losses: self.dice.below(2) == 0 };
        let killed = self.dice.below(3) == 0;
        self.rebuild_asking(ask, killed).await
    }

    /// Whether a detached drive still belongs to the pool. The pool may have removed it meanwhile,
    /// once other drives held its data.
    async fn misses_a_member(&self) -> bool {
        let Some(node) = &self.node else { return false };
        let Ok(Reply::Status(status)) = node.pool.command(Command::Status).await else { return true };
        let is_away = |drive: &DriveStatus| drive.is_member() && self.disturbed.away.contains(&drive.index);
        status.drives.iter().any(is_away)
    }

    /// After an orderly stop or a kill. After a kill the data volume lacks the end of the log.
    pub async fn rebuild_asking(&mut self, ask: RebuildOptions, killed: bool) -> Checked {
        match self.node.take_if(|_| killed) {
            Some(node) => node.kill().await,
            None => self.close().await,
        }
        self.tell(format!("`stele catalog rebuild`, {ask:?}"));
        let names = self.disturbed.names;
        match self.rebuild_now(ask).await {
            Ok(()) => {
                if names {
                    return Err(self.violated("a rebuild went through on volumes that are not the archive's"));
                }
                if !ask.accept_losses && self.misses_a_member().await {
                    return Err(self.violated("a rebuild went through although drives are missing"));
                }
            }
            Err(failure) if failure.error.contains("none is missed") => return Err(self.violated(failure.error)),
            Err(failure) => self.tell(format!("refused: {failure}")),
        }
        if self.node.is_none() {
            let _ = self.open().await;
        }
        self.must_open()
    }

    /// Leaves the server running if it succeeds.
    pub async fn rebuild_now(&mut self, ask: RebuildOptions) -> Outcome<()> {
        let node = self.pool(Opening::for_server()).await?;
        let (node, rebuilt) = node.rebuild_here(&self.site, ask).await?;
        self.names.0.clone_from(&rebuilt.volume);
        self.node = Some(node);
        self.openings += 1;
        (self.old_catalog, self.old_pool) = (None, None);
        self.disturbed.in_doubt = !rebuilt.report.losses.is_empty();
        self.disturbed.old_catalog = false;
        self.tell(format!("rebuilt on {}, {} losses", rebuilt.volume, rebuilt.report.losses.len()));
        if rebuilt.report.audit_records < self.sent
            && let Some(archive) = self.archive()
            && archive.audit_verify(&root(), None).await?.findings.is_empty()
        {
            let cut =
                format!("of {} audit records {} are left, and none is missed", self.sent, rebuilt.report.audit_records);
            return Err(crate::failure::Failure::failed(cut));
        }
        self.send_head().await;
        Ok(())
    }
}

async fn command(node: &crate::node::Node, what: u64, volume: String, other: String) -> Outcome<()> {
    let actor = Actor { uid: 0 };
    match what {
        0 => volumes::Delete { name: volume }.perform(node, &actor).await.map(drop),
        1 => volumes::Resize { name: volume, size: 8 << 20 }.perform(node, &actor).await.map(drop),
        2 => volumes::Snapshot { volume, name: "snap".into() }.perform(node, &actor).await.map(drop),
        3 => volumes::CloneSnapshot { snapshot: volume, name: "copy".into() }.perform(node, &actor).await.map(drop),
        4 => volumes::Rollback { volume, snapshot: other, force: false }.perform(node, &actor).await.map(drop),
        5 => {
            let add = export::AddExport {
                volume,
                name: None,
                protocol: Protocol::Nbd,
                read_only: false,
                access: Default::default(),
                iscsi: Default::default(),
            };
            add.perform(node, &actor).await.map(drop)
        }
        6 => pool::RemoveDrive { drive: 0 }.perform(node, &actor).await.map(drop),
        _ => {
            let create = volumes::CreateVolume {
                name: volume,
                code: "mirror-2".into(),
                size: 8 << 20,
                strip: 64 << 10,
                block: 4096,
                digest_strip: false,
                write_through: false,
                allocate: false,
            };
            create.perform(node, &actor).await.map(drop)
        }
    }
}
