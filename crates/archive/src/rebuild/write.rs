//! Filling a catalog with what a survey found.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use stele_catalog::{Catalog, Head, Transaction, link};

use super::survey::{Survey, exists};
use super::{Filled, RebuildReport};
use crate::audit::Signing;
use crate::audit::sealing::sign_rebuilt;
use crate::buckets::Bucket;
use crate::error::{ArchiveError, Result};
use crate::install::{place_extents, places};
use crate::mutation::Mutation;
use crate::record::access_key::AccessKeyRow;
use crate::record::bucket::BucketRow;
use crate::record::content::{Content, Layout, Place};
use crate::record::part::PartRow;
use crate::record::settings::{AUDIT_HEAD, CLOCK, ClockRow, Doubt, Gap, IdentityRow, NUMBERS, ReservedRow, SLOTS};
use crate::record::version::Owner;
use crate::record::{
    ACCESS_KEYS, AUDIT, BUCKETS, HOLDS, LAYOUTS, OBJECTS, PARTS, RETAINED, SEGMENTS, SETTINGS, TOMBSTONES, VERSIONS,
    encode, keys,
};
use crate::space::superblock::Superblock;
use crate::store::Foundation;
use crate::time::Timestamp;

/// Numbers left unused behind the highest found.
const MARGIN: u64 = 1 << 20;
const MARGIN_OF_LOSSES: u64 = 1 << 40;
/// The same for buckets.
const BUCKETS_MARGIN: u32 = 1000;
/// Places that the matter `rebuild` names.
const PLACES: usize = 3;
/// Bytes of one transaction, about.
const BATCH: usize = 1 << 20;
const BATCH_STEPS: usize = 4000;

/// Transactions that are committed as they fill up.
struct Writer<'a> {
    catalog: &'a dyn Catalog,
    transaction: Transaction,
    bytes: usize,
}

impl Writer<'_> {
    async fn put(&mut self, table: stele_catalog::Table, key: Bytes, value: Bytes) -> Result<()> {
        self.bytes += key.len() + value.len();
        self.transaction = std::mem::take(&mut self.transaction).put(table, key, value);
        self.flush(false).await
    }

    async fn flush(&mut self, all: bool) -> Result<()> {
        let full = self.bytes > BATCH || self.transaction.mutations.len() > BATCH_STEPS;
        if (all || full) && !self.transaction.mutations.is_empty() {
            self.catalog.commit(std::mem::take(&mut self.transaction)).await?;
            self.bytes = 0;
        }
        Ok(())
    }
}

