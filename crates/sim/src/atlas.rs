//! The atlas: the damaged drives, and the further damage that the array must still tolerate.
//!
//! A pool must give right answers in two cases. Either at most as many drives are absent or damaged
//! as its weakest code tolerates, or one whole enclosure is, if every code's strips allow it. A
//! damaged drive counts until a scrub found nothing. Damage may be anywhere on it and of any kind,
//! silent or not.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::Bytes;
use stele_media::faulty::{FaultKind, Permit, Proposal};

use crate::machine::LOG_AT;

#[derive(Clone, Default, Debug)]
struct Inner {
    tolerance: usize,
    /// Bays whose drives may have damage.
    damaged: BTreeSet<usize>,
    /// Those of them whose drives may have damage that was never reported.
    hidden: BTreeSet<usize>,
    /// Bays whose drives are away, or are back but not yet up to date.
    absent: BTreeSet<usize>,
    /// Beyond tolerance: damage that reports itself or that a digest detects may be anywhere.
    beyond: bool,
    /// Where drives hold the log.
    log: Range<u64>,
}

/// An atlas shared with the drives' fault plans.
#[derive(Clone, Default)]
pub struct Atlas(Arc<Mutex<Inner>>);

impl Atlas {
    /// An atlas of a healthy pool whose weakest code tolerates the loss of this many strips, and
    /// whose log has so many bytes.
    pub fn new(tolerance: usize, log: Bytes) -> Atlas {
        Atlas(Arc::new(Mutex::new(Inner { tolerance, log: LOG_AT..LOG_AT + log.0, ..Inner::default() })))
    }

    fn with<R>(&self, run: impl FnOnce(&mut Inner) -> R) -> R {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The permit that the fault plans of all drives ask.
    pub fn permit(&self) -> Permit {
        let atlas = self.clone();
        Arc::new(move |proposal| {
            atlas.with(|inner| {
                // Slowness changes no content and needs no redundancy.
                if proposal.kind == FaultKind::Slow {
                    return true;
                }
                if inner.beyond && inner.forges_the_end(proposal) {
                    return false;
                }
                if inner.damaged.contains(&proposal.drive) {
                    inner.note_kind(proposal);
                    return true;
                }
                if inner.beyond {
                    let honest = [
                        FaultKind::BitFlip,
                        FaultKind::ByteFlip,
                        FaultKind::LatentError,
                        FaultKind::TransientError,
                        FaultKind::MisdirectedRead,
                        FaultKind::Stuck,
                    ];
                    return honest.contains(&proposal.kind);
                }
                let hurt = inner.hurt_with(&[proposal.drive]);
                if hurt <= inner.tolerance {
                    inner.damaged.insert(proposal.drive);
                    inner.note_kind(proposal);
                }
                hurt <= inner.tolerance
            })
        })
    }

    /// Whether these bays may be damaged too.
    pub fn allows(&self, bays: &[usize]) -> bool {
        self.with(|inner| inner.beyond || inner.hurt_with(bays) <= inner.tolerance)
    }

    pub fn note_absent(&self, bay: usize) {
        self.with(|inner| inner.absent.insert(bay));
    }

    pub fn note_damaged(&self, bay: usize) {
        self.with(|inner| {
            inner.damaged.insert(bay);
            inner.hidden.insert(bay);
        });
    }

    /// Whether the drive may have damage that was never reported.
    pub fn is_hidden(&self, bay: usize) -> bool {
        self.with(|inner| inner.hidden.contains(&bay))
    }

    /// Whether any drive may have damage that was never reported.
    pub fn any_hidden(&self) -> bool {
        self.with(|inner| !inner.hidden.is_empty())
    }

    /// Sets the tolerance after the pool grew or shrank.
    pub fn set_tolerance(&self, tolerance: usize) {
        self.with(|inner| inner.tolerance = tolerance);
    }

    /// The drive no longer belongs to the pool.
    pub fn forget(&self, bay: usize) {
        self.with(|inner| {
            inner.damaged.remove(&bay);
            inner.hidden.remove(&bay);
            inner.absent.remove(&bay);
        });
    }

    /// The pool reported full redundancy, and a scrub found nothing.
    pub fn healed(&self) {
        self.with(|inner| {
            inner.damaged.clear();
            inner.hidden.clear();
            inner.absent.clear();
        });
    }

    pub fn is_hurt(&self) -> bool {
        self.with(|inner| !inner.damaged.is_empty() || !inner.absent.is_empty())
    }

    pub fn absent(&self) -> Vec<usize> {
        self.with(|inner| inner.absent.iter().copied().collect())
    }

    pub fn damaged(&self) -> Vec<usize> {
        self.with(|inner| inner.damaged.iter().copied().collect())
    }

    /// From here on the array may refuse, but must never return wrong data.
    pub fn go_beyond(&self) {
        self.with(|inner| inner.beyond = true);
    }

    pub fn is_beyond(&self) -> bool {
        self.with(|inner| inner.beyond)
    }
}

impl Inner {
    /// A drive says that it took the newest group of the log, and did not. Where the others are
    /// away, nothing tells the group from one that was never acknowledged: the limit that
    /// SEMANTICS/array.md states.
    fn forges_the_end(&self, proposal: &Proposal) -> bool {
        let lies = [FaultKind::LostWrite, FaultKind::TornWrite, FaultKind::MisdirectedWrite];
        let in_log = proposal.at < self.log.end && proposal.at + proposal.length > self.log.start;
        in_log && lies.contains(&proposal.kind)
    }

    fn note_kind(&mut self, proposal: &Proposal) {
        if proposal.kind.is_silent() {
            self.hidden.insert(proposal.drive);
        }
    }

    fn hurt_with(&self, bays: &[usize]) -> usize {
        let mut all: BTreeSet<usize> = self.damaged.union(&self.absent).copied().collect();
        all.extend(bays);
        all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_tolerance_a_damaged_drive_writes_the_log_where_it_says() {
        let atlas = Atlas::new(1, Bytes(1 << 20));
        let permit = atlas.permit();
        let may = |kind, at| permit(&Proposal { drive: 0, kind, at, length: 8192 });
        assert!(may(FaultKind::LostWrite, LOG_AT) && may(FaultKind::MisdirectedWrite, LOG_AT + 4096));
        atlas.go_beyond();
        for kind in [FaultKind::LostWrite, FaultKind::TornWrite, FaultKind::MisdirectedWrite] {
            let places = [LOG_AT - 8192, LOG_AT - 4096, LOG_AT + (1 << 20) - 4096, LOG_AT + (1 << 20)];
            assert_eq!(places.map(|at| may(kind, at)), [true, false, false, true], "{kind:?}");
        }
        assert!(may(FaultKind::LatentError, LOG_AT) && may(FaultKind::BitFlip, LOG_AT));
    }
}
