//! The catalog in the simulated world: the embedded store on a volume, interrupted by crashes,
//! against the simple twin.
//!
//! After each crash the catalog must contain exactly the acknowledged transactions, or those and
//! the complete transaction that was under way. The state seen then must stay.

use std::cell::RefCell;
use std::rc::Rc;

use stele_catalog::suite::{alike, draw};
use stele_catalog::{
    Catalog, CatalogError, Direction, Format, InlineCatalog, KeyRange, MemoryCatalog, Options, Snapshot, Table,
    Transaction, format,
};
use stele_ground::{Bytes, Dice, KIB, MIB};
use stele_media::Handle;

use crate::coverage::Coverage;
use crate::oracle::Violation;
use crate::stage;

/// The carrier of the volume through crashes.
pub trait Carrier {
    /// The volume, on a running machine.
    fn handle(&self) -> Handle;
    /// Stops the machine after this many drive operations.
    fn set_fuse(&self, operations: u64);
    fn clear_fuse(&self);
    /// Restarts a stopped machine, which loses power; the first attempt may fail.
    fn restart(&self) -> Result<(), Violation>;
}

/// The whole catalog, as records by table.
type Content = Vec<(u16, Vec<u8>, Vec<u8>)>;

struct CatalogWorld<'a, C> {
    carrier: &'a C,
    /// All acknowledged transactions, in order.
    history: Vec<Transaction>,
    twin: MemoryCatalog,
    dice: Dice,
    coverage: Coverage,
}

/// Runs transactions under crashes, for `rounds` lives of the machine.
pub fn run<C: Carrier>(carrier: &C, seed: u64, rounds: u64) -> Result<Coverage, Violation> {
    let mut world = CatalogWorld {
        carrier,
        history: Vec::new(),
        twin: MemoryCatalog::new(),
        dice: Dice::new(seed),
        coverage: Coverage::default(),
    };
    let size = carrier.handle().geometry().size;
    format(&carrier.handle(), &Format { id: [7; 16], journal: None })
        .map_err(|error| Violation(format!("the catalog cannot be made on {size}: {error}")))?;
    for _ in 0..rounds {
        world.life()?;
    }
    carrier.clear_fuse();
    let catalog = world.open()?.ok_or_else(|| Violation("the machine crashed without a fuse".into()))?;
    world.compare(&catalog, None)?;
    Ok(world.coverage)
}

impl<C: Carrier> CatalogWorld<'_, C> {
    fn options(&mut self) -> Options {
        Options { cache: Bytes(MIB), overlay: Bytes((4 * KIB) << self.dice.below(6)), ..Options::default() }
    }

    /// Opens the catalog. Returns `None` if the machine crashed meanwhile.
    fn open(&mut self) -> Result<Option<InlineCatalog>, Violation> {
        match InlineCatalog::open(&self.carrier.handle(), self.options()) {
            Ok(catalog) if stage::is_up() => Ok(Some(catalog)),
            Err(error) if stage::is_up() => Err(Violation(format!("the catalog does not open: {error}"))),
            _ => {
                self.coverage.count("catalog crashes while opening");
                Ok(None)
            }
        }
    }

    /// One life of the machine: open, compare, commit until it crashes or has done enough.
    fn life(&mut self) -> Result<(), Violation> {
        if self.dice.one_in(2) {
            let sides = 1 << self.dice.below(12);
            let fuse = 1 + self.dice.below(sides);
            self.carrier.set_fuse(fuse);
        }
        let Some(catalog) = self.open()? else { return self.carrier.restart() };
        self.compare(&catalog, None)?;
        let sides = 1 << self.dice.below(14);
        let fuse = 1 + self.dice.below(sides);
        self.carrier.set_fuse(fuse);
        let enough = 20 + self.dice.below(400);
        for _ in 0..enough {
            let transaction = draw(&mut self.dice);
            let answer = catalog.commit(transaction.clone()).wait();
            // A machine that stops while a precondition is read leaves the B-tree unreadable, and
            // the commit is not undecided.
            let stopped = matches!(answer, Err(CatalogError::Stopped(_)));
            if stopped || (matches!(answer, Err(CatalogError::Damaged(_))) && !stage::is_up()) {
                if stage::is_up() {
                    return Err(Violation(format!("the catalog stopped without a crash: {answer:?}")));
                }
                drop(catalog);
                self.coverage.count("catalog crashes in a commit");
                return self.after_crash(transaction);
            }
            let expected = self.twin.commit(transaction.clone()).wait();
            if !alike(&answer, &expected) {
                return Err(Violation(format!("{transaction:?} was answered with {answer:?}, not {expected:?}")));
            }
            if answer.is_ok() {
                self.coverage.count("catalog commits");
                self.history.push(transaction);
            }
            if !stage::is_up() {
                break;
            }
        }
        drop(catalog);
        if stage::is_up() {
            // The catalog is dropped in order, then the power goes: nothing may depend on the
            // action of a destructor.
            self.coverage.count("catalog closes");
            stage::strike();
        }
        self.carrier.restart()
    }

    /// Restarts the machine and checks every acknowledged transaction, with or without the last
    /// one.
    fn after_crash(&mut self, last: Transaction) -> Result<(), Violation> {
        self.carrier.clear_fuse();
        loop {
            self.carrier.restart()?;
            if let Some(catalog) = self.open()? {
                return self.compare(&catalog, Some(last));
            }
        }
    }

    fn compare(&mut self, catalog: &InlineCatalog, last: Option<Transaction>) -> Result<(), Violation> {
        if !stage::is_up() {
            return Ok(());
        }
        let view = catalog.snapshot().map_err(unreadable)?;
        let twin = self.twin.snapshot().map_err(unreadable)?;
        let (number, known) = (view.commit_number(), twin.commit_number());
        if let Some(last) = last
            && number == known + 1
        {
            let answer = self.twin.commit(last.clone()).wait();
            if answer.is_err() {
                return Err(Violation(format!("a transaction that must be refused took place: {last:?}")));
            }
            self.coverage.count("catalog commits found after a crash");
            self.history.push(last);
        } else if number != known {
            return Err(Violation(format!("the catalog is at commit {number}, acknowledged were {known}")));
        }
        let twin = self.twin.snapshot().map_err(unreadable)?;
        let Ok(found) = content(&*view) else {
            return if stage::is_up() { Err(Violation("the catalog cannot be read".into())) } else { Ok(()) };
        };
        let expected = content(&*twin).map_err(unreadable)?;
        if found != expected {
            let differ = found.iter().zip(&expected).find(|(left, right)| left != right);
            return Err(Violation(format!(
                "the catalog holds {} records, should hold {}; first difference {differ:?}",
                found.len(),
                expected.len()
            )));
        }
        self.coverage.count("catalog comparisons");
        Ok(())
    }
}

