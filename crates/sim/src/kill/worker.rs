//! The process that is killed: it opens the pool and keeps writing, reading, zeroing, discarding
//! and checkpointing under a seed until it dies.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use stele_array::server::PoolServer;
use stele_array::{ArrayError, Command, Reply};
use stele_ground::{Dice, KIB};
use stele_media::{Buffer, Handle, MediaError, Op, Priority};

use super::journal::{Entry, Kind};
use super::{UNIT, VOLUMES, open_pool};
use crate::oracle::paint;

/// The longest write: more than a stripe of the widest volume.
const LONGEST: u64 = 320 * KIB;

/// Tag, operation, result.
type Answer = (u64, Op, Result<(), MediaError>);

struct Worker {
    journal: File,
    volumes: Vec<Handle>,
    flying: BTreeMap<u64, Entry>,
    answers: Receiver<Answer>,
    sender: Sender<Answer>,
    dice: Dice,
    tags: u64,
    first_value: u64,
}

/// Works until it is killed; returns only with an error. Values count up from `first_value`, and
/// none is used twice.
pub fn work(directory: &Path, seed: u64, first_value: u64) -> Result<(), String> {
    let journal = io::stdout().as_fd().try_clone_to_owned().map_err(|error| format!("standard output: {error}"))?;
    let mut journal = File::from(journal);
    let outcome = prepare(directory, seed).and_then(|(server, volumes)| {
        Entry::bare(Kind::Opened).write(&mut journal).map_err(|error| error.to_string())?;
        let (sender, answers) = channel();
        let (dice, flying, tags) = (Dice::new(seed), BTreeMap::new(), 0);
        let journal = journal.try_clone().map_err(|error| error.to_string())?;
        Worker { journal, volumes, flying, answers, sender, dice, tags, first_value }.run(&server)
    });
    if let Err(reason) = &outcome {
        let entry = Entry { body: reason.clone().into_bytes(), ..Entry::bare(Kind::Failed) };
        // The reader may have gone; the exit code still reports the failure.
        let _ = entry.write(&mut journal);
        let _ = journal.flush();
    }
    outcome
}

fn prepare(directory: &Path, seed: u64) -> Result<(PoolServer, Vec<Handle>), String> {
    let server = open_pool(directory, seed).map_err(|error| format!("opening: {error}"))?;
    let volumes = VOLUMES.iter().map(|(name, ..)| server.volume(name)).collect::<Result<_, ArrayError>>();
    Ok((server, volumes.map_err(|error| error.to_string())?))
}

impl Worker {
    fn run(&mut self, server: &PoolServer) -> Result<(), String> {
        let depth = 1 + self.dice.below(16) as usize;
        loop {
            while self.flying.len() < depth {
                self.begin(server)?;
            }
            let answer = self.answers.recv().map_err(|error| error.to_string())?;
            self.end(answer)?;
        }
    }

    fn begin(&mut self, server: &PoolServer) -> Result<(), String> {
        if self.dice.one_in(400) {
            return command(server, Command::Checkpoint);
        }
        let volume = self.dice.below(VOLUMES.len() as u64) as usize;
        let size = VOLUMES[volume].2;
        let most = *self.dice.pick(&[1, 1, 2, 4, 16, LONGEST / UNIT]).unwrap_or(&1);
        let length = UNIT * (1 + self.dice.below(most));
        let at = UNIT * self.dice.below((size - length) / UNIT + 1);
        self.tags += 1;
        let tag = self.tags;
        let value = self.first_value + tag;
        let (kind, value, op) = match self.dice.below(20) {
            0 => (Kind::WriteBegins, 0, Op::Zero { at, length }),
            1 => (Kind::WriteBegins, 0, Op::Discard { at, length }),
            2..6 => (Kind::ReadBegins, 0, Op::Read { at, buffer: Buffer::stale(length as usize) }),
            6 => (Kind::ReadBegins, 0, Op::Flush),
            _ => {
                let mut bytes = Buffer::zeroed(length as usize);
                paint(&mut bytes, at / UNIT, UNIT as usize, value);
                let fua = self.dice.one_in(8);
                (Kind::WriteBegins, value, Op::Write { at, data: vec![bytes.freeze()], fua })
            }
        };
        let length = if matches!(op, Op::Flush) { 0 } else { length };
        let entry = Entry { kind, volume: volume as u8, tag, at, length, value, body: Vec::new() };
        entry.write(&mut self.journal).map_err(|error| error.to_string())?;
        self.flying.insert(tag, entry);
        let sender = self.sender.clone();
        let done = Box::new(move |op, result| drop(sender.send((tag, op, result))));
        self.volumes[volume].submit(op, Priority::Host, done);
        Ok(())
    }

    fn end(&mut self, (tag, op, result): Answer) -> Result<(), String> {
        let Some(mut entry) = self.flying.remove(&tag) else { return Err(format!("operation {tag} ended twice")) };
        result.map_err(|error| failed(&entry, &error))?;
        entry.kind = if entry.kind == Kind::WriteBegins { Kind::WriteEnded } else { Kind::ReadEnded };
        if let Op::Read { buffer, .. } = op {
            entry.body = buffer.to_vec();
        }
        entry.write(&mut self.journal).map_err(|error| error.to_string())
    }
}

/// No more is missing than the codes tolerate, and fewer operations are under way than the pool's
/// limit: no operation may fail.
fn failed(entry: &Entry, error: &MediaError) -> String {
    let Entry { kind, at, length, volume, .. } = entry;
    format!("{kind:?} of {length} bytes at {at} of volume {} failed: {error}", VOLUMES[*volume as usize].0)
}

fn command(server: &PoolServer, command: Command) -> Result<(), String> {
    let name = format!("{command:?}");
    match server.command_blocking(command) {
        Ok(Reply::Done) => Ok(()),
        Ok(other) => Err(format!("{name} was answered with {other:?}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
