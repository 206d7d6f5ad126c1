use super::*;

const TABLE: &[u8] = b"22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
30 22 0:40 / /mnt/a\\040b rw,nosuid,nodev shared:9 master:2 - fuse.stele records rw,user_id=0\n\
31 22 0:41 / /mnt/twice rw - fuse.stele one rw\n\
32 31 0:42 / /mnt/twice rw - tmpfs none rw\n\
33 22 0:43 / /mnt/back\\134slash rw - fuse.other x rw\n\
broken line\n";

#[test]
fn the_uppermost_mount_counts() {
    for (directory, expected) in [
        ("/", Some("ext4")),
        ("/mnt/a b", Some("fuse.stele")),
        ("/mnt/twice", Some("tmpfs")),
        ("/mnt/back\\slash", Some("fuse.other")),
        ("/mnt", None),
        ("/mnt/a\\040b", None),
    ] {
        assert_eq!(top_mount(TABLE, Path::new(directory)).as_deref(), expected, "{directory}");
    }
}

#[test]
fn only_a_directory_is_mounted_upon() {
    let missing = clear(Path::new("/proc/self/no such directory")).expect_err("it does not exist");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let file = clear(Path::new("/proc/self/status")).expect_err("it is a file");
    assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
    assert!(file.to_string().contains("/status: it is not a directory"), "{file}");
    assert!(clear(Path::new("/proc/self/../self/fd")).is_ok_and(|path| path.is_absolute()));
}
