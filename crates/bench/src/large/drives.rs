//! Drives of 20 TB that are sparse files in memory, for a pool that this program drives itself: as
//! fast as memory, or in virtual time as slow as hard drives.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use stele_array::{OpenOptions, Pool};
use stele_ground::{BLOCK, Bytes, Dice, Duration, Instant};
use stele_media::simulated::{CommandWork, HardDrive, HardDriveSpec, Model, SECTOR};
use stele_media::{Completion, Drive, Geometry, MediaError, MediaFault, Op, Request, Shared};

use crate::rig::{Rig, TimeSource};

/// A file as a drive. A block of zeros takes no memory where nothing else lies, so that terabytes
/// of zeros fit into it.
pub struct SparseDrive {
    file: File,
    geometry: Geometry,
    /// None: every operation is done at once.
    mechanics: Option<HardDrive>,
    waiting: Vec<Request>,
    serving: Option<(Instant, Request)>,
    finished: Vec<Completion>,
    /// What lay where zeros are to go.
    there: Vec<u8>,
}

impl SparseDrive {
    fn open(path: &Path, size: u64, mechanics: Option<HardDrive>) -> Result<SparseDrive, String> {
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        let geometry = Geometry { size: Bytes(size), block: Bytes(BLOCK as u64) };
        let (waiting, finished, there) = (Vec::new(), Vec::new(), Vec::new());
        Ok(SparseDrive { file, geometry, mechanics, waiting, serving: None, finished, there })
    }

    fn carry_out(&mut self, mut request: Request) {
        let result = match &mut request.op {
            Op::Read { at, buffer } => self.file.read_exact_at(buffer, *at),
            Op::Write { at, data, .. } => self.write(*at, data),
            Op::Zero { at, length } => self.zero(*at, *length),
            _ => Ok(()),
        };
        let result = result.map_err(|_| MediaError::new(MediaFault::Damaged, "the file in memory failed"));
        self.finished.push(Completion { tag: request.tag, op: request.op, result });
    }

    fn write(&mut self, mut at: u64, data: &[Shared]) -> std::io::Result<()> {
        for piece in data {
            match is_zero(piece) {
                true => self.zero(at, piece.len() as u64)?,
                false => self.file.write_all_at(piece, at)?,
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn zero(&mut self, at: u64, length: u64) -> std::io::Result<()> {
        self.there.resize(length as usize, 0);
        self.file.read_exact_at(&mut self.there, at)?;
        if !is_zero(&self.there) {
            self.there.fill(0);
            self.file.write_all_at(&self.there, at)?;
        }
        Ok(())
    }

    fn begin(&mut self, now: Instant) {
        let Some(mechanics) = self.mechanics.as_mut().filter(|_| self.serving.is_none()) else { return };
        if self.waiting.is_empty() {
            return;
        }
        let seen = self.waiting.iter().take(mechanics.window());
        let works: Vec<CommandWork> = seen.map(|request| CommandWork::of(&request.op)).collect();
        let request = self.waiting.remove(mechanics.choose(now, &works));
        let took = mechanics.service(now, CommandWork::of(&request.op));
        self.serving = Some((now + took, request));
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| *word == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

impl Drive for SparseDrive {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        match self.mechanics {
            Some(_) => self.waiting.push(request),
            None => self.carry_out(request),
        }
    }

    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        self.begin(now);
        while let Some((at, request)) = self.serving.take_if(|(at, _)| *at <= now) {
            self.carry_out(request);
            self.begin(at);
        }
        finished.append(&mut self.finished);
    }

    fn next_event(&self) -> Option<Instant> {
        self.serving.as_ref().map(|(at, _)| *at)
    }
}

/// How long the drives take.
#[derive(Clone, Copy, PartialEq)]
pub enum Pace {
    Memory,
    HardDrives,
}

/// A hard drive of this size. The rates are those of data sheets of drives with 7,200 revolutions a
/// minute; the arm's times are usual ones, and no measurement.
fn mechanics(size: u64, number: u64) -> HardDrive {
    let spec = HardDriveSpec {
        sectors: size / SECTOR as u64,
        heads: 20,
        revolution: Duration::from_micros(8_333),
        outer_rate: 279_194_600,
        inner_share: 0.5,
        seek_track: Duration::from_millis(1),
        seek_average: Duration::from_millis(8),
        seek_full: Duration::from_millis(16),
        write_settle: Duration::from_micros(500),
        overhead: Duration::from_micros(100),
        window: 32,
    };
    HardDrive::new(spec, &mut Dice::new(number))
}

/// Opens the pool on the files d0.img, d1.img and so on.
pub fn open(dir: &Path, drives: usize, size: u64, pace: Pace) -> Result<Rig<SparseDrive>, String> {
    let open = |number: usize| {
        let mechanics = (pace == Pace::HardDrives).then(|| mechanics(size, number as u64));
        SparseDrive::open(&dir.join(format!("d{number}.img")), size, mechanics)
    };
    let drives = (0..drives).map(open).collect::<Result<_, _>>()?;
    // To fill a pool each page of the table is stored about once, which saves memory here.
    let (table_cache, clock) = match pace {
        Pace::Memory => (Bytes(1 << 29), TimeSource::Wall),
        Pace::HardDrives => (OpenOptions::default().table_cache, TimeSource::Virtual),
    };
    let options = OpenOptions { table_cache, ..OpenOptions::default() };
    Rig::open(drives, clock, |attached, now| Pool::open(options, attached, now))
}
