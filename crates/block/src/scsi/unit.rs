//! A logical unit: a drive as SCSI initiators see it, with its settings (modes, reservations) and
//! the attentions that initiators have not received yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::attention::Attentions;
use super::cdb::Prepared;
use super::command::{Blocks, ReservationAccess, ScsiCommand};
use super::copy::Copied;
use super::exec::{Exec, ExecStep};
use super::lanes::{Entry, Lanes};
use super::mode::Modes;
use super::persistent::Reservations;
use super::{Reply, Sense, Status};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnitId(pub u32);

/// An initiator port on a target port: one session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NexusId(pub u32);

/// The names of a nexus: persistent reservations are kept under them, since they outlive sessions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Port {
    /// `name,i,0xISID`, as in an iSCSI TransportID.
    pub initiator: String,
    /// The relative identifier of the target port.
    pub target: u16,
}

/// The fixed properties of a unit.
#[derive(Clone, Debug)]
pub struct Profile {
    pub blocks: u64,
    /// Bytes of a block: 512 or 4096.
    pub block_bytes: u32,
    /// Unique and permanent: the volume's id.
    pub id: [u8; 16],
    /// The volume's name.
    pub name: String,
    /// The iSCSI name of the target.
    pub target: String,
    pub read_only: bool,
    /// Presented as a removable disk, which an initiator can eject.
    pub removable: bool,
    /// Physical blocks are reported as large as logical ones (512n).
    pub native_blocks: bool,
    /// Length in bytes of the longest atomic write of the drive; 0: none.
    pub whole_max: u64,
    /// Number of blocks that unmapping frees as a whole; 0: not reported.
    pub unmap_granularity: u32,
}

impl Profile {
    pub fn block(&self) -> u64 {
        u64::from(self.block_bytes)
    }
}

/// The kind of a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    Unit,
    Target,
}

pub struct Unit {
    pub id: UnitId,
    pub profile: Profile,
    pub(super) modes: Modes,
    pub(super) reservations: Reservations,
    pub(super) reserved_by: Option<NexusId>,
    pub(super) nexuses: BTreeMap<NexusId, Port>,
    pub(super) attentions: Attentions,
    pub(super) lanes: Lanes,
    /// The initiator port that protected the unit from writes, while the protection holds.
    pub(super) protected_by: Option<Port>,
    pub(super) ejected: bool,
    /// The one that ejected it last.
    pub(super) ejected_by: Option<Port>,
    pub(super) prevented_by: BTreeSet<NexusId>,
    pub(super) copied: VecDeque<Copied>,
    /// Initiator ports whose commands a PREEMPT AND ABORT ends; the transport takes this list.
    pub aborting: Vec<Port>,
    /// Whether changed reservations are being kept.
    pub(super) keeping: bool,
}

impl Unit {
    pub fn new(id: UnitId, profile: Profile, reservations: Reservations) -> Unit {
        Unit {
            id,
            profile,
            modes: Modes::default(),
            reservations,
            reserved_by: None,
            nexuses: BTreeMap::new(),
            attentions: Attentions::default(),
            lanes: Lanes::default(),
            protected_by: None,
            ejected: false,
            ejected_by: None,
            prevented_by: BTreeSet::new(),
            copied: VecDeque::new(),
            aborting: Vec::new(),
            keeping: false,
        }
    }

    /// The reservations, unless a change of them is being kept.
    pub fn settled_reservations(&self) -> Option<Reservations> {
        (!self.keeping).then(|| self.reservations.clone())
    }

    /// Begins a session. `known`: the same initiator port has been here before.
    pub fn attach(&mut self, nexus: NexusId, port: Port, known: bool) {
        self.nexuses.insert(nexus, port);
        self.attentions.raise(nexus, if known { Sense::NEXUS_LOST } else { Sense::POWER_ON });
    }

    /// Ends a session, and releases everything that lasts only as long as the session.
    pub fn detach(&mut self, nexus: NexusId) {
        self.nexuses.remove(&nexus);
        self.attentions.forget(nexus);
        self.prevented_by.remove(&nexus);
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
    }

    /// Resets the unit after the transport has ended the commands of all nexuses.
    pub fn reset(&mut self, reset: Reset, by: Option<NexusId>) {
        self.reserved_by = None;
        self.prevented_by.clear();
        self.modes = Modes::default();
        if reset == Reset::Target {
            self.ejected = false;
        }
        for nexus in self.nexuses.keys() {
            if Some(*nexus) != by || reset == Reset::Unit {
                self.attentions.raise(*nexus, Sense::WAS_RESET);
            }
        }
    }

