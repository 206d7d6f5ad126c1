//! Brings a target back to the state of new storage, as far as this machine can: by discarding all
//! blocks of a device, or by giving back the space of a file.
//!
//! Only a target that was opened for writing is purged: its opening has refused whatever may not be
//! written over.

use std::fs::File;

use stele_media::system;

use super::local;
use super::target::{AccessMethod, Ready};

/// What became of it, as a report says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Purged {
    /// What was done.
    Done(String),
    /// Why nothing was done.
    Not(String),
}

impl Purged {
    pub fn said(&self) -> &str {
        match self {
            Purged::Done(said) | Purged::Not(said) => said,
        }
    }
}

/// Discards all that is used of the target.
pub fn purge(ready: &Ready) -> Purged {
    let file = match &ready.way {
        AccessMethod::Ring(file) | AccessMethod::Inline(file) => file,
        AccessMethod::Null => return Purged::Not("nothing is stored that could be purged".into()),
        _ => return Purged::Not("not purged: the target is reached over a protocol; purge it on its server".into()),
    };
    match discard(file, ready.size.0) {
        Ok(said) => Purged::Done(said.into()),
        Err(error) => Purged::Not(format!("not purged: the target takes no discard ({error})")),
    }
}

fn discard(file: &File, length: u64) -> std::io::Result<&'static str> {
    if file.metadata()?.is_file() {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // First, so that a run that is cut here fills the file again.
        local::forget_filling(file);
        system::allocate(file, mode, 0, length)?;
        return Ok("purged: the space of the file was given back");
    }
    system::discard_device(file, 0, length)?;
    Ok("purged: all blocks of the device were discarded")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::live::target::{Opening, Target};
    use stele_ground::Bytes;

    #[test]
    fn a_file_gives_its_space_back_and_keeps_its_size() {
        let path = std::env::temp_dir().join(format!("stele-lab-purge-{}", std::process::id()));
        let opening = Opening { size: Some(Bytes(8 << 20)), writes: true, ..Opening::default() };
        let ready = Target::Path(path.clone()).open(opening, &mut |_, _| true).unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= 8 << 20);
        let done = purge(&ready);
        assert!(matches!(&done, Purged::Done(said) if said.contains("given back")), "{done:?}");
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!((after.len(), after.blocks()), (8 << 20, 0));
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        // What was given back is filled again before it is read.
        drop(ready);
        Target::Path(path.clone()).open(Opening { writes: false, ..opening }, &mut |_, _| true).unwrap();
        assert!(std::fs::read(&path).unwrap().iter().any(|byte| *byte != 0));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_reached_over_a_protocol_says_that_it_was_not_purged() {
        let ready = Target::Null.open(Opening::default(), &mut |_, _| true).unwrap();
        assert!(matches!(purge(&ready), Purged::Not(_)));
    }
}
