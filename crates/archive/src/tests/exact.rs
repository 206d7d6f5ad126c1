//! The exact rules on random histories through power cuts and faults of the drives. The histories
//! have classes, events told and taken back, matters, S3's hold, extensions, deletions by one
//! person and by two, expiration, receipts, restarts, and a rebuild at the end.
//!
//! The twin is a list of versions with the plain table of the rules. What was under way when power
//! failed has taken place as a whole or not at all, and everything else stands. Every receipt that
//! was given holds to the end, and the log still begins with the records under its head.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stele_catalog::MemoryCatalog;
use stele_ground::Dice;

use super::classes::{active, now, put_in, store};
use super::receipts::key_of;
use super::*;
use crate::Receipt;
use crate::testing::{check_counts, officer};

const DAY: u64 = 86_400_000;
const BUCKET: &str = "records";
const MATTERS: [&str; 3] = ["m0", "m1", "s3"];
/// Receipts that a run keeps.
const RECEIPTS: usize = 30;

/// A class of the histories: retver and retmin are days.
struct Line {
    name: &'static str,
    initiation: Initiation,
    retver: Option<u64>,
    retmin: u64,
    deletes: bool,
    mode: RetentionMode,
}

const fn line(name: &'static str, initiation: Initiation, retver: Option<u64>, retmin: u64) -> Line {
    Line { name, initiation, retver, retmin, deletes: true, mode: RetentionMode::Compliance }
}

const CLASSES: [Line; 6] = [
    line("c1", Initiation::Creation, Some(1), 0),
    Line { mode: RetentionMode::Governance, ..line("g9", Initiation::Creation, Some(9), 0) },
    line("ever", Initiation::Creation, None, 0),
    line("e4", Initiation::Event, Some(4), 9),
    Line { mode: RetentionMode::Governance, deletes: false, ..line("e3", Initiation::Event, Some(3), 0) },
    Line { deletes: false, ..line("kept", Initiation::Creation, Some(2), 0) },
];

/// One version of the twin.
#[derive(Clone, PartialEq, Debug)]
struct Twin {
    version: VersionId,
    stored: u64,
    class: usize,
    event: Option<u64>,
    /// The date to which a client extended it.
    extended: u64,
    under: BTreeSet<String>,
}

impl Twin {
    fn line(&self) -> &'static Line {
        &CLASSES[self.class]
    }

    fn is_governed(&self) -> bool {
        self.line().mode == RetentionMode::Governance
    }

    /// The table of the exact rules. None: for ever.
    fn end(&self) -> Option<u64> {
        let Line { initiation, retver, retmin, .. } = self.line();
        let by_class = match (initiation, retver, self.event) {
            (Initiation::Creation, Some(retver), _) => self.stored + retver * DAY,
            (Initiation::Event, Some(retver), Some(event)) => {
                (self.stored + retmin * DAY).max(event.max(self.stored) + retver * DAY)
            }
            _ => return None,
        };
        Some(by_class.max(self.extended))
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.end().is_some_and(|end| end <= now.0)
    }

    /// Whether two officers, or one caller with the right to bypass, may delete it.
    fn may_be_deleted(&self, now: Timestamp) -> bool {
        let bypassed = self.is_governed() && self.end().is_some();
        self.under.is_empty() && (self.is_over(now) || bypassed)
    }

    fn may_expire(&self, now: Timestamp) -> bool {
        self.under.is_empty() && self.line().deletes && self.is_over(now)
    }
}

/// What is under way, and may or may not have taken place when power fails.
enum Pending {
    Nothing,
    /// A version of this class is stored under a new key.
    Store(String, usize),
    /// The version becomes this one, or goes.
    Change(String, Option<Twin>),
    /// Whatever may expire.
    Expiry,
}

struct Run {
    seed: u64,
    world: World,
    archive: Archive,
    dice: Dice,
    twins: BTreeMap<String, Twin>,
    receipts: Vec<Receipt>,
    pending: Pending,
    /// The volume has no room, or a part of it cannot be read or written.
    faulty: bool,
}

