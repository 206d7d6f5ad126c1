//! Making inventories: CSV files, a manifest that names them, and the checksum of the manifest.
//!
//! Failure model: the manifest is stored last. Before its first file a run notes in the catalog
//! what the names of its files begin with. If it fails, it deletes them; after a crash the next run
//! does so first. What retention keeps stays. From the moment at which the manifest may be there,
//! nothing is deleted any more.
//!
//! A run reads the bucket a page at a time; changes meanwhile are in it or not, as on AWS. It lets
//! other work go on after each page, and a stop ends it there.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use stele_catalog::{CatalogError, Direction, KeyRange, Transaction};

use super::may_see;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::bucket::is_canary;
use crate::model::error::{ArchiveError, Result};
use crate::model::inventory::{Inventory, InventoryRun, UnfinishedRun};
use crate::model::principal::{Caller, Role};
use crate::model::time::Timestamp;
use crate::model::version::ObjectInfo;
use crate::record::version::VersionRow;
use crate::record::{INVENTORY_RUNS, VERSIONS, decode, encode, fetch, keys};
use crate::state::buckets::Bucket;
use crate::store::Archive;

/// Versions that one page of a run reads.
const PAGE: usize = 500;
/// Bytes of a compressed file, all of them in memory, at which the next one begins.
const FILE_MAX: usize = 4 << 20;
/// Milliseconds by which the clock may have been ahead when a run began. A run of a later time
/// counts as none.
const AHEAD_MAX: u64 = 3_600_000;
/// The writer of inventories in the audit log.
const WRITER: &str = "inventory";

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InventoryReport {
    pub bucket: String,
    pub id: String,
    /// Where the manifest is.
    pub destination: String,
    pub manifest: String,
    pub files: u64,
    pub objects: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    source_bucket: String,
    destination_bucket: String,
    version: &'static str,
    creation_timestamp: String,
    file_format: &'static str,
    file_schema: String,
    files: Vec<ManifestFile>,
}

#[derive(Serialize)]
struct ManifestFile {
    key: String,
    size: u64,
    #[serde(rename = "MD5checksum")]
    md5: String,
}

/// A run under way.
struct Run<'a> {
    archive: &'a Archive,
    source: &'a Bucket,
    inventory: &'a Inventory,
    /// Before the names of its objects.
    folder: String,
    /// Before the names of its files.
    prefix: String,
    file: GzEncoder<Vec<u8>>,
    lines: u64,
    files: Vec<ManifestFile>,
    objects: u64,
}

impl Archive {
    /// The inventories of a bucket, by id.
    pub async fn inventories(&self, caller: &Caller, bucket: &str) -> Result<Vec<Inventory>> {
        let mut inventories = self.visible(caller, bucket).await?.row.inventories.clone().unwrap_or_default();
        inventories.sort_by(|left, right| left.id.cmp(&right.id));
        Ok(inventories)
    }

    /// The bucket and id of each inventory whose time has come, and which neither runs nor waits
    /// after a failure.
    pub fn inventories_due(&self) -> Result<Vec<(String, String)>> {
        let store = self.store();
        let (snapshot, now, elapsed) = (store.snapshot()?, store.wall(), store.elapsed());
        let mut due = Vec::new();
        for bucket in store.buckets().all() {
            for inventory in bucket.row.inventories.iter().flatten().filter(|inventory| inventory.enabled) {
                // A row that cannot be read is written anew by the run.
                let run: Option<InventoryRun> =
                    fetch(&*snapshot, INVENTORY_RUNS, &run_key(&bucket, &inventory.id)).unwrap_or_default();
                let is_due = run.is_none_or(|run| {
                    run.begun.0.saturating_add(inventory.period()) <= now.0
                        || run.begun.0 > now.0.saturating_add(AHEAD_MAX)
                });
                if is_due && store.inventories().is_free(&(bucket.number, inventory.id.clone()), elapsed) {
                    due.push((bucket.name().to_owned(), inventory.id.clone()));
                }
            }
        }
        Ok(due)
    }

    /// Makes an inventory now, for the store itself or an administrator.
    pub async fn run_inventory(&self, caller: &Caller, bucket: &str, id: &str) -> Result<InventoryReport> {
        let store = self.store();
        store.writable()?;
        let source = store.buckets().by_name(bucket)?;
        if !may_see(caller, &source) || !caller.has(Role::StorageAdministrator) {
            return Err(ArchiveError::Denied(format!("{} may not make inventories of `{bucket}`", caller.actor)));
        }
        let of_id = |inventory: &&Inventory| inventory.id == id;
        let Some(inventory) = source.row.inventories.iter().flatten().find(of_id) else {
            return Err(ArchiveError::NoSuchThing(format!("bucket `{bucket}` has no inventory `{id}`")));
        };
        let Some(running) = store.inventories().begin(&(source.number, id.to_owned())) else {
            let message = format!("the inventory `{id}` of bucket `{bucket}` is being made");
            return Err(ArchiveError::InvalidState(message));
        };
        let made = self.make_inventory(&source, inventory).await;
        running.end(made.as_ref().err().map(ToString::to_string), store.elapsed(), inventory.period());
        made
    }

