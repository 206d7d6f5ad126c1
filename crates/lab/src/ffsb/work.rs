//! One thread of a group: draws operations and carries them out.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration as WallDuration, Instant as WallInstant};

use stele_ground::{Dice, Duration};
use stele_media::Buffer;

use super::population::{Population, Shared as SharedFile, write};
use super::profile::{FfsbProfile, Group, OperationKind};
use super::{Done, Shared, ThreadEnd};
use crate::error::LabError;
use crate::live::content::{Content, Source};

pub struct FfsbWorker<'a> {
    shared: &'a Shared<'a>,
    group: &'a Group,
    dice: Dice,
    source: Source,
    buffer: Buffer,
    done: Vec<Done>,
    weight: u64,
}

/// Bytes that an operation read and wrote.
type Moved = (u64, u64);

impl<'a> FfsbWorker<'a> {
    pub fn new(shared: &'a Shared<'a>, profile: &'a FfsbProfile, group: usize, number: u64) -> FfsbWorker<'a> {
        let mut dice = Dice::new(profile.seed ^ ((group as u64) << 32 | (number + 1)).rotate_left(17));
        let group = &profile.groups[group];
        let of_files = shared.populations.iter().filter_map(Population::block).max().unwrap_or(0);
        let longest = group.read_block.max(group.write_block).max(of_files);
        FfsbWorker {
            shared,
            group,
            source: Content::default().source(dice.fork(), None),
            buffer: Buffer::zeroed(longest as usize),
            done: vec![Done::default(); group.weights.len()],
            weight: group.weights.iter().map(|weight| weight.1).sum::<u64>().max(1),
            dice,
        }
    }

    /// What it did, also where it failed.
    pub fn run(mut self) -> ThreadEnd {
        let ended = self.work();
        if ended.is_err() {
            // The others have nothing to wait for.
            self.shared.over.store(true, Ordering::Relaxed);
        }
        (self.done, ended)
    }

    fn work(&mut self) -> Result<(), LabError> {
        while !self.shared.is_over() {
            let number = self.draw();
            let (kind, _) = self.group.weights[number];
            let place = match self.group.bound {
                Some(bound) => bound,
                None => self.dice.below(self.shared.populations.len() as u64) as usize,
            };
            let population = &self.shared.populations[place];
            let begun = WallInstant::now();
            let (read, written) = self.carry_out(kind, population)?;
            let done = &mut self.done[number];
            done.whole.record(Duration(begun.elapsed().as_nanos() as u64));
            (done.read, done.written) = (done.read + read, done.written + written);
            self.shared.operations.fetch_add(1, Ordering::Relaxed);
            if self.group.delay.0 > 0 {
                std::thread::sleep(WallDuration::from_nanos(self.group.delay.0));
            }
        }
        Ok(())
    }

    fn draw(&mut self) -> usize {
        let mut drawn = self.dice.below(self.weight);
        for (number, (_, weight)) in self.group.weights.iter().enumerate() {
            if drawn < *weight {
                return number;
            }
            drawn -= weight;
        }
        0
    }

    fn carry_out(&mut self, kind: OperationKind, population: &Population) -> Result<Moved, LabError> {
        match kind {
            OperationKind::Create { sync } => self.create(population, sync),
            OperationKind::CreateDirectory => {
                let path = population.new_directory();
                std::fs::create_dir(&path).map_err(|error| LabError::of(&error, "cannot be made", &path))?;
                Ok((0, 0))
            }
            OperationKind::Delete => {
                let file = population.take(&mut self.dice).ok_or_else(none_left)?;
                // Waits for those that use it.
                let mut length = file.length.write().unwrap_or_else(PoisonError::into_inner);
                *length = None;
                std::fs::remove_file(&file.path).map_err(|error| failed(kind, &error, &file.path))?;
                Ok((0, 0))
            }
            _ => loop {
                let file = population.any(&mut self.dice).ok_or_else(none_left)?;
                if let Some(moved) = self.on_file(kind, population, &file)? {
                    return Ok(moved);
                }
                // It was deleted just now: another one.
            },
        }
    }

    fn create(&mut self, population: &Population, sync: bool) -> Result<Moved, LabError> {
        let (path, length) = (population.new_path(), population.length(&mut self.dice));
        let block = population.block().unwrap_or(self.group.write_block) as usize;
        let made = population.open(&path, true, true).and_then(|file| {
            write(&file, 0, length, &mut self.buffer[..block], &mut self.source)?;
            if sync { file.sync_all() } else { Ok(()) }
        });
        made.map_err(|error| failed(OperationKind::Create { sync }, &error, &path))?;
        population.add(path, length);
        Ok((0, length))
    }

    fn on_file(
        &mut self,
        kind: OperationKind,
        population: &Population,
        file: &Arc<SharedFile>,
    ) -> Result<Option<Moved>, LabError> {
        let cannot = |error: io::Error| failed(kind, &error, &file.path);
        if matches!(kind, OperationKind::Read | OperationKind::ReadAll | OperationKind::Stat | OperationKind::OpenClose)
        {
            let length = file.length.read().unwrap_or_else(PoisonError::into_inner);
            let Some(length) = *length else { return Ok(None) };
            let moved = match kind {
                OperationKind::Stat => std::fs::metadata(&file.path).map(|_| 0),
                OperationKind::OpenClose => population.open(&file.path, false, false).map(|_| 0),
                _ => self.read(kind, population, &file.path, length),
            };
            return moved.map(|read| Some((read, 0))).map_err(cannot);
        }
        let mut length = file.length.write().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = *length else { return Ok(None) };
        let written = self.write(kind, population, &file.path, before).map_err(cannot)?;
        if let OperationKind::Append { .. } = kind {
            *length = Some(before + written);
        }
        Ok(Some((0, written)))
    }

    fn read(&mut self, kind: OperationKind, population: &Population, path: &Path, length: u64) -> io::Result<u64> {
        let file = population.open(path, false, false)?;
        let all = kind == OperationKind::ReadAll;
        let size = if all { length } else { self.group.read_size.min(length) };
        let block = self.group.read_block;
        self.parts((length, size, block), self.group.read_random && !all, &mut |worker, at, part| {
            file.read_exact_at(&mut worker.buffer[..part], at)
        })
    }

    fn write(&mut self, kind: OperationKind, population: &Population, path: &Path, length: u64) -> io::Result<u64> {
        let file = population.open(path, true, false)?;
        let (written, sync) = match kind {
            OperationKind::Append { sync } => {
                let (size, block) = (self.group.write_size, self.group.write_block as usize);
                write(&file, length, size, &mut self.buffer[..block], &mut self.source)?;
                (size, sync)
            }
            OperationKind::WriteAll { sync } | OperationKind::Write { sync } => {
                let all = matches!(kind, OperationKind::WriteAll { .. });
                let size = if all { length } else { self.group.write_size.min(length) };
                let random = self.group.write_random && !all;
                let block = self.group.write_block;
                let written = self.parts((length, size, block), random, &mut |worker, at, part| {
                    worker.source.make(&mut worker.buffer[..part], at);
                    file.write_all_at(&worker.buffer[..part], at)
                })?;
                (written, sync)
            }
            _ => (0, false),
        };
        if sync {
            file.sync_all()?;
        }
        Ok(written)
    }

    /// Blocks of a file one behind another, from a random block on as far as all of it fits; or
    /// each at a random block.
    fn parts(
        &mut self,
        (length, size, block): (u64, u64, u64),
        random: bool,
        one: &mut dyn FnMut(&mut Self, u64, usize) -> io::Result<()>,
    ) -> io::Result<u64> {
        let from = self.dice.below((length - size) / block + 1) * block;
        let mut done = 0;
        while done < size {
            let part = block.min(size - done);
            let at = if random { self.dice.below((length - part) / block + 1) * block } else { from + done };
            one(self, at, part as usize)?;
            done += part;
        }
        Ok(done)
    }
}

fn none_left() -> LabError {
    LabError::Failed("no file is left: more are deleted than created; give create_weight, or more num_files".into())
}

fn failed(kind: OperationKind, error: &io::Error, path: &Path) -> LabError {
    LabError::of(error, &format!("{} failed", kind.name()), path)
}
