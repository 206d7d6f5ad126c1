//! The state of background work between two steps.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::lock::{Mutex, MutexGuard};
use zeroize::Zeroizing;

use crate::model::alarm::Alarm;
use crate::model::time::Timestamp;
use crate::state::count::Count;
use crate::state::shared::Shared;
use crate::state::timer::Timer;

/// Milliseconds of elapsed time between two writes of the clock and the segments' counts, and
/// between two identity notes.
const WRITE_EVERY: u64 = 30_000;
const NOTE_EVERY: u64 = 6 * 3_600_000;
/// The same between attempts to destroy keys whose entries could not be overwritten.
const RETRY_EVERY: u64 = 300_000;
/// The same until a segment is tried again a record of which was changed while it was moved.
const MOVE_AGAIN: u64 = 60_000;
/// The same until the work on the index of properties is tried again.
const INDEX_AGAIN: u64 = 300_000;
/// The same between turns of expiration.
const EXPIRE_EVERY: u64 = 300_000;
/// The same between passes of the buckets' lifecycle rules, which count in days.
const AGE_EVERY: u64 = 3_600_000;

pub(crate) struct Upkeep {
    /// Alarms of the opening, for the first step to report.
    unreported: Shared<Vec<Alarm>>,
    /// Segments that reclamation could not empty in this session.
    unmovable: Shared<BTreeSet<u32>>,
    /// Segments whose needed records found no room elsewhere, since a segment was freed last.
    crowded: Shared<BTreeSet<u32>>,
    /// Segments whose records were changed while they were moved, and when each is tried again, in
    /// elapsed milliseconds.
    contended: Shared<BTreeMap<u32, u64>>,
    /// The count of needed bytes that is under way.
    count: Shared<Option<Count>>,
    expiry: Shared<ExpiryStage>,
    /// What expiration may still process under a rate: thousandths of versions, and when that was
    /// counted.
    allowance: Shared<(u64, u64)>,
    aging: Shared<Aging>,
    /// What the last self-test found wrong.
    self_test: Shared<Option<String>>,
    /// The credentials of self-tests under way, by id.
    testers: Shared<BTreeMap<String, Zeroizing<String>>>,
    /// A matter may have a job under way. Until the first step has looked, none is known.
    holds_due: Shared<bool>,
    /// Keys may wait for an approval that no request asks for. The first step looks.
    unasked_due: Shared<bool>,
    /// When the work on the index of properties goes on, in elapsed milliseconds. None: it is
    /// complete.
    indexing: Shared<Option<u64>>,
    clock_writing: Timer,
    identity_noting: Timer,
    disposal_retry: Timer,
    /// Steps do not overlap. True: the last one was dropped midway.
    stepping: Mutex<bool>,
}

/// The part of a turn of expiration that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ExpiryStage {
    /// No turn is under way. The next one may begin at this elapsed time, in milliseconds.
    Waiting(u64),
    /// The versions to judge again, behind this record.
    Again(Option<Bytes>),
    /// The retained versions. How far that has come is in the catalog. `first`: the turn's first
    /// page.
    Pass { first: bool },
}

impl Default for ExpiryStage {
    fn default() -> ExpiryStage {
        ExpiryStage::Waiting(0)
    }
}

/// How far a pass of the lifecycle rules has come.
#[derive(Clone, Default)]
struct Aging {
    /// None: no pass is under way.
    at: Option<AgingPosition>,
    next_pass: u64,
}

/// The place at which a pass of the lifecycle rules goes on.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct AgingPosition {
    pub bucket: u32,
    /// The bucket's uploads, which follow its versions.
    pub uploads: bool,
    /// Behind this record. None: from the bucket's first.
    pub after: Option<Bytes>,
    /// The key whose versions the pass is among.
    pub within: Option<Within>,
}

/// What a pass has seen of the versions of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Within {
    pub key: String,
    /// When the version seen last was stored: the one below it is noncurrent since then.
    pub stored: Timestamp,
    /// Noncurrent versions seen.
    pub noncurrent: u32,
}

impl Upkeep {
    pub fn new() -> Upkeep {
        Upkeep {
            unreported: Shared::default(),
            unmovable: Shared::default(),
            crowded: Shared::default(),
            contended: Shared::default(),
            count: Shared::default(),
            expiry: Shared::default(),
            allowance: Shared::default(),
            aging: Shared::default(),
            self_test: Shared::default(),
            testers: Shared::default(),
            holds_due: Shared::new(true),
            unasked_due: Shared::new(true),
            indexing: Shared::new(Some(0)),
            clock_writing: Timer::new(WRITE_EVERY),
            identity_noting: Timer::new(NOTE_EVERY),
            disposal_retry: Timer::new(RETRY_EVERY),
            stepping: Mutex::new(false),
        }
    }

