//! Retention over many versions: an archive in this process on file drives, without HTTP and
//! without an array.
//!
//! The versions come through the archive's own puts, many at once, each durable, with a retention,
//! a note on the data volume and an audit record. Each has 14 bytes, so the figures are those of
//! the catalog and the log, not of content. `--versions` sets their number. A reference is the same
//! work without the feature: a listing of the same versions, another change of as many rows, a read
//! of the same object.
//!
//! The whole run is in one store, in the order of the cases. What comes once (a hold, a pass of
//! expiration) has one round and no spread.

mod proof;
mod store;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use stele_archive::{
    BucketChange, Caller, DeleteRequest, FindQuery, GetRequest, ListRequest, ListVersionsRequest, PolicyRequest,
    RequestFacts, Rights, Selection, Tags, Timestamp,
};
use stele_ground::Dice;
use tokio::runtime::{Builder, Runtime};

use crate::harness::{Bench, Unit, rate};
use crate::process::{Usage, resident, restart_peak};
use store::{GONE, HOUR, KEPT, PLAIN, Store, TOGETHER, admin, key, words};

/// Versions unless `--versions` says otherwise.
const VERSIONS: u64 = 1_000_000;
const HELD_MAX: u64 = 1_000_000;
/// Versions of samples, and of deletions.
const SAMPLE: u64 = 10_000;
const PUTS: u64 = 2000;
/// A receipt may add a twentieth to the cost of a PUT.
const RECEIPT_RATIO: f64 = 1.0 / 1.05;
const ROUND: Duration = Duration::from_millis(500);

const SPEED: Unit = Unit::more("versions/s");
const MILLISECONDS: Unit = Unit::less("ms");
const MICROSECONDS: Unit = Unit::less("us");

const LOAD: &str = "put of 14 bytes";
const LIST: &str = "list 1,000 with a delimiter";
const WHY: &str = "why, p99";
const POLICY: &str = "policy of 20 statements, per request";
const RECEIPT: &str = "receipt of a 4 KiB put, CPU";
const FIND: [&str; 4] = ["find by tag", "find by class", "find by date", "find by matter"];
/// Beside the target of a selective search, behind its name.
const BESIDE_TARGET: &str = ", beside the target";
/// Milliseconds of a selective search among ten million versions.
const FIND_MAX: f64 = 1000.0;
const FIND_TARGET: &str = "the target, with ten million versions";
const HOLD: &str = "hold on a selection";
const HOLD_MEMORY: &str = "hold on a selection, memory growth";
const SCAN: &str = "expiration, versions that stay";
const SCAN_AGAIN: &str = "expiration, next turn";
const EXPIRE: &str = "expiration, versions that go";

/// A bench under way.
struct Run<'b> {
    bench: &'b mut Bench,
    runtime: Runtime,
    store: Store,
    versions: u64,
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let all = [LOAD, LIST, WHY, POLICY, RECEIPT, HOLD, HOLD_MEMORY, SCAN, SCAN_AGAIN, EXPIRE];
    let finds = FIND.iter().fold(false, |any, case| any | bench.wants_any(case, ["", BESIDE_TARGET]));
    if !bench.wants_any("", all.into_iter().chain(proof::CASES)) && !finds {
        return Ok(());
    }
    // A whole number of each group.
    let versions = bench.versions().unwrap_or(VERSIONS).next_multiple_of(store::GROUPS);
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(words)?;
    let store = runtime.block_on(Store::new(versions))?;
    let mut run = Run { bench, runtime, store, versions };
    run.load()?;
    run.list()?;
    run.why()?;
    run.policy()?;
    run.receipt()?;
    run.find(&FIND[..3])?;
    run.proof()?;
    run.hold()?;
    run.find(&FIND[3..])?;
    run.expiration()
}

/// A prefix that selects at most this many of the versions, and how many.
fn prefix(versions: u64, most: u64) -> (&'static str, u64) {
    let all = [("", 1), ("host-0", 10), ("host-00", 100), ("host-000/", 1000)];
    let fits = all.into_iter().find(|(_, share)| versions / share <= most);
    fits.map_or(("host-000/", versions / 1000), |(prefix, share)| (prefix, versions / share))
}

