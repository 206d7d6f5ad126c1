//! The vocabulary of files: numbers, kinds, attributes, times and callers, as POSIX means them.

/// The longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest target of a symbolic link, in bytes.
pub const LINK_MAX: usize = 4096;
/// The most names that one file may have.
pub const LINKS_MAX: u32 = 65_000;
/// The largest file, in bytes: as much as the archive takes as one version, 10,000 parts of 5 GiB.
/// Content that could never be archived would stay in a share's cache.
pub const SIZE_MAX: u64 = 10_000 * (5 << 30);

/// A file's number. It is unique in its share and is never used again, so that a handle needs no
/// generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Inode(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    File,
    Directory,
    Link,
    /// A special file is stored and never interpreted.
    BlockDevice {
        major: u32,
        minor: u32,
    },
    CharacterDevice {
        major: u32,
        minor: u32,
    },
    Pipe,
    Socket,
}

/// A time of a file: seconds since 1970-01-01T00:00:00Z, and nanoseconds below 1,000,000,000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Moment {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// Who asks, after the protocol has mapped root and anonymous users.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups; the wire of NFS carries at most 16.
    pub groups: Vec<u32>,
}

/// The attributes of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    pub inode: Inode,
    pub kind: Kind,
    /// Permissions, set-id bits and the sticky bit: 0o7777 at most.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes. Of a directory: its entries' names; of a symbolic link: its target.
    pub size: u64,
    /// Bytes of content that are stored somewhere, holes left out.
    pub used: u64,
    pub accessed: Moment,
    pub modified: Moment,
    pub changed: Moment,
    /// Rises with every change of content or attributes.
    pub change: u64,
}

/// Attributes to set; what is absent stays as it is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Changes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Truncates, or extends with a hole.
    pub size: Option<u64>,
    /// Of a committed file: the end of its retention. See SEMANTICS/file.md.
    pub accessed: Option<SetTime>,
    pub modified: Option<SetTime>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The gateway's clock.
    Now,
    At(Moment),
}

/// Kinds of access, as NFS asks for them; several at once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Access {
    /// Read content, or list a directory.
    pub read: bool,
    /// Look up a name in a directory.
    pub lookup: bool,
    /// Change existing content or existing entries.
    pub modify: bool,
    /// Write beyond the end, or add entries.
    pub extend: bool,
    /// Remove entries of a directory.
    pub delete: bool,
    pub execute: bool,
}

impl Caller {
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub fn is_member(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

impl Moment {
    /// From nanoseconds since 1970, negative before it.
    pub fn from_nanoseconds(nanoseconds: i128) -> Moment {
        let seconds = nanoseconds.div_euclid(1_000_000_000);
        Moment { seconds: seconds as i64, nanoseconds: nanoseconds.rem_euclid(1_000_000_000) as u32 }
    }

    pub fn plus(self, duration: stele_ground::Duration) -> Moment {
        Moment::from_nanoseconds(self.nanoseconds() + i128::from(duration.0))
    }

    pub fn nanoseconds(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

/// Refuses a name that no directory can hold.
pub fn check_name(name: &[u8]) -> crate::Result<()> {
    use crate::FileError;
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(FileError::Invalid("a name is not empty, '.' or '..', and has no '/' and no zero byte".into()));
    }
    if name.len() > NAME_MAX {
        return Err(FileError::NameTooLong);
    }
    Ok(())
}