    /// Notifies every nexus but one.
    pub fn tell_all(&mut self, sense: Sense, except: Option<NexusId>) {
        for nexus in self.nexuses.keys().filter(|nexus| Some(**nexus) != except) {
            self.attentions.raise(*nexus, sense);
        }
    }

    pub fn tell(&mut self, nexus: NexusId, sense: Sense) {
        self.attentions.raise(nexus, sense);
    }

    /// The volume was resized.
    pub fn resize(&mut self, blocks: u64) {
        if blocks != self.profile.blocks {
            self.profile.blocks = blocks;
            self.tell_all(Sense::CAPACITY_CHANGED, None);
        }
    }

    /// Admits the command among the others. A returned reply ends it.
    pub fn enter(&mut self, key: u64, exec: &Exec, ordered: bool) -> Result<bool, Reply> {
        let lane = exec.prepared.as_ref().ok().and_then(|prepared| prepared.command.lane());
        match self.lanes.enter(key, lane, ordered) {
            Entry::Runs => Ok(true),
            Entry::Waits => Ok(false),
            Entry::Full => Err(Reply::status(Status::TaskSetFull)),
        }
    }

    /// Admits an operation of another unit's copy, unless a command has its bytes to itself.
    pub fn enter_visit(&mut self, key: u64, (at, length): (u64, u64)) -> bool {
        let block = self.profile.block();
        let (first, end) = (at / block, at.saturating_add(length).div_ceil(block));
        self.lanes.visit(key, Blocks { at: first, count: end - first })
    }

    /// Removes an ended command. Returns those that may begin now.
    pub fn leave(&mut self, key: u64) -> Vec<u64> {
        self.lanes.leave(key)
    }

    pub fn is_waiting(&self, key: u64) -> bool {
        self.lanes.is_waiting(key)
    }

    /// Begins a command whose data has arrived.
    pub fn begin(&mut self, exec: &mut Exec) -> ExecStep {
        let passes = match &exec.prepared {
            Ok(Prepared { command, .. }) => {
                matches!(
                    command,
                    ScsiCommand::Inquiry { .. } | ScsiCommand::ReportLuns { .. } | ScsiCommand::RequestSense { .. }
                )
            }
            Err(_) => false,
        };
        if !passes
            && !self.attentions.is_empty()
            && let Some(sense) = self.attentions.take(exec.nexus)
        {
            return ExecStep::done(sense);
        }
        let command = match &exec.prepared {
            Ok(prepared) => prepared.command,
            Err(sense) => return ExecStep::done(*sense),
        };
        if self.conflicts(exec.nexus, &command) {
            return ExecStep::Done(Reply::status(Status::ReservationConflict));
        }
        if command.needs_medium() && self.ejected {
            return ExecStep::done(Sense::NO_MEDIUM);
        }
        if command.writes_medium()
            && let Some(sense) = self.protected()
        {
            return ExecStep::done(sense);
        }
        self.carry_out(exec, command)
    }

    /// The reason why the medium cannot be written, if any.
    pub(super) fn protected(&self) -> Option<Sense> {
        if self.profile.read_only {
            return Some(Sense::WRITE_PROTECTED);
        }
        self.modes.software_protected.then_some(Sense::SOFTWARE_PROTECTED)
    }

    /// Whether a copy that another unit carries out for this initiator port may read here, and
    /// write.
    pub fn lets_copy(&self, port: &Port) -> (bool, bool) {
        let reserved = self.reserved_by.is_some_and(|holder| self.nexuses.get(&holder) != Some(port));
        let denies = |writes| reserved || self.ejected || self.reservations.denies(Some(port), writes);
        (!denies(false), !denies(true) && self.protected().is_none())
    }

    fn conflicts(&self, nexus: NexusId, command: &ScsiCommand) -> bool {
        let access = command.access();
        if access == ReservationAccess::Free {
            return false;
        }
        if self.reserved_by.is_some_and(|holder| holder != nexus) {
            return true;
        }
        match access {
            ReservationAccess::Reads => self.reservations.denies(self.nexuses.get(&nexus), false),
            ReservationAccess::Writes => self.reservations.denies(self.nexuses.get(&nexus), true),
            ReservationAccess::Free | ReservationAccess::Shared | ReservationAccess::Own => false,
        }
    }
}
