//! Real processes. A child writes to a pool of file drives and reports what was acknowledged. The
//! parent kills it at a moment of chance (also while it opens the pool), opens the pool itself, and
//! compares every block with the reports.
//!
//! A kill is not a power cut: what the kernel has taken stays. It finds what depends on the
//! process: order between acknowledgement and write, state that lives in memory only, locks, and
//! recovery from wherever it stopped.
//!
//!     STELE_KILLS=500 STELE_SEED=7 cargo test --release -p stele-array --test kill

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use stele_array::server::{DrivePlace, NewDrives, PoolServer, ServerOptions, fresh_identity};
use stele_array::{Command, CreateOptions, DigestUnit, OpenOptions, VolumeSpec, WriteMode};
use stele_codes::Code;
use stele_ground::{BLOCK, Bytes, Dice, MIB, PoolId};
use stele_media::{Buffer, Handle, MediaError, MediaFault, Op, Priority, Shared, Space};

const DRIVES: u32 = 6;
const VOLUME: u64 = 8 * MIB;
const VOLUMES: [(&str, WriteMode); 3] =
    [("mirrored", WriteMode::WriteBack), ("parity", WriteMode::WriteBack), ("through", WriteMode::WriteThrough)];
const IN_FLIGHT: usize = 24;
/// Names the directory of the drives to the child.
const CHILD: &str = "STELE_KILL_CHILD";

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// One report of the child: that an operation begins, or that it was acknowledged. The pipe keeps
/// their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Report {
    acknowledged: bool,
    volume: u8,
    sequence: u64,
    at: u64,
    length: u64,
    /// 0: zeros.
    stamp: u64,
}

/// Small enough for the kernel to write it to a pipe in one piece.
const REPORT: usize = 34;

