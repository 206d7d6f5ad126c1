//! Files that a command or the configuration names and that are read whole: configurations, keys,
//! passwords, lists and policies.
//!
//! Failure model: a path may name the wrong file, such as an image of a drive, or one without an
//! end, such as `/dev/zero`. Of a file that is longer than its bound no more than the bound is
//! read. The length that the file system states counts for nothing: that of a device is zero.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

use stele_ground::{Bytes, MIB};

/// The longest configuration, key, password or other text that a person writes.
pub const TEXT_MAX: Bytes = Bytes(4 * MIB);

/// The bytes of a file of at most so many; a longer one is an error of the kind `FileTooLarge`.
pub fn read(path: &Path, most: Bytes) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most.0.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most.0 {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("it is longer than {most}, and so another file"))),
        false => Ok(bytes),
    }
}

/// The text of such a file, of at most [`TEXT_MAX`].
pub fn read_text(path: &Path) -> Result<String> {
    let no_text = |_| Error::new(ErrorKind::InvalidData, "it is no text in UTF-8");
    String::from_utf8(read(path, TEXT_MAX)?).map_err(no_text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Kind, io_failure};

    #[test]
    fn a_file_without_an_end_is_read_up_to_its_bound() {
        for most in [Bytes(0), Bytes(1000), TEXT_MAX] {
            let error = read(Path::new("/dev/zero"), most).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{most}");
        }
        let error = read_text(Path::new("/dev/zero")).unwrap_err();
        let told = io_failure("read the key", Path::new("/dev/zero"), &error);
        assert_eq!(told.kind, Kind::Usage, "{told:?}");
        assert!(told.error.contains("it is longer than 4 MiB") && !told.next.is_empty(), "{told:?}");
        assert!(read(Path::new("/dev/null"), Bytes(0)).unwrap().is_empty());
    }

    #[test]
    fn a_file_of_the_longest_length_is_read() {
        let path = std::env::temp_dir().join(format!("stele-whole-{}", std::process::id()));
        for (length, is_read) in [(9, true), (10, true), (11, false)] {
            std::fs::write(&path, vec![b'x'; length]).unwrap();
            assert_eq!(read(&path, Bytes(10)).is_ok(), is_read, "{length}");
        }
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), ErrorKind::InvalidData);
        std::fs::remove_file(&path).unwrap();
    }
}
