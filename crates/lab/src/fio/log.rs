//! `write_iolog`: every access as a line, in the format that fio writes and reads (version 3).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::workload::Access;

#[derive(Debug)]
pub struct Log {
    pub(super) out: BufWriter<File>,
    files: Vec<PathBuf>,
}

pub fn exists(path: &Path) -> LabError {
    LabError::Refused(format!("{}: exists already; name another file with write_iolog", path.display()))
}

impl Log {
    pub fn create(path: &Path, files: Vec<PathBuf>) -> Result<Log, LabError> {
        let cannot = |error: std::io::Error| LabError::of(&error, "cannot be written", path);
        // Nothing that is there is written over, whichever program put it there.
        let file = File::create_new(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => exists(path),
            _ => cannot(error),
        })?;
        let mut log = Log { out: BufWriter::new(file), files };
        writeln!(log.out, "fio version 3 iolog").map_err(cannot)?;
        for number in 0..log.files.len() {
            log.line(0, number, "add");
            log.line(0, number, "open");
        }
        Ok(log)
    }

    /// What cannot be written now cannot be flushed at the end either, and is told then.
    fn line(&mut self, at: u64, file: usize, said: &str) {
        let name = self.files.get(file).map_or(Path::new(""), PathBuf::as_path).display();
        let _ = writeln!(self.out, "{} {name} {said}", at / 1000);
    }

    pub fn access(&mut self, at: u64, access: &Access) {
        let name = if access.write { "write" } else { "read" };
        self.line(at, access.target, &format!("{name} {} {}", access.at, access.length));
    }

    pub fn sync(&mut self, at: u64, file: usize, data_only: bool) {
        self.line(at, file, if data_only { "datasync 0 0" } else { "sync 0 0" });
    }
}
