//! Drives of 20 TB that are sparse files in memory, for a pool that this program drives itself: as
//! fast as memory, or in virtual time as slow as hard drives.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use stele_array::{Action, Attached, Command, Event, OpenOptions, Pool, Reply, State};
use stele_ground::{BLOCK, Bytes, Dice, Duration, Instant, VolumeId};
use stele_media::simulated::{CommandWork, HardDrive, HardDriveSpec, Model, SECTOR};
use stele_media::{Completion, Drive, Geometry, MediaError, MediaFault, Op, Priority, Request, Shared};

/// A file as a drive. A block of zeros takes no memory where nothing else lies, so that terabytes
/// of zeros fit into it.
struct SparseDrive {
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
        let works: Vec<CommandWork> = seen.map(|request| work_of(&request.op)).collect();
        let request = self.waiting.remove(mechanics.choose(now, &works));
        let took = mechanics.service(now, work_of(&request.op));
        self.serving = Some((now + took, request));
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| *word == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

fn work_of(op: &Op) -> CommandWork {
    match op {
        Op::Read { at, buffer } => CommandWork::Read { at: *at, length: buffer.len() as u64 },
        Op::Write { at, data, fua } => {
            CommandWork::Write { at: *at, length: data.iter().map(|piece| piece.len() as u64).sum(), fua: *fua }
        }
        Op::Zero { at, length } => CommandWork::Write { at: *at, length: *length, fua: false },
        Op::Flush => CommandWork::Flush,
        _ => CommandWork::Other,
    }
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

/// An opened pool with its drives. Dropping it is what kill -9 is to a server.
pub struct Rig {
    pool: Pool,
    drives: Vec<SparseDrive>,
    pub now: Instant,
    pace: Pace,
    begun: std::time::Instant,
    next: u64,
}

impl Rig {
    /// Opens the pool on the files d0.img, d1.img and so on.
    pub fn open(dir: &Path, drives: usize, size: u64, pace: Pace) -> Result<Rig, String> {
        let open = |number: usize| {
            let mechanics = (pace == Pace::HardDrives).then(|| mechanics(size, number as u64));
            SparseDrive::open(&dir.join(format!("d{number}.img")), size, mechanics)
        };
        let drives: Vec<SparseDrive> = (0..drives).map(open).collect::<Result<_, _>>()?;
        let attached = drives.iter().enumerate().map(|(at, drive)| Attached {
            geometry: drive.geometry,
            name: format!("d{at}"),
            enclosure: at as u32,
        });
        // To fill a pool each page of the table is stored about once, which saves memory here.
        let table_cache = if pace == Pace::Memory { Bytes(1 << 29) } else { OpenOptions::default().table_cache };
        let pool = Pool::open(OpenOptions { table_cache, ..OpenOptions::default() }, attached.collect(), Instant(1));
        let begun = std::time::Instant::now();
        let mut rig = Rig { pool, drives, now: Instant(1), pace, begun, next: 0 };
        while *rig.pool.state() == State::Starting {
            rig.turn(&mut Vec::new());
        }
        match rig.pool.state() {
            State::Ready { .. } => Ok(rig),
            other => Err(format!("the pool did not open: {other:?}")),
        }
    }

    fn turn(&mut self, answers: &mut Vec<Action>) {
        if self.pace == Pace::Memory {
            self.now = Instant(self.begun.elapsed().as_nanos() as u64 + 1);
        }
        self.pool.run(self.now);
        let mut actions = Vec::new();
        self.pool.actions(&mut actions);
        let is_idle = actions.is_empty();
        for action in actions {
            match action {
                Action::Drive { drive, request } => self.drives[drive].submit(request),
                answer => answers.push(answer),
            }
        }
        let mut finished = Vec::new();
        let mut is_done = true;
        for (number, drive) in self.drives.iter_mut().enumerate() {
            drive.reap(self.now, &mut finished);
            for completion in finished.drain(..) {
                is_done = false;
                self.pool.event(Event::Completed { drive: number, completion });
            }
        }
        if self.pace == Pace::HardDrives && is_idle && is_done {
            let drives = self.drives.iter().filter_map(SparseDrive::next_event);
            let next = drives.chain(self.pool.next_wake()).min();
            self.now = next.unwrap_or(self.now).max(self.now);
        }
    }

    pub fn command(&mut self, command: Command) -> Result<Reply, String> {
        self.pool.event(Event::Command { id: 0, command });
        let mut answers = Vec::new();
        loop {
            self.turn(&mut answers);
            for answer in answers.drain(..) {
                if let Action::Reply { reply, .. } = answer {
                    return reply.map_err(|error| error.to_string());
                }
            }
        }
    }

    /// Keeps `depth` writes of this data under way, one at each of `places`.
    pub fn write(
        &mut self,
        volume: VolumeId,
        depth: usize,
        data: &Shared,
        places: impl IntoIterator<Item = u64>,
    ) -> Result<(), String> {
        let mut places = places.into_iter();
        let mut under_way = 0;
        let mut answers = Vec::new();
        loop {
            for at in places.by_ref().take(depth - under_way) {
                self.next += 1;
                let op = Op::Write { at, data: vec![data.clone()], fua: false };
                let request = Request { tag: self.next, op, priority: Priority::Host, deadline: None };
                self.pool.event(Event::Submit { volume, request });
                under_way += 1;
            }
            if under_way == 0 {
                return Ok(());
            }
            self.turn(&mut answers);
            for answer in answers.drain(..) {
                if let Action::Finished { completion, .. } = answer {
                    completion.result.map_err(|error| error.to_string())?;
                    under_way -= 1;
                }
            }
        }
    }
}
