//! Random operations against a dull twin that keeps every version in a list, with reopening, power
//! cuts, reclamation, expiration and a rebuild from the data volume at the end.

use std::collections::BTreeMap;

use stele_ground::Dice;

use super::*;
use crate::testing::{check_counts, put_as};

#[derive(Clone, Debug, PartialEq)]
struct Twin {
    id: VersionId,
    marker: bool,
    data: Vec<u8>,
    retention: Option<Retention>,
    hold: bool,
    tags: Tags,
}

type Keys = BTreeMap<String, Vec<Twin>>;

/// A bucket of the model: versions newest first.
#[derive(Clone, Default)]
struct TwinBucket {
    versioning: Versioning,
    lock: bool,
    expiry: bool,
    keys: Keys,
}

struct Run {
    world: World,
    archive: Archive,
    dice: Dice,
    buckets: BTreeMap<String, TwinBucket>,
    /// A caller without the right to bypass.
    plain: Caller,
}

const KEYS: [&str; 6] = ["a", "a/b", "a/c", "b\0c", "ü/ö", "z"];

fn plain() -> Caller {
    let mut rights = Rights::all();
    rights.bypass_governance = false;
    Caller {
        actor: Actor::Key("plain".into()),
        rights: rights.into(),
        origin: None,
        peer: None,
        gateway: false,
        path: None,
        session: None,
    }
}

impl Run {
    async fn new(seed: u64) -> Run {
        let world = World::sized(seed, 24 << 20, 256 << 10);
        let archive = world.create().await;
        let mut buckets = BTreeMap::new();
        for (name, versioning, lock, expiry) in [
            ("plain", Versioning::Off, false, false),
            ("versioned", Versioning::Enabled, false, false),
            ("locked", Versioning::Enabled, true, false),
            ("expiring", Versioning::Enabled, true, true),
        ] {
            let new = NewBucket {
                object_lock: lock,
                versioning: versioning == Versioning::Enabled,
                expiry: if expiry { ExpiryAction::Delete } else { ExpiryAction::Keep },
                ..NewBucket::default()
            };
            archive.create_bucket(&admin(), name, new).await.unwrap();
            buckets.insert(name.to_string(), TwinBucket { versioning, lock, expiry, keys: Keys::new() });
        }
        Run { world, archive, dice: Dice::new(seed), buckets, plain: plain() }
    }

    fn now(&self) -> Timestamp {
        self.archive.store().compliance_now()
    }

    fn pick(&mut self) -> (String, String) {
        let names: Vec<String> = self.buckets.keys().cloned().collect();
        let bucket = self.dice.pick(&names).unwrap().clone();
        let key = self.dice.pick(&KEYS).unwrap().to_string();
        (bucket, key)
    }

    fn pick_version(&mut self, bucket: &str, key: &str) -> Option<Twin> {
        let versions = self.buckets[bucket].keys.get(key)?.clone();
        self.dice.pick(&versions).cloned()
    }

    fn caller(&mut self) -> Caller {
        if self.dice.one_in(2) { admin() } else { self.plain.clone() }
    }

    fn retention(&mut self) -> Retention {
        let mode = if self.dice.one_in(2) { RetentionMode::Compliance } else { RetentionMode::Governance };
        Retention { mode, until: Timestamp(self.archive.store().later_now().0 + 1 + self.dice.below(20 * 86_400_000)) }
    }

    async fn act(&mut self) {
        let (bucket, key) = self.pick();
        let before = self.buckets[&bucket].keys.get(&key).cloned().unwrap_or_default();
        let result = match self.dice.below(20) {
            0..=6 => self.put(&bucket, &key).await,
            7 => self.multipart(&bucket, &key).await,
            8..=9 => self.delete(&bucket, &key).await,
            10..=12 => self.delete_version(&bucket, &key).await,
            13 => self.set_retention(&bucket, &key).await,
            14 => self.set_hold(&bucket, &key).await,
            15 => self.set_tags(&bucket, &key).await,
            16 => self.versioning(&bucket).await,
            17 => self.pass_time().await,
            18 => self.check_listing(&bucket).await,
            _ => self.check_key(&bucket, &key).await,
        };
        match result {
            Ok(()) => {}
            Err(ArchiveError::Stopped(_)) if self.world.bench.is_dead() => self.recover(&bucket, &key, before).await,
            Err(error) => panic!("{bucket}/{key}: {error}"),
        }
    }

