//! The index of properties: a search by it finds what a look at every version finds, whatever
//! happened to the store.

use std::collections::BTreeSet;

use bytes::Bytes;
use stele_catalog::Transaction;
use stele_ground::Dice;

use super::classes::{active, store, terms};
use super::*;
use crate::model::checksum::to_hex;
use crate::record::properties::{INDEX, IndexRow, IndexStage, LARGE};
use crate::record::version::VersionRow;
use crate::record::{PROPERTIES, SETTINGS, VERSIONS, decode, encode, keys};
use crate::testing::{Gate, MIB, put_as, records};
use crate::upkeep::background::StepReport;

const HOUR: u64 = 3_600_000;
const KEYS: [&str; 8] = ["a", "a/b", "a/c", "a/c/d", "b\0c", "b\0", "ü/ö", "z"];
const NAMES: [&str; 3] = ["case", "desk", "é"];
const VALUES: [&str; 3] = ["smith", "jones", ""];

struct Scene {
    world: World,
    archive: Archive,
    dice: Dice,
    /// Of the first version.
    begun: Timestamp,
}

impl Scene {
    async fn new(seed: u64) -> Scene {
        let world = World::sized(seed, 24 * MIB, 256 << 10);
        let archive = store(&world).await;
        for name in ["staff", "mail"] {
            active(&archive, name, terms(Initiation::Creation, Some(0), 0, ExpiryAction::Keep)).await;
        }
        for name in ["smith", "jones", "other"] {
            archive.open_matter(&admin(), name, "a reason").await.unwrap();
        }
        let versioned = BucketChange::Versioning(Versioning::Enabled);
        archive.change_bucket(&admin(), "plain", versioned).await.unwrap();
        let begun = archive.store().wall();
        Scene { world, archive, dice: Dice::new(seed), begun }
    }

    fn pairs(&mut self, most: u64) -> Tags {
        let mut pairs = Tags::new();
        for n in 0..self.dice.below(most + 1) {
            // More names than there are in NAMES, for metadata beyond the limit.
            let name = self.dice.pick(&NAMES).unwrap();
            let name = if n > 2 { format!("{name}{n}") } else { (*name).to_string() };
            pairs.insert(name, (*self.dice.pick(&VALUES).unwrap()).to_string());
        }
        pairs
    }

    fn bucket(&mut self) -> String {
        if self.dice.one_in(4) { "plain".into() } else { "records".into() }
    }

    /// A stored version: bucket, key and version.
    fn pick(&mut self) -> Option<VersionName> {
        let versions = rows(&self.world);
        let (key, row) = self.dice.pick(&versions).filter(|(_, row)| !row.marker)?;
        let (bucket, name, inverted) = keys::split(key).unwrap();
        let bucket = self.archive.store().buckets().by_number(bucket)?.name().to_string();
        Some(VersionName { bucket, key: name, version: Some(row.id(!inverted)) })
    }

