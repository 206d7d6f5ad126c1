use super::*;
use crate::live::content::Content;
use crate::live::target::{Opening, Target};
use stele_ground::{Bytes, MIB};

struct Place(std::path::PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("stele-signatures-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn open(path: &Path, destroy: bool) -> Result<(), LabError> {
    let target = Target::Path(path.to_owned());
    let opening = Opening { size: Some(Bytes(MIB)), writes: true, destroy, ..Opening::default() };
    target.open(opening, &mut |_, _| true).map(drop)
}

#[test]
fn a_file_of_the_laboratory_that_was_formatted_is_not_written_over() {
    let place = Place::new("formatted");
    let path = place.0.join("target");
    open(&path, false).unwrap();
    open(&path, false).unwrap();
    for (at, magic, name) in AT_HEAD {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&vec![0xA5; 256 << 10], 0).unwrap();
        open(&path, false).unwrap();
        file.write_all_at(magic, *at as u64).unwrap();
        let error = open(&path, false).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("--destroy"), "{error}");
        open(&path, true).unwrap();
    }
}

#[test]
fn a_workload_that_only_reads_does_not_fill_what_was_made_of_the_file_since() {
    let place = Place::new("reads");
    let path = place.0.join("target");
    open(&path, false).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"XFSB", 0).unwrap();
    let reads = |size: Option<u64>, verify: bool, destroy: bool| {
        let content = Content { verify, ..Content::default() };
        let opening = Opening { size: size.map(Bytes), destroy, content, ..Opening::default() };
        Target::Path(path.clone()).open(opening, &mut |_, _| true)
    };
    reads(None, false, false).unwrap();
    let head = || {
        let mut head = [0; 4];
        file.read_exact_at(&mut head, 0).unwrap();
        head
    };
    let refused = |size: Option<u64>, verify: bool| {
        let error = reads(size, verify, false).unwrap_err();
        assert!(matches!(error, LabError::Refused(_)), "{size:?} {verify} {error:?}");
        assert_eq!(&head(), b"XFSB", "{size:?} {verify}");
    };
    refused(None, true);
    refused(Some(2 * MIB), false);
    // Made longer by another program: what is behind was never filled.
    file.set_len(3 * MIB).unwrap();
    refused(None, false);
    let other = std::fs::File::open(&path).unwrap();
    other.lock().unwrap();
    let error = reads(None, false, true).unwrap_err();
    assert!(matches!(&error, LabError::Refused(why) if why.contains("in use")), "{error:?}");
    assert_eq!(&head(), b"XFSB");
    other.unlock().unwrap();
    reads(None, false, true).unwrap();
    assert_ne!(&head(), b"XFSB", "with --destroy it is filled");
}

#[test]
fn the_short_marks_of_ext_and_of_a_partition_table_count_with_what_is_around_them() {
    let mut ext = vec![0xA5; 8192];
    ext[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    assert_eq!(recognised(&ext, &[]), None, "two bytes alone");
    ext[0x418..0x41c].copy_from_slice(&2u32.to_le_bytes());
    ext[0x44c..0x450].copy_from_slice(&1u32.to_le_bytes());
    assert_eq!(recognised(&ext, &[]), Some("a file system (ext2, ext3 or ext4)"));
    let mut table = vec![0xA5; 8192];
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(recognised(&table, &[]), None, "two bytes alone");
    table[446..510].fill(0);
    table[450] = 0x83;
    assert_eq!(recognised(&table, &[]), Some("a partition table (MBR)"));
    let mut tail = vec![0; 131_072];
    tail[131_072 - 512..131_072 - 504].copy_from_slice(b"EFI PART");
    assert_eq!(recognised(&[0; 8192], &tail), Some("a partition table (GPT)"));
}

#[test]
fn random_data_is_taken_for_nothing() {
    let mut source = Content::default().source(stele_ground::Dice::new(3), None);
    let mut head = vec![0; HEAD as usize];
    for number in 0..2_000 {
        source.make(&mut head, number * HEAD);
        assert_eq!(recognised(&head, &head[..TAIL as usize]), None);
    }
}

#[test]
fn a_file_that_a_loop_device_shows_is_known() {
    let place = Place::new("loop");
    let (path, other) = (place.0.join("image"), place.0.join("other"));
    std::fs::write(&path, "image").unwrap();
    std::fs::write(&other, "other").unwrap();
    let shown = place.0.join("block/loop7/loop");
    std::fs::create_dir_all(&shown).unwrap();
    std::fs::create_dir_all(place.0.join("block/sda")).unwrap();
    std::fs::write(shown.join("backing_file"), format!("{}\n", path.display())).unwrap();
    let of = |path: &Path| loop_device_of(&std::fs::metadata(path).unwrap(), &place.0.join("block"));
    assert_eq!(of(&path).as_deref(), Some("/dev/loop7"));
    assert_eq!(of(&other), None);
}

/// The whole device shows no label where a drive's are.
#[test]
fn a_partition_that_is_a_drive_of_a_pool_is_found() {
    let place = Place::new("partitions");
    let (devices, nodes) = (place.0.join("block"), place.0.join("dev"));
    std::fs::create_dir_all(&nodes).unwrap();
    for (disk, parts) in [("sdb", 2), ("sdc", 1), ("sdd", 0)] {
        std::fs::create_dir_all(devices.join(disk).join("queue")).unwrap();
        std::fs::write(nodes.join(disk), [0; 4096]).unwrap();
        for part in 1..=parts {
            let name = format!("{disk}{part}");
            std::fs::create_dir_all(devices.join(disk).join(&name)).unwrap();
            std::fs::write(devices.join(disk).join(&name).join("partition"), "1").unwrap();
            File::create(nodes.join(name)).unwrap().set_len(64 << 20).unwrap();
        }
    }
    // The last copy alone: the head was written over.
    let at = *label::places(64 << 20).last().unwrap();
    let drive = OpenOptions::new().write(true).open(nodes.join("sdb2")).unwrap();
    drive.write_all_at(label::codec::MAGIC, at).unwrap();
    let of = |disk: &str| labelled_partition(&nodes.join(disk), &devices, &nodes);
    assert_eq!(of("sdb"), Some(nodes.join("sdb2")));
    assert_eq!((of("sdc"), of("sdd"), of("sde")), (None, None, None));
}
