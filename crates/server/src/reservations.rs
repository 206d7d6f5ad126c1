//! Persistent reservations of iSCSI initiators that outlive the server: a file for each volume in
//! `reservations` of the data directory (`FORMAT/reservations.md`). Each file is replaced
//! atomically, and is durable before the initiator gets its answer.
//!
//! A thread of its own writes them, since a reactor must not wait for a file. At most
//! [`WAITING_MAX`] changes wait for it. Beyond that the initiator is asked to try again.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};

use stele_block::iscsi::Keeper;
use stele_block::iscsi::node::Kept;
use stele_block::scsi::Reservations;
use stele_ground::{PoolId, VolumeId};
use stele_media::{MediaError, MediaFault};

use crate::files;

const WAITING_MAX: usize = 1024;

struct Change {
    path: PathBuf,
    reservations: Option<Vec<u8>>,
    done: Kept,
}

pub struct ReservationFiles {
    dir: PathBuf,
    /// Identities of volumes by name; names may be reused, identities are not.
    identities: Mutex<BTreeMap<String, [u8; 16]>>,
    changes: SyncSender<Change>,
}

impl ReservationFiles {
    pub fn at(dir: &Path) -> std::io::Result<ReservationFiles> {
        let (changes, waiting) = sync_channel(WAITING_MAX);
        std::thread::Builder::new().name("stele-reservations".to_owned()).spawn(move || write_all(&waiting))?;
        Ok(ReservationFiles { dir: dir.join("reservations"), identities: Mutex::default(), changes })
    }

    /// Registers a volume. Volumes are numbered within their pool.
    pub fn introduce(&self, name: &str, pool: PoolId, volume: VolumeId) {
        let text = [&pool.0[..], &volume.0.to_be_bytes()].concat();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &text);
        let mut identity = [0; 16];
        identity.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        self.identities.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), identity);
    }

    /// What is wrong with the kept reservations of a volume, and its place; `None` if they can be
    /// read, or none are kept.
    pub fn unreadable(&self, volume: &str) -> Option<String> {
        match self.load(volume) {
            Ok(None) => None,
            Ok(Some(bytes)) if Reservations::restore(&bytes).is_some() => None,
            Ok(Some(bytes)) if Reservations::later(&bytes).is_some() => {
                let path = self.path(volume);
                Some(format!("{} is of a later version of Stele: leave it, and start that version", path.display()))
            }
            Ok(Some(_)) => Some(format!("{} is damaged", self.path(volume).display())),
            Err(error) => Some(error.to_string()),
        }
    }

    fn path(&self, volume: &str) -> PathBuf {
        let name: String = self.identity(volume).iter().map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(name)
    }
}

impl Keeper for ReservationFiles {
    fn identity(&self, volume: &str) -> [u8; 16] {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner).get(volume).copied().unwrap_or_default()
    }

    fn place(&self, volume: &str) -> String {
        self.path(volume).display().to_string()
    }

    fn load(&self, volume: &str) -> Result<Option<Vec<u8>>, MediaError> {
        let path = self.path(volume);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(MediaError::new(MediaFault::Damaged, format!("cannot read {}: {error}", path.display()))),
        }
    }

    fn keep(&self, volume: &str, reservations: Option<Vec<u8>>, done: Kept) {
        let change = Change { path: self.path(volume), reservations, done };
        if let Err(TrySendError::Full(change) | TrySendError::Disconnected(change)) = self.changes.try_send(change) {
            (change.done)(Err(MediaError::new(MediaFault::Retry, "too many reservations wait to be kept")));
        }
    }
}

fn write_all(waiting: &Receiver<Change>) {
    while let Ok(Change { path, reservations, done }) = waiting.recv() {
        done(write(&path, reservations.as_deref()).map_err(|message| {
            tracing::error!("reservations are not kept: {message}");
            MediaError::new(MediaFault::Retry, message)
        }));
    }
}

fn write(path: &Path, reservations: Option<&[u8]>) -> Result<(), String> {
    let written = match (reservations, path.parent()) {
        (Some(_), Some(dir)) => files::private_folder(dir).and_then(|()| files::change_private(path, reservations)),
        _ => files::change_private(path, None),
    };
    written.map_err(|failure| failure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_refused_is_none_after_a_restart() {
        let dir = std::env::temp_dir().join(format!("stele-reservations-refused-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let files = ReservationFiles::at(&dir).unwrap();
        let path = files.path("vm");
        write(&path, Some(b"one")).unwrap();
        // `stele doctor` reports a folder that others than the owner may enter.
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path.parent().unwrap()).unwrap());
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        for change in [Some(&b"two"[..]), None] {
            files::failing::set(&[true]);
            write(&path, change).unwrap_err();
            files::failing::set(&[]);
            assert_eq!(files.load("vm").unwrap().as_deref(), Some(&b"one"[..]));
        }
        let _ = std::fs::remove_dir_all(&dir);
    }

    #[test]
    fn unreadable_reservations_are_told_with_their_file() {
        let dir = std::env::temp_dir().join(format!("stele-reservations-unreadable-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let files = ReservationFiles::at(&dir).unwrap();
        assert_eq!(files.unreadable("vm"), None, "none are kept");
        write(&files.path("vm"), Some(b"neither whole nor of a later version")).unwrap();
        let told = files.unreadable("vm").unwrap();
        assert!(told.contains(&files.place("vm")) && told.ends_with("is damaged"), "{told}");
        let _ = std::fs::remove_dir_all(&dir);
    }

    #[test]
    fn reservations_are_kept_under_the_volumes_identity_and_not_its_name() {
        let dir = std::env::temp_dir().join(format!("stele-reservations-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let files = ReservationFiles::at(&dir).unwrap();
        let keep = |bytes: Option<&[u8]>| {
            let (sender, kept) = std::sync::mpsc::channel();
            files.keep("vm", bytes.map(<[u8]>::to_vec), Box::new(move |result| sender.send(result).unwrap()));
            kept.recv().unwrap().unwrap();
        };
        files.introduce("vm", PoolId([1; 16]), VolumeId(3));
        keep(None);
        keep(Some(b"one"));
        keep(Some(b"two"));
        assert_eq!(files.load("vm").unwrap().as_deref(), Some(&b"two"[..]));
        files.introduce("vm", PoolId([1; 16]), VolumeId(4));
        assert_eq!(files.load("vm").unwrap(), None, "another volume of the same name");
        files.introduce("vm", PoolId([1; 16]), VolumeId(3));
        keep(None);
        assert_eq!(files.load("vm").unwrap(), None);
        let _ = std::fs::remove_dir_all(&dir);
    }
}
