//! Drives with a volatile cache, and a power switch of their machine. Each is a file for the
//! server: nbdfuse presents an NBD export of a thread of the test. At a power cut, each sector that
//! no flush covered is kept or lost at random.

use std::collections::{BTreeMap, HashMap};
use std::io::{Error, Read, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stele_ground::Dice;

use super::{Place, exists, wait_for};

const SECTOR: usize = 512;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const FUA: u16 = 1;

#[derive(Default)]
struct Platter {
    durable: HashMap<u64, [u8; SECTOR]>,
    cached: BTreeMap<u64, [u8; SECTOR]>,
}

/// All drives under one lock: the power goes for all at the same instant.
struct Machine {
    on: bool,
    dice: Dice,
    platters: Vec<Platter>,
}

pub struct Drives {
    machine: Arc<Mutex<Machine>>,
    /// The paths of the drives for the server.
    pub files: Vec<String>,
    mounts: Vec<(String, String)>,
    fuses: Vec<Child>,
}

impl Drives {
    /// `None`: this machine has no FUSE.
    pub fn new(place: &Place, count: usize, bytes: u64, seed: u64) -> Option<Drives> {
        let platters = (0..count).map(|_| Platter::default()).collect();
        let machine = Arc::new(Mutex::new(Machine { on: true, dice: Dice::new(seed), platters }));
        let mut drives = Drives { machine, files: Vec::new(), mounts: Vec::new(), fuses: Vec::new() };
        for number in 0..count {
            let (socket, mount) = (place.path(&format!("drive{number}.sock")), place.path(&format!("drive{number}")));
            std::fs::create_dir_all(&mount).unwrap();
            let listener = UnixListener::bind(&socket).unwrap();
            let machine = Arc::clone(&drives.machine);
            // The thread ends with the test, when no client connects any more.
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let machine = Arc::clone(&machine);
                    std::thread::spawn(move || {
                        let _ = serve(stream, &machine, number, bytes);
                    });
                }
            });
            drives.files.push(format!("{mount}/nbd"));
            drives.mounts.push((mount, socket));
        }
        drives.plug_in().then_some(drives)
    }

    fn plug_in(&mut self) -> bool {
        for (mount, socket) in &self.mounts {
            let quiet = Stdio::null;
            let url = format!("nbd+unix:///?socket={socket}");
            let fuse = Command::new("nbdfuse").args([mount, &url]).stdout(quiet()).stderr(quiet()).spawn();
            self.fuses.push(fuse.unwrap());
        }
        for (file, fuse) in self.files.iter().zip(&mut self.fuses) {
            let mut gone = false;
            wait_for("a drive", || {
                gone = matches!(fuse.try_wait(), Ok(Some(_)));
                if gone { Some(()) } else { exists(std::path::Path::new(file)) }
            });
            if gone {
                return false;
            }
        }
        true
    }

    /// Stops all drives. The cut waits up to a second for data in caches. Returns the number of
    /// sectors in caches, and how many of them are lost.
    pub fn cut(&self) -> (usize, usize) {
        let begun = Instant::now();
        let mut machine = loop {
            let machine = self.machine.lock().unwrap();
            let cached = machine.platters.iter().any(|platter| !platter.cached.is_empty());
            if cached || begun.elapsed() > Duration::from_secs(1) {
                break machine;
            }
            drop(machine);
            std::thread::yield_now();
        };
        let Machine { on, dice, platters } = &mut *machine;
        *on = false;
        let (mut cached, mut lost) = (0, 0);
        for platter in platters {
            cached += platter.cached.len();
            for (sector, bytes) in std::mem::take(&mut platter.cached) {
                if dice.one_in(2) {
                    platter.durable.insert(sector, bytes);
                } else {
                    lost += 1;
                }
            }
        }
        (cached, lost)
    }

    pub fn power_on(&mut self) {
        self.unplug();
        self.machine.lock().unwrap().on = true;
        assert!(self.plug_in(), "the drives were there before");
    }

    fn unplug(&mut self) {
        for (mount, _) in &self.mounts {
            let _ = Command::new("umount").args(["-l", mount]).stderr(Stdio::null()).status();
        }
        for mut fuse in self.fuses.drain(..) {
            let _ = fuse.kill();
            let _ = fuse.wait();
        }
    }
}

