//! Copies of volumes and of drives, as root can make and restore them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use stele_media::{Buffer, Handle};

const CHUNK: usize = 1 << 20;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// The contents of a volume without its zeros.
pub type Content = Vec<(u64, Vec<u8>)>;

pub async fn read(volume: &Handle) -> Option<Content> {
    let (mut content, size) = (Vec::new(), volume.geometry().size.0);
    let mut at = 0;
    while at < size {
        let length = (size - at).min(CHUNK as u64) as usize;
        let bytes = volume.read(at, length).await.ok()?;
        if !is_zero(&bytes) {
            content.push((at, bytes.to_vec()));
        }
        at += length as u64;
    }
    Some(content)
}

pub async fn write(volume: &Handle, content: &Content) -> Option<()> {
    let size = volume.geometry().size.0;
    let mut at = 0;
    while at < size {
        let length = (size - at).min(CHUNK as u64);
        volume.zero(at, length).await.ok()?;
        at += length;
    }
    for (at, bytes) in content.iter().filter(|(at, bytes)| at + bytes.len() as u64 <= size) {
        volume.write(*at, vec![Buffer::copy_of(bytes).freeze()], true).await.ok()?;
    }
    volume.flush().await.ok()
}

/// Copies every file of a directory, with holes in place of zeros. Most of a drive is holes, which
/// are passed over without being read.
pub fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    let mut chunk = vec![0; CHUNK];
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (File::open(entry.path())?, File::create(to.join(entry.file_name()))?);
        target.set_len(source.metadata()?.len())?;
        let mut at = 0;
        while let Some(data) = found(seek(&source, SeekFrom::Data(at)))? {
            let hole = seek(&source, SeekFrom::Hole(data))?;
            for at in (data..hole).step_by(CHUNK) {
                let bytes = &mut chunk[..(hole - at).min(CHUNK as u64) as usize];
                source.read_exact_at(bytes, at)?;
                if !is_zero(bytes) {
                    target.write_all_at(bytes, at)?;
                }
            }
            at = hole;
        }
    }
    Ok(())
}

/// The next data, if there is some before the end of the file.
fn found(place: rustix::io::Result<u64>) -> io::Result<Option<u64>> {
    match place {
        Err(Errno::NXIO) => Ok(None),
        place => Ok(Some(place?)),
    }
}

/// Compared as a whole: an iterator over bytes is slow in code that is not optimised.
fn is_zero(bytes: &[u8]) -> bool {
    bytes == &ZEROS[..bytes.len()]
}
