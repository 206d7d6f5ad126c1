//! Fills a catalog from a survey.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use stele_catalog::{Catalog, CatalogError, Head, Transaction, link};

use super::survey::{Reached, Survey, exists};
use super::{Filled, RebuildReport};
use crate::audit::sealing::sign_rebuilt;
use crate::model::error::{ArchiveError, Result};
use crate::model::mutation::Mutation;
use crate::model::principal::Actor;
use crate::model::time::Timestamp;
use crate::record::access_key::AccessKeyRow;
use crate::record::bucket::BucketRow;
use crate::record::content::Place;
use crate::record::matter::MatterRow;
use crate::record::properties::{INDEX, IndexRow};
use crate::record::settings::{
    AUDIT_HEAD, CLOCK, ClockRow, Cut, Doubt, Gap, IdentityNote, IdentityRow, NUMBERS, ReservedRow, SLOTS,
};
use crate::record::{ACCESS_KEYS, AUDIT, BUCKETS, MATTERS, REVOKED, SEGMENTS, SETTINGS, TOMBSTONES, encode, keys};
use crate::space::superblock::Superblock;
use crate::state::buckets::Bucket;
use crate::state::owned::{OwnedChange, count_owned};
use crate::store::foundation::Foundation;
use crate::store::signing::Signing;

/// Numbers left unused above the highest one found.
const MARGIN: u64 = 1 << 20;
const MARGIN_OF_LOSSES: u64 = 1 << 40;
/// The same for numbers of buckets.
const BUCKETS_MARGIN: u32 = 1000;
/// Days after the last note of the identity or the last version in which a lost head may have been
/// signed.
const LOST_HEADS_DAYS: u64 = 2;
/// Places that the matter `rebuild` names.
const PLACES: usize = 3;
/// Bytes of one transaction, approximately.
const BATCH: usize = 1 << 20;
const BATCH_STEPS: usize = 4000;

/// A transaction that is committed whenever it is full.
pub(super) struct Writer<'a> {
    catalog: &'a dyn Catalog,
    transaction: Transaction,
    bytes: usize,
}

impl Writer<'_> {
    pub async fn put(&mut self, table: stele_catalog::Table, key: Bytes, value: Bytes) -> Result<()> {
        self.bytes += key.len() + value.len();
        self.transaction = std::mem::take(&mut self.transaction).put(table, key, value);
        self.flush(false).await
    }

    async fn flush(&mut self, all: bool) -> Result<()> {
        let full = self.bytes > BATCH || self.transaction.mutations.len() > BATCH_STEPS;
        if (all || full) && !self.transaction.mutations.is_empty() {
            self.bytes = 0;
            commit_in_parts(self.catalog, std::mem::take(&mut self.transaction)).await?;
        }
        Ok(())
    }
}