impl Drop for Drives {
    fn drop(&mut self) {
        self.machine.lock().unwrap_or_else(|broken| broken.into_inner()).on = false;
        self.unplug();
    }
}

impl Platter {
    fn read(&self, at: u64, out: &mut [u8]) {
        for (sector, piece) in (at / SECTOR as u64..).zip(out.chunks_mut(SECTOR)) {
            match self.cached.get(&sector).or_else(|| self.durable.get(&sector)) {
                Some(bytes) => piece.copy_from_slice(bytes),
                None => piece.fill(0),
            }
        }
    }

    fn write(&mut self, at: u64, data: &[u8], fua: bool) {
        for (sector, piece) in (at / SECTOR as u64..).zip(data.chunks(SECTOR)) {
            let bytes = piece.try_into().unwrap();
            if fua {
                self.cached.remove(&sector);
                self.durable.insert(sector, bytes);
            } else {
                self.cached.insert(sector, bytes);
            }
        }
    }
}

fn array<const N: usize>(stream: &mut UnixStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn serve(mut stream: UnixStream, machine: &Mutex<Machine>, number: usize, size: u64) -> Result<()> {
    greet(&mut stream, size)?;
    loop {
        let head: [u8; 28] = array(&mut stream)?;
        let (flags, command) = (u16::from_be_bytes([head[4], head[5]]), u16::from_be_bytes([head[6], head[7]]));
        let at = u64::from_be_bytes(head[16..24].try_into().unwrap());
        let length = u32::from_be_bytes(head[24..28].try_into().unwrap()) as usize;
        let mut data = vec![0; if matches!(command, READ | WRITE) { length } else { 0 }];
        if command == WRITE {
            stream.read_exact(&mut data)?;
        }
        {
            let mut machine = machine.lock().unwrap();
            if !machine.on || command == DISCONNECT {
                return Ok(());
            }
            let platter = &mut machine.platters[number];
            match command {
                READ => platter.read(at, &mut data),
                WRITE => platter.write(at, &data, flags & FUA != 0),
                FLUSH => {
                    let cached = std::mem::take(&mut platter.cached);
                    platter.durable.extend(cached);
                }
                other => return Err(Error::other(format!("command {other} was not offered"))),
            }
        }
        let mut reply = 0x6744_6698u32.to_be_bytes().to_vec();
        reply.extend([0; 4]);
        reply.extend(&head[8..16]);
        if command == READ {
            reply.extend(data);
        }
        stream.write_all(&reply)?;
    }
}

/// Fixed newstyle: every name means the one drive.
fn greet(stream: &mut UnixStream, size: u64) -> Result<()> {
    const HAS_FLAGS_FLUSH_FUA: u16 = 1 | 4 | 8;
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    let _flags: [u8; 4] = array(stream)?;
    loop {
        let head: [u8; 16] = array(stream)?;
        let option = u32::from_be_bytes(head[8..12].try_into().unwrap());
        let length = u32::from_be_bytes(head[12..16].try_into().unwrap());
        stream.read_exact(&mut vec![0; length as usize])?;
        let mut reply = |kind: u32, data: &[u8]| {
            let mut bytes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
            bytes.extend(option.to_be_bytes());
            bytes.extend(kind.to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
            stream.write_all(&bytes)
        };
        // Option 7 is GO; all others are unsupported.
        if option == 7 {
            let mut info = vec![0, 0];
            info.extend(size.to_be_bytes());
            info.extend(HAS_FLAGS_FLUSH_FUA.to_be_bytes());
            reply(3, &info)?;
            return reply(1, &[]);
        }
        reply(0x8000_0001, &[])?;
    }
}