    async fn make_inventory(&self, source: &Bucket, inventory: &Inventory) -> Result<InventoryReport> {
        self.fits_reports(source, &inventory.bucket)?;
        let (store, row) = (self.store(), run_key(source, &inventory.id));
        let earlier: InventoryRun = fetch(&*store.snapshot()?, INVENTORY_RUNS, &row).ok().flatten().unwrap_or_default();
        if let Some(left) = &earlier.unfinished {
            self.delete_reports(WRITER, &left.bucket, &left.prefix).await;
        }
        let (begun, folder) = (store.wall(), inventory.folder(source.name()));
        let files = UnfinishedRun {
            bucket: inventory.bucket.clone(),
            prefix: format!("{folder}/data/{:016x}", store.random()),
        };
        let noted = InventoryRun { begun: earlier.begun, unfinished: Some(files.clone()) };
        store.catalog().commit(Transaction::new().put(INVENTORY_RUNS, row.clone(), encode(&noted))).await?;
        let mut run = Run {
            archive: self,
            source,
            inventory,
            folder,
            prefix: files.prefix.clone(),
            file: encoder(),
            lines: 0,
            files: Vec::new(),
            objects: 0,
        };
        // A setting that was removed meanwhile took the row with it.
        let note = async |run: InventoryRun| {
            let noted = Transaction::new().present(INVENTORY_RUNS, row.clone());
            match store.catalog().commit(noted.put(INVENTORY_RUNS, row.clone(), encode(&run))).await {
                Ok(_) | Err(CatalogError::Failed(_)) => Ok(()),
                Err(error) => Err(ArchiveError::from(error)),
            }
        };
        let listed = async {
            run.list().await?;
            run.finish_files().await?;
            note(InventoryRun { begun: earlier.begun, unfinished: None }).await
        };
        if let Err(error) = listed.await {
            self.delete_reports(WRITER, &files.bucket, &files.prefix).await;
            return Err(error);
        }
        match run.end(begun).await {
            Ok(report) => note(InventoryRun { begun, unfinished: None }).await.map(|()| report),
            // An object is there already, so the manifest was not stored.
            Err(error @ ArchiveError::PreconditionFailed(_)) => {
                self.delete_reports(WRITER, &files.bucket, &files.prefix).await;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The alarm about inventories that fail again and again.
    pub(crate) fn inventory_alarm(&self) -> Option<Alarm> {
        let store = self.store();
        let mut told = Vec::new();
        for ((number, id), failures, why) in store.inventories().failing() {
            let bucket = store.buckets().all().into_iter().find(|bucket| bucket.number == number);
            let has = |bucket: &Bucket| bucket.row.inventories.iter().flatten().any(|inventory| inventory.id == id);
            if let Some(bucket) = bucket.filter(|bucket| has(bucket)) {
                told.push(format!("inventory `{id}` of bucket `{}` failed {failures} times: {why}", bucket.name()));
            }
        }
        (!told.is_empty()).then(|| Alarm::new(AlarmKind::Inventory, told.join("; ")))
    }
}

impl Run<'_> {
    async fn list(&mut self) -> Result<()> {
        let filter = self.inventory.filter.as_deref().unwrap_or_default();
        let all = KeyRange::prefix(keys::prefix(self.source.number, filter));
        let (mut range, mut newest) = (all.clone(), String::new());
        loop {
            // Nothing below waits where no line is written, and other work shares the thread.
            tokio::task::yield_now().await;
            let page = self.archive.store().snapshot()?.range(VERSIONS, &range, PAGE, Direction::Forward)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            range = all.clone().after(last.clone());
            for (record_key, value) in &page {
                let (_, key, number) = keys::split(record_key)?;
                let row: VersionRow = decode(VERSIONS, record_key, value)?;
                let latest = key != newest;
                newest.clone_from(&key);
                if is_canary(&row.owner) || (!self.inventory.all_versions && (!latest || row.marker)) {
                    continue;
                }
                // A version's number is inverted in its record key.
                let info = row.info(&self.source.row, &key, !number, latest);
                self.add(&info).await?;
            }
        }
    }

    async fn add(&mut self, info: &ObjectInfo) -> Result<()> {
        let mut cells = vec![self.source.name().to_owned(), escaped(&info.key)];
        if self.inventory.all_versions {
            let version = if info.versioned { info.version.to_string() } else { String::new() };
            cells.extend([version, info.latest.to_string(), info.delete_marker.to_string()]);
        }
        cells.extend(self.inventory.fields.iter().map(|field| cell(info, field)));
        let quoted: Vec<String> = cells.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
        writeln!(self.file, "{}", quoted.join(",")).map_err(compression)?;
        self.lines += 1;
        self.objects += 1;
        if self.file.get_ref().len() >= FILE_MAX { self.store_file().await } else { Ok(()) }
    }

    async fn store_file(&mut self) -> Result<()> {
        let content = std::mem::replace(&mut self.file, encoder()).finish().map_err(compression)?;
        self.lines = 0;
        let store = self.archive.store();
        let (key, size) = (format!("{}{:016x}.csv.gz", self.prefix, store.random()), content.len() as u64);
        let stored = self.archive.store_report(
            WRITER,
            self.source,
            &self.inventory.bucket,
            &key,
            "application/gzip",
            Bytes::from(content),
        );
        self.files.push(ManifestFile { md5: stored.await?.etag.to_string(), key, size });
        Ok(())
    }

    /// Stores the last file. There is one, even if it is empty.
    async fn finish_files(&mut self) -> Result<()> {
        if self.lines > 0 || self.files.is_empty() { self.store_file().await } else { Ok(()) }
    }

    /// Stores the manifest.
    async fn end(self, begun: Timestamp) -> Result<InventoryReport> {
        let mut schema = vec!["Bucket", "Key"];
        if self.inventory.all_versions {
            schema.extend(["VersionId", "IsLatest", "IsDeleteMarker"]);
        }
        schema.extend(self.inventory.fields.iter().map(String::as_str));
        let files = self.files.len() as u64;
        let manifest = Manifest {
            source_bucket: self.source.name().into(),
            destination_bucket: format!("arn:aws:s3:::{}", self.inventory.bucket),
            version: "2016-11-30",
            creation_timestamp: begun.0.to_string(),
            file_format: "CSV",
            file_schema: schema.join(", "),
            files: self.files,
        };
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| ArchiveError::InvalidRequest(format!("the manifest of an inventory: {error}")))?;
        // 2026-01-31T08-15Z
        let moment = stele_ground::calendar::moment(begun.seconds()).replace(':', "-");
        let folder = format!("{}/{}Z", self.folder, moment.get(..16).unwrap_or(&moment));
        let (to, key) = (&self.inventory.bucket, format!("{folder}/manifest.json"));
        let stored = self.archive.store_report(WRITER, self.source, to, &key, "application/json", text.into()).await?;
        let checksum = Bytes::from(stored.etag.to_string());
        let place = format!("{folder}/manifest.checksum");
        let checksum = self.archive.store_report(WRITER, self.source, to, &place, "text/plain", checksum).await;
        // The manifest is there and names the files, so this error must not look like one of the
        // manifest.
        checksum.map_err(|error| ArchiveError::InvalidState(format!("the checksum of the manifest: {error}")))?;
        Ok(InventoryReport {
            bucket: self.source.name().into(),
            id: self.inventory.id.clone(),
            destination: to.clone(),
            manifest: key,
            files,
            objects: self.objects,
        })
    }
}

fn encoder() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::default())
}