/// Divides what finds no room in one transaction. A transaction counts at its worst case, far above
/// the room that most of its records take.
async fn commit_in_parts(catalog: &dyn Catalog, transaction: Transaction) -> Result<()> {
    let mut parts = vec![transaction];
    while let Some(mut part) = parts.pop() {
        match catalog.commit(part.clone()).await {
            Err(CatalogError::Full(_)) if part.mutations.len() > 1 => {
                let mut rest = Transaction::new();
                rest.mutations = part.mutations.split_off(part.mutations.len() / 2);
                parts.extend([rest, part]);
            }
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// A catalog being filled from a survey, with one function for each table.
pub(super) struct Filling<'a> {
    pub out: Writer<'a>,
    pub survey: Survey,
    pub buckets: &'a BTreeMap<u32, Bucket>,
    pub report: RebuildReport,
    /// Records and pieces to which a row refers.
    pub live: Vec<Place>,
    /// When the newest version was stored.
    pub latest: Timestamp,
    /// Matters that a version is under.
    pub matters: BTreeSet<String>,
    /// Objects that a version refers to.
    pub claimed: BTreeSet<u64>,
    /// The first key slot above all slots that are taken or cannot be read.
    pub slots_end: u64,
    /// Versions and bytes of each bucket.
    pub usage: BTreeMap<u32, (i64, i64)>,
    /// What each access key owns.
    pub owned: BTreeMap<Actor, OwnedChange>,
}

pub(super) async fn write(
    foundation: &Foundation,
    superblock: &Superblock,
    survey: Survey,
    buckets: &BTreeMap<u32, Bucket>,
    reached: Reached,
) -> Result<Filled> {
    let mut filling = Filling::new(&*foundation.catalog, survey, buckets);
    filling.put_buckets().await?;
    filling.put_access_keys().await?;
    filling.put_classes().await?;
    filling.put_versions().await?;
    filling.put_strengthened().await?;
    filling.put_matters(foundation.surroundings.now().wall).await?;
    filling.put_tombstones().await?;
    filling.put_usage().await?;
    filling.put_segments().await?;
    filling.put_audit().await?;
    filling.put_settings(foundation, superblock, reached).await
}

impl<'a> Filling<'a> {
    fn new(catalog: &'a dyn Catalog, survey: Survey, buckets: &'a BTreeMap<u32, Bucket>) -> Filling<'a> {
        let hidden = survey.hidden.iter().map(|slots| slots.end);
        let slots_end = survey.entries.values().map(|(slot, _)| slot + 1).chain(hidden).max().unwrap_or(0);
        Filling {
            out: Writer { catalog, transaction: Transaction::new(), bytes: 0 },
            buckets,
            report: RebuildReport { segments: survey.segments.len() as u64, ..RebuildReport::default() },
            survey,
            live: Vec::new(),
            latest: Timestamp(0),
            matters: BTreeSet::new(),
            claimed: BTreeSet::new(),
            slots_end,
            usage: BTreeMap::new(),
            owned: BTreeMap::new(),
        }
    }

    async fn put_buckets(&mut self) -> Result<()> {
        let existing = self.survey.versions.values().filter(|(_, note, _)| exists(&self.survey, note));
        let filled: BTreeSet<u32> = existing.map(|(_, note, _)| note.at.bucket).collect();
        let live = self.survey.buckets.values().filter(|(_, row, _)| row.deleted.is_none());
        let mut names: BTreeSet<String> = live.map(|(_, row, _)| row.name.clone()).collect();
        let mut found = Vec::new();
        for (number, (_, row, place)) in self.survey.buckets.iter().rev() {
            self.live.push(*place);
            self.report.buckets += 1;
            // A deletion is noted before its commit, which fails if a version was stored in
            // between.
            let deleted = row.deleted.filter(|_| !filled.contains(number));
            let comes_back = row.deleted.is_some() && deleted.is_none();
            let mut row = BucketRow { note: *place, deleted, ..row.clone() };
            if comes_back {
                // A newer bucket may have its name.
                let former = row.name.clone();
                while !names.insert(row.name.clone()) {
                    row.name = format!("{}.{number}", row.name);
                }
                if row.name != former {
                    found.push(format!("a deleted bucket `{former}` holds versions; it is there as `{}`", row.name));
                }
            }
            self.out.put(BUCKETS, keys::short(*number), encode(&row)).await?;
        }
        self.survey.findings.append(&mut found);
        Ok(())
    }

    async fn put_access_keys(&mut self) -> Result<()> {
        for (id, (_, row, place)) in &self.survey.access_keys {
            self.live.push(*place);
            self.report.access_keys += 1;
            let row = AccessKeyRow { note: *place, ..row.clone() };
            if row.revoked.is_some() {
                self.out.put(REVOKED, Bytes::copy_from_slice(id.as_bytes()), Bytes::new()).await?;
            }
            self.out.put(ACCESS_KEYS, Bytes::copy_from_slice(id.as_bytes()), encode(&row)).await?;
        }
        Ok(())
    }

    /// A matter that versions name and of which no note was found is open: its versions stay held.
    async fn put_matters(&mut self, wall: Timestamp) -> Result<()> {
        for name in std::mem::take(&mut self.matters) {
            if !self.survey.matters.contains_key(&name) {
                self.survey.findings.push(format!("matter `{name}`: its note is missing; it is open again"));
                let row = MatterRow::found_by_rebuild(wall);
                self.out.put(MATTERS, Bytes::copy_from_slice(name.as_bytes()), encode(&row)).await?;
            }
        }
        for (name, (_, row, place)) in &self.survey.matters {
            self.live.push(*place);
            let row = MatterRow { note: *place, ..row.clone() };
            self.out.put(MATTERS, Bytes::copy_from_slice(name.as_bytes()), encode(&row)).await?;
        }
        Ok(())
    }

    async fn put_tombstones(&mut self) -> Result<()> {
        // A certificate is noted before its removal is committed. While the version's key exists,
        // the version was not disposed of.
        let gone = self.survey.tombstones.iter().filter(|(_, (_, row))| !self.claimed.contains(&row.object));
        for (key, (_, row)) in gone {
            self.out.put(TOMBSTONES, key.clone(), encode(row)).await?;
        }
        Ok(())
    }

    async fn put_usage(&mut self) -> Result<()> {
        for (number, (versions, bytes)) in std::mem::take(&mut self.usage) {
            if let Some(bucket) = self.buckets.get(&number) {
                self.out.transaction = bucket.count(std::mem::take(&mut self.out.transaction), versions, bytes);
                // A quota limits additions. It does not apply to the versions that exist.
                self.out.transaction.preconditions.clear();
                self.out.flush(false).await?;
            }
        }
        for (owner, change) in std::mem::take(&mut self.owned) {
            self.out.transaction = count_owned(std::mem::take(&mut self.out.transaction), &owner, change);
            self.out.flush(false).await?;
        }
        Ok(())
    }

    async fn put_segments(&mut self) -> Result<()> {
        for place in std::mem::take(&mut self.live) {
            if let Some(row) = self.survey.segments.get_mut(&place.segment) {
                row.live += i64::from(place.length);
            }
        }
        for (number, row) in &self.survey.segments {
            self.out.put(SEGMENTS, keys::short(*number), encode(row)).await?;
        }
        Ok(())
    }

    /// The audit log from its first record up to the first gap.
    async fn put_audit(&mut self) -> Result<()> {
        let mut head = Head::default();
        for (number, (_, value)) in std::mem::take(&mut self.survey.audit) {
            if number != head.count + 1 {
                let missing = format!("audit records {} to {} are missing", head.count + 1, number - 1);
                self.survey.findings.push(missing);
                break;
            }
            head = Head { count: number, link: link(&head.link, number, &value) };
            self.out.put(AUDIT, keys::number(number), value.into()).await?;
        }
        if head.count > 0 {
            self.out.put(SETTINGS, Bytes::from_static(AUDIT_HEAD), head.encode()).await?;
        }
        self.report.audit_records = head.count;
        Ok(())
    }

    /// Numbers, key slots, clock and signed end. They come last, because they depend on everything
    /// that was found.
    async fn put_settings(
        mut self,
        foundation: &Foundation,
        superblock: &Superblock,
        reached: Reached,
    ) -> Result<Filled> {
        let wall = foundation.surroundings.now().wall;
        let Some((_, note)) = self.survey.identity.take() else {
            return Err(ArchiveError::damaged(
                "the data volume",
                "no note of the store's identity can be read; without it the signing key is lost, and nothing was rebuilt",
            ));
        };
        let unproven = (!self.is_clock_proven(&note, superblock)).then(|| {
            let noted = note.clock.wall;
            format!("the catalog was rebuilt at {wall}, and clock alarms since {noted} are not known: no orderly stop followed")
        });
        let identity = self.identity(note.identity, superblock, (reached, note.clock.wall), wall);
        let signing = Signing::open(foundation, &superblock.store, &identity.signing)?;
        // The clock shows no less than at the time of the latest record, as far as that is known.
        let shown = note.clock.shown;
        let frozen =
            [note.clock.frozen, unproven].into_iter().flatten().reduce(|known, then| format!("{known}; then {then}"));
        let clock = ClockRow { shown, wall: note.clock.wall.max(self.latest.min(wall)), frozen, ..note.clock };
        self.report.frozen.clone_from(&clock.frozen);
        // Unreadable places may hold higher numbers than those that were found.
        let margin = if self.survey.losses.is_empty() { MARGIN } else { MARGIN_OF_LOSSES };
        let numbers = ReservedRow { below: self.survey.highest + margin };
        let slots = ReservedRow { below: self.slots_end };
        self.out.put(SETTINGS, Bytes::from_static(NUMBERS), encode(&numbers)).await?;
        self.out.put(SETTINGS, Bytes::from_static(SLOTS), encode(&slots)).await?;
        self.out.put(SETTINGS, Bytes::from_static(CLOCK), encode(&clock)).await?;
        let index = IndexRow::of_new_catalog();
        self.out.put(SETTINGS, Bytes::from_static(INDEX), encode(&index)).await?;
        self.out.flush(true).await?;
        sign_rebuilt(self.out.catalog, &signing, &superblock.store).await?;
        let Survey { records, mut findings, losses, .. } = self.survey;
        findings.extend(losses.iter().cloned());
        Ok(Filled { identity, report: RebuildReport { records, findings, losses, ..self.report } })
    }

    /// Whether the note was written by the orderly close of the store's last opening. Otherwise the
    /// lost catalog may have known of a freeze of the clock.
    fn is_clock_proven(&self, note: &IdentityNote, superblock: &Superblock) -> bool {
        let last = superblock.witness.map(|witness| witness.pairing());
        note.identity.clean && last.is_some() && note.identity.pairing == last && self.survey.losses.is_empty()
    }

    /// The store's identity, with the facts that the rebuild could not prove.
    fn identity(
        &self,
        found: IdentityRow,
        superblock: &Superblock,
        (reached, noted): (Reached, Timestamp),
        wall: Timestamp,
    ) -> IdentityRow {
        let witness = superblock.witness.unwrap_or_default();
        let mut identity = IdentityRow {
            store: superblock.store,
            clean: false,
            rebuilt: Some(wall),
            pairing: None,
            next: None,
            replaces: Some(witness.pairing()),
            doubt: None,
            parts_counted: Some(true),
            owned_counted: Some(true),
            ..found
        };
        let first = self.report.audit_records + 1;
        let unknown = superblock.witness.is_none().then_some(None);
        let gap = unknown.or((reached.records >= first).then_some(Some(reached.records)));
        if let Some(last) = gap.filter(|_| !self.survey.without.has(Mutation::Gaps)) {
            // A head was signed while the store was open: soon after its last note or version, or
            // it is known.
            let last_open = noted.max(self.latest).plus_days(LOST_HEADS_DAYS).to_string();
            let signed = reached.signed.into_iter().fold(last_open, String::max);
            identity.gaps.get_or_insert_default().push(Gap { first, last, rebuilt: wall, signed: Some(signed) });
        }
        if !self.survey.losses.is_empty() && !self.survey.without.has(Mutation::Doubt) {
            let highest = self.survey.buckets.keys().next_back().copied().unwrap_or(0);
            // Notes of later records may be among what cannot be read, and come back.
            let sequence = self.survey.highest + MARGIN_OF_LOSSES;
            identity.cuts.get_or_insert_default().push(Cut { first, sequence });
            identity.doubt = Some(Doubt {
                // A matter that stands already began earlier.
                sequence: self.survey.doubted.from.or(Some(sequence)),
                since: wall,
                // A bucket whose notes are lost has a number too.
                buckets: self.survey.scopes.max(highest) + BUCKETS_MARGIN,
                keys: self.survey.access_keys.keys().cloned().collect(),
                places: self.survey.losses.iter().take(PLACES).cloned().collect(),
            });
        }
        identity
    }
}
