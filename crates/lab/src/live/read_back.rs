//! Reads all of a target whose reads are checked, after it was measured. A run reads what its
//! workload draws; a write that was lost where nothing was read again is found only here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration as WallDuration, Instant as WallInstant};

use serde::{Deserialize, Serialize};
use stele_ground::{Bytes, Duration};

use super::content::{self, Content};
use super::engine::Engine;
use super::reach::{ConnectionSpec, Use, reach};
use super::target::{AccessMethod, Filling, Ready};
use super::versions::Versions;
use super::wrong::Wrong;
use crate::error::LabError;
use crate::workload::Access;

/// Bytes of an access, and how many are under way where the target takes several.
const LENGTH: u64 = 64 << 10;
const SLOTS: u32 = 8;
/// How often it is seen whether the reading shall end.
const LOOK: WallDuration = WallDuration::from_millis(50);
/// For so long it is waited for when it shall end.
const FAREWELL: WallDuration = WallDuration::from_secs(2);

/// What was found.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ReadBack {
    pub bytes: u64,
    #[serde(flatten)]
    pub wrong: Wrong,
}

/// What the thread that reads tells.
enum Told {
    /// Bytes so far.
    Done(u64),
    Ended(Result<Option<ReadBack>, String>),
}

/// Reads it to its end, whatever is found. None: this target keeps nothing, or `progress` ended it.
/// A target that answers nothing for its patience has failed; the thread that waits for it is left
/// behind, as that of a run.
pub fn read_back(ready: &Ready, content: Content, progress: Filling<'_>) -> Result<Option<ReadBack>, LabError> {
    // An object is read as a whole. One that was never put is not there.
    let (length, grain, known) = match &ready.way {
        AccessMethod::Null => return Ok(None),
        AccessMethod::S3(_) | AccessMethod::Backup(_) => (ready.block.0, ready.block.0, ready.versions.clone()),
        AccessMethod::Nbd { access_max, .. } => {
            let block = ready.block.0.max(512);
            ((LENGTH.min(*access_max) / block * block).max(block), block, None)
        }
        // As far as it was filled.
        AccessMethod::Ring(_) | AccessMethod::Inline(_) => (LENGTH.next_multiple_of(ready.block.0), 4096, None),
        _ => (LENGTH.next_multiple_of(ready.block.0), ready.block.0.max(512), None),
    };
    let size = Bytes(ready.size.0 / grain * grain);
    let slots = if ready.way.is_one_each() { 1 } else { SLOTS };
    let spec = ConnectionSpec { slots, length_max: length as usize, names: false, number: 0 };
    let (teller, told) = mpsc::channel();
    let end = Arc::new(AtomicBool::new(false));
    let own = ready.clone();
    let pass = Pass { ready: own.clone(), content, size, length, known, end: Arc::clone(&end), teller: teller.clone() };
    let work = move || {
        // It tells its end itself, before the engine is dropped, which may take as long as the
        // target hangs. Only one that cannot be reached is told here.
        if let Err(why) = reach(&own, spec, pass) {
            drop(teller.send(Told::Ended(Err(why))));
        }
    };
    let failed = |why: String| LabError::Failed(format!("{}: reading it back: {why}", ready.description));
    // A short target is read before the thread is heard.
    if !progress(0, size.0) {
        return Ok(None);
    }
    let thread = std::thread::Builder::new().name("lab-read-back".into()).spawn(work);
    let thread = thread.map_err(|error| failed(format!("no thread: {error}")))?;
    let (mut done, mut heard, mut asked) = (0, WallInstant::now(), None);
    let read = loop {
        match told.recv_timeout(LOOK) {
            Ok(Told::Done(now)) => (done, heard) = (now, WallInstant::now()),
            Ok(Told::Ended(read)) => break read,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Err("its thread ended unexpectedly".into()),
        }
        if asked.is_none() && !progress(done, size.0) {
            end.store(true, Ordering::Relaxed);
            asked = Some(WallInstant::now());
        }
        if asked.is_some_and(|asked: WallInstant| asked.elapsed() >= FAREWELL) {
            break Ok(None);
        }
        if heard.elapsed().as_nanos() > u128::from(ready.patience.0) {
            break Err(no_answer(ready.patience));
        }
    };
    if let Ok(Some(_)) = read {
        // Nothing is under way any more.
        drop(thread.join());
    }
    read.map_err(failed)
}

fn no_answer(patience: Duration) -> String {
    format!("no answer for {patience}; a slower target is waited for with --patience")
}

struct Pass {
    ready: Ready,
    content: Content,
    size: Bytes,
    length: u64,
    /// Only what these know is there.
    known: Option<Arc<Versions>>,
    end: Arc<AtomicBool>,
    teller: Sender<Told>,
}

impl Pass {
    /// The access at a place, within the file that it lies in.
    fn access(&self, at: u64) -> Access {
        let file = self.ready.file.map_or(u64::MAX, |file| file.0 - at % file.0);
        let length = self.length.min(self.size.0 - at).min(file);
        Access { target: 0, at, length, write: false }
    }

    fn is_there(&self, access: &Access) -> bool {
        self.known.as_ref().is_none_or(|known| known.is_known(access.at))
    }
}

impl Use for Pass {
    type Made = ();

    fn with<E: Engine>(self, mut engine: E) -> Result<(), String> {
        let read = self.all(&mut engine);
        // The receiver is gone only where the reading was given up.
        drop(self.teller.send(Told::Ended(read)));
        Ok(())
    }
}

impl Pass {
    fn all(&self, engine: &mut impl Engine) -> Result<Option<ReadBack>, String> {
        let mut found = ReadBack::default();
        let slots = engine.slots();
        let mut free: Vec<u32> = (0..slots).collect();
        let mut flying = vec![Access { target: 0, at: 0, length: 0, write: false }; slots as usize];
        let (mut next, mut done, mut answers) = (0, 0, Vec::new());
        while done < self.size.0 {
            while next < self.size.0
                && let Some(slot) = free.pop()
            {
                let access = self.access(next);
                next += access.length;
                if !self.is_there(&access) {
                    done += access.length;
                    free.push(slot);
                    continue;
                }
                engine.start(slot, &access);
                flying[slot as usize] = access;
            }
            if free.len() == slots as usize {
                break;
            }
            engine.reap(1, Some(self.ready.patience), &mut answers);
            if answers.is_empty() {
                return Err(no_answer(self.ready.patience));
            }
            for (slot, result) in answers.drain(..) {
                let Access { at, length, .. } = flying[slot as usize];
                result.map_err(|error| format!("read of {length} bytes at offset {at}: {error}"))?;
                let buffer = &engine.buffer(slot)[..length as usize];
                found.wrong.add(content::wrong(self.content, self.ready.versions.as_deref(), buffer, at));
                (found.bytes, done) = (found.bytes + length, done + length);
                free.push(slot);
            }
            if self.end.load(Ordering::Relaxed) || self.teller.send(Told::Done(done)).is_err() {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests;
