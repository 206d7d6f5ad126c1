//! One access at a time, carried out by the worker's own thread: for what lies in memory, and for
//! what has calls that block.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use stele_ground::Duration;
use stele_media::Buffer;

use super::engine::{Engine, SlotResult};
use crate::workload::Access;

/// Carries out an access from beginning to end.
pub trait Direct {
    /// Sends the buffer, or reads into it; it is as long as the access.
    fn carry_out(&mut self, access: &Access, buffer: &mut [u8]) -> Result<(), String>;
}

pub struct Inline<D> {
    direct: D,
    buffer: Buffer,
    answer: Option<SlotResult>,
}

impl<D: Direct> Inline<D> {
    pub fn new(direct: D, length_max: usize) -> Inline<D> {
        Inline { direct, buffer: Buffer::zeroed(length_max), answer: None }
    }

    pub fn direct(&self) -> &D {
        &self.direct
    }

    /// Of what was done beside accesses.
    pub fn answer(&mut self, slot: u32, done: Result<(), String>) {
        self.answer = Some((slot, done));
    }
}

impl<D: Direct> Engine for Inline<D> {
    fn slots(&self) -> u32 {
        1
    }

    fn start(&mut self, slot: u32, access: &Access) {
        let done = self.direct.carry_out(access, &mut self.buffer[..access.length as usize]);
        self.answer = Some((slot, done));
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>) {
        match self.answer.take() {
            Some(answer) => answers.push(answer),
            None if least > 0 => std::thread::sleep(std::time::Duration::from_nanos(limit.map_or(0, |limit| limit.0))),
            None => {}
        }
    }

    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut self.buffer
    }
}

impl Direct for Arc<File> {
    fn carry_out(&mut self, access: &Access, buffer: &mut [u8]) -> Result<(), String> {
        let done = match access.write {
            true => self.write_all_at(buffer, access.at),
            false => self.read_exact_at(buffer, access.at),
        };
        done.map_err(|error| error.to_string())
    }
}