    async fn put(&mut self) {
        let metadata = Metadata { user: self.pairs(6), ..Metadata::default() };
        let bucket = self.bucket();
        let class = ["staff", "mail"][self.dice.below(2) as usize];
        let request = PutRequest {
            class: (bucket == "records" && self.dice.one_in(2)).then(|| class.to_string()),
            key: (*self.dice.pick(&KEYS).unwrap()).into(),
            tags: self.pairs(3),
            bucket,
            metadata,
            ..PutRequest::default()
        };
        let length = self.dice.below(2 * LARGE) as usize;
        match put_as(&self.archive, &admin(), request, &vec![7; length]).await {
            // The null version that it would replace is held.
            Ok(_) | Err(ArchiveError::Retained { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// One change. Retention and holds may refuse it.
    async fn act(&mut self) {
        self.world.stage.pass(self.dice.below(HOUR));
        let picked = self.pick();
        match (self.dice.below(10), picked) {
            (0..=4, _) | (_, None) => self.put().await,
            (5, Some(name)) => {
                let tags = self.pairs(3);
                self.archive.set_tags(&admin(), &name.bucket, &name.key, name.version, tags).await.unwrap();
            }
            (6, Some(name)) => {
                let matter = ["smith", "jones"][self.dice.below(2) as usize];
                let on = self.dice.one_in(2);
                self.archive.hold_listed(&admin(), matter, vec![name], on).await.unwrap();
            }
            (7, Some(name)) if name.bucket == "records" => {
                let on = self.dice.one_in(2);
                self.archive.set_legal_hold(&admin(), &name.bucket, &name.key, name.version, on).await.unwrap();
            }
            (8, Some(name)) => {
                let version = name.version.filter(|_| self.dice.one_in(2));
                let delete = DeleteRequest { bucket: name.bucket, key: name.key, version, ..DeleteRequest::default() };
                drop(self.archive.delete(&admin(), delete).await);
            }
            (_, Some(_)) if self.dice.one_in(2) => {
                let suspended = if self.dice.one_in(2) { Versioning::Suspended } else { Versioning::Enabled };
                let change = BucketChange::Versioning(suspended);
                self.archive.change_bucket(&admin(), "plain", change).await.unwrap();
            }
            _ => {}
        }
    }

    fn query(&mut self) -> FindQuery {
        let time = |dice: &mut Dice, begun: Timestamp| Timestamp(begun.0 + dice.below(120 * HOUR));
        let mut query = FindQuery::default();
        query.selection.bucket = self.bucket();
        let prefixes = ["", "", "a", "a/", "a/c", "b\0", "none", "z"];
        query.selection.prefix = (*self.dice.pick(&prefixes).unwrap()).into();
        if self.dice.one_in(3) {
            query.selection.tags = self.pairs(2);
        }
        if self.dice.one_in(3) {
            query.metadata = self.pairs(2);
        }
        query.selection.stored_after = self.dice.one_in(3).then(|| time(&mut self.dice, self.begun));
        query.selection.stored_before = self.dice.one_in(3).then(|| time(&mut self.dice, self.begun));
        if query.selection.stored_before <= query.selection.stored_after {
            query.selection.stored_before = None;
        }
        query.class = self.dice.one_in(5).then(|| "staff".into());
        query.matter = self.dice.one_in(5).then(|| ["smith", "s3", "other"][self.dice.below(3) as usize].into());
        query.size_min = self.dice.one_in(4).then(|| self.dice.below(2 * LARGE));
        query.size_max = self.dice.one_in(6).then(|| self.dice.below(2 * LARGE));
        if query.size_max < query.size_min {
            query.size_max = None;
        }
        query
    }

    /// The search begins anywhere and finds what a look at every row finds.
    async fn compare(&mut self) -> usize {
        let versions = rows(&self.world);
        let query = self.query();
        let after = self.dice.pick(&versions).map(|(key, _)| key.clone()).filter(|_| self.dice.one_in(2));
        let bucket = self.archive.store().buckets().by_name(&query.selection.bucket).unwrap().number;
        let beginning = keys::prefix(bucket, &query.selection.prefix);
        let expected: Vec<(String, String)> = versions
            .iter()
            .filter(|(key, row)| key.starts_with(&beginning) && query.finds(row))
            .filter(|(key, _)| after.as_ref().is_none_or(|after| key > after))
            .map(|(key, row)| {
                let (_, name, inverted) = keys::split(key).unwrap();
                (name, row.id(!inverted).to_string())
            })
            .collect();
        let (mut found, mut after) = (Vec::new(), after.map(|key| to_hex(&key)));
        loop {
            let (page, next) = self.archive.find(&admin(), &query, after.as_deref()).await.unwrap();
            found.extend(page.into_iter().map(|one| (one.key, one.version)));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{query:?}");
        found.len()
    }

    fn stage(&self) -> Option<IndexStage> {
        let raw = self.world.catalog.snapshot().unwrap().get(SETTINGS, INDEX).unwrap()?;
        minicbor::decode::<IndexRow>(&raw).ok().map(|row| row.stage)
    }

    async fn reopen(&mut self, closed: bool) {
        if closed {
            self.archive.close().await.unwrap();
        }
        self.archive = self.world.open().await;
    }
}

fn rows(world: &World) -> Vec<(Bytes, VersionRow)> {
    let decoded = |(key, value): (Bytes, Bytes)| (key.clone(), decode(VERSIONS, &key, &value).unwrap());
    records(&*world.catalog, VERSIONS).into_iter().map(decoded).collect()
}

#[tokio::test]
async fn a_search_by_the_index_finds_what_a_scan_finds() {
    let mut found = 0;
    for seed in 0..8 {
        let mut scene = Scene::new(seed).await;
        for step in 0..300 {
            scene.act().await;
            if step % 50 == 49 {
                assert_eq!(scene.stage(), Some(IndexStage::Complete));
                scene.world.check_index();
                for _ in 0..60 {
                    found += scene.compare().await;
                }
            }
            if step % 100 == 99 {
                let closed = scene.dice.one_in(2);
                scene.reopen(closed).await;
            }
        }
    }
    assert!(found > 10_000, "{found}");
}

/// Without its records a version is not found: the search has read the index, not every row.
#[tokio::test]
async fn a_search_reads_the_index_where_it_is_complete() {
    let world = World::new(1);
    let archive = store(&world).await;
    let tags = Tags::from([("case".to_string(), "smith".to_string())]);
    let request = PutRequest { bucket: "records".into(), key: "a".into(), tags: tags.clone(), ..Default::default() };
    put_as(&archive, &admin(), request, b"record").await.unwrap();
    let selection = Selection { bucket: "records".into(), tags, ..Selection::default() };
    let query = FindQuery { selection, ..FindQuery::default() };
    let count = async || archive.find(&admin(), &query, None).await.unwrap().0.len();
    assert_eq!(count().await, 1);
    let mut deletions = Transaction::new();
    for (record, _) in records(&*world.catalog, PROPERTIES) {
        deletions = deletions.delete(PROPERTIES, record);
    }
    world.catalog.commit(deletions).await.unwrap();
    assert_eq!(count().await, 0);
    // As if its making had only begun.
    let last = archive.store().identity().look(|identity| identity.pairing);
    let row = IndexRow { pairing: last, stage: IndexStage::Filling(None), ..IndexRow::of_new_catalog() };
    world.catalog.commit(Transaction::new().put(SETTINGS, INDEX, encode(&row))).await.unwrap();
    assert_eq!(count().await, 1);
    while archive.step().await.unwrap().more {}
    world.check_index();
    assert_eq!(count().await, 1);
}

/// A catalog of an older version gets its index beside changes, and a restart in between goes on
/// with it.
#[tokio::test]
async fn an_older_catalog_gets_its_index_beside_changes() {
    for seed in 0..12 {
        let mut scene = Scene::new(seed).await;
        for _ in 0..80 {
            scene.act().await;
        }
        // Records that no version has, and records of the wrong versions, as an older version
        // leaves them behind.
        let mut former = Transaction::new().delete(SETTINGS, INDEX);
        for (n, (record, _)) in records(&*scene.world.catalog, PROPERTIES).into_iter().enumerate() {
            former = match (n % 3, seed % 3) {
                (0, _) | (_, 0) => former.delete(PROPERTIES, record),
                _ => former.put(PROPERTIES, [&record[..], b"x"].concat(), ""),
            };
        }
        scene.archive.close().await.unwrap();
        scene.world.catalog.commit(former).await.unwrap();
        scene.archive = scene.world.open().await;
        assert_eq!(scene.stage(), Some(IndexStage::Clearing));
        let mut stages = BTreeSet::new();
        for step in 0.. {
            assert!(step < 1000, "it does not end");
            if step % 7 == 6 {
                let closed = scene.dice.one_in(2);
                scene.reopen(closed).await;
            }
            scene.archive.step().await.unwrap();
            scene.act().await;
            scene.compare().await;
            let stage = scene.stage().unwrap();
            stages.insert(match stage {
                IndexStage::Clearing => 0,
                IndexStage::Filling(None) => 1,
                IndexStage::Filling(Some(_)) => 2,
                IndexStage::Complete => break,
            });
        }
        assert!(stages.contains(&2), "the restarts came into the midst of it: {stages:?}");
        scene.world.check_index();
        for _ in 0..60 {
            scene.compare().await;
        }
    }
}

/// An older version of Stele opens the store, changes versions and knows of no index.
#[tokio::test]
async fn an_index_that_an_opening_left_out_is_made_anew() {
    let mut scene = Scene::new(5).await;
    for _ in 0..60 {
        scene.act().await;
    }
    scene.archive.close().await.unwrap();
    let snapshot = scene.world.catalog.snapshot().unwrap();
    let former = snapshot.get(SETTINGS, INDEX).unwrap().unwrap();
    scene.archive = scene.world.open().await;
    // What the older version stores has no records, and what it removes leaves its records behind.
    let before: BTreeSet<Bytes> =
        records(&*scene.world.catalog, PROPERTIES).into_iter().map(|(record, _)| record).collect();
    for _ in 0..30 {
        scene.act().await;
    }
    scene.archive.close().await.unwrap();
    let mut undone = Transaction::new().put(SETTINGS, INDEX, former);
    for (record, _) in records(&*scene.world.catalog, PROPERTIES) {
        undone = undone.delete(PROPERTIES, record);
    }
    for record in before {
        undone = undone.put(PROPERTIES, record, "");
    }
    scene.world.catalog.commit(undone).await.unwrap();
    // For reading only it is known too.
    let options = Options { read_only: true, ..scene.world.options.clone() };
    scene.archive = Archive::open(scene.world.foundation(), options).await.unwrap();
    for _ in 0..60 {
        scene.compare().await;
    }
    scene.archive = Archive::open(scene.world.foundation(), scene.world.options.clone()).await.unwrap();
    assert_eq!(scene.stage(), Some(IndexStage::Clearing));
    for _ in 0..60 {
        scene.compare().await;
    }
    while scene.archive.step().await.unwrap().more {}
    assert_eq!(scene.stage(), Some(IndexStage::Complete));
    scene.world.check_index();
    for _ in 0..60 {
        scene.compare().await;
    }
}

/// A change whose commit comes between the reading of a page and its commit: at every point at
/// which it waits.
#[test]
fn a_change_beside_a_page_of_the_making_keeps_its_index() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    for polls in 0..12 {
        let (world, gate) = World::gated(polls as u64, 24 * MIB, 256 << 10);
        let all = |gate: &Gate, future: std::pin::Pin<Box<dyn Future<Output = ()>>>| {
            gate.drive(future, usize::MAX).unwrap();
        };
        let archive = runtime.block_on(store(&world));
        for key in KEYS {
            runtime.block_on(put(&archive, "records", key, b"record")).unwrap();
        }
        // A property that each change takes away.
        for key in KEYS {
            let tags = Tags::from([("case".to_string(), "old".to_string())]);
            runtime.block_on(archive.set_tags(&admin(), "records", key, None, tags)).unwrap();
        }
        let last = archive.store().identity().look(|identity| identity.pairing);
        let row = IndexRow { pairing: last, stage: IndexStage::Clearing, ..IndexRow::of_new_catalog() };
        world.catalog.commit(Transaction::new().put(SETTINGS, INDEX, encode(&row))).wait().unwrap();
        gate.close();
        for key in KEYS {
            let tags = Tags::from([("case".to_string(), key.len().to_string())]);
            // Dropped: what it has asked for still takes place, before the page's commit.
            drop(gate.drive(archive.set_tags(&admin(), "records", key, None, tags), polls));
            let archive = archive.clone();
            all(
                &gate,
                Box::pin(async move {
                    archive.store().index_step(&mut StepReport::default()).await.unwrap();
                }),
            );
        }
        gate.open();
        while runtime.block_on(archive.step()).unwrap().more {}
        let raw = world.catalog.snapshot().unwrap().get(SETTINGS, INDEX).unwrap().unwrap();
        assert_eq!(minicbor::decode::<IndexRow>(&raw).unwrap().stage, IndexStage::Complete);
        world.check_index();
    }
}

/// Every change of the table of versions goes through the trait that keeps the index.
#[test]
fn rows_of_versions_are_written_in_one_place() {
    fn visit(folder: &std::path::Path, wrong: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            if path.is_dir() && !name.ends_with("/tests") {
                visit(&path, wrong);
            } else if name.ends_with(".rs") && !name.ends_with("record/properties.rs") {
                let text: String = std::fs::read_to_string(&path).unwrap().split_whitespace().collect();
                wrong.extend((text.contains(".put(VERSIONS,") || text.contains(".delete(VERSIONS,")).then_some(name));
            }
        }
    }
    let mut wrong = Vec::new();
    visit(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut wrong);
    assert!(wrong.is_empty(), "use VersionRows: {wrong:?}");
}
