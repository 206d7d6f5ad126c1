//! The store's side of proofs: the tree over the audit log, heads signed for receipts, paths and
//! consistency.
//!
//! The tree stays in memory and grows with the log when a receipt is asked for; a store that gives
//! no receipts has none. A head for a receipt counts every record that the catalog shows just then.
//! The catalog shows a record only once it is durable, so that no head leaves that counts records
//! which a crash could take back. The records of one group commit become visible together: their
//! receipts share one head, and one signature over it.

use stele_catalog::{Direction, Head, KeyRange, Snapshot, link};

use crate::audit::chain::{RUN, last_link, link_at, number_of, roots};
use crate::audit::sealing::sealed;
use crate::evidence::receipt::{CONSISTENCY, ConsistencyProof, ProvenRecord};
use crate::model::checksum::to_hex;
use crate::model::error::{ArchiveError, Result};
use crate::model::head::SignedHead;
use crate::model::merkle::Hash;
use crate::record::settings::AUDIT_HEAD;
use crate::record::{AUDIT, SETTINGS, keys};
use crate::state::log_tree::{LogTree, Run, place_of, run_length};
use crate::store::Store;

/// Records that a tree grows by one by one. Behind more it takes the checkpoints.
const GROW_MAX: u64 = 8 * RUN;

/// A run of records and their values, as a page of an export reads them.
pub(crate) struct ReadRun {
    pub run: Run,
    /// The records with their numbers.
    pub values: Vec<(u64, bytes::Bytes)>,
}

fn damaged(finding: String) -> ArchiveError {
    ArchiveError::damaged("the audit log", format!("{finding}; nothing was signed, run `stele audit verify`"))
}

/// How many records the log has.
pub(crate) fn log_length(snapshot: &dyn Snapshot) -> Result<u64> {
    Ok(Head::decode(snapshot.get(SETTINGS, AUDIT_HEAD)?.as_deref())?.count)
}

fn hex_all(hashes: Vec<Hash>) -> Vec<String> {
    hashes.iter().map(|hash| to_hex(hash)).collect()
}

impl Store {
    /// The tree over the log up to the last full run, in a store that just begins to give receipts.
    fn first_tree(&self, snapshot: &dyn Snapshot) -> Result<LogTree> {
        let sealed = sealed(self, snapshot)?.map_err(damaged)?;
        let (roots, covered) = roots(snapshot)?;
        if covered != sealed.covered || roots.len() as u64 * RUN != covered {
            return Err(damaged(format!("checkpoints end at record {covered}, not at {}", sealed.covered)));
        }
        let mut tree = LogTree::new(&roots, last_link(snapshot, covered)?);
        // A log that does not lead to its signed end is not the one that was signed.
        self.grow(&mut tree, snapshot, sealed.records)?;
        match tree.records() == sealed.records && tree.end() != sealed.link {
            true => Err(damaged(format!("it is not the one whose end was signed at record {}", sealed.records))),
            false => Ok(tree),
        }
    }

    /// Adds records to the tree until it has `up_to`.
    fn grow(&self, tree: &mut LogTree, snapshot: &dyn Snapshot, up_to: u64) -> Result<()> {
        while tree.records() < up_to {
            let range = KeyRange::all().after(keys::number(tree.records()));
            let limit = usize::try_from(up_to - tree.records()).unwrap_or(usize::MAX).min(RUN as usize);
            let page = snapshot.range(AUDIT, &range, limit, Direction::Forward)?;
            if page.is_empty() {
                return Err(damaged(format!("record {} is missing", tree.records() + 1)));
            }
            for (key, value) in page {
                let number = tree.records() + 1;
                if number_of(&key) != number {
                    return Err(damaged(format!("record {number} is missing")));
                }
                tree.push(link(&tree.end(), number, &value));
            }
        }
        Ok(())
    }

    /// Runs something on the tree, which has at least `up_to` records.
    async fn with_tree<T>(&self, up_to: u64, work: impl FnOnce(&LogTree, &dyn Snapshot) -> Result<T>) -> Result<T> {
        let mut kept = self.receipts().tree().await;
        let snapshot = self.snapshot()?;
        let tree = self.tree_of(&mut kept, &*snapshot, up_to)?;
        work(tree, &*snapshot)
    }

