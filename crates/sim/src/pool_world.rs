//! The world of a pool of simulated drives with volumes that carry a catalog or an archive through
//! crashes.
//!
//! Between two lives of the machine a drive may be missing and come back stale, and drives may have
//! damage, within the tolerance of the volume's code. The catalog or archive on the volume must
//! notice nothing but the crashes.

use std::cell::RefCell;
use std::rc::Rc;

use stele_array::{Command, CreateOptions, DigestUnit, OpenOptions, Reply, State, VolumeSpec, VolumeStatus, WriteMode};
use stele_ground::{Bytes, Dice, Duration, KIB, MIB, PoolId};
use stele_media::faulty::{FaultKind, FaultPlan};
use stele_media::simulated::{Plain, SimulatedDrive};
use stele_media::{Geometry, Handle};

use crate::atlas::Atlas;
use crate::catalog_world::Carrier;
use crate::machine::{CrashKind, Happening, Machine, Step};
use crate::oracle::Violation;
use crate::stage;
use crate::system::System;
use crate::trace::Trace;

/// Virtual time limit for a pool to open and to answer a command.
const PATIENCE: Duration = Duration::from_secs(300);

/// A requested volume of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub name: &'static str,
    pub code: &'static str,
    pub size: Bytes,
    pub strip: Bytes,
    pub digest: DigestUnit,
}

/// The pool behind the volumes.
pub struct PoolWorld<S> {
    machine: Rc<RefCell<Machine<S>>>,
    wanted: Vec<Wanted>,
    volumes: RefCell<Vec<VolumeStatus>>,
    open: OpenOptions,
    dice: RefCell<Dice>,
    atlas: Atlas,
    faults: bool,
    ids: RefCell<u64>,
}