    /// Power is back. What was under way may have taken place or not; everything else stands.
    async fn recover(&mut self, bucket: &str, key: &str, before: Vec<Twin>) {
        self.world.bench.power_on();
        self.archive = self.world.open().await;
        let now = self.read_back(bucket, key).await;
        let kept = before.iter().filter(|twin| now.iter().any(|have| have.id == twin.id)).count();
        assert!(
            now.len() <= before.len() + 1 && kept + 1 >= before.len(),
            "more than one version changed: {before:?} {now:?}"
        );
        self.buckets.get_mut(bucket).unwrap().keys.insert(key.into(), now);
    }

    async fn read_back(&self, bucket: &str, key: &str) -> Vec<Twin> {
        let request =
            ListVersionsRequest { bucket: bucket.into(), prefix: key.into(), limit: 1000, ..Default::default() };
        let page = self.archive.list_versions(&admin(), request).await.unwrap();
        let mut versions = Vec::new();
        for info in page.versions.into_iter().filter(|info| info.key == key) {
            let data = if info.delete_marker {
                Vec::new()
            } else {
                let request = GetRequest {
                    bucket: bucket.into(),
                    key: key.into(),
                    version: Some(info.version),
                    ..GetRequest::default()
                };
                get_with(&self.archive, request).await.unwrap()
            };
            versions.push(Twin {
                id: info.version,
                marker: info.delete_marker,
                data,
                retention: info.retention,
                hold: info.legal_hold,
                tags: info.tags,
            });
        }
        versions
    }

    fn install(&mut self, bucket: &str, key: &str, twin: Twin) {
        let bucket = self.buckets.get_mut(bucket).unwrap();
        let versions = bucket.keys.entry(key.into()).or_default();
        if twin.id == VersionId::Null {
            versions.retain(|other| other.id != VersionId::Null);
        }
        versions.insert(0, twin);
    }

    async fn put(&mut self, bucket: &str, key: &str) -> Result<()> {
        let size = match self.dice.below(10) {
            0 => 0,
            1..=6 => self.dice.below(5_000),
            7..=8 => self.dice.below(100_000),
            _ => self.dice.below(400_000),
        };
        let data = content(self.dice.roll(), size as usize);
        let lock = self.buckets[bucket].lock;
        let retention = (lock && self.dice.one_in(2)).then(|| self.retention());
        let hold = lock && self.dice.one_in(8);
        let caller = self.caller();
        let request = PutRequest {
            bucket: bucket.into(),
            key: key.into(),
            length: self.dice.one_in(2).then_some(size),
            retention,
            legal_hold: hold,
            ..PutRequest::default()
        };
        let info = put_as(&self.archive, &caller, request, &data).await?;
        let id = if self.buckets[bucket].versioning == Versioning::Enabled { info.version } else { VersionId::Null };
        assert_eq!(info.version, id);
        self.install(bucket, key, Twin { id, marker: false, data, retention, hold, tags: Tags::new() });
        Ok(())
    }