fn unreadable(error: CatalogError) -> Violation {
    Violation(format!("the catalog cannot be read: {error}"))
}

fn content(view: &dyn Snapshot) -> Result<Content, CatalogError> {
    let mut all = Vec::new();
    for table in 0..6u16 {
        let records = view.range(Table(table), &KeyRange::all(), usize::MAX, Direction::Forward)?;
        all.extend(records.into_iter().map(|(key, value)| (table, key.to_vec(), value.to_vec())));
    }
    Ok(all)
}

/// A carrier of one simulated drive.
pub struct DriveCarrier {
    scene: Rc<RefCell<stage::Bare<stele_media::simulated::SimulatedDrive>>>,
    dice: RefCell<Dice>,
    /// The drive's content at the previous restart, for a drive that falls back to it: no catalog
    /// survives that.
    falls_back: Option<RefCell<stele_media::simulated::Platter>>,
}

impl DriveCarrier {
    /// A drive that forgets its promises.
    pub fn falling_back(size: Bytes, tear: Bytes, seed: u64) -> DriveCarrier {
        DriveCarrier { falls_back: Some(RefCell::default()), ..DriveCarrier::new(size, tear, seed) }
    }

    pub fn new(size: Bytes, tear: Bytes, seed: u64) -> DriveCarrier {
        use stele_media::simulated::{Plain, SimulatedDrive};
        let mut dice = Dice::new(seed ^ 0xCA77_1E00);
        let geometry = stele_media::Geometry { size, block: Bytes(4096) };
        let drive = SimulatedDrive::new(geometry, tear, Box::new(Plain::flash(dice.fork())));
        let scene = Rc::new(RefCell::new(stage::Bare::new(drive)));
        stage::set(scene.clone());
        DriveCarrier { scene, dice: RefCell::new(dice), falls_back: None }
    }
}

impl Carrier for DriveCarrier {
    fn handle(&self) -> Handle {
        use stele_media::Drive;
        stage::handle(stele_ground::VolumeId(0), self.scene.borrow().drive.geometry())
    }

    fn set_fuse(&self, operations: u64) {
        self.scene.borrow_mut().fuse = Some(operations);
    }

    fn clear_fuse(&self) {
        self.scene.borrow_mut().fuse = None;
    }

    fn restart(&self) -> Result<(), Violation> {
        stage::strike();
        self.scene.borrow_mut().restart(&mut self.dice.borrow_mut());
        if let Some(image) = &self.falls_back {
            let drive = &mut self.scene.borrow_mut().drive;
            let now = drive.platter().clone();
            let before = image.replace(now);
            if !before.is_empty() {
                drive.restore(before);
            }
        }
        stage::set(self.scene.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