impl Run {
    async fn new(seed: u64) -> Run {
        let world = World::sized(seed, 32 << 20, 256 << 10);
        let archive = store(&world).await;
        for Line { name, initiation, retver, retmin, deletes, mode } in &CLASSES {
            let action = if *deletes { ExpiryAction::Delete } else { ExpiryAction::Keep };
            let (initiation, retver, retmin, mode) = (*initiation, *retver, *retmin, *mode);
            active(&archive, name, ClassTerms { initiation, retver, retmin, action, mode }).await;
        }
        for name in &MATTERS[..2] {
            archive.open_matter(&admin(), name, "a reason").await.unwrap();
        }
        let (dice, twins, receipts) = (Dice::new(seed), BTreeMap::new(), Vec::new());
        Run { seed, world, archive, dice, twins, receipts, pending: Pending::Nothing, faulty: false }
    }

    /// Whether a failure comes from a fault of the drives. What it befell did not take place.
    fn is_fault(&self, error: &ArchiveError) -> bool {
        let fault = matches!(error, ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. });
        self.faulty && fault
    }

    /// From here on, or no more, the drives fail in one of two ways.
    fn fail_drives(&mut self, on: bool) {
        self.faulty = on;
        let (whole, full) = (self.world.bench.size(), self.dice.one_in(2));
        self.world.bench.set_full(on && full);
        self.world.bench.lose(if on && !full { whole / 2..whole } else { 0..0 });
    }

    fn pick(&mut self) -> Option<(String, Twin)> {
        let keys: Vec<String> = self.twins.keys().cloned().collect();
        let key = self.dice.pick(&keys)?.clone();
        let twin = self.twins[&key].clone();
        Some((key, twin))
    }

    fn now(&self) -> Timestamp {
        now(&self.archive)
    }

    /// One act. What it changes of the twin is pending until it is acknowledged.
    async fn act(&mut self, n: usize) -> Result<()> {
        let picked = self.pick();
        match (self.dice.below(14), picked) {
            (0..=2, _) | (_, None) => self.store(format!("k{n:03}")).await,
            (3, Some((key, twin))) => self.tell_event(key, twin).await,
            (4, Some((key, twin))) => self.take_event_back(key, twin).await,
            (5..=6, Some((key, twin))) => self.hold(key, twin).await,
            (7, Some((key, twin))) => self.extend(key, twin).await,
            (8, Some((key, twin))) => self.delete(key, twin).await,
            (9, Some((key, twin))) => self.delete_by_two(key, twin).await,
            (10..=11, Some((key, twin))) => self.receive(key, twin).await,
            _ => self.pass_time().await,
        }
    }

    fn name(key: &str, twin: &Twin) -> VersionName {
        VersionName { bucket: BUCKET.into(), key: key.into(), version: Some(twin.version) }
    }

    fn keep(&mut self, receipt: Receipt) {
        assert_eq!(receipt.verify(&key_of(&receipt.head)), Ok(()));
        self.receipts.push(receipt);
        if self.receipts.len() > RECEIPTS {
            let at = self.dice.below(RECEIPTS as u64) as usize;
            self.receipts.swap_remove(at);
        }
    }

    async fn store(&mut self, key: String) -> Result<()> {
        let class = self.dice.below(CLASSES.len() as u64) as usize;
        self.pending = Pending::Store(key.clone(), class);
        let info = put_in(&self.archive, &key, Some(CLASSES[class].name)).await?;
        let (version, stored) = (info.version, info.modified.0);
        let twin = Twin { version, stored, class, event: None, extended: 0, under: BTreeSet::new() };
        self.pending = Pending::Nothing;
        self.twins.insert(key.clone(), twin);
        if self.dice.one_in(2) {
            let record = info.logged.unwrap();
            let receipt = self.archive.receipt_of_act(&admin(), BUCKET, &key, record, None).await?;
            self.keep(receipt);
        }
        Ok(())
    }

    /// Judges an act that `allowed` says may change the version, or take it away.
    fn judged<T: std::fmt::Debug>(
        &mut self,
        what: &str,
        (key, before): (&str, &Twin),
        allowed: bool,
        done: Result<T>,
    ) -> Result<()> {
        match done {
            // Of a removal whose key the drives did not let it destroy, the version is gone.
            Ok(_) | Err(ArchiveError::KeyNotDestroyed(_)) => {
                assert!(allowed, "seed {}: {what} of {key} at {}: {before:?}", self.seed, self.now());
                match std::mem::replace(&mut self.pending, Pending::Nothing) {
                    Pending::Change(key, Some(after)) => drop(self.twins.insert(key, after)),
                    Pending::Change(key, None) => drop(self.twins.remove(&key)),
                    _ => {}
                }
                Ok(())
            }
            Err(error @ ArchiveError::Stopped(_)) => Err(error),
            Err(error) if self.is_fault(&error) => {
                self.pending = Pending::Nothing;
                Ok(())
            }
            Err(error) => {
                assert!(!allowed, "seed {}: {what} of {key}: {error}: {before:?}", self.seed);
                self.pending = Pending::Nothing;
                Ok(())
            }
        }
    }

    async fn tell_event(&mut self, key: String, twin: Twin) -> Result<()> {
        let at = (self.now().0 + 10 * DAY).saturating_sub(self.dice.below(30 * DAY));
        self.pending = Pending::Change(key.clone(), Some(Twin { event: Some(at), ..twin.clone() }));
        let told = self.archive.tell_event(&admin(), BUCKET, &key, Some(twin.version), Timestamp(at)).await;
        let allowed = twin.line().initiation == Initiation::Event && twin.event.is_none();
        self.judged("an event", (&key, &twin), allowed, told)
    }

    /// Two officers take an event back before its date.
    async fn take_event_back(&mut self, key: String, twin: Twin) -> Result<()> {
        let allowed = twin.event.is_some_and(|at| at > self.now().0);
        let asked = self.archive.request_revocation(&officer("anna", 1), &Run::name(&key, &twin)).await;
        let asked = match asked {
            Ok(asked) => asked,
            refused => return self.judged("a request", (&key, &twin), allowed, refused),
        };
        let alone = self.archive.approve(&officer("anna", 1), &asked.id).await;
        assert!(alone.is_err(), "nobody approves what they asked for");
        self.pending = Pending::Change(key.clone(), Some(Twin { event: None, ..twin.clone() }));
        let approved = self.archive.approve(&officer("ben", 2), &asked.id).await;
        self.judged("an event taken back", (&key, &twin), allowed, approved)
    }

    async fn hold(&mut self, key: String, twin: Twin) -> Result<()> {
        let matter = *self.dice.pick(&MATTERS).unwrap();
        let on = self.dice.one_in(2);
        let mut after = twin.clone();
        match on {
            true => drop(after.under.insert(matter.into())),
            false => drop(after.under.remove(matter)),
        }
        self.pending = Pending::Change(key.clone(), Some(after));
        let listed = self.archive.hold_listed(&admin(), matter, vec![Run::name(&key, &twin)], on).await;
        let done = listed.and_then(|listed| match listed[0].failure.clone() {
            None => Ok(()),
            Some(failure) if self.faulty => Err(ArchiveError::NoSpace(failure)),
            Some(failure) => Err(ArchiveError::Stopped(failure)),
        });
        self.judged("a hold", (&key, &twin), true, done)
    }

    async fn extend(&mut self, key: String, twin: Twin) -> Result<()> {
        let until = self.archive.store().later_now().0 + 1 + self.dice.below(12 * DAY);
        let after = Retention { mode: twin.line().mode, until: Timestamp(until) };
        let allowed = twin.end().is_some_and(|end| end <= until || end <= self.now().0);
        let extended = twin.extended.max(until);
        self.pending = Pending::Change(key.clone(), Some(Twin { extended, ..twin.clone() }));
        let (version, by) = (Some(twin.version), admin());
        let set = self.archive.set_retention(&by, BUCKET, &key, version, Some(after), false).await;
        self.judged("an extension", (&key, &twin), allowed, set)
    }

    async fn delete(&mut self, key: String, twin: Twin) -> Result<()> {
        let bypass = self.dice.one_in(2);
        let request = DeleteRequest {
            bucket: BUCKET.into(),
            key: key.clone(),
            version: Some(twin.version),
            bypass_governance: bypass,
            ..DeleteRequest::default()
        };
        let allowed = match bypass {
            true => twin.may_be_deleted(self.now()),
            false => twin.under.is_empty() && twin.is_over(self.now()),
        };
        self.pending = Pending::Change(key.clone(), None);
        let deleted = self.archive.delete(&admin(), request).await;
        self.judged("a deletion", (&key, &twin), allowed, deleted)
    }

    async fn delete_by_two(&mut self, key: String, twin: Twin) -> Result<()> {
        let allowed = twin.may_be_deleted(self.now());
        let asked = self.archive.request_deletion(&officer("anna", 1), &Run::name(&key, &twin), "an error").await;
        let asked = match asked {
            Ok(asked) => asked,
            refused => return self.judged("a request", (&key, &twin), allowed, refused),
        };
        // A hold that comes between the request and the approval counts.
        if self.dice.one_in(4) {
            self.hold(key.clone(), twin.clone()).await?;
        }
        let Some(twin) = self.twins.get(&key).cloned() else { return Ok(()) };
        let allowed = twin.may_be_deleted(self.now());
        self.pending = Pending::Change(key.clone(), None);
        let approved = self.archive.approve(&officer("ben", 2), &asked.id).await;
        self.judged("a deletion by two", (&key, &twin), allowed, approved)
    }

    /// A receipt states the version as the twin has it.
    async fn receive(&mut self, key: String, twin: Twin) -> Result<()> {
        let receipt = self.archive.receipt(&admin(), BUCKET, &key, Some(twin.version), None).await?;
        let end = twin.end().map_or(Timestamp::LATEST, Timestamp).to_string();
        assert_eq!(receipt.keep_until, Some(end), "seed {}: {key}: {twin:?}", self.seed);
        assert_eq!(receipt.legal_hold, Some(twin.under.contains("s3")));
        let named: BTreeSet<String> = twin.under.iter().filter(|name| *name != "s3").cloned().collect();
        assert_eq!(receipt.matters.iter().cloned().collect::<BTreeSet<_>>(), named);
        assert_eq!(receipt.class.as_deref(), Some(twin.line().name));
        self.keep(receipt);
        Ok(())
    }

    async fn pass_time(&mut self) -> Result<()> {
        self.world.stage.pass(self.dice.below(3 * DAY));
        self.pending = Pending::Expiry;
        let mut held = self.faulty;
        for _ in 0..2 {
            self.world.stage.pass(400_000);
            while self.archive.step().await?.more {}
            held |= self.archive.store().frozen().is_some();
        }
        if !held {
            let now = self.now();
            self.twins.retain(|_, twin| !twin.may_expire(now));
        }
        self.pending = Pending::Nothing;
        match held {
            true => self.adopt_expiry(self.now()).await,
            false => self.compare().await,
        }
        Ok(())
    }

    /// The versions that are here, by key.
    async fn here(&self) -> BTreeMap<String, ObjectInfo> {
        let request = ListVersionsRequest { bucket: BUCKET.into(), limit: 1000, ..Default::default() };
        let page = self.archive.list_versions(&admin(), request).await.unwrap();
        page.versions.into_iter().map(|info| (info.key.clone(), info)).collect()
    }

    /// Only what could expire at this time is gone.
    async fn adopt_expiry(&mut self, now: Timestamp) {
        let here = self.here().await;
        let gone = self.twins.iter().filter(|(key, _)| !here.contains_key(*key));
        for (key, twin) in gone {
            assert!(twin.may_expire(now), "seed {}: {key} is gone at {now}: {twin:?}", self.seed);
        }
        self.twins.retain(|key, _| here.contains_key(key));
    }

    /// Exactly the versions of the twin are there, as it has them. Every receipt still leads to the
    /// log.
    async fn compare(&self) {
        check_counts(&self.archive);
        let here = self.here().await;
        let keys: Vec<&String> = here.keys().collect();
        assert_eq!(keys, self.twins.keys().collect::<Vec<_>>(), "seed {}", self.seed);
        for (key, info) in &here {
            self.compare_one(key, info, &self.twins[key]).await.unwrap_or_else(|difference| panic!("{difference}"));
        }
        for receipt in &self.receipts {
            let public = key_of(&receipt.head);
            let proof = match self.archive.consistency(&admin(), &receipt.head, None).await {
                // Its head may have to be signed first, and power fails in that write.
                Err(_) if self.world.bench.is_dead() => return,
                proof => proof.unwrap(),
            };
            assert_eq!(proof.verify(&receipt.head, &public), Ok(()), "seed {}", self.seed);
        }
    }

    async fn compare_one(&self, key: &str, info: &ObjectInfo, twin: &Twin) -> std::result::Result<(), String> {
        let why = self.archive.why(&admin(), BUCKET, key, Some(twin.version)).await.unwrap();
        let until = info.retention.map(|retention| retention.until);
        let end = twin.end().map_or(Timestamp::LATEST, Timestamp);
        let under: BTreeSet<String> = why.matters.iter().cloned().collect();
        let is_protected = !twin.under.is_empty() || !twin.is_over(self.now());
        let alike = info.version == twin.version
            && until == Some(end)
            && under == twin.under
            && why.class.as_deref() == Some(twin.line().name)
            && why.protected == is_protected;
        match alike {
            true => Ok(()),
            false => Err(format!("seed {}: {key} until {until:?}, {why:?}, expected {twin:?} until {end}", self.seed)),
        }
    }

    /// Power is back, and the drives are whole.
    async fn recover(&mut self) {
        self.fail_drives(false);
        self.world.bench.power_on();
        // The clock may show less after the crash than what expiration went by.
        let before = self.now();
        self.archive = self.world.open().await;
        let here = self.here().await;
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Expiry => self.adopt_expiry(before).await,
            Pending::Store(key, class) => {
                if let Some(info) = here.get(&key) {
                    let (version, stored) = (info.version, info.modified.0);
                    let twin = Twin { version, stored, class, event: None, extended: 0, under: BTreeSet::new() };
                    self.twins.insert(key, twin);
                }
            }
            Pending::Change(key, None) => {
                if !here.contains_key(&key) {
                    self.twins.remove(&key);
                }
            }
            Pending::Change(key, Some(after)) => {
                let info = &here[&key];
                if self.compare_one(&key, info, &self.twins[&key]).await.is_err() {
                    self.twins.insert(key, after);
                }
            }
        }
        self.compare().await;
    }
}

