//! Fills the tables of versions: rows, content, retention and holds.

use std::collections::BTreeMap;

use stele_catalog::Transaction;

use super::survey::exists;
use super::write::Filling;
use crate::model::error::Result;
use crate::model::principal::Actor;
use crate::record::content::{Content, Extent, Layout, Place, Stream};
use crate::record::part::PartRow;
use crate::record::properties::version_with_index;
use crate::record::version::{Owner, VersionNote, VersionRef, VersionRow};
use crate::record::{HOLDS, LAYOUTS, MATTER_HOLDS, OBJECTS, PARTS, RETAINED, encode, keys};
use crate::space::places::{place_extents, places};

impl Filling<'_> {
    pub(super) async fn put_versions(&mut self) -> Result<()> {
        let nulls = self.null_versions();
        for (object, (_, mut note, place)) in std::mem::take(&mut self.survey.versions) {
            if !exists(&self.survey, &note) {
                continue;
            }
            let at = (note.at.bucket, note.at.key.clone());
            if note.row.null && nulls.get(&at).is_some_and(|(_, newest)| *newest != note.at.number) {
                note.row.null = false;
                self.find(&note.at, &note.row, "one of several null versions of its key; it is kept under this number");
            }
            self.put_version(object, note, place).await?;
        }
        Ok(())
    }

    /// Of several null versions of a key the newest is it. The others were replaced, and their keys
    /// were to be destroyed; or the newest was never acknowledged, since a crash came before its
    /// commit. So the others are kept as well. A version that is retained or held takes precedence,
    /// since it could not have been replaced.
    fn null_versions(&self) -> BTreeMap<(u32, String), (bool, u64)> {
        let mut nulls: BTreeMap<(u32, String), (bool, u64)> = BTreeMap::new();
        let versions = self.survey.versions.values().map(|(_, note, _)| note);
        for note in versions.filter(|note| note.row.null && exists(&self.survey, note)) {
            let kept = note.row.retention.is_some() || note.row.is_held();
            let newest = nulls.entry((note.at.bucket, note.at.key.clone())).or_insert((false, 0));
            *newest = (*newest).max((kept, note.at.number));
        }
        nulls
    }

    async fn put_version(&mut self, object: u64, note: VersionNote, place: Place) -> Result<()> {
        let VersionNote { at, mut row, layout, .. } = note;
        row.note = place;
        row.slot = self.survey.entries.get(&object).map_or(row.slot, |(slot, _)| *slot);
        self.slots_end = self.slots_end.max(row.slot + 1);
        self.claimed.insert(object);
        let is_owner = match row.content.clone() {
            Content::None => {
                self.live.extend(places(&place, &[]));
                false
            }
            Content::Stream(stream) => self.put_stream(object, &at, &mut row, stream, &place).await?,
            Content::Parts => {
                self.put_parts(object, &at, &row, layout.unwrap_or_default()).await?;
                self.live.extend(places(&place, &[]));
                true
            }
        };
        if is_owner {
            self.out.put(OBJECTS, keys::number(object), encode(&Owner::Version(at.clone()))).await?;
        }
        if let Some(retention) = row.retention {
            self.out.put(RETAINED, keys::numbers(retention.until.0, object), encode(&at)).await?;
        }
        if row.hold {
            self.out.put(HOLDS, keys::number(object), encode(&at)).await?;
        }
        for matter in row.matters.iter().flatten() {
            self.out.put(MATTER_HOLDS, keys::under(matter, object), encode(&at)).await?;
            self.matters.insert(matter.clone());
        }
        self.count(&at, &row);
        for (table, key, value) in version_with_index(at.record_key(), &row) {
            self.out.put(table, key, value).await?;
        }
        Ok(())
    }

    /// Places the content of one stream. True: its pieces are found through the object's index.
    async fn put_stream(
        &mut self,
        object: u64,
        at: &VersionRef,
        row: &mut VersionRow,
        mut stream: Stream,
        place: &Place,
    ) -> Result<bool> {
        let found = self.survey.stream(object, &stream);
        if found.is_none() {
            self.find(at, row, "pieces of its content are missing");
        }
        let pieces = found.unwrap_or_default();
        let beside_note = matches!(pieces.as_slice(), [one] if (one.segment, one.at) == (place.segment, place.at));
        self.put_extents(object, &mut stream, &pieces).await?;
        self.live.extend(places(place, &pieces));
        row.content = Content::Stream(stream);
        Ok(!beside_note && !pieces.is_empty())
    }

    async fn put_parts(&mut self, object: u64, at: &VersionRef, row: &VersionRow, layout: Layout) -> Result<()> {
        for part in &layout.parts {
            let Some((_, note, place)) = self.survey.part_notes.get(&(object, part.stream)).cloned() else {
                self.find(at, row, &format!("part {} is missing", part.number));
                continue;
            };
            let mut part_row: PartRow = note.row;
            part_row.note = place;
            let found = self.survey.stream(object, &part_row.stream);
            if found.is_none() {
                self.find(at, row, &format!("pieces of part {} are missing", part.number));
            }
            let extents = found.unwrap_or_default();
            self.live.extend(places(&place, &extents));
            self.put_extents(object, &mut part_row.stream, &extents).await?;
            self.out.put(PARTS, keys::pair(object, part.number), encode(&part_row)).await?;
        }
        self.out.put(LAYOUTS, keys::number(object), encode(&layout)).await
    }

    async fn put_extents(&mut self, object: u64, stream: &mut Stream, extents: &[Extent]) -> Result<()> {
        for mutation in place_extents(Transaction::new(), object, stream, extents).mutations {
            if let stele_catalog::Mutation::Put { table, key, value } = mutation {
                self.out.put(table, key, value).await?;
            }
        }
        Ok(())
    }

    fn count(&mut self, at: &VersionRef, row: &VersionRow) {
        self.latest = self.latest.max(row.modified);
        let counted = self.usage.entry(at.bucket).or_insert((0, 0));
        (counted.0, counted.1) = (counted.0 + 1, counted.1 + row.size as i64);
        if matches!(row.owner, Actor::Key(_)) {
            let owned = self.owned.entry(row.owner.clone()).or_default();
            (owned.versions, owned.bytes) = (owned.versions + 1, owned.bytes + row.size as i64);
        }
        match row.marker {
            true => self.report.delete_markers += 1,
            false => self.report.versions += 1,
        }
    }

    fn find(&mut self, at: &VersionRef, row: &VersionRow, what: &str) {
        let name = self.buckets.get(&at.bucket).map_or("", |bucket| bucket.name()).to_string();
        self.survey.findings.push(format!("`{name}/{}` version {}: {what}", at.key, row.id(at.number)));
    }
}
