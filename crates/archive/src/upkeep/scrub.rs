//! Scrub of the archive: reads every version and compares its content with the digests under which
//! it was stored: BLAKE3, the entity tag, and the client's checksums. After it,
//! background work counts the needed bytes of each segment again.
//!
//! Scrub cannot open content under a customer's key. There it verifies only the records' checksums.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stele_catalog::{Direction, KeyRange};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::checksum::{Algorithm, Checksum, Digests, Hashes, Wanted};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Caller;
use crate::objects::get::Pieces;
use crate::record::content::Content;
use crate::record::segment::SegmentUse;
use crate::record::{VERSIONS, keys};
use crate::space::BLOCK;
use crate::space::walk::{Walk, is_torn};
use crate::state::buckets::Bucket;
use crate::store::Archive;
use crate::store::lookup::Found;
use crate::store::uploads::part_row;

/// The position of a scrub. The caller keeps it between steps, and starts with the default.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubCursor {
    after: Vec<u8>,
    segments_done: bool,
    segment: u32,
}

/// The result of one step of a scrub.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubReport {
    pub versions: u64,
    /// Bytes of versions' content that were compared with their digests.
    pub bytes: u64,
    pub records: u64,
    /// Bytes of records whose checksums were compared. They hold the same content and more.
    #[serde(default)]
    pub record_bytes: u64,
    /// Everything that does not verify, with its place.
    pub findings: Vec<String>,
    /// For each finding, the unit to verify again.
    #[serde(default)]
    pub places: Vec<ScrubPlace>,
    /// This was the last step. The cursor starts again.
    pub finished: bool,
}

/// A unit of verification.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum ScrubPlace {
    /// All records of a segment.
    Segment(u32),
    /// A version, by the key of its record.
    Version(Vec<u8>),
}

impl ScrubReport {
    fn find(&mut self, place: ScrubPlace, finding: String) {
        self.findings.push(finding);
        self.places.push(place);
    }
}

impl Archive {
    /// Verifies a unit again. Returns the finding if it still fails. None: it verifies, or is gone.
    pub async fn scrub_again(&self, place: &ScrubPlace) -> Result<Option<String>> {
        let mut report = ScrubReport::default();
        match place {
            ScrubPlace::Segment(number) => {
                self.scrub_segment(*number, &mut report).await?;
            }
            ScrubPlace::Version(record_key) => {
                if let Some(value) = self.store().snapshot()?.get(VERSIONS, record_key)? {
                    self.scrub_record(&Bytes::copy_from_slice(record_key), &value, &mut report).await?;
                }
            }
        }
        Ok(report.findings.into_iter().next())
    }

    /// Tries the segments and key blocks again that could not be read. Those that can be read now
    /// are used again, and their alarm ends.
    pub async fn look_again(&self) -> Result<()> {
        for number in self.store().upkeep().unmovable() {
            let mut report = ScrubReport::default();
            self.scrub_segment(number, &mut report).await?;
            if report.findings.is_empty() {
                self.store().upkeep().remove_unmovable(number);
            }
        }
        self.store().keys().look_again().await
    }

    /// Verifies about `budget` more bytes of content. Findings are recorded in the audit log.
    pub async fn scrub_step(&self, cursor: &mut ScrubCursor, budget: u64) -> Result<ScrubReport> {
        let mut report = ScrubReport::default();
        if cursor.segments_done {
            self.scrub_versions(cursor, budget, &mut report).await?;
        } else {
            self.scrub_segments(cursor, budget, &mut report).await?;
        }
        if !self.store().is_read_only() {
            for finding in &report.findings {
                let event = Event::new(&Caller::system("scrub"), Action::Read).detail(finding.clone());
                self.store().record(stele_catalog::Transaction::new().with_reserve(), event).await?;
            }
        }
        Ok(report)
    }

    /// Verifies the checksums of all records, including content under customers' keys.
    async fn scrub_segments(&self, cursor: &mut ScrubCursor, budget: u64, report: &mut ScrubReport) -> Result<()> {
        let store = &self.store();
        while report.record_bytes < budget {
            let next = store.segments().rows().into_keys().find(|number| *number > cursor.segment);
            let Some(number) = next else {
                cursor.segments_done = true;
                return Ok(());
            };
            cursor.segment = number;
            self.scrub_segment(number, report).await?;
        }
        Ok(())
    }

    async fn scrub_segment(&self, number: u32, report: &mut ScrubReport) -> Result<()> {
        let store = &self.store();
        // First: a segment retired from here on is not overwritten while this reads.
        let _reading = store.segments().reading();
        let Some(row) = store.segments().row_to_read(number).filter(|row| row.usage == SegmentUse::Sealed) else {
            return Ok(());
        };
        // A full segment may still have records under way, which show in part. The next pass
        // verifies it.
        if store.appender().writing().contains(&number) {
            return Ok(());
        }
        let start = store.segments().start(number);
        let mut walk = Walk::new(store.volume().clone(), start, store.segments().size, row.incarnation);
        let (mut bad, mut torn) = (BTreeMap::new(), BTreeMap::new());
        let mut records = BTreeSet::new();
        while let Some((at, header)) = walk.next().await? {
            records.insert(at);
            let payload = walk.payload(at, &header).await?;
            report.records += 1;
            report.record_bytes += u64::from(header.length());
            match payload {
                Some(payload) if stele_ground::digest::crc32c(&payload) == header.check => {}
                Some(payload) if header.kind.needs_reference() || is_torn(at, &payload) => {
                    torn.insert(at, header.object);
                }
                _ => drop(bad.insert(at, header.object)),
            }
        }
        // A power cut or a kill tears writes that were not acknowledged. No row refers to those.
        let needed = store.referred_among(number, &torn.keys().copied().collect())?;
        bad.extend(torn.into_iter().filter(|(at, _)| needed.contains(at)));
        // A segment on lost drives may have thousands of findings: one line sums them up.
        let mut what = Vec::new();
        if let Some((at, object)) = bad.first_key_value() {
            what.push(format!("{} records do not verify, the first at byte {at}, of object {object}", bad.len()));
        }
        let ranges = merged(&walk.unreadable);
        if let Some((at, _)) = ranges.first() {
            let bytes = stele_ground::Bytes(u64::from(BLOCK) * walk.unreadable.len() as u64);
            what.push(format!("{bytes} in {} ranges cannot be read, the first at byte {at}", ranges.len()));
        }
        // The walk does not find a record with a damaged header. The catalog shows whether there is
        // one. Other doubtful bytes are what a power cut left of a write.
        let unmovable = store.upkeep().is_unmovable(number);
        if what.is_empty() && walk.doubtful && unmovable && store.refers_beside(number, &records)? {
            what.push("a part of it is no record".to_owned());
        }
        if !what.is_empty() {
            report.find(ScrubPlace::Segment(number), format!("segment {number}: {}", what.join("; ")));
        }
        Ok(())
    }