    /// Begins a step once the one before it has ended. The value says whether that one was dropped
    /// midway.
    pub async fn begin_step(&self) -> MutexGuard<'_, bool> {
        self.stepping.lock().await
    }

    /// Whether the clock and the segments' counts are to be written again.
    pub fn is_clock_due(&self, elapsed: u64) -> bool {
        self.clock_writing.is_due(elapsed)
    }

    /// Whether the identity is to be noted again.
    pub fn is_identity_due(&self, elapsed: u64) -> bool {
        self.identity_noting.is_due(elapsed)
    }

    /// The identity is to be noted at the next step.
    pub fn identity_changed(&self) {
        self.identity_noting.want();
    }

    /// Whether disposals that were set aside are to be tried again.
    pub fn is_retry_due(&self, elapsed: u64) -> bool {
        self.disposal_retry.is_due(elapsed)
    }

    /// A matter has a job under way.
    pub fn holds_are_due(&self) {
        self.holds_due.step(|due| *due = true);
    }

    pub fn take_holds_due(&self) -> bool {
        self.holds_due.step(std::mem::take)
    }

    pub fn take_unasked_due(&self) -> bool {
        self.unasked_due.step(std::mem::take)
    }

    pub fn is_indexing_due(&self, elapsed: u64) -> bool {
        self.indexing.look(|due| due.is_some_and(|due| elapsed >= due))
    }

    /// The index of properties is complete, as far as this opening has to do with it.
    pub fn indexing_is_over(&self) {
        self.indexing.step(|due| *due = None);
    }

    pub fn index_later(&self, elapsed: u64) {
        self.indexing.step(|due| *due = Some(elapsed + INDEX_AGAIN));
    }

    pub fn report_later(&self, alarms: Vec<Alarm>) {
        self.unreported.step(|unreported| unreported.extend(alarms));
    }

    pub fn take_unreported(&self) -> Vec<Alarm> {
        self.unreported.step(std::mem::take)
    }

    pub fn take_count(&self) -> Option<Count> {
        self.count.step(Option::take)
    }

    pub fn put_count(&self, count: Count) {
        self.count.step(|under_way| *under_way = Some(count));
    }

    pub fn crowded(&self) -> BTreeSet<u32> {
        self.crowded.look(BTreeSet::clone)
    }

    /// Whether it is the first one.
    pub fn add_crowded(&self, segment: u32) -> bool {
        self.crowded.step(|segments| {
            segments.insert(segment);
            segments.len() == 1
        })
    }

    pub fn clear_crowded(&self) {
        self.crowded.step(BTreeSet::clear);
    }

    /// Segments that reclamation passes over until it is time to try them again.
    pub fn contended(&self, elapsed: u64) -> BTreeSet<u32> {
        self.contended.step(|segments| {
            segments.retain(|_, again| *again > elapsed);
            segments.keys().copied().collect()
        })
    }

    pub fn add_contended(&self, segment: u32, elapsed: u64) {
        self.contended.step(|segments| segments.insert(segment, elapsed + MOVE_AGAIN));
    }

    pub fn unmovable(&self) -> BTreeSet<u32> {
        self.unmovable.look(BTreeSet::clone)
    }

    pub fn is_unmovable(&self, segment: u32) -> bool {
        self.unmovable.look(|segments| segments.contains(&segment))
    }

    pub fn add_unmovable(&self, segment: u32) {
        self.unmovable.step(|segments| segments.insert(segment));
    }

    pub fn remove_unmovable(&self, segment: u32) {
        self.unmovable.step(|segments| segments.remove(&segment));
    }

    /// What expiration does next. None: no turn is due yet.
    pub fn expiry_due(&self, elapsed: u64) -> Option<ExpiryStage> {
        self.expiry.look(|stage| match stage {
            ExpiryStage::Waiting(until) => (elapsed >= *until).then_some(ExpiryStage::Again(None)),
            under_way => Some(under_way.clone()),
        })
    }

    /// How many versions expiration may process now. Under a rate, what a second brings is the most
    /// that is saved up.
    pub fn expiry_allowance(&self, rate: Option<u32>, elapsed: u64) -> usize {
        let Some(rate) = rate else { return usize::MAX };
        self.allowance.step(|(left, counted)| {
            let passed = elapsed.saturating_sub(*counted).min(1000);
            (*left, *counted) = ((*left + passed * u64::from(rate)).min(1000 * u64::from(rate)), elapsed);
            usize::try_from(*left / 1000).unwrap_or(usize::MAX)
        })
    }

    pub fn spend_expiry(&self, versions: usize) {
        self.allowance.step(|(left, _)| *left = left.saturating_sub(1000 * versions as u64));
    }

    pub fn note_self_test(&self, finding: Option<String>) {
        self.self_test.step(|known| *known = finding);
    }

    pub fn admit_tester(&self, id: &str, secret: Zeroizing<String>) {
        self.testers.step(|testers| testers.insert(id.into(), secret));
    }

    pub fn dismiss_tester(&self, id: &str) {
        self.testers.step(|testers| testers.remove(id));
    }

    pub fn tester_secret(&self, id: &str) -> Option<Zeroizing<String>> {
        self.testers.look(|testers| testers.get(id).cloned())
    }

    pub fn self_test_finding(&self) -> Option<String> {
        self.self_test.look(Clone::clone)
    }

    /// Where the pass of the lifecycle rules goes on. None: no pass is due yet.
    pub fn aging_due(&self, elapsed: u64) -> Option<AgingPosition> {
        self.aging.look(|aging| match &aging.at {
            Some(at) => Some(at.clone()),
            None => (elapsed >= aging.next_pass).then(AgingPosition::default),
        })
    }

    /// The pass has taken a page. `at`: where it goes on; none: it is over.
    pub fn note_aging(&self, at: Option<AgingPosition>, elapsed: u64) {
        self.aging.step(|aging| *aging = Aging { at, next_pass: elapsed + AGE_EVERY });
    }

    pub fn note_expiry(&self, stage: ExpiryStage) {
        self.expiry.step(|expiry| *expiry = stage);
    }

    /// A turn of expiration is over.
    pub fn end_expiry(&self, elapsed: u64) {
        self.note_expiry(ExpiryStage::Waiting(elapsed + EXPIRE_EVERY));
    }
}