impl<S: System + 'static> PoolWorld<S> {
    /// Makes a pool of this many drives with these volumes, and puts it on this thread's stage.
    pub fn new(
        seed: u64,
        drives: usize,
        drive_size: Bytes,
        wanted: &[Wanted],
        faults: bool,
    ) -> Result<PoolWorld<S>, Violation> {
        let mut dice = Dice::new(seed ^ 0x4ACC_0000);
        let atlas = Atlas::new(1, Bytes(0));
        let mut plan = FaultPlan::new(dice.roll()).permitted_by(atlas.permit());
        if faults {
            let apart = [FaultKind::Stuck, FaultKind::FailedFlush];
            for kind in FaultKind::BY_OPERATION.into_iter().filter(|kind| !apart.contains(kind)) {
                if dice.one_in(3) {
                    plan = plan.rate(kind, 30 << dice.below(5));
                }
            }
        }
        let mut machine = Machine::new(Trace::new(crate::trace::TAIL));
        let tear = Bytes(if dice.one_in(2) { 512 } else { 4096 });
        for drive in 0..drives {
            let geometry = Geometry { size: drive_size, block: Bytes(4096) };
            let model = Box::new(Plain::flash(dice.fork()));
            machine.add_bay(SimulatedDrive::new(geometry, tear, model), &plan, (drive / 2) as u32);
        }
        let open = OpenOptions {
            table_cache: Bytes((64 * KIB) << dice.below(6)),
            block_cache: Bytes((64 * KIB) << dice.below(6)),
            dirty_limit: Bytes((256 * KIB) << dice.below(4)),
            ..OpenOptions::default()
        };
        let pool = PoolWorld {
            machine: Rc::new(RefCell::new(machine)),
            wanted: wanted.to_vec(),
            volumes: RefCell::default(),
            open,
            dice: RefCell::new(dice),
            atlas,
            faults,
            ids: RefCell::new(1 << 40),
        };
        pool.create()?;
        stage::set(pool.machine.clone());
        Ok(pool)
    }

    fn create(&self) -> Result<(), Violation> {
        {
            let mut machine = self.machine.borrow_mut();
            machine.bays.iter_mut().for_each(|bay| bay.drive.decider().arm(false));
            let drives = machine.bays.iter().map(|bay| bay.identity).collect();
            let options = CreateOptions {
                pool: PoolId([0x4A; 16]),
                name: "pool".into(),
                drives,
                seed: 3,
                log: Some(Bytes(4 * MIB)),
                spare_drives: None,
                created: 0,
                shard: Default::default(),
            };
            let order: Vec<usize> = (0..machine.bays.len()).collect();
            machine.create(options, self.open.clone(), &order);
        }
        self.until_ready()?;
        for wanted in self.wanted.clone() {
            let spec = VolumeSpec {
                name: wanted.name.into(),
                code: wanted.code.parse().map_err(|error| Violation(format!("{error}")))?,
                size: wanted.size,
                strip: wanted.strip,
                block: Bytes(4096),
                digest: wanted.digest,
                mode: WriteMode::WriteBack,
                fully_allocated: false,
                spread: false,
                owner: Some(wanted.name.into()),
            };
            match self.ask(Command::CreateVolume(spec))? {
                Some(Reply::Volume(status)) => self.volumes.borrow_mut().push(status),
                other => return Err(Violation(format!("volume {} was not created: {other:?}", wanted.name))),
            }
        }
        let mut machine = self.machine.borrow_mut();
        machine.bays.iter_mut().for_each(|bay| bay.drive.decider().arm(self.faults));
        Ok(())
    }

    /// Returns true when it is ready, false after a crash.
    fn until_ready(&self) -> Result<bool, Violation> {
        let mut machine = self.machine.borrow_mut();
        let deadline = machine.now + PATIENCE;
        loop {
            match machine.state() {
                State::Starting => {}
                State::Ready { read_only: false } => return Ok(true),
                other => return Err(Violation(format!("the pool is not ready but {other:?}"))),
            }
            if machine.now >= deadline {
                return Err(Violation("the pool does not open in time".into()));
            }
            if machine.step(deadline) == Step::Crash {
                return Ok(false);
            }
            machine.happenings.clear();
        }
    }

    /// Gives a command while nothing else runs. Returns `None` if the machine crashed.
    pub fn ask(&self, command: Command) -> Result<Option<Reply>, Violation> {
        let mut machine = self.machine.borrow_mut();
        *self.ids.borrow_mut() += 1;
        let id = *self.ids.borrow();
        let what = format!("{command:?}");
        machine.command(id, command);
        let deadline = machine.now + PATIENCE;
        loop {
            let crashed = machine.step(deadline) == Step::Crash;
            while let Some(happening) = machine.happenings.pop_front() {
                if let Happening::Reply { id: of, reply } = happening
                    && of == id
                {
                    return reply.map(Some).map_err(|error| Violation(format!("{what} refused: {error}")));
                }
            }
            if crashed {
                return Ok(None);
            }
            if machine.now >= deadline {
                return Err(Violation(format!("no answer to {what}")));
            }
        }
    }

    /// A handle to the volume at this place in the list of requested volumes.
    pub fn volume(&self, place: usize) -> Option<Handle> {
        let volumes = self.volumes.borrow();
        let status = volumes.get(place)?;
        let geometry = Geometry { size: status.spec.size, block: status.spec.block };
        Some(stage::handle(status.id, geometry))
    }

    pub fn hash(&self) -> u64 {
        self.machine.borrow().hash()
    }

    /// The last lines of the trace.
    pub fn tail(&self) -> Vec<String> {
        self.machine.borrow().trace.tail().collect()
    }

    pub fn coverage(&self) -> crate::coverage::Coverage {
        self.machine.borrow().coverage.clone()
    }

    /// Removes a drive while the power is off, or returns one that left.
    fn befall(&self) {
        let mut machine = self.machine.borrow_mut();
        let mut dice = self.dice.borrow_mut();
        if !self.faults {
            return;
        }
        let away = (0..machine.bays.len()).find(|bay| !machine.bays[*bay].present);
        match away {
            Some(bay) if dice.one_in(2) => {
                machine.bays[bay].present = true;
                machine.bays[bay].drive.plug();
                machine.coverage.count("fault Return");
            }
            None if dice.one_in(3) => {
                let bay = dice.below(machine.bays.len() as u64) as usize;
                if self.atlas.allows(&[bay]) {
                    self.atlas.note_absent(bay);
                    machine.bays[bay].present = false;
                    machine.bays[bay].drive.inner_mut().unplug();
                    machine.coverage.count("fault Leave");
                }
            }
            _ => {}
        }
    }
}

impl<S: System + 'static> Carrier for PoolWorld<S> {
    fn handle(&self) -> Handle {
        self.volume(0).unwrap_or_else(|| {
            stage::handle(stele_ground::VolumeId(0), Geometry { size: Bytes(0), block: Bytes(4096) })
        })
    }

    fn set_fuse(&self, operations: u64) {
        self.machine.borrow_mut().fuse = Some(operations);
    }

    fn clear_fuse(&self) {
        self.machine.borrow_mut().fuse = None;
    }

    fn restart(&self) -> Result<(), Violation> {
        stage::strike();
        loop {
            let fuse = {
                let mut dice = self.dice.borrow_mut();
                let mut machine = self.machine.borrow_mut();
                let kind = if dice.one_in(4) { CrashKind::Process } else { CrashKind::Power };
                machine.crash(kind, &mut dice);
                if dice.one_in(4) { Some(1 + dice.below(400)) } else { None }
            };
            self.befall();
            {
                let mut machine = self.machine.borrow_mut();
                let order = machine.present(&mut self.dice.borrow_mut());
                machine.fuse = fuse;
                let seed = self.dice.borrow_mut().roll();
                machine.open(OpenOptions { seed, ..self.open.clone() }, &order);
            }
            if self.until_ready()? {
                self.machine.borrow_mut().fuse = None;
                break;
            }
        }
        stage::set(self.machine.clone());
        Ok(())
    }
}