pub(super) async fn write(
    foundation: &Foundation,
    superblock: &Superblock,
    mut survey: Survey,
    buckets: &BTreeMap<u32, Bucket>,
    reached: u64,
) -> Result<Filled> {
    let catalog = &*foundation.catalog;
    let wall = foundation.surroundings.now().wall;
    let mut report = RebuildReport { segments: survey.segments.len() as u64, ..RebuildReport::default() };
    let mut out = Writer { catalog, transaction: Transaction::new(), bytes: 0 };
    let mut live: Vec<Place> = Vec::new();
    let mut latest = Timestamp(0);
    let existing = survey.versions.values().filter(|(_, note, _)| exists(&survey, note));
    let filled: BTreeSet<u32> = existing.map(|(_, note, _)| note.at.bucket).collect();
    for (number, (_, row, place)) in &survey.buckets {
        live.push(*place);
        report.buckets += 1;
        // A deletion is noted before it is committed, and refused where a version came in between.
        let deleted = row.deleted.filter(|_| !filled.contains(number));
        let row = BucketRow { note: *place, deleted, ..row.clone() };
        out.put(BUCKETS, keys::short(*number), encode(&row)).await?;
    }
    for (id, (_, row, place)) in &survey.access_keys {
        live.push(*place);
        report.access_keys += 1;
        let row = AccessKeyRow { note: *place, ..row.clone() };
        out.put(ACCESS_KEYS, Bytes::copy_from_slice(id.as_bytes()), encode(&row)).await?;
    }
    // Of several null versions of a key only the newest exists; the others were replaced, and their keys destroyed soon after.
    // One that is retained or held goes before any that is not: nothing could have replaced it.
    let mut nulls: BTreeMap<(u32, String), (bool, u64)> = BTreeMap::new();
    for (_, note, _) in survey.versions.values().filter(|(_, note, _)| note.row.null && exists(&survey, note)) {
        let kept = note.row.retention.is_some() || note.row.hold;
        let newest = nulls.entry((note.at.bucket, note.at.key.clone())).or_insert((false, 0));
        *newest = (*newest).max((kept, note.at.number));
    }
    let mut claimed = BTreeSet::new();
    let hidden = survey.hidden.iter().map(|slots| slots.end);
    let mut highest_slot = survey.entries.values().map(|(slot, _)| slot + 1).chain(hidden).max().unwrap_or(0);
    let mut usage: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let versions = std::mem::take(&mut survey.versions);
    for (object, (_, note, place)) in versions {
        let stale = |newest: &(bool, u64)| note.row.null && newest.1 != note.at.number;
        if !exists(&survey, &note) || nulls.get(&(note.at.bucket, note.at.key.clone())).is_some_and(stale) {
            continue;
        }
        let name = buckets.get(&note.at.bucket).map_or("", |bucket| bucket.name()).to_string();
        let mut row = note.row;
        row.note = place;
        let slot = survey.entries.get(&object).map_or(row.slot, |(slot, _)| *slot);
        highest_slot = highest_slot.max(slot + 1);
        row.slot = slot;
        claimed.insert(object);
        let incomplete = |what: &str| format!("`{name}/{}` version {}: {what}", note.at.key, row.id(note.at.number));
        let mut pieces = Vec::new();
        let mut index = false;
        match row.content.clone() {
            Content::None => {}
            Content::Stream(mut stream) => {
                let extents = survey.stream(object, &stream);
                if extents.is_none() {
                    survey.findings.push(incomplete("pieces of its content are missing"));
                }
                pieces = extents.unwrap_or_default();
                index = !matches!(pieces.as_slice(), [one] if (one.segment, one.at) == (place.segment, place.at))
                    && !pieces.is_empty();
                let placed = place_extents(Transaction::new(), object, &mut stream, &pieces);
                for mutation in placed.mutations {
                    if let stele_catalog::Mutation::Put { table, key, value } = mutation {
                        out.put(table, key, value).await?;
                    }
                }
                row.content = Content::Stream(stream);
            }
            Content::Parts => {
                index = true;
                let layout: Layout = note.layout.clone().unwrap_or_default();
                for part in &layout.parts {
                    let found = survey.part_notes.get(&(object, part.stream));
                    let Some((_, part_note, part_place)) = found else {
                        survey.findings.push(incomplete(&format!("part {} is missing", part.number)));
                        continue;
                    };
                    let mut part_row: PartRow = part_note.row.clone();
                    part_row.note = *part_place;
                    let extents = survey.stream(object, &part_row.stream);
                    if extents.is_none() {
                        let what = format!("pieces of part {} are missing", part.number);
                        survey.findings.push(incomplete(&what));
                    }
                    let extents = extents.unwrap_or_default();
                    live.extend(places(part_place, &extents));
                    let placed = place_extents(Transaction::new(), object, &mut part_row.stream, &extents);
                    for mutation in placed.mutations {
                        if let stele_catalog::Mutation::Put { table, key, value } = mutation {
                            out.put(table, key, value).await?;
                        }
                    }
                    out.put(PARTS, keys::pair(object, part.number), encode(&part_row)).await?;
                }
                out.put(LAYOUTS, keys::number(object), encode(&layout)).await?;
            }
        }
        live.extend(places(&place, &pieces));
        let at = note.at;
        if index {
            out.put(OBJECTS, keys::number(object), encode(&Owner::Version(at.clone()))).await?;
        }
        if let Some(retention) = row.retention {
            out.put(RETAINED, keys::numbers(retention.until.0, object), encode(&at)).await?;
        }
        if row.hold {
            out.put(HOLDS, keys::number(object), encode(&at)).await?;
        }
        latest = latest.max(row.modified);
        let counted = usage.entry(at.bucket).or_insert((0, 0));
        (counted.0, counted.1) = (counted.0 + 1, counted.1 + row.size as i64);
        if row.marker {
            report.delete_markers += 1;
        } else {
            report.versions += 1;
        }
        out.put(VERSIONS, at.record_key(), encode(&row)).await?;
    }
    // A certificate is noted before the removal is committed: where the version's key still exists it was not disposed of.
    for (key, row) in survey.tombstones.iter().filter(|(_, row)| !claimed.contains(&row.object)) {
        out.put(TOMBSTONES, key.clone(), encode(row)).await?;
    }
    for (number, (versions, bytes)) in usage {
        if let Some(bucket) = buckets.get(&number) {
            out.transaction = bucket.count(std::mem::take(&mut out.transaction), versions, bytes);
            // Counting within a quota is for those who add, not for what is there.
            out.transaction.preconditions.clear();
            out.flush(false).await?;
        }
    }
    report.unclaimed_keys = survey.entries.keys().filter(|object| !claimed.contains(object)).count() as u64;
    for place in live {
        if let Some(row) = survey.segments.get_mut(&place.segment) {
            row.live += i64::from(place.length);
        }
    }
    for (number, row) in &survey.segments {
        out.put(SEGMENTS, keys::short(*number), encode(row)).await?;
    }
    report.audit_records = write_audit(&mut out, &mut survey).await?;

    let Some((_, note)) = survey.identity.take() else {
        return Err(ArchiveError::damaged(
            "the data volume",
            "no note of the store's identity can be read; without it the signing key is lost, and nothing was rebuilt",
        ));
    };
    let witness = superblock.witness.unwrap_or_default();
    let mut identity = IdentityRow {
        store: superblock.store,
        clean: false,
        rebuilt: Some(wall),
        pairing: None,
        next: None,
        replaces: Some(witness.pairing()),
        doubt: None,
        ..note.identity
    };
    let signing = Signing::open(foundation, &superblock.store, &identity.signing)?;
    let first = report.audit_records + 1;
    let unknown = superblock.witness.is_none().then_some(None);
    let gap = unknown.or((reached >= first).then_some(Some(reached)));
    if let Some(last) = gap.filter(|_| !survey.without.has(Mutation::Gaps)) {
        identity.gaps.get_or_insert_default().push(Gap { first, last, rebuilt: wall });
    }
    if !survey.losses.is_empty() && !survey.without.has(Mutation::Doubt) {
        identity.doubt = Some(Doubt {
            since: wall,
            // A bucket whose notes are lost had a number too.
            buckets: survey.scopes.max(survey.buckets.keys().next_back().copied().unwrap_or(0)) + BUCKETS_MARGIN,
            keys: survey.access_keys.keys().cloned().collect(),
            places: survey.losses.iter().take(PLACES).cloned().collect(),
        });
    }
    // The clock shows no less than it did when anything that was found was written, as far as that is known.
    let shown = note.clock.shown;
    let clock = ClockRow { shown, wall: note.clock.wall.max(latest.min(wall)), ..note.clock };
    // Numbers in what cannot be read may be higher than all that were found.
    let margin = if survey.losses.is_empty() { MARGIN } else { MARGIN_OF_LOSSES };
    let numbers = ReservedRow { below: survey.highest + margin };
    out.put(SETTINGS, Bytes::from_static(NUMBERS), encode(&numbers)).await?;
    out.put(SETTINGS, Bytes::from_static(SLOTS), encode(&ReservedRow { below: highest_slot })).await?;
    out.put(SETTINGS, Bytes::from_static(CLOCK), encode(&clock)).await?;
    out.flush(true).await?;
    sign_rebuilt(catalog, &signing, &superblock.store).await?;
    report.records = survey.records;
    report.findings = survey.findings;
    report.findings.extend(survey.losses.iter().cloned());
    report.losses = survey.losses;
    Ok(Filled { identity, report })
}

/// The audit log from its start, as far as the volume has it without a gap.
async fn write_audit(out: &mut Writer<'_>, survey: &mut Survey) -> Result<u64> {
    let mut head = Head::default();
    for (number, value) in std::mem::take(&mut survey.audit) {
        if number != head.count + 1 {
            survey.findings.push(format!("audit records {} to {} are missing", head.count + 1, number - 1));
            break;
        }
        head = Head { count: number, link: link(&head.link, number, &value) };
        out.put(AUDIT, keys::number(number), value.into()).await?;
    }
    if head.count > 0 {
        out.put(SETTINGS, Bytes::from_static(AUDIT_HEAD), head.encode()).await?;
    }
    Ok(head.count)
}