impl Report {
    fn encode(&self) -> [u8; REPORT] {
        let mut bytes = [0; REPORT];
        bytes[0] = u8::from(self.acknowledged);
        bytes[1] = self.volume;
        for (index, word) in [self.sequence, self.at, self.length, self.stamp].into_iter().enumerate() {
            bytes[2 + index * 8..10 + index * 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Report {
        let word = |index: usize| u64::from_le_bytes(bytes[2 + index * 8..10 + index * 8].try_into().expect("8 bytes"));
        Report {
            acknowledged: bytes[0] == 1,
            volume: bytes[1],
            sequence: word(0),
            at: word(1),
            length: word(2),
            stamp: word(3),
        }
    }
}

fn places(directory: &Path) -> Vec<DrivePlace> {
    (0..DRIVES).map(|n| DrivePlace::new(directory.join(format!("drive-{n}")), n)).collect()
}

fn open_options() -> OpenOptions {
    // Small, so that destage and the table's cache have work.
    OpenOptions { dirty_limit: Bytes(2 * MIB), block_cache: Bytes(2 * MIB), ..OpenOptions::default() }
}

fn create(directory: &Path) {
    let options = CreateOptions {
        pool: PoolId(fresh_identity().expect("an identity")),
        name: "killed".to_owned(),
        drives: Vec::new(),
        seed: 1,
        log: Some(Bytes(8 * MIB)),
        spare_drives: Some(0),
        created: 0,
        shard: Default::default(),
    };
    let new = NewDrives { size: Bytes(96 * MIB), space: Space::Sparse };
    let server = PoolServer::create(&places(directory), Some(new), options, open_options(), ServerOptions::default());
    let server = server.expect("a pool");
    for (index, (name, mode)) in VOLUMES.into_iter().enumerate() {
        let code = if index == 0 { Code::mirror(3) } else { Code::parity(4, 2) };
        let spec = VolumeSpec {
            name: name.to_owned(),
            code: code.expect("a code"),
            size: Bytes(VOLUME),
            strip: Bytes(16 << 10),
            block: Bytes(4096),
            digest: DigestUnit::Block,
            mode,
            fully_allocated: index == 0,
            spread: false,
            owner: None,
        };
        server.command_blocking(Command::CreateVolume(spec)).expect("a volume");
    }
    server.close().expect("closed");
}

/// Fills a block so that it says who wrote it and where.
fn paint(block: &mut [u8], place: u64, stamp: u64) {
    for (index, word) in block.chunks_mut(8).enumerate() {
        let mixed = stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(index as u32 % 64) ^ place;
        let value = if stamp == 0 {
            0
        } else if index == 0 {
            stamp
        } else {
            mixed
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

fn stamp_of(block: &[u8], place: u64) -> Option<u64> {
    let stamp = u64::from_le_bytes(*block.first_chunk()?);
    let mut expected = vec![0; BLOCK];
    paint(&mut expected, place, stamp);
    (block == expected).then_some(stamp)
}

/// Counts operations in flight.
#[derive(Default)]
struct Gate {
    count: Mutex<usize>,
    left: Condvar,
}

impl Gate {
    fn enter(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count >= IN_FLIGHT {
            count = self.left.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        *count += 1;
    }
    fn leave(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.left.notify_one();
    }
}

/// The child: writes until it is killed. Does nothing unless the campaign started it.
#[test]
fn child() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let mut dice = Dice::new(number("STELE_SEED", 0));
    // The reports go where others have their input: the output belongs to the test's own talk.
    let pipe = std::io::stdin().as_fd().try_clone_to_owned().expect("a pipe");
    let pipe = Arc::new(File::from(pipe));
    let report = |pipe: &File, report: Report| {
        let mut pipe = pipe;
        // The parent has gone away: nothing to prove any more.
        if pipe.write_all(&report.encode()).is_err() {
            std::process::exit(0);
        }
    };
    // Says that the opening begins.
    report(&pipe, Report { acknowledged: true, volume: 255, sequence: 0, at: 0, length: 0, stamp: 0 });
    let server = PoolServer::open(&places(Path::new(&directory)), open_options(), ServerOptions::default());
    let server = server.expect("the pool opens");
    let volumes: Vec<Handle> = VOLUMES.iter().map(|(name, _)| server.volume(name).expect("a volume")).collect();
    let gate = Arc::new(Gate::default());
    // Stamps of different children differ.
    let first_stamp = 1 + (number("STELE_SEED", 0) << 24);
    let refused = Arc::new(AtomicU64::new(0));
    for sequence in 0.. {
        let volume = dice.below(VOLUMES.len() as u64) as u8;
        let blocks = match dice.below(10) {
            0 => 1 + dice.below(64),
            1..=3 => 16,
            _ => 1 + dice.below(4),
        };
        let at = dice.below(VOLUME / BLOCK as u64 - blocks + 1);
        let at = if blocks == 16 { at / 16 * 16 } else { at } * BLOCK as u64;
        let length = blocks * BLOCK as u64;
        if dice.one_in(200) {
            let command = if dice.one_in(2) { Command::Checkpoint } else { Command::StartScrub };
            let _ = server.command_blocking(command);
        }
        let (op, stamp) = match dice.below(30) {
            0 => (Op::Zero { at, length }, 0),
            1 => (Op::Discard { at, length }, 0),
            2 => (Op::Flush, 0),
            _ => {
                let stamp = first_stamp + sequence;
                let mut buffer = Buffer::zeroed(length as usize);
                for (index, block) in buffer.chunks_mut(BLOCK).enumerate() {
                    paint(block, at / BLOCK as u64 + index as u64, stamp);
                }
                let data: Vec<Shared> = vec![buffer.freeze()];
                (Op::Write { at, data, fua: dice.one_in(8) }, stamp)
            }
        };
        gate.enter();
        let length = if matches!(op, Op::Flush) { 0 } else { length };
        let begins = Report { acknowledged: false, volume, sequence, at, length, stamp };
        report(&pipe, begins);
        let (pipe, gate, refused) = (Arc::clone(&pipe), Arc::clone(&gate), Arc::clone(&refused));
        let done = move |_, result: Result<(), MediaError>| {
            match result {
                Ok(()) => report(&pipe, Report { acknowledged: true, ..begins }),
                // Never acknowledged: it may have happened or not.
                Err(error) if error.fault == MediaFault::Retry => {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    eprintln!("operation {begins:?} failed: {error}");
                    std::process::abort();
                }
            }
            gate.leave();
        };
        volumes[volume as usize].submit(op, Priority::Host, Box::new(done));
    }
}

/// What a block may hold: every write with its beginning and, once acknowledged, its end, in the
/// order of reports.
#[derive(Clone, Copy)]
struct Written {
    stamp: u64,
    sequence: u64,
    began: u64,
    ended: u64,
}

struct Oracle {
    blocks: Vec<Vec<Vec<Written>>>,
    clock: u64,
}

impl Oracle {
    fn new() -> Oracle {
        let zeros = Written { stamp: 0, sequence: 0, began: 0, ended: 0 };
        Oracle { blocks: vec![vec![vec![zeros]; (VOLUME / BLOCK as u64) as usize]; VOLUMES.len()], clock: 0 }
    }

    fn take_in(&mut self, report: Report) {
        self.clock += 1;
        let Some(volume) = self.blocks.get_mut(report.volume as usize) else { return };
        let range = (report.at / BLOCK as u64) as usize..((report.at + report.length) / BLOCK as u64) as usize;
        for block in &mut volume[range] {
            if !report.acknowledged {
                let Report { stamp, sequence, .. } = report;
                block.push(Written { stamp, sequence, began: self.clock, ended: u64::MAX });
            } else if let Some(write) =
                block.iter_mut().find(|write| write.sequence == report.sequence && write.ended == u64::MAX)
            {
                write.ended = self.clock;
                let began = write.began;
                block.retain(|other| other.ended >= began);
            }
        }
    }

    /// Verifies every block; from now on each holds what was seen, whatever is opened and killed
    /// next.
    fn verify(&mut self, server: &PoolServer, title: &str) {
        for (index, (name, _)) in VOLUMES.iter().enumerate() {
            let volume = server.volume(name).expect("a volume");
            for at in (0..VOLUME).step_by(MIB as usize) {
                let bytes = volume.read_blocking(at, MIB as usize).unwrap_or_else(|error| panic!("{title}: {error}"));
                for (n, bytes) in bytes.chunks(BLOCK).enumerate() {
                    let place = at / BLOCK as u64 + n as u64;
                    let block = &mut self.blocks[index][place as usize];
                    let stamp = stamp_of(bytes, place);
                    let known = stamp.filter(|stamp| block.iter().any(|write| write.stamp == *stamp));
                    let Some(stamp) = known else {
                        let may: BTreeMap<u64, bool> =
                            block.iter().map(|write| (write.stamp, write.ended < u64::MAX)).collect();
                        panic!("{title}: block {place} of {name} holds {stamp:?}; it may hold (acknowledged): {may:?}");
                    };
                    *block = vec![Written { stamp, sequence: u64::MAX, began: self.clock, ended: self.clock }];
                }
            }
        }
    }
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn start_child(directory: &Path, seed: u64) -> (Child, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let child = Process::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, directory)
        .env("STELE_SEED", seed.to_string())
        .stdin(Stdio::from(writer))
        .stdout(Stdio::null())
        .spawn()
        .expect("a child");
    (child, reader)
}

#[test]
fn nothing_acknowledged_is_lost_by_kill() {
    let (kills, seed) = (number("STELE_KILLS", 20), number("STELE_SEED", 1));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kill-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a scratch directory");
    let scratch = Scratch(directory);
    create(&scratch.0);
    let mut dice = Dice::new(seed);
    let mut oracle = Oracle::new();
    let (mut operations, mut acknowledged) = (0u64, 0u64);
    for round in 0..kills {
        let title = format!("seed {seed}, kill {round}, drives in {}", scratch.0.display());
        let (mut child, mut reader) = start_child(&scratch.0, seed * 1000 + round);
        // Some die while they open the pool, or at their first writes; the others after some
        // hundred reports.
        let reports_wanted = if dice.one_in(4) { 1 + dice.below(4) } else { 200 + dice.below(3000) };
        if reports_wanted < 3 {
            // Somewhere in the opening: some thousand looks at the clock long.
            reader.read_exact(&mut [0; REPORT]).expect("the child starts");
            for _ in 0..dice.below(200_000) {
                std::hint::black_box(stele_media::system::now());
            }
        }
        let mut received = 0;
        let mut bytes = [0; REPORT];
        let mut killed = false;
        loop {
            if !killed && (reports_wanted < 3 || received >= reports_wanted) {
                child.kill().expect("killed");
                killed = true;
            }
            // What the child said before it died is still in the pipe.
            match reader.read_exact(&mut bytes) {
                Ok(()) => {
                    let report = Report::decode(&bytes);
                    received += 1;
                    operations += u64::from(!report.acknowledged);
                    acknowledged += u64::from(report.acknowledged);
                    oracle.take_in(report);
                }
                Err(_) => break,
            }
        }
        let status = child.wait().expect("it ended");
        assert!(killed && !status.success(), "{title}: the child ended by itself: {status}");
        let server = PoolServer::open(&places(&scratch.0), open_options(), ServerOptions::default());
        let server = server.unwrap_or_else(|error| panic!("{title}: the pool does not open: {error}"));
        oracle.verify(&server, &title);
        // Now and then it is left in good order.
        if dice.one_in(5) {
            server.close().unwrap_or_else(|error| panic!("{title}: {error}"));
        }
    }
    println!("{kills} kills, {operations} operations begun, {acknowledged} acknowledged, none lost");
}

#[test]
fn the_oracle_knows_what_a_block_may_hold() {
    let mut oracle = Oracle::new();
    let mut say = |acknowledged, sequence, stamp| {
        let report = Report { acknowledged, volume: 1, sequence, at: 4096, length: 8192, stamp };
        oracle.take_in(report);
        let may: Vec<u64> = oracle.blocks[1][2].iter().map(|write| write.stamp).collect();
        may
    };
    assert_eq!(say(false, 1, 11), [0, 11], "in flight: either");
    assert_eq!(say(false, 2, 12), [0, 11, 12]);
    assert_eq!(say(true, 1, 11), [11, 12], "acknowledged: what came before is lost");
    assert_eq!(say(true, 2, 12), [11, 12], "they overlapped: either may have come last");
    assert_eq!(say(false, 3, 0), [11, 12, 0]);
    assert_eq!(say(true, 3, 0), [0], "the last to begin after all others had ended");
    assert_eq!(oracle.blocks[1][0][0].stamp, 0);
}

#[test]
fn reports_are_coded_both_ways() {
    let report = Report { acknowledged: true, volume: 2, sequence: 3, at: 4096, length: 8192, stamp: u64::MAX };
    assert_eq!(Report::decode(&report.encode()), report);
}
