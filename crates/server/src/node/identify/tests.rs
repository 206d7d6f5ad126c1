use super::*;
use crate::failure::Kind;

/// The trees of the kernel and udev, in a directory of their own.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let dir = std::env::temp_dir().join(format!("stele-identify-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("by-id")).unwrap();
        Tree(dir)
    }

    fn file(&self, place: &str, content: &[u8]) {
        let path = self.0.join(place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn system(&self) -> SystemDirectories {
        SystemDirectories { sys: self.0.join("sys"), by_id: self.0.join("by-id") }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn serial_numbers_are_found_wherever_they_stand() {
    let tree = Tree::new("serial");
    tree.file("sys/block/nvme0n1/device/serial", b"S4EVNF0M   \n");
    tree.file("sys/block/vda/serial", b"virtual-7\n");
    tree.file("sys/block/sda/device/vpd_pg80", b"\0\x80\0\x08  WD-WX31\0");
    tree.file("sys/block/sdb/device/serial", b"  \n");
    let found = ["nvme0n1", "vda", "sda", "sdb", "sdc"].map(|name| tree.system().serial(name));
    assert_eq!(found, [Some("S4EVNF0M".into()), Some("virtual-7".into()), Some("WD-WX31".into()), None, None]);
}

#[test]
fn the_name_that_tells_the_model_is_shown() {
    let tree = Tree::new("by-id");
    tree.file("sda", b"");
    tree.file("sdb", b"");
    for (name, to) in [("wwn-0x5000", "sda"), ("scsi-3500", "sda"), ("ata-WDC_WD40-1", "sda"), ("ata-A", "sdb")] {
        std::os::unix::fs::symlink(tree.0.join(to), tree.0.join("by-id").join(name)).unwrap();
    }
    let found = tree.system().by_id(&tree.0.join("sda")).unwrap();
    assert_eq!(found.file_name().unwrap(), "ata-WDC_WD40-1");
    assert_eq!(tree.system().by_id(&tree.0.join("none")), None);
}

#[test]
fn the_light_of_a_slot_is_switched_where_there_is_one() {
    let tree = Tree::new("locate");
    tree.file("sys/block/sda/device/enclosure_device:Slot 04/locate", b"0");
    tree.file("sys/block/sdb/device/model", b"none");
    let light =
        || std::fs::read_to_string(tree.0.join("sys/block/sda/device/enclosure_device:Slot 04/locate")).unwrap();
    tree.system().locate("sda", true).unwrap();
    assert_eq!(light(), "1");
    tree.system().locate("sda", false).unwrap();
    assert_eq!(light(), "0");
    for name in ["sdb", "sdz"] {
        let refused = tree.system().locate(name, true).unwrap_err();
        assert_eq!(refused.kind, Kind::Missing, "{refused}");
        assert!(refused.error.contains("light"), "{refused}");
    }
    assert_eq!(locate(&tree.0.join("by-id"), true).unwrap_err().kind, Kind::Missing, "no block device");
}

#[test]
fn a_light_that_only_root_may_switch_says_so() {
    let refused = |code| not_switched(Path::new("locate"), &std::io::Error::from_raw_os_error(code));
    let (denied, other) = (refused(libc::EACCES), refused(libc::EIO));
    assert_eq!((denied.kind, denied.next.as_str()), (Kind::Refused, "run the command as root"));
    assert_eq!((other.kind, other.next.as_str()), (Kind::Failed, ""));
}
