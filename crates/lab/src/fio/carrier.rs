//! How accesses and syncs of a job reach its files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::live::engine::{Engine, Null};
use crate::live::inline::{Direct, Inline};
use crate::live::uring::Uring;
use crate::workload::Access;

/// An engine that syncs, too; the answer comes as that of an access.
pub trait Carrier: Engine {
    fn sync(&mut self, slot: u32, file: usize, data_only: bool);
}

pub type OpenFiles = Vec<Arc<File>>;

impl Direct for OpenFiles {
    fn carry_out(&mut self, access: &Access, buffer: &mut [u8]) -> Result<(), String> {
        let file = &self[access.target];
        let done = match access.write {
            true => file.write_all_at(buffer, access.at),
            false => file.read_exact_at(buffer, access.at),
        };
        done.map_err(|error| error.to_string())
    }
}

impl Carrier for Inline<OpenFiles> {
    fn sync(&mut self, slot: u32, file: usize, data_only: bool) {
        let file = &self.direct()[file];
        let done = if data_only { file.sync_data() } else { file.sync_all() };
        self.answer(slot, done.map_err(|error| error.to_string()));
    }
}

impl Carrier for Uring {
    fn sync(&mut self, slot: u32, file: usize, data_only: bool) {
        self.start_sync(slot, file as u32, data_only);
    }
}

impl Carrier for Null {
    fn sync(&mut self, slot: u32, _: usize, _: bool) {
        self.start(slot, &Access { target: 0, at: 0, length: 0, write: false });
    }
}
