//! Copies of volumes and of drives, as root can make and restore them.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use stele_media::{Buffer, Handle};

const CHUNK: usize = 1 << 20;

/// The contents of a volume without its zeros.
pub type Content = Vec<(u64, Vec<u8>)>;

pub async fn read(volume: &Handle) -> Option<Content> {
    let (mut content, size) = (Vec::new(), volume.geometry().size.0);
    let mut at = 0;
    while at < size {
        let length = (size - at).min(CHUNK as u64) as usize;
        let bytes = volume.read(at, length).await.ok()?;
        if bytes.iter().any(|byte| *byte != 0) {
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

/// Copies every file of a directory, with holes in place of zeros.
pub fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (mut source, mut target) = (File::open(entry.path())?, File::create(to.join(entry.file_name()))?);
        let size = source.metadata()?.len();
        target.set_len(size)?;
        let (mut chunk, mut at) = (vec![0; CHUNK], 0u64);
        loop {
            let length = source.read(&mut chunk)?;
            if length == 0 {
                break;
            }
            let bytes = &chunk[..length];
            if bytes.iter().any(|byte| *byte != 0) {
                target.seek(SeekFrom::Start(at))?;
                target.write_all(bytes)?;
            }
            at += length as u64;
        }
    }
    Ok(())
}
