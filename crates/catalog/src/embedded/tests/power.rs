//! A volume that loses power. A sector of 512 bytes that no flush or forced write covered keeps any
//! of its contents since the last one, independently of its neighbours. Everything runs on the
//! caller's thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use stele_ground::{Bytes, Dice};
use stele_media::{Done, Geometry, Handle, MediaError, MediaFault, Op, Port, Priority};

const SECTOR: u64 = 512;

type Sector = Arc<[u8]>;

/// The contents of the volume; cheap to copy. Absent sectors are zeros.
#[derive(Clone, Default)]
pub struct Image(BTreeMap<u64, Sector>);

struct State {
    size: u64,
    now: Image,
    durable: Image,
    /// For each sector, its contents since it was last durable, oldest first.
    unsure: BTreeMap<u64, Vec<Sector>>,
    /// Number of writes, zeroings and flushes so far.
    steps: u64,
    /// The step during which the power goes.
    cut_at: Option<u64>,
    dice: Dice,
    dead: bool,
    fail_reads_at: Option<u64>,
}

/// The volume; its handle goes to the catalog.
#[derive(Clone)]
pub struct PowerCut {
    state: Arc<Mutex<State>>,
}

impl PowerCut {
    pub fn new(size: u64, image: Image, seed: u64, cut_at: Option<u64>) -> PowerCut {
        let state = State {
            size,
            now: image.clone(),
            durable: image,
            unsure: BTreeMap::new(),
            steps: 0,
            cut_at,
            dice: Dice::new(seed),
            dead: false,
            fail_reads_at: None,
        };
        PowerCut { state: Arc::new(Mutex::new(state)) }
    }

    pub fn handle(&self) -> Handle {
        Handle::new(self.clone())
    }

    pub fn steps(&self) -> u64 {
        self.state.lock().unwrap().steps
    }

    pub fn is_dead(&self) -> bool {
        self.state.lock().unwrap().dead
    }

    /// Cuts the power now, if it is still on; returns the remaining contents.
    pub fn cut(&self) -> Image {
        let mut state = self.state.lock().unwrap();
        if !state.dead {
            state.cut();
        }
        state.durable.clone()
    }

    /// The contents that a read would see now.
    pub fn image(&self) -> Image {
        self.state.lock().unwrap().now.clone()
    }

    pub fn size(&self) -> u64 {
        self.state.lock().unwrap().size
    }

    /// Makes the volume larger, durably. If the power goes in this step, the volume has the old or
    /// the new size.
    pub fn grow(&self, size: u64) -> Result<(), MediaError> {
        let mut state = self.state.lock().unwrap();
        state.steps += 1;
        let cut = state.cut_at == Some(state.steps);
        if !state.dead && (!cut || state.dice.below(2) == 0) {
            assert!(size >= state.size);
            state.size = size;
        }
        if cut {
            state.cut();
        }
        if state.dead { Err(MediaError::new(MediaFault::Gone, "the power is off")) } else { Ok(()) }
    }

    /// Reads that touch this byte fail from now on.
    pub fn spoil(&self, at: u64) {
        self.state.lock().unwrap().fail_reads_at = Some(at);
    }
}

impl Image {
    pub fn flip(&mut self, at: u64) {
        let mut sector = self.0.get(&(at / SECTOR)).map_or(vec![0; SECTOR as usize], |sector| sector.to_vec());
        sector[(at % SECTOR) as usize] ^= 1;
        self.0.insert(at / SECTOR, sector.into());
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        into.fill(0);
        for (number, sector) in self.0.range(at / SECTOR..(at + into.len() as u64) / SECTOR) {
            let from = (number * SECTOR - at) as usize;
            into[from..from + SECTOR as usize].copy_from_slice(sector);
        }
    }
}

impl State {
    fn write(&mut self, number: u64, sector: &[u8], fua: bool) {
        let sector: Sector = sector.into();
        self.now.0.insert(number, Arc::clone(&sector));
        if fua {
            self.unsure.remove(&number);
            self.durable.0.insert(number, sector);
        } else {
            self.unsure.entry(number).or_default().push(sector);
        }
    }

    fn cut(&mut self) {
        self.dead = true;
        for (number, versions) in std::mem::take(&mut self.unsure) {
            // The durable content, or any later one.
            let pick = self.dice.below(versions.len() as u64 + 1);
            if pick > 0 {
                self.durable.0.insert(number, Arc::clone(&versions[pick as usize - 1]));
            }
        }
    }

    fn perform(&mut self, op: &mut Op) -> Result<(), MediaError> {
        let gone = || Err(MediaError::new(MediaFault::Gone, "the power is off"));
        if self.dead {
            return gone();
        }
        if !matches!(op, Op::Read { .. }) {
            self.steps += 1;
            if self.cut_at == Some(self.steps) {
                if let Op::Write { at, data, .. } = op {
                    let sectors = data.iter().flat_map(|piece| piece.chunks(SECTOR as usize));
                    for (number, sector) in (*at / SECTOR..).zip(sectors) {
                        self.write(number, sector, false);
                    }
                }
                self.cut();
                return gone();
            }
        }
        match op {
            Op::Read { at, buffer } => {
                let end = *at + buffer.len() as u64;
                if self.fail_reads_at.is_some_and(|bad| *at <= bad && bad < end) {
                    return Err(MediaError::new(MediaFault::Damaged, "the strip is lost"));
                }
                self.now.read(*at, buffer);
            }
            Op::Write { at, data, fua } => {
                let sectors = data.iter().flat_map(|piece| piece.chunks(SECTOR as usize));
                for (number, sector) in (*at / SECTOR..).zip(sectors) {
                    self.write(number, sector, *fua);
                }
            }
            Op::Zero { at, length } | Op::Discard { at, length } => {
                let range = *at / SECTOR..(*at + *length) / SECTOR;
                let there: Vec<u64> = self.now.0.range(range).map(|(number, _)| *number).collect();
                for number in there {
                    self.write(number, &[0; SECTOR as usize], false);
                }
            }
            Op::Flush => {
                for (number, versions) in std::mem::take(&mut self.unsure) {
                    self.durable.0.extend(versions.last().map(|last| (number, Arc::clone(last))));
                }
            }
            Op::View { .. } | Op::Extents { .. } => {
                return Err(MediaError::new(MediaFault::Invalid, "not asked in these tests"));
            }
        }
        Ok(())
    }
}

impl Port for PowerCut {
    fn geometry(&self) -> Geometry {
        Geometry { size: Bytes(self.size()), block: Bytes(4096) }
    }

    fn submit(&self, mut op: Op, _priority: Priority, done: Done) {
        let range = op.range().unwrap_or((0, 0));
        assert!(
            range.0.is_multiple_of(4096) && range.1.is_multiple_of(4096) && range.0 + range.1 <= self.size(),
            "{range:?}"
        );
        let result = self.state.lock().unwrap().perform(&mut op);
        done(op, result);
    }

    fn pump(&self) -> bool {
        true
    }
}
