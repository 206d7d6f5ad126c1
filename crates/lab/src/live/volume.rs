//! A volume of Stele in this very process: its array on drives of memory or on files, and no socket
//! before it.
//!
//! The pool is made for the run, filled once, and removed with it. Files go into a directory that
//! did not exist, was empty, or holds what a killed run left; one that holds anything else is
//! refused. A pool that stops answers every access with an error, which ends the run.

mod address;
mod files;

use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant as WallInstant;

use stele_array::server::{DrivePlace, NewDrives, PoolServer, ServerOptions, Source, fresh_identity};
use stele_array::{ArrayError, Command, CreateOptions, DigestUnit, OpenOptions, Reply, VolumeSpec, WriteMode};
use stele_ground::{BLOCK, Bytes, DriveId, Duration, KIB, MIB, PoolId, counted};
use stele_media::{Buffer, Handle, MediaError, MemoryDrive, Op, Priority, Space};

use super::engine::{Engine, SlotResult};
use super::fill;
use super::run::OPEN_MAX;
use super::system_place;
use super::target::{AccessMethod, Filling, Opening, Ready};
use crate::environment;
use crate::error::LabError;
use crate::workload::Access;

pub use address::VolumeAddress;
use files::DriveFiles;

const STRIP: Bytes = Bytes(64 * KIB);
/// Of each drive, for labels, log and tables.
const BESIDE_DATA: u64 = 64 * MIB;
const LOG: Bytes = Bytes(32 * MIB);
/// Accesses under way while it is filled.
const FILLING: u32 = 8;

/// A pool that was made for a run.
pub struct Volume {
    server: Mutex<Option<PoolServer>>,
    handle: Handle,
    files: DriveFiles,
}

pub(super) fn open(address: &VolumeAddress, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
    let size = opening.size.map_or(0, |size| size.0 - size.0 % BLOCK as u64);
    if size == 0 {
        return Err(LabError::Usage(format!("{address}: say how large it shall be with --size, at least 4KiB")));
    }
    if let Some(directory) = &address.directory {
        system_place::refuse_directory(directory)?;
    }
    let volume = Arc::new(make(address, Bytes(size))?);
    let filled = fill_all(&volume, address, Bytes(size), opening, progress);
    let ready = filled.map(|versions| Ready {
        way: AccessMethod::Volume(Arc::clone(&volume)),
        size: Bytes(size),
        block: Bytes(address.block),
        file: None,
        versions,
        patience: opening.patience,
        name: address.to_string(),
        description: describe(address),
    });
    if ready.is_err() {
        volume.remove()?;
    }
    ready
}

fn describe(address: &VolumeAddress) -> String {
    let drives = match &address.directory {
        Some(path) => format!("{} in {}", counted(address.drives as u64, "file"), path.display()),
        None => format!("{} of memory", counted(address.drives as u64, "drive")),
    };
    let mode = if address.mode == WriteMode::WriteThrough { "through" } else { "back" };
    format!(
        "a volume in this process, {} on {drives}, blocks of {}, write-{mode}, {} for what was read",
        address.code,
        Bytes(address.block),
        address.cache
    )
}

/// What is never written is not read from any drive, and is measured as if it were.
fn fill_all(
    volume: &Volume,
    address: &VolumeAddress,
    size: Bytes,
    opening: Opening,
    progress: Filling<'_>,
) -> Result<Option<Arc<super::versions::Versions>>, LabError> {
    let versions = opening.versions(size)?;
    let mut blocks = VolumeEngine::new(volume, FILLING, fill::LENGTH as usize);
    let content = (opening.content, versions.as_ref());
    fill::fill(&mut blocks, &address.to_string(), size, fill::LENGTH, opening.patience, content, progress)?;
    Ok(versions)
}