async fn history(seed: u64, cuts: bool, faults: bool) {
    let mut run = Run::new(seed).await;
    for n in 0..160 {
        if run.faulty && run.dice.one_in(3) {
            run.fail_drives(false);
            run.compare().await;
        } else if faults && run.dice.one_in(12) {
            run.fail_drives(true);
        }
        if cuts && run.dice.one_in(9) {
            let after = run.dice.below(14);
            run.world.bench.cut_after(after);
        }
        let done = run.act(n).await;
        match done {
            _ if run.world.bench.is_dead() => run.recover().await,
            Ok(()) => {}
            Err(error) if run.is_fault(&error) => run.pending = Pending::Nothing,
            Err(error) => panic!("seed {seed}, step {n}: {error}"),
        }
        if run.dice.one_in(25) {
            run.fail_drives(false);
            let _ = run.archive.close().await;
            run.recover().await;
        }
    }
    run.fail_drives(false);
    run.world.bench.power_on();
    run.archive = run.world.open().await;
    run.compare().await;
    run.archive.close().await.unwrap();
    run.world.catalog = Arc::new(MemoryCatalog::new());
    let (archive, report) = Archive::rebuild(run.world.foundation(), run.world.options.clone()).await.unwrap();
    assert!(report.findings.iter().all(|finding| finding.contains("torn") && cuts), "seed {seed}: {report:?}");
    run.archive = archive;
    run.world.check_index();
    run.compare().await;
}

#[tokio::test]
async fn random_histories_follow_every_rule() {
    for seed in 0..10 {
        history(seed, false, false).await;
    }
}

#[tokio::test]
async fn random_histories_through_power_cuts_follow_every_rule() {
    for seed in 100..106 {
        history(seed, true, false).await;
    }
}

#[tokio::test]
async fn random_histories_through_faults_follow_every_rule() {
    for seed in 200..206 {
        history(seed, false, true).await;
    }
}

#[tokio::test]
async fn random_histories_through_all_of_it_follow_every_rule() {
    for seed in 300..306 {
        history(seed, true, true).await;
    }
}