    async fn scrub_versions(&self, cursor: &mut ScrubCursor, budget: u64, report: &mut ScrubReport) -> Result<()> {
        let store = &self.store();
        while report.bytes < budget {
            let range = KeyRange::all().after(cursor.after.clone());
            let range = if cursor.after.is_empty() { KeyRange::all() } else { range };
            let page = store.snapshot()?.range(VERSIONS, &range, 100, Direction::Forward)?;
            if page.is_empty() {
                store.count_again()?;
                *cursor = ScrubCursor::default();
                report.finished = true;
                return Ok(());
            }
            for (record_key, value) in &page {
                cursor.after = record_key.to_vec();
                self.scrub_record(record_key, value, report).await?;
                if report.bytes >= budget {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn scrub_record(&self, record_key: &Bytes, value: &Bytes, report: &mut ScrubReport) -> Result<()> {
        let store = &self.store();
        let (number, key, _) = keys::split(record_key)?;
        let Some(bucket) = store.buckets().by_number(number) else { return Ok(()) };
        let found = Found::of(record_key, value, false)?;
        report.versions += 1;
        report.bytes += found.row.size;
        if found.row.marker || found.row.customer.is_some() {
            return Ok(());
        }
        // If the version was deleted or replaced since, the failure is no finding.
        if let Err(error) = self.scrub_version(&bucket, &key, &found).await
            && store.snapshot()?.get(VERSIONS, record_key)?.is_some_and(|now| now == *value)
        {
            report.find(ScrubPlace::Version(record_key.to_vec()), error.to_string());
        }
        Ok(())
    }

    async fn scrub_version(&self, bucket: &Bucket, key: &str, found: &Found) -> Result<()> {
        let store = &self.store();
        let name = format!("`{}/{key}` version {}", bucket.name(), found.id());
        if found.row.content == Content::Parts {
            let mut start = 0;
            for part in store.layout(found.row.object)?.parts {
                let row = part_row(&*store.snapshot()?, found.row.object, part.number)?;
                let wanted = Wanted { md5: true, others: algorithms(&row.checksums) };
                let digests = self
                    .digest(bucket, &name, found, start..start + part.size, Hashes::new(store.bodies().lanes(), wanted))
                    .await?;
                let same =
                    digests.md5 == Some(row.md5) && digests.blake3 == row.blake3 && digests.checksums == row.checksums;
                check(&format!("{name}, part {}", part.number), same)?;
                start += part.size;
            }
            return Ok(());
        }
        let wanted = Wanted { md5: !found.row.etag.is_of_blake3(), others: algorithms(&found.row.checksums) };
        let digests =
            self.digest(bucket, &name, found, 0..found.row.size, Hashes::new(store.bodies().lanes(), wanted)).await?;
        let same = digests.etag().md5 == found.row.etag.md5
            && digests.blake3 == found.row.blake3
            && digests.checksums == found.row.checksums;
        check(&name, same)
    }

    async fn digest(
        &self,
        bucket: &Bucket,
        name: &str,
        found: &Found,
        range: std::ops::Range<u64>,
        mut hashes: Hashes,
    ) -> Result<Digests> {
        let store = &self.store();
        let reading = store.segments().reading();
        let snapshot = store.snapshot()?;
        let key = store.object_key(bucket, found.row.object, found.row.slot, None, || name.to_string()).await?;
        let mut pieces = Pieces::new(std::sync::Arc::clone(store), name.into(), found, key, range, snapshot, reading)?;
        pieces.uncached();
        while let Some(opening) = pieces.next()? {
            for bytes in opening.await? {
                hashes.update(&bytes);
                hashes.gather(bytes);
            }
        }
        Ok(hashes.finish())
    }
}

/// Runs of blocks that follow each other: offset and length.
fn merged(blocks: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for at in blocks {
        match ranges.last_mut() {
            Some((from, long)) if *from + *long == *at => *long += BLOCK,
            _ => ranges.push((*at, BLOCK)),
        }
    }
    ranges
}

fn algorithms(checksums: &[Checksum]) -> Vec<Algorithm> {
    checksums.iter().map(|checksum| checksum.algorithm).collect()
}

fn check(name: &str, same: bool) -> Result<()> {
    match same {
        true => Ok(()),
        false => Err(ArchiveError::damaged(
            name.to_string(),
            "its content does not match its stored digests, although every frame is authentic",
        )),
    }
}