fn compression(error: std::io::Error) -> ArchiveError {
    ArchiveError::InvalidRequest(format!("compression of an inventory: {error}"))
}

pub(crate) fn run_key(bucket: &Bucket, id: &str) -> Bytes {
    [&bucket.number.to_be_bytes(), id.as_bytes()].concat().into()
}

/// The value of an optional field. A delete marker has no content.
fn cell(info: &ObjectInfo, field: &str) -> String {
    match field {
        "LastModifiedDate" => info.modified.to_string(),
        "ObjectOwner" => info.owner.clone(),
        _ if info.delete_marker => String::new(),
        "Size" => info.size.to_string(),
        "ETag" => info.etag.to_string(),
        "StorageClass" => "STANDARD".into(),
        "IsMultipartUploaded" => info.parts.is_some().to_string(),
        "ObjectLockRetainUntilDate" => info.retention.map_or_else(String::new, |kept| kept.until.to_string()),
        "ObjectLockMode" => info.retention.map_or_else(String::new, |kept| kept.mode.to_string()),
        "ObjectLockLegalHoldStatus" => if info.legal_hold { "ON" } else { "OFF" }.into(),
        "ChecksumAlgorithm" => {
            let names: Vec<String> =
                info.checksums.iter().map(|checksum| format!("{:?}", checksum.algorithm).to_uppercase()).collect();
            names.join(";")
        }
        _ => String::new(),
    }
}

/// A key as AWS writes it in inventories: as in a URL, with `/` as it is.
fn escaped(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => text.push(byte as char),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
