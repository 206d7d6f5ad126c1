use super::*;

#[test]
fn the_root_changes_places_with_one() {
    for (root, inode, number) in
        [(1, 1, 1), (1, 2, 2), (64, 64, 1), (64, 1, 64), (64, 63, 63), (64, u64::MAX, u64::MAX)]
    {
        let numbers = Numbers { root: Inode(root), dos_attributes: false };
        assert_eq!(numbers.number(Inode(inode)), INodeNo(number), "root {root}");
        assert_eq!(numbers.inode(INodeNo(number)), Inode(inode), "root {root}");
    }
}

#[test]
fn devices_survive_the_wire() {
    for (major, minor) in [(0, 0), (1, 2), (4095, 0xf_ffff), (7, 300_000), (8, 255), (8, 256)] {
        for kind_of in
            [|major, minor| Kind::BlockDevice { major, minor }, |major, minor| Kind::CharacterDevice { major, minor }]
        {
            let device = kind_of(major, minor);
            let mode = if matches!(device, Kind::BlockDevice { .. }) { libc::S_IFBLK } else { libc::S_IFCHR };
            assert_eq!(kind(mode | 0o644, device_number(device)), Some(device));
        }
    }
    for (mode, expected) in [
        (libc::S_IFREG, Some(Kind::File)),
        (0, Some(Kind::File)),
        (libc::S_IFIFO, Some(Kind::Pipe)),
        (libc::S_IFSOCK, Some(Kind::Socket)),
        (libc::S_IFDIR, None),
        (libc::S_IFLNK, None),
    ] {
        assert_eq!(kind(mode, 0), expected, "{mode:o}");
    }
}

#[test]
fn times_before_1970_are_exact() {
    for (seconds, nanoseconds) in
        [(0, 0), (0, 999_999_999), (1, 1), (-1, 0), (-1, 1), (-86_400, 999_999_999), (1 << 40, 5), (-(1 << 40), 5)]
    {
        let time = Moment { seconds, nanoseconds };
        let exact = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        let found = match system_time(time).duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        assert_eq!(found, exact, "{time:?}");
        // As fuser makes it from the wire.
        let wire = match seconds {
            0.. => UNIX_EPOCH + Duration::new(seconds as u64, nanoseconds),
            _ => UNIX_EPOCH - Duration::new(seconds.unsigned_abs(), nanoseconds),
        };
        let expected = if seconds < 0 || nanoseconds < 1_000_000_000 { time } else { continue };
        assert_eq!(moment(wire), expected, "{time:?}");
    }
}

#[test]
fn samba_sees_that_the_owner_may_write() {
    let file = |kind, mode| Attributes {
        inode: Inode(7),
        kind,
        mode,
        links: 1,
        uid: 5,
        gid: 5,
        size: 0,
        used: 0,
        accessed: Moment::default(),
        modified: Moment::default(),
        changed: Moment::default(),
        change: 1,
    };
    for (kind, mode, shown) in [
        (Kind::File, 0o444, 0o644),
        (Kind::File, 0, 0o200),
        (Kind::File, 0o644, 0o644),
        // Not read-only: another may write.
        (Kind::File, 0o464, 0o464),
        (Kind::Directory, 0o555, 0o555),
    ] {
        for (dos_attributes, expected) in [(true, shown), (false, mode)] {
            let numbers = Numbers { root: Inode(1), dos_attributes };
            let found = u32::from(numbers.attributes(&file(kind, mode)).perm);
            assert_eq!(found, expected, "{mode:o}, {dos_attributes}");
        }
    }
}

#[test]
fn a_change_of_attributes_never_answers_to_try_again() {
    // The kernel makes EOPNOTSUPP of it.
    let retry = FileError::Retry("the file is in use".into());
    assert_eq!(attribute_errno(&retry).code(), libc::EBUSY);
    assert_eq!(attribute_errno(&FileError::NotOwner).code(), libc::EPERM);
}