    /// The tree that is kept, with at least `up_to` records.
    fn tree_of<'a>(
        &self,
        kept: &'a mut Option<LogTree>,
        snapshot: &dyn Snapshot,
        up_to: u64,
    ) -> Result<&'a mut LogTree> {
        if let Some(finding) = self.audit_end().finding() {
            return Err(damaged(finding));
        }
        let length = log_length(snapshot)?;
        if let Some(tree) = kept.as_ref().filter(|tree| tree.records() > length) {
            return Err(damaged(format!("receipts were given up to record {}, it ends at {length}", tree.records())));
        }
        if up_to > length {
            return Err(damaged(format!("record {up_to} is missing")));
        }
        if let Some(tree) = kept.as_mut().filter(|tree| up_to.saturating_sub(tree.records()) > GROW_MAX) {
            let newer = self.first_tree(snapshot)?;
            if !newer.begins_with(tree) {
                return Err(damaged(format!("its first {} records are others now", tree.records())));
            }
            *tree = newer;
        }
        let tree = match kept {
            Some(tree) => tree,
            none => none.insert(self.first_tree(snapshot)?),
        };
        self.grow(tree, snapshot, up_to)?;
        Ok(tree)
    }

    /// A run of a log of `records`, read from the catalog.
    fn read_run(&self, snapshot: &dyn Snapshot, run: u64, records: u64) -> Result<ReadRun> {
        let first = run * RUN;
        let length = run_length(run, records);
        let before = link_at(snapshot, first)?.ok_or_else(|| damaged(format!("record {first} is missing")))?;
        let mut read = ReadRun { run: Run::new(run, before), values: Vec::new() };
        let range = KeyRange::all().after(keys::number(first));
        for (key, value) in snapshot.range(AUDIT, &range, length as usize, Direction::Forward)? {
            let number = number_of(&key);
            if number != first + read.run.records() + 1 {
                break;
            }
            read.run.push(link(&read.run.end(), number, &value));
            read.values.push((number, value));
        }
        match read.run.records() == length {
            true => Ok(read),
            false => Err(damaged(format!("record {} is missing", first + read.run.records() + 1))),
        }
    }

    /// Calls `work` with a run that has at least `length` records.
    fn on_run<T>(
        &self,
        tree: &LogTree,
        snapshot: &dyn Snapshot,
        run: u64,
        length: u64,
        work: impl FnOnce(&Run) -> T,
    ) -> Result<T> {
        match tree.run(run).filter(|run| run.records() >= length) {
            Some(run) => Ok(work(run)),
            None => Ok(work(&self.read_run(snapshot, run, run * RUN + length)?.run)),
        }
    }

    /// The root over the first `records`.
    fn root_over(&self, tree: &LogTree, snapshot: &dyn Snapshot, records: u64) -> Result<(Hash, Hash)> {
        let (run, place) = place_of(records);
        self.on_run(tree, snapshot, run, run_length(run, records), |last| {
            let link = last.links_at(place).map_or_else(|| last.end(), |(link, _)| link);
            (tree.outer(records, last).root(), link)
        })
    }

    /// A signed head that covers this record, which the catalog has acknowledged.
    pub(crate) async fn head_over(&self, record: u64) -> Result<SignedHead> {
        if self.audit_end().finding().is_none()
            && let Some(head) = self.receipts().head_over(record)
        {
            return Ok(head);
        }
        let mut kept = self.receipts().tree().await;
        let snapshot = self.snapshot()?;
        let tree = self.tree_of(&mut kept, &*snapshot, record)?;
        // Another receipt may have signed one while this waited.
        if let Some(head) = self.receipts().head_over(record) {
            return Ok(head);
        }
        let length = log_length(&*snapshot)?;
        if length - tree.records() <= GROW_MAX {
            self.grow(tree, &*snapshot, length)?;
        }
        let records = tree.records();
        let (root, link) = self.root_over(tree, &*snapshot, records)?;
        let mut head = SignedHead {
            store: to_hex(self.id()),
            records,
            link: to_hex(&link),
            root: to_hex(&root),
            time: self.wall().to_string(),
            public_key: to_hex(self.signing().public()),
            signature: String::new(),
        };
        // Under the tree's lock, so that no other receipt signs the same head.
        head.signature = to_hex(&self.signing().sign(&head.message()));
        self.receipts().note_head(head.clone());
        Ok(head)
    }

    /// The record with its way to the root of the head.
    pub(crate) async fn prove(&self, record: u64, head: &SignedHead, value: &[u8]) -> Result<ProvenRecord> {
        self.with_tree(head.records, |tree, snapshot| {
            let (run, place) = place_of(record);
            let length = run_length(run, head.records);
            let (path, previous) = self.on_run(tree, snapshot, run, length, |run| {
                let previous = run.links_at(place).map_or_else(Hash::default, |(_, before)| before);
                (run.view(length).path(place), previous)
            })?;
            let log_path = self.log_path(tree, snapshot, run, head.records)?;
            Ok(proven(record, previous, value, path, log_path))
        })
        .await
    }

    /// The way from the root of a run to the root over the first `records`.
    fn log_path(&self, tree: &LogTree, snapshot: &dyn Snapshot, run: u64, records: u64) -> Result<Vec<Hash>> {
        let last = place_of(records).0;
        self.on_run(tree, snapshot, last, run_length(last, records), |last| tree.outer(records, last).path(run))
    }

    /// A run of the log under a head, with what leads from the run to the root.
    pub(crate) async fn proven_run(&self, run: u64, head: &SignedHead) -> Result<(ReadRun, Vec<Hash>)> {
        self.with_tree(head.records, |tree, snapshot| {
            Ok((self.read_run(snapshot, run, head.records)?, self.log_path(tree, snapshot, run, head.records)?))
        })
        .await
    }

    /// The proof that the log under `head` begins with its first `from` records.
    pub(crate) async fn consistency(&self, from: u64, head: SignedHead) -> Result<ConsistencyProof> {
        if from == 0 || from > head.records {
            return Err(ArchiveError::InvalidArgument(format!(
                "the log has {} records; a proof leads from one of them, not from {from}",
                head.records
            )));
        }
        let run = place_of(from).0;
        let (old, new) = (run_length(run, from), run_length(run, head.records));
        self.with_tree(head.records, |tree, snapshot| {
            let (before, after, path) = self.on_run(tree, snapshot, run, new, |run| {
                let grown = run.view(new);
                (run.view(old).root(), grown.root(), grown.growth(old))
            })?;
            Ok(ConsistencyProof {
                format: CONSISTENCY.into(),
                from,
                run_before: to_hex(&before),
                run_after: to_hex(&after),
                run_path: hex_all(path),
                log_path: hex_all(self.log_path(tree, snapshot, run, head.records)?),
                head,
            })
        })
        .await
    }
}

/// Puts a record and its proof together.
pub(crate) fn proven(
    record: u64,
    previous: Hash,
    value: &[u8],
    run_path: Vec<Hash>,
    log_path: Vec<Hash>,
) -> ProvenRecord {
    ProvenRecord {
        record,
        previous: to_hex(&previous),
        value: to_hex(value),
        run_path: hex_all(run_path),
        log_path: hex_all(log_path),
    }
}
