//! A stored catalog of superblock version 1, read to its last record by the present reader.
//!
//! `formats/catalog-1.img.xz` is the volume of a catalog of 128 MiB, as a server left it. Its
//! B-tree has 2,135 records, and its journal 12 batches behind the checkpoint. Number and digest of
//! the records were computed by another reader, written from FORMAT/catalog.md alone. So a reader
//! that changes together with its writer does not pass. The image is never made anew: a changed
//! format gets a further one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use stele_catalog::{Catalog, Direction, EmbeddedCatalog, KeyRange, Options, Table};
use stele_media::{Access, DriveFile, Engine, serve_file};

/// Records of each table that has any.
const TABLES: &[(u16, usize)] =
    &[(1, 9), (2, 2), (3, 87), (8, 1), (9, 1), (10, 1891), (11, 1), (13, 6), (36, 147), (37, 2)];
const COMMITS: u64 = 1925;
/// BLAKE3 over the records in order: table (big-endian), length of the key, key, length of the
/// value, value; lengths with 4 bytes, little-endian.
const DIGEST: &str = "9c853142036f0c34e9df6e39ca921c4ddd3ddae7c25553a7280b62c866a901a2";
const RECORDS_MAX: usize = 10_000;

/// A copy of the image that is removed at the end.
struct Image(PathBuf);

impl Image {
    /// None: xz is not installed. CI leaves nothing out.
    fn unpacked(name: &str) -> Option<Image> {
        let probe = Command::new("xz").arg("--version").output();
        if !probe.is_ok_and(|output| output.status.success()) {
            assert!(std::env::var_os("CI").is_none(), "the image takes xz, and CI leaves nothing out");
            println!("left out: the image takes xz");
            return None;
        }
        let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/catalog-1.img.xz");
        let path = std::env::temp_dir().join(format!("stele-catalog-{name}-{}", std::process::id()));
        let image = Image(path);
        let to = File::create(&image.0).unwrap();
        let done = Command::new("xz").args(["--decompress", "--stdout"]).arg(&stored).stdout(to).status();
        assert!(done.unwrap().success());
        Some(image)
    }

    fn open(&self) -> Result<EmbeddedCatalog, stele_catalog::CatalogError> {
        let file = DriveFile::open(&self.0, Access::Exclusive).unwrap();
        EmbeddedCatalog::open(&serve_file(file, Engine::default()).unwrap(), Options::default())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        File::options().write(true).open(&self.0).unwrap().write_all_at(bytes, at).unwrap();
    }

    fn read_at(&self, at: u64, length: usize) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; length];
        File::open(&self.0).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_stored_catalog_is_read_to_its_last_record() {
    let Some(image) = Image::unpacked("whole") else { return };
    let catalog = image.open().unwrap();
    let view = catalog.snapshot().unwrap();
    assert_eq!(view.commit_number(), COMMITS);
    let (mut hasher, mut found) = (blake3::Hasher::new(), Vec::new());
    for number in 0..u16::MAX {
        let records = view.range(Table(number), &KeyRange::all(), RECORDS_MAX, Direction::Forward).unwrap();
        for (key, value) in &records {
            hasher.update(&number.to_be_bytes());
            for part in [key, value] {
                hasher.update(&(part.len() as u32).to_le_bytes()).update(part);
            }
        }
        found.extend((!records.is_empty()).then_some((number, records.len())));
    }
    assert_eq!(found, TABLES);
    assert_eq!(hasher.finalize().to_hex().as_str(), DIGEST);
}

#[test]
fn a_stored_catalog_of_a_later_version_is_refused_by_name() {
    let Some(image) = Image::unpacked("newer") else { return };
    let mut block = image.read_at(0, 4096);
    block[8] = 2;
    let digest = blake3::hash(&block[..4064]);
    block[4064..].copy_from_slice(digest.as_bytes());
    image.write_at(0, &block);
    let refused = image.open().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("its superblock has version 2"), "{refused}");
}
