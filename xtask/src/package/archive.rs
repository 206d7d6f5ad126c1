//! The two kinds of archive that a Debian package is made of: gzipped tarballs, in an `ar` archive
//! (deb(5)).

use std::collections::BTreeSet;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A file, by its path from the root.
#[derive(Clone)]
pub struct Entry {
    pub path: String,
    pub mode: u32,
    pub bytes: Vec<u8>,
}

/// A tarball with the directories of its files. Everything belongs to root.
pub fn tarball(entries: &[Entry], date: u64) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("cannot write the tarball: {error}");
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    let mut folders = BTreeSet::new();
    for entry in entries {
        let parts: Vec<&str> = entry.path.split('/').collect();
        for depth in 1..parts.len() {
            folders.insert(format!("./{}/", parts[..depth].join("/")));
        }
    }
    for folder in folders {
        let mut header = header(0, 0o755, date);
        header.set_entry_type(tar::EntryType::Directory);
        tar.append_data(&mut header, folder, std::io::empty()).map_err(failed)?;
    }
    for entry in entries {
        let mut header = header(entry.bytes.len() as u64, entry.mode, date);
        tar.append_data(&mut header, format!("./{}", entry.path), entry.bytes.as_slice()).map_err(failed)?;
    }
    tar.into_inner().and_then(GzEncoder::finish).map_err(failed)
}

fn header(size: u64, mode: u32, date: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(date);
    let _ = (header.set_username("root"), header.set_groupname("root"));
    header.set_uid(0);
    header.set_gid(0);
    header
}

pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes).and_then(|()| writer.finish()).map_err(|error| format!("cannot compress: {error}"))
}

/// An `ar` archive: a magic number, and for each member a header of 60 characters and its bytes,
/// padded to an even length.
pub fn ar(members: &[(&str, Vec<u8>)], date: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let header = format!("{name:<16}{date:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len());
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_an_archive_begin_at_even_places() {
        let archive = ar(&[("debian-binary", b"2.0\n".to_vec()), ("odd", b"abc".to_vec()), ("last", vec![])], 7);
        let text = String::from_utf8(archive).unwrap();
        assert_eq!(
            text,
            "!<arch>\ndebian-binary   7           0     0     100644  4         `\n2.0\n\
             odd             7           0     0     100644  3         `\nabc\n\
             last            7           0     0     100644  0         `\n"
        );
    }
}