    async fn multipart(&mut self, bucket: &str, key: &str) -> Result<()> {
        let new = NewUpload { bucket: bucket.into(), key: key.into(), ..NewUpload::default() };
        let upload = self.archive.create_upload(&admin(), new).await?.upload;
        let size = self.dice.below(300_000) as usize;
        let data = content(self.dice.roll(), size);
        let mut etag = String::new();
        // The first attempt is replaced by the second.
        for attempt in 0..2 {
            let request = PartRequest {
                bucket: bucket.into(),
                key: key.into(),
                upload: upload.clone(),
                number: 7,
                ..PartRequest::default()
            };
            let mut writer = self.archive.put_part(&admin(), request).await?;
            writer.write(if attempt == 0 { b"other".to_vec() } else { data.clone() }.into()).await?;
            etag = writer.finish(Expected::default()).await?.etag.to_string();
        }
        if self.dice.one_in(5) {
            // Its client goes away for good.
            return Ok(());
        }
        if self.dice.one_in(3) {
            self.archive.abort_upload(&admin(), bucket, key, &upload).await?;
            return Ok(());
        }
        let request = CompleteRequest {
            bucket: bucket.into(),
            key: key.into(),
            upload,
            parts: vec![CompletedPart { number: 7, etag, checksums: vec![] }],
            ..CompleteRequest::default()
        };
        let info = self.archive.complete_upload(&admin(), request).await?;
        let twin = Twin { id: info.version, marker: false, data, retention: None, hold: false, tags: Tags::new() };
        self.install(bucket, key, twin);
        Ok(())
    }

    async fn delete(&mut self, bucket: &str, key: &str) -> Result<()> {
        let request = DeleteRequest { bucket: bucket.into(), key: key.into(), ..DeleteRequest::default() };
        let deleted = self.archive.delete(&admin(), request).await?;
        match self.buckets[bucket].versioning {
            Versioning::Off => {
                self.buckets.get_mut(bucket).unwrap().keys.remove(key);
            }
            _ => {
                let id = deleted.version.unwrap();
                let twin = Twin { id, marker: true, data: vec![], retention: None, hold: false, tags: Tags::new() };
                self.install(bucket, key, twin);
            }
        }
        Ok(())
    }