impl Run<'_> {
    fn load(&mut self) -> Result<(), String> {
        restart_peak();
        let (before, begin) = (resident(), Instant::now());
        self.runtime.block_on(self.store.fill(KEPT, 0..self.versions))?;
        let speed = self.versions as f64 / begin.elapsed().as_secs_f64();
        self.bench.figure(LOAD, SPEED, speed, None, None);
        let grown = Usage::own().resident_peak_bytes.saturating_sub(before) >> 20;
        let begin = Instant::now();
        self.runtime.block_on(self.store.settle())?;
        let settled = begin.elapsed().as_secs_f64();
        self.bench.note(&format!(
            "{} versions in one bucket, {} in a group; memory grew by {grown} MiB; {settled:.0} s of background work behind",
            self.versions,
            self.versions / store::GROUPS
        ));
        Ok(())
    }

    fn list(&mut self) -> Result<(), String> {
        let page = |delimiter: Option<&str>| {
            let request = ListRequest {
                bucket: KEPT.into(),
                delimiter: delimiter.map(str::to_owned),
                limit: 1000,
                ..ListRequest::default()
            };
            let begin = Instant::now();
            let page = self.runtime.block_on(self.store.archive.list(&admin(), request)).map_err(words)?;
            let entries = page.objects.len() + page.common_prefixes.len();
            if entries as u64 != self.versions.min(1000) {
                return Err(format!("a page of {entries} entries"));
            }
            Ok(begin.elapsed().as_secs_f64() * 1e3)
        };
        self.bench.case(LIST, MILLISECONDS).beside("list 1,000", || page(None)).run(|| page(Some("/")))
    }

    /// The slowest of a hundred, in microseconds, over versions drawn at random.
    fn slow<F: Future<Output = Result<(), String>>>(&self, ask: impl Fn(String) -> F) -> Result<f64, String> {
        let mut dice = Dice::new(2);
        let mut taken = Vec::new();
        for _ in 0..SAMPLE {
            let key = key(dice.below(self.versions));
            let begin = Instant::now();
            self.runtime.block_on(ask(key))?;
            taken.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        taken.sort_by(f64::total_cmp);
        Ok(taken[taken.len() * 99 / 100])
    }

    fn why(&mut self) -> Result<(), String> {
        if !self.bench.wants(WHY) {
            return Ok(());
        }
        let (archive, admin) = (&self.store.archive, &admin());
        let rounds = self.bench.rounds().min(3);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(
                self.slow(|key| async move { archive.why(admin, KEPT, &key, None).await.map(drop).map_err(words) })?,
            );
            theirs.push(self.slow(|key| async move {
                let request = GetRequest { bucket: KEPT.into(), key, ..GetRequest::default() };
                archive.head(admin, request).await.map(drop).map_err(words)
            })?);
        }
        self.bench.figures(WHY, MICROSECONDS, &ours, Some(("head, p99", middle(&mut theirs))), None);
        Ok(())
    }

    fn policy(&mut self) -> Result<(), String> {
        if !self.bench.wants(POLICY) {
            return Ok(());
        }
        let statements: Vec<String> = (0..20)
            .map(|n| {
                format!(
                    r#"{{"Sid":"s{n}","Effect":"Allow","Principal":"*","Action":["s3:GetObject","s3:PutObject"],
                    "Resource":"arn:aws:s3:::{GONE}/host-{n:03}/*","Condition":{{"IpAddress":{{"aws:SourceIp":"10.0.{n}.0/24"}}}}}}"#
                )
            })
            .collect();
        let policy = format!(r#"{{"Version":"2012-10-17","Statement":[{}]}}"#, statements.join(","));
        let archive = &self.store.archive;
        let admin = &admin();
        let set = archive.change_bucket(admin, GONE, BucketChange::Policy(Some(policy)));
        self.runtime.block_on(set).map_err(words)?;
        let mut caller = Caller::anonymous();
        caller.actor = stele_archive::Actor::Key("reader".into());
        caller.rights = std::sync::Arc::new(Rights::user("", ""));
        let mut facts = RequestFacts::default();
        facts.set("aws:SourceIp", "10.0.19.7");
        facts.set("aws:SecureTransport", "true");
        let request = PolicyRequest { action: "GetObject", key: Some("host-019/object"), version: None, prefix: "" };
        let permit = |bucket: &'static str| {
            let permitted = || {
                let judged = archive.permit(&caller, bucket, std::slice::from_ref(&request), facts.clone());
                std::hint::black_box(futures_util::FutureExt::now_or_never(judged));
            };
            Ok(1e6 / rate(ROUND, permitted))
        };
        self.bench.case(POLICY, MICROSECONDS).beside("no policy", || permit(KEPT)).run(|| permit(GONE))?;
        self.runtime.block_on(archive.change_bucket(admin, GONE, BucketChange::Policy(None))).map_err(words)?;
        Ok(())
    }

    /// Processor time of a put with its receipt, and of one without.
    fn receipt(&mut self) -> Result<(), String> {
        if !self.bench.wants(RECEIPT) {
            return Ok(());
        }
        let body = Bytes::from(vec![7; 4096]);
        let store = &self.store;
        let round = std::cell::Cell::new(0u64);
        let puts = |wanted: bool| {
            round.set(round.get() + 1);
            let first = round.get() * PUTS;
            let before = Usage::own().cpu_nanoseconds;
            let (body, admin) = (&body, &admin());
            let puts = stream::iter(first..first + PUTS).map(|number| async move {
                let info = store.put(PLAIN, number.to_string(), number, body).await?;
                if wanted {
                    let logged = info.logged.ok_or("a put has a record")?;
                    let receipt = store.archive.receipt_of_act(admin, PLAIN, &info.key, logged, None);
                    std::hint::black_box(receipt.await.map_err(words)?.to_json());
                }
                Ok::<_, String>(())
            });
            let all = puts.buffer_unordered(8).try_for_each(|()| std::future::ready(Ok(())));
            self.runtime.block_on(all)?;
            Ok((Usage::own().cpu_nanoseconds - before) as f64 / 1e3 / PUTS as f64)
        };
        let case = self.bench.case(RECEIPT, Unit::less("us/put")).target(RECEIPT_RATIO);
        case.beside("without", || puts(false)).run(|| puts(true))
    }

    /// Milliseconds of a listing of all versions.
    fn walk(&self) -> Result<f64, String> {
        let (begin, mut seen, mut marker) = (Instant::now(), 0, None);
        loop {
            let request = ListVersionsRequest {
                bucket: KEPT.into(),
                key_marker: marker,
                limit: 1000,
                ..ListVersionsRequest::default()
            };
            let page = self.runtime.block_on(self.store.archive.list_versions(&admin(), request)).map_err(words)?;
            seen += page.versions.len() as u64;
            marker = page.next_key_marker.filter(|_| page.truncated);
            if marker.is_none() {
                check("listed", seen, self.versions)?;
                return Ok(begin.elapsed().as_secs_f64() * 1e3);
            }
        }
    }

    fn find(&mut self, cases: &[&'static str]) -> Result<(), String> {
        for &name in cases {
            if !self.bench.wants_any(name, ["", BESIDE_TARGET]) {
                continue;
            }
            let mut query = FindQuery { selection: selection(""), ..FindQuery::default() };
            match name {
                "find by tag" => drop(query.selection.tags.insert("case".into(), "smith".into())),
                "find by class" => query.class = Some("staff".into()),
                // None is that old, so that the answer is short as those of the others are.
                "find by date" => query.selection.stored_before = Some(Timestamp(1)),
                _ => query.matter = Some("other".into()),
            }
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..self.bench.rounds().min(3) {
                let (begin, mut found, mut after) = (Instant::now(), 0, None::<String>);
                loop {
                    let (admin, archive) = (&admin(), &self.store.archive);
                    let page = archive.find(admin, &query, after.as_deref());
                    let (page, next) = self.runtime.block_on(page).map_err(words)?;
                    found += page.len() as u64;
                    after = next;
                    if after.is_none() {
                        break;
                    }
                }
                ours.push(begin.elapsed().as_secs_f64() * 1e3);
                let rare =
                    if name.ends_with("tag") || name.ends_with("class") { self.versions / store::RARE } else { 0 };
                check(name, found, rare)?;
                theirs.push(self.walk()?);
            }
            self.bench.figures(name, MILLISECONDS, &ours, Some(("list of all versions", middle(&mut theirs))), None);
            let beside = format!("{name}{BESIDE_TARGET}");
            self.bench.figures(&beside, MILLISECONDS, &ours, Some((FIND_TARGET, FIND_MAX)), Some(1.0));
        }
        Ok(())
    }

    fn hold(&mut self) -> Result<(), String> {
        if !self.bench.wants(HOLD) && !self.bench.wants(HOLD_MEMORY) {
            return Ok(());
        }
        let (prefix, count) = prefix(self.versions, HELD_MAX);
        let (archive, admin) = (&self.store.archive, &admin());
        let sample = SAMPLE.min(self.versions);
        let begin = Instant::now();
        let tags = Tags::from([("a".to_owned(), "b".to_owned())]);
        self.runtime.block_on(async {
            let changes = stream::iter(0..sample).map(|number| {
                let tags = tags.clone();
                async move { archive.set_tags(admin, KEPT, &key(number), None, tags).await.map_err(words) }
            });
            changes.buffer_unordered(TOGETHER).try_for_each(|_| std::future::ready(Ok(()))).await
        })?;
        let reference = sample as f64 / begin.elapsed().as_secs_f64();
        let open = archive.open_matter(admin, "smith", "Smith v. Jones");
        self.runtime.block_on(open).map_err(words)?;
        restart_peak();
        let (before, begin) = (resident(), Instant::now());
        let held = self.runtime.block_on(async {
            archive.hold_selected(admin, "smith", selection(prefix), true).await.map_err(words)?;
            let mut held = 0;
            loop {
                let report = archive.step().await.map_err(words)?;
                held += report.held;
                // The matter counts its versions when it is asked, so it is asked late.
                let ended = !report.more
                    && archive.matter(admin, "smith").await.map_err(words)?.job.is_some_and(|job| job.ended.is_some());
                if ended {
                    return Ok::<_, String>(held);
                }
            }
        })?;
        check("held", held, count)?;
        let speed = held as f64 / begin.elapsed().as_secs_f64();
        let grown = Usage::own().resident_peak_bytes.saturating_sub(before) as f64 / f64::from(1 << 20);
        self.bench.figure(HOLD, SPEED, speed, Some(("other tags, by requests", reference)), None);
        self.bench.figure(HOLD_MEMORY, Unit::less("MiB"), grown, None, None);
        self.bench.note(&format!("{held} versions were put under the matter"));
        self.runtime.block_on(self.store.settle()).map(drop)
    }

    fn expiration(&mut self) -> Result<(), String> {
        if ![SCAN, SCAN_AGAIN, EXPIRE].iter().any(|case| self.bench.wants(case)) {
            return Ok(());
        }
        let sample = SAMPLE.min(self.versions);
        let (archive, admin) = (&self.store.archive, &admin());
        self.runtime.block_on(self.store.settle())?;
        self.store.clock.pass(48 * HOUR);
        let settle = || {
            let begin = Instant::now();
            Ok::<_, String>((self.runtime.block_on(self.store.settle())?, begin.elapsed().as_secs_f64()))
        };
        let (_, taken) = settle()?;
        let listed = self.versions as f64 / (self.walk()? / 1e3);
        let reference = Some(("list of all versions", listed));
        self.bench.figure(SCAN, SPEED, self.versions as f64 / taken, reference, None);
        self.store.clock.pass(600_000);
        let (_, taken) = settle()?;
        self.bench.figure(SCAN_AGAIN, MILLISECONDS, taken * 1e3, None, None);

        self.runtime.block_on(self.store.fill(GONE, 0..2 * sample))?;
        // Less than a day after the pass, which would begin anew otherwise.
        self.store.clock.pass(3 * HOUR);
        let begin = Instant::now();
        self.runtime.block_on(async {
            let deletions = stream::iter(0..sample).map(|number| async move {
                let key = key(number);
                let version =
                    archive.head(admin, GetRequest { bucket: GONE.into(), key: key.clone(), ..GetRequest::default() });
                let version = Some(version.await.map_err(words)?.0.version);
                let request = DeleteRequest { bucket: GONE.into(), key, version, ..DeleteRequest::default() };
                archive.delete(admin, request).await.map_err(words)
            });
            deletions.buffer_unordered(TOGETHER).try_for_each(|_| std::future::ready(Ok(()))).await
        })?;
        let reference = sample as f64 / begin.elapsed().as_secs_f64();
        let (expired, taken) = settle()?;
        check("expired", expired, sample)?;
        self.bench.figure(EXPIRE, SPEED, sample as f64 / taken, Some(("deletions by requests", reference)), None);
        Ok(())
    }
}

fn selection(prefix: &str) -> Selection {
    Selection { bucket: KEPT.into(), prefix: prefix.into(), ..Selection::default() }
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn check(what: &str, found: u64, wanted: u64) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found} versions, not {wanted}")) }
}
