//! The Merkle tree over the audit log, in memory: what receipts and proofs are made from.
//!
//! The tree has two levels. Each full run of 1024 records has a tree over their links, and the tree
//! of the log is over the roots of the runs; the last run may be unfinished. Memory: 64 bytes for
//! each run, and the last few runs whole.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::lock::Mutex;
use tokio::sync::oneshot;

use crate::model::head::SignedHead;
use crate::model::merkle::{Hash, MerkleTree, MerkleView};
use crate::state::shared::Shared;

/// Records of a run: under one checkpoint.
pub(crate) const RUN: u64 = 1024;
/// Runs whose links are kept, the unfinished one included. A receipt is for a record just written.
const RECENT: usize = 3;

/// One run of records: their links, and the tree over them.
pub(crate) struct Run {
    index: u64,
    /// The chain's link before its first record.
    before: Hash,
    links: Vec<Hash>,
    tree: MerkleTree,
}

/// The tree over the log up to some record.
pub(crate) struct LogTree {
    runs: MerkleTree,
    /// The last one is unfinished, perhaps empty.
    recent: VecDeque<Run>,
}

/// The tree that receipts share, and the last head signed for one. None: no receipt was asked for
/// yet.
#[derive(Default)]
pub(crate) struct ReceiptLog {
    state: Mutex<Option<LogTree>>,
    head: Shared<Option<SignedHead>>,
    /// Receipts that wait for a signature. Each of their requests signs for all that it finds here.
    unsigned: Shared<Vec<Unsigned>>,
}

/// A receipt that waits for its signature: the BLAKE3 of its text, and its request. None as the
/// answer: it is alone, and is signed by itself.
pub(crate) struct Unsigned {
    pub text: Hash,
    pub answer: oneshot::Sender<Option<SignedPlace>>,
}

/// The place of a receipt in a group, and the signature that the group shares.
pub(crate) struct SignedPlace {
    pub count: u64,
    pub index: u64,
    pub path: Vec<Hash>,
    pub signature: Arc<str>,
}

impl ReceiptLog {
    /// The tree, for one request at a time.
    pub async fn tree(&self) -> futures_util::lock::MutexGuard<'_, Option<LogTree>> {
        self.state.lock().await
    }

    /// The last signed head, if it covers this record.
    pub fn head_over(&self, record: u64) -> Option<SignedHead> {
        self.head.look(|head| head.clone().filter(|head| head.records >= record))
    }

    pub fn add_unsigned(&self, receipt: Unsigned) {
        self.unsigned.step(|unsigned| unsigned.push(receipt));
    }

    pub fn take_unsigned(&self) -> Vec<Unsigned> {
        self.unsigned.step(std::mem::take)
    }

    pub fn note_head(&self, signed: SignedHead) {
        self.head.step(|head| *head = Some(signed));
    }
}

impl Run {
    /// A run without records, behind the record with this link.
    pub fn new(index: u64, before: Hash) -> Run {
        Run { index, before, links: Vec::new(), tree: MerkleTree::default() }
    }

    pub fn push(&mut self, link: Hash) {
        self.tree.push(&link);
        self.links.push(link);
    }

    pub fn records(&self) -> u64 {
        self.links.len() as u64
    }

    /// The link of its last record, or of the one before it.
    pub fn end(&self) -> Hash {
        self.links.last().copied().unwrap_or(self.before)
    }

    /// The link of the record at this place in the run, and that of the record before it.
    pub fn links_at(&self, place: u64) -> Option<(Hash, Hash)> {
        let place = usize::try_from(place).ok()?;
        let link = *self.links.get(place)?;
        let before = place.checked_sub(1).and_then(|place| self.links.get(place)).unwrap_or(&self.before);
        Some((link, *before))
    }

    /// The tree of its first records.
    pub fn view(&self, records: u64) -> MerkleView<'_> {
        self.tree.view(records, None)
    }
}

impl LogTree {
    /// The tree over full runs with these roots; `end` is the link of their last record.
    pub fn new(roots: &[Hash], end: Hash) -> LogTree {
        let mut runs = MerkleTree::default();
        roots.iter().for_each(|root| runs.push(root));
        let current = Run::new(runs.leaves(), end);
        LogTree { runs, recent: VecDeque::from([current]) }
    }

    /// Records under the tree.
    pub fn records(&self) -> u64 {
        self.runs.leaves() * RUN + self.recent.back().map_or(0, Run::records)
    }

    /// The link of the last record.
    pub fn end(&self) -> Hash {
        self.recent.back().map(Run::end).unwrap_or_default()
    }

    /// Whether it begins with the full runs of an earlier tree.
    pub fn begins_with(&self, earlier: &LogTree) -> bool {
        let runs = earlier.runs.leaves();
        self.runs.leaves() >= runs && self.runs.view(runs, None).root() == earlier.runs.whole().root()
    }

    /// Adds the link of the next record.
    pub fn push(&mut self, link: Hash) {
        let Some(current) = self.recent.back_mut() else { return };
        current.push(link);
        if current.records() == RUN {
            self.runs.push(&current.view(RUN).root());
            self.recent.push_back(Run::new(self.runs.leaves(), link));
            while self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
    }

    /// A run whose links are still kept.
    pub fn run(&self, index: u64) -> Option<&Run> {
        self.recent.iter().find(|run| run.index == index)
    }

    /// The tree of runs over the first `records`; `last` is the run in which they end.
    pub fn outer(&self, records: u64, last: &Run) -> MerkleView<'_> {
        let rest = records % RUN;
        let root = last.view(rest.min(last.records())).root();
        self.runs.view(records / RUN, (rest > 0).then_some(&root))
    }
}

/// The run of a record, counted from 0, and its place in that run.
pub(crate) fn place_of(record: u64) -> (u64, u64) {
    let before = record.saturating_sub(1);
    (before / RUN, before % RUN)
}

/// How many records a run has in a log of `records`.
pub(crate) fn run_length(run: u64, records: u64) -> u64 {
    records.saturating_sub(run * RUN).min(RUN)
}
