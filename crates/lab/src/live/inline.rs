//! Plain system calls, one access at a time: for what lies in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use stele_ground::Duration;
use stele_media::Buffer;

use super::engine::{Answer, Engine};
use crate::workload::Access;

pub struct Inline {
    file: Arc<File>,
    buffer: Buffer,
    answer: Option<Answer>,
}

impl Inline {
    pub fn new(file: Arc<File>, length_max: usize) -> Inline {
        Inline { file, buffer: Buffer::zeroed(length_max), answer: None }
    }
}

impl Engine for Inline {
    fn slots(&self) -> u32 {
        1
    }

    fn start(&mut self, slot: u32, access: &Access) {
        let buffer = &mut self.buffer[..access.length as usize];
        let done = match access.write {
            true => self.file.write_all_at(buffer, access.at),
            false => self.file.read_exact_at(buffer, access.at),
        };
        self.answer = Some((slot, done.map_err(|error| error.to_string())));
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<Answer>) {
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
