//! The stops of the machine: their time, and the state that they leave on the drives.

use stele_ground::{Dice, Instant};
use stele_media::simulated::Unsettled;
use stele_media::{Drive, Op};

use super::{LOG_AT, Machine};
use crate::system::System;

/// The kind of a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashKind {
    /// Drives lose the contents of their caches.
    Power,
    /// Only the process dies.
    Process,
}

/// The drives that a power cut spares: the whole cache of a spared drive reaches its medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tear {
    /// Random on each drive, sector by sector.
    Anyhow,
    /// No drive keeps anything.
    Nothing,
    /// The drive of this bay keeps everything, the others nothing.
    Only(usize),
    /// The drive of this bay keeps nothing, the others everything.
    AllBut(usize),
    /// Each drive keeps everything or nothing.
    Subset,
}

/// A kind of place on a drive whose writes decide the pool's agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landmark {
    Label,
    Anchor,
}

/// Stops the machine soon after writes to a landmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trap {
    pub at: Landmark,
    /// Number of operations there, begun or finished, until the fuse starts.
    pub left: u64,
    /// The length of the fuse.
    pub fuse: u64,
}

/// Offset at which labels end and anchors begin; the labels at a drive's end take as much
/// (FORMAT/array.md).
const ANCHOR_AT: u64 = 128 << 10;

impl<S: System> Machine<S> {
    /// Whether a write is to a landmark.
    fn landmark(&self, bay: usize, at: u64) -> Option<Landmark> {
        let size = self.bays.get(bay).map_or(0, |bay| bay.drive.geometry().size.0);
        match at {
            _ if at < ANCHOR_AT || at + 2 * ANCHOR_AT > size => Some(Landmark::Label),
            _ if at < LOG_AT => Some(Landmark::Anchor),
            _ => None,
        }
    }

    pub(super) fn spring(&mut self, bay: usize, op: &Op) {
        let Some(trap) = &mut self.trap else { return };
        let (Op::Write { at, .. }, at_landmark) = (op, trap.at) else { return };
        if self.landmark(bay, *at) != Some(at_landmark) {
            return;
        }
        let Some(trap) = &mut self.trap else { return };
        trap.left = trap.left.saturating_sub(1);
        if trap.left == 0 {
            self.coverage.count(format!("traps sprung at {at_landmark:?}").to_lowercase());
            self.fuse = Some(trap.fuse.max(1));
            self.trap = None;
        }
    }

    /// Applies a stop of the machine to the drives.
    pub fn crash(&mut self, kind: CrashKind, dice: &mut Dice) {
        self.crash_torn(kind, Tear::Anyhow, dice);
    }

    /// Like `crash`; a power cut spares these drives.
    pub fn crash_torn(&mut self, kind: CrashKind, tear: Tear, dice: &mut Dice) {
        self.system = None;
        self.burnt = false;
        self.refused.clear();
        (self.fuse, self.trap) = (None, None);
        self.happenings.clear();
        for (number, bay) in self.bays.iter_mut().enumerate() {
            bay.wired = None;
            (bay.stuck_since, bay.noticed_at) = (None, None);
            bay.drive.advance(self.now);
            let spared = match tear {
                Tear::Anyhow => None,
                Tear::Nothing => Some(false),
                Tear::Only(only) => Some(number == only),
                Tear::AllBut(but) => Some(number != but),
                Tear::Subset => Some(dice.one_in(2)),
            };
            match (kind, spared) {
                (CrashKind::Power, None) => bay.drive.power_cut(dice),
                (CrashKind::Power, Some(spared)) => {
                    let newest = |place: Unsettled| if spared { place.choices - 1 } else { 0 };
                    bay.drive.inner_mut().power_cut_choosing(newest);
                    bay.drive.forget();
                }
                (CrashKind::Process, _) => {
                    bay.drive.inner_mut().orphan();
                    bay.drive.forget();
                }
            }
        }
        self.wiring.clear();
        let (sentence, name) = match kind {
            CrashKind::Power => ("power cut", "fault PowerCut"),
            CrashKind::Process => ("the process is killed", "crash by kill"),
        };
        self.trace.note(self.now, sentence, &[]);
        self.coverage.count(name);
        if tear != Tear::Anyhow && kind == CrashKind::Power {
            self.coverage.count("power cuts that spared whole drives");
            self.trace.say(self.now, format!("spared: {tear:?}"));
        }
        // The clock has advanced while the machine restarted.
        self.now = Instant(self.now.0 + 1_000_000 + dice.below(1_000_000_000));
    }
}