    async fn delete_version(&mut self, bucket: &str, key: &str) -> Result<()> {
        let Some(twin) = self.pick_version(bucket, key) else { return Ok(()) };
        let (caller, bypass) = (self.caller(), self.dice.one_in(2));
        let request = DeleteRequest {
            bucket: bucket.into(),
            key: key.into(),
            version: Some(twin.id),
            bypass_governance: bypass,
            ..DeleteRequest::default()
        };
        let now = self.now();
        let result = self.archive.delete(&caller, request).await;
        let active = twin.retention.filter(|retention| retention.until > now);
        let allowed = !twin.hold
            && match active.map(|retention| retention.mode) {
                None => true,
                Some(RetentionMode::Compliance) => false,
                Some(RetentionMode::Governance) => bypass && caller.rights.bypass_governance,
            };
        match result {
            Ok(_) => {
                assert!(allowed, "{twin:?} was removed at {now}");
                let keys = &mut self.buckets.get_mut(bucket).unwrap().keys;
                keys.get_mut(key).unwrap().retain(|other| other.id != twin.id);
            }
            Err(ArchiveError::Retained { .. }) => assert!(!allowed, "{twin:?} was not removed at {now}"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn set_retention(&mut self, bucket: &str, key: &str) -> Result<()> {
        let Some(twin) = self.pick_version(bucket, key).filter(|twin| !twin.marker) else { return Ok(()) };
        if !self.buckets[bucket].lock {
            return Ok(());
        }
        let (caller, bypass) = (self.caller(), self.dice.one_in(2));
        let after = if self.dice.one_in(5) { None } else { Some(self.retention()) };
        let now = self.now();
        let result = self.archive.set_retention(&caller, bucket, key, Some(twin.id), after, bypass).await;
        let allowed = match twin.retention.filter(|retention| retention.until > now) {
            None => true,
            Some(before) if after.is_some_and(|after| after.mode == before.mode && after.until >= before.until) => true,
            Some(before) => before.mode == RetentionMode::Governance && bypass && caller.rights.bypass_governance,
        };
        match result {
            Ok(_) => {
                assert!(allowed, "{twin:?} to {after:?} at {now}");
                self.change(bucket, key, twin.id, |twin| twin.retention = after);
            }
            Err(ArchiveError::Retained { .. }) => assert!(!allowed, "{twin:?} to {after:?} at {now}"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn change(&mut self, bucket: &str, key: &str, id: VersionId, change: impl FnOnce(&mut Twin)) {
        let versions = self.buckets.get_mut(bucket).unwrap().keys.get_mut(key).unwrap();
        change(versions.iter_mut().find(|twin| twin.id == id).unwrap());
    }

    async fn set_hold(&mut self, bucket: &str, key: &str) -> Result<()> {
        let Some(twin) = self.pick_version(bucket, key).filter(|twin| !twin.marker) else { return Ok(()) };
        if self.buckets[bucket].lock {
            let hold = self.dice.one_in(3);
            self.archive.set_legal_hold(&admin(), bucket, key, Some(twin.id), hold).await?;
            self.change(bucket, key, twin.id, |twin| twin.hold = hold);
        }
        Ok(())
    }

    async fn set_tags(&mut self, bucket: &str, key: &str) -> Result<()> {
        let Some(twin) = self.pick_version(bucket, key).filter(|twin| !twin.marker) else { return Ok(()) };
        let tags = Tags::from([("n".to_string(), self.dice.below(1000).to_string())]);
        self.archive.set_tags(&admin(), bucket, key, Some(twin.id), tags.clone()).await?;
        self.change(bucket, key, twin.id, |twin| twin.tags = tags);
        Ok(())
    }

    async fn versioning(&mut self, bucket: &str) -> Result<()> {
        if bucket == "versioned" {
            let wanted = if self.dice.one_in(2) { Versioning::Enabled } else { Versioning::Suspended };
            self.archive.change_bucket(&admin(), bucket, BucketChange::Versioning(wanted)).await?;
            self.buckets.get_mut(bucket).unwrap().versioning = wanted;
        }
        Ok(())
    }

    async fn pass_time(&mut self) -> Result<()> {
        self.world.stage.pass(self.dice.below(2 * 86_400_000));
        loop {
            let report = self.archive.step().await;
            // Whatever expiration did before power went is right either way; adopt it.
            let now = self.now();
            let stopped = report.is_err();
            if stopped {
                self.world.bench.power_on();
                self.archive = self.world.open().await;
            }
            for (name, bucket) in self.buckets.clone().iter().filter(|(_, bucket)| bucket.expiry) {
                for (key, versions) in &bucket.keys {
                    let have = self.read_back(name, key).await;
                    for twin in versions {
                        let due = !twin.hold && twin.retention.is_some_and(|retention| retention.until <= now);
                        assert!(due || have.contains(twin), "{twin:?} is gone at {now}");
                    }
                    self.buckets.get_mut(name).unwrap().keys.insert(key.clone(), have);
                }
            }
            match report {
                Ok(report) if report.more => {
                    assert!(report.alarms.is_empty(), "{report:?}");
                }
                _ => return Ok(()),
            }
        }
    }

    async fn check_key(&mut self, bucket: &str, key: &str) -> Result<()> {
        let expected = self.buckets[bucket].keys.get(key).cloned().unwrap_or_default();
        let have = self.read_back(bucket, key).await;
        let short = |twins: &[Twin]| -> Vec<_> {
            twins.iter().map(|twin| (twin.id, twin.marker, twin.data.len(), twin.retention, twin.hold)).collect()
        };
        assert!(have == expected, "{bucket}/{key}: {:?}, expected {:?}", short(&have), short(&expected));
        match get(&self.archive, bucket, key).await {
            Ok(data) => assert!(!expected[0].marker && expected[0].data == data),
            Err(ArchiveError::NoSuchKey { .. }) => assert!(expected.first().is_none_or(|twin| twin.marker)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn check_listing(&mut self, name: &str) -> Result<()> {
        let delimiter = self.dice.one_in(2).then(|| "/".to_string());
        let limit = 1 + self.dice.below(4) as usize;
        let (mut token, mut listed) = (None, Vec::new());
        loop {
            let request = ListRequest {
                bucket: name.into(),
                delimiter: delimiter.clone(),
                token,
                limit,
                ..ListRequest::default()
            };
            let page = self.archive.list(&admin(), request).await?;
            let count = page.objects.len() + page.common_prefixes.len();
            assert!(count <= limit && (count == limit || !page.truncated));
            listed.extend(page.objects.into_iter().map(|object| object.key));
            listed.extend(page.common_prefixes);
            token = page.next_token;
            if !page.truncated {
                break;
            }
        }
        listed.sort();
        let mut expected: Vec<String> = self.buckets[name]
            .keys
            .iter()
            .filter(|(_, versions)| versions.first().is_some_and(|twin| !twin.marker))
            .map(|(key, _)| match (delimiter.is_some(), key.find('/')) {
                (true, Some(at)) => key[..=at].to_string(),
                _ => key.clone(),
            })
            .collect();
        expected.dedup();
        expected.sort();
        assert_eq!(listed, expected);
        Ok(())
    }

    async fn check_everything(&mut self) {
        check_counts(&self.archive);
        for name in self.buckets.keys().cloned().collect::<Vec<_>>() {
            for key in KEYS {
                self.check_key(&name, key).await.unwrap();
            }
            self.check_listing(&name).await.unwrap();
            let usage = self.archive.usage(&admin(), &name).await.unwrap();
            let twins: Vec<&Twin> = self.buckets[&name].keys.values().flatten().collect();
            assert_eq!(usage.versions, twins.len() as u64);
            assert_eq!(usage.bytes, twins.iter().map(|twin| twin.data.len() as u64).sum::<u64>());
        }
        self.world.check_index();
        let verdict = self.archive.audit_verify(&admin(), None).await.unwrap();
        assert!(verdict.findings.is_empty(), "{verdict:?}");
    }
}

async fn run(seed: u64, steps: usize, cuts: bool) {
    let mut run = Run::new(seed).await;
    for step in 0..steps {
        if run.dice.one_in(40) {
            if run.dice.one_in(2) {
                // Power may be gone already; then it was not closed in order.
                let _ = run.archive.close().await;
            }
            run.world.bench.power_on();
            run.archive = run.world.open().await;
        }
        if cuts && run.dice.one_in(25) {
            let after = run.dice.below(12);
            run.world.bench.cut_after(after);
        }
        run.act().await;
        if step % 100 == 99 && !run.world.bench.is_dead() {
            run.world.bench.power_on();
            run.archive = run.world.open().await;
            run.check_everything().await;
        }
    }
    run.world.bench.power_on();
    run.archive = run.world.open().await;
    run.check_everything().await;
    run.pass_time().await.unwrap();
    let mut cursor = ScrubCursor::default();
    loop {
        let report = run.archive.scrub_step(&mut cursor, 1 << 20).await.unwrap();
        assert!(report.findings.is_empty(), "{report:?}");
        if report.finished {
            break;
        }
    }
    // The volume alone gives it all back.
    run.world.catalog = std::sync::Arc::new(stele_catalog::MemoryCatalog::new());
    let (archive, report) = Archive::rebuild(run.world.foundation(), run.world.options.clone()).await.unwrap();
    assert!(report.findings.iter().all(|finding| finding.contains("torn") && cuts), "{report:?}");
    run.archive = archive;
    run.check_everything().await;
    run.put("plain", "a").await.unwrap();
    run.delete_version("locked", "a").await.unwrap();
    run.check_everything().await;
}

#[tokio::test]
async fn random_operations_match_the_dull_twin() {
    for seed in 0..20 {
        run(seed, 300, false).await;
    }
}

#[tokio::test]
async fn random_operations_match_the_simple_twin_through_power_cuts() {
    for seed in 100..120 {
        run(seed, 300, true).await;
    }
}