fn make(address: &VolumeAddress, size: Bytes) -> Result<Volume, LabError> {
    let failed = |error: ArrayError| match error {
        ArrayError::Full(why) => LabError::Full(format!("{address}: {why}")),
        other => LabError::Failed(format!("{address}: {other}")),
    };
    let (code, drives) = (address.code, u64::from(address.drives));
    let stored = size.0.div_ceil(code.data() as u64) * code.width() as u64;
    // A quarter more than what is stored: slots are given out by the stripe, and a few are always
    // on their way.
    let each = Bytes((stored / drives * 5 / 4 + BESIDE_DATA).next_multiple_of(MIB));
    let identities: Result<_, _> = (0..drives).map(|_| fresh_identity().map(DriveId)).collect();
    let create = CreateOptions {
        pool: PoolId(fresh_identity().map_err(failed)?),
        name: "laboratory".into(),
        drives: identities.map_err(failed)?,
        seed: 1,
        log: Some(LOG),
        spare_drives: Some(0),
        created: 0,
        shard: Default::default(),
    };
    let open = OpenOptions { block_cache: address.cache, ..OpenOptions::default() };
    // An open loop may have as many under way as that, and none is turned away.
    let server = ServerOptions { mailbox: 2 * OPEN_MAX as usize, ..ServerOptions::default() };
    let mut files = DriveFiles::default();
    let server = match &address.directory {
        None => {
            check_memory(address, Bytes(each.0 * drives))?;
            let memory = |at: u64| Source::other(MemoryDrive::new(each), format!("memory-{at}"), at as u32);
            PoolServer::create_on((0..drives).map(memory).collect(), create, open, server).map_err(failed)?
        }
        Some(path) => {
            files = DriveFiles::claim(path, drives)?;
            let places: Vec<DrivePlace> =
                files.drives().iter().zip(0..).map(|(path, at)| DrivePlace::new(path, at)).collect();
            // Written once, so that no file system's map changes while it is measured.
            let new = NewDrives { size: each, space: Space::Written };
            PoolServer::create(&places, Some(new), create, open, server).map_err(|error| {
                let _ = files.remove();
                failed(error)
            })?
        }
    };
    let spec = VolumeSpec {
        name: "measured".into(),
        code,
        size,
        strip: STRIP,
        block: Bytes(address.block),
        digest: DigestUnit::Block,
        mode: address.mode,
        fully_allocated: false,
        spread: false,
        owner: None,
    };
    let made = server.command_blocking(Command::CreateVolume(spec)).and_then(|reply| match reply {
        Reply::Volume(status) => Ok(server.volume_of(&status)),
        _ => Err(ArrayError::Stopped("the pool answered otherwise than with a volume".into())),
    });
    match made {
        Ok(handle) => Ok(Volume { server: Mutex::new(Some(server)), handle, files }),
        Err(error) => {
            drop(server);
            files.remove()?;
            Err(failed(error))
        }
    }
}

fn check_memory(address: &VolumeAddress, wanted: Bytes) -> Result<(), LabError> {
    match environment::memory_available() {
        Some(available) if available < wanted => Err(LabError::Refused(format!(
            "{address}: its drives take {wanted} of memory, and {available} are free; give less with --size, or dir=PATH"
        ))),
        _ => Ok(()),
    }
}

impl Volume {
    /// Ends the pool, and removes what was made for it.
    pub fn remove(&self) -> Result<(), LabError> {
        drop(self.server.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.files.remove()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // One that is kept is left as its next opener wants it.
        if let Some(server) = self.server.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = server.close();
            self.files.keep();
        }
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume({})", self.handle.geometry().size)
    }
}

type Finished = (u32, Op, Result<(), MediaError>);

/// A worker's way to the volume.
pub struct VolumeEngine {
    handle: Handle,
    slots: Vec<Slot>,
    flying: u32,
    done: Sender<Finished>,
    finished: Receiver<Finished>,
}

struct Slot {
    /// Away with a read that is under way.
    buffer: Buffer,
    length: usize,
}

impl VolumeEngine {
    pub fn new(volume: &Volume, slots: u32, length_max: usize) -> VolumeEngine {
        let (done, finished) = mpsc::channel();
        let slot = |_| Slot { buffer: Buffer::zeroed(length_max), length: length_max };
        VolumeEngine { handle: volume.handle.clone(), slots: (0..slots).map(slot).collect(), flying: 0, done, finished }
    }

    /// None: nothing finished within `limit`.
    fn wait(&self, limit: Option<std::time::Duration>) -> Option<Finished> {
        match limit {
            None => self.finished.recv().ok(),
            Some(limit) => self.finished.recv_timeout(limit).ok(),
        }
    }
}

impl Engine for VolumeEngine {
    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn start(&mut self, number: u32, access: &Access) {
        let Slot { buffer, .. } = &mut self.slots[number as usize];
        let length = access.length as usize;
        let op = match access.write {
            // What the array holds on to stays as it was sent.
            true => Op::Write { at: access.at, data: vec![Buffer::copy_of(&buffer[..length]).freeze()], fua: false },
            false => {
                let mut buffer = std::mem::replace(buffer, Buffer::zeroed(0));
                buffer.set_length(length);
                Op::Read { at: access.at, buffer }
            }
        };
        self.flying += 1;
        let done = self.done.clone();
        // A worker that has ended does not listen any more.
        let answer = move |op, result| drop(done.send((number, op, result)));
        self.handle.submit(op, Priority::Host, Box::new(answer));
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>) {
        let begun = limit.map(|limit| (WallInstant::now(), std::time::Duration::from_nanos(limit.0)));
        let (least, mut reaped) = (least.min(self.flying), 0);
        loop {
            let finished = match reaped < least {
                true => self.wait(begun.map(|(begun, limit)| limit.saturating_sub(begun.elapsed()))),
                false => self.finished.try_recv().ok(),
            };
            let Some((number, op, result)) = finished else { return };
            let slot = &mut self.slots[number as usize];
            if let Op::Read { mut buffer, .. } = op {
                buffer.set_length(slot.length);
                slot.buffer = buffer;
            }
            self.flying -= 1;
            reaped += 1;
            answers.push((number, result.map_err(|error| error.to_string())));
        }
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots[slot as usize].buffer
    }
}

#[cfg(test)]
mod tests;
