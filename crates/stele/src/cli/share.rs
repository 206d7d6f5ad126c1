//! `stele share`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stele_codes::Code;
use stele_file::nfs::Network;
use stele_ground::Bytes;
use stele_server::config::size;

#[derive(Subcommand, Debug)]
pub enum Share {
    /// Make a share: a bucket as a tree of files, with a cache volume of its own
    Create(ShareCreate),
    /// List the shares
    #[command(after_help = "Examples:\n  stele share list\n  stele share list --json")]
    List,
    /// Show how a share is: files by state, its cache, the archive's last refusal
    #[command(after_help = "Examples:\n  stele share status\n  stele share status records --json")]
    Status {
        /// The share [default: all]
        name: Option<String>,
    },
    /// Show one share: every setting, how it is, and how clients mount it
    #[command(after_help = "Examples:\n  stele share show records\n  stele share show records --json")]
    Show {
        /// The share
        name: String,
    },
    /// Change how a share is offered; files that are stored stay as they are
    Set(ShareSet),
    /// Remove a share without files, its bucket and its cache volume
    #[command(after_help = "\
Example:
  stele share remove scratch --yes

The share must have no file. Committed files stay until their retention ends, and the share with them.")]
    Remove {
        /// The share
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// List a directory of a share, with the state of each file
    #[command(after_help = "Examples:\n  stele share ls records\n  stele share ls records/2026/march --json")]
    Ls {
        /// NAME or NAME/PATH
        path: String,
    },
    /// Mount a share at a directory of the server's machine, through FUSE
    #[command(after_help = "\
Examples:
  stele share mount records /mnt/records
  stele share mount records /mnt/records --read-only

The server must run as root. The mount ends with `stele share unmount` or when the server stops; it does not come back
with the next start.")]
    Mount {
        /// The share
        name: String,
        /// An empty directory
        directory: PathBuf,
        /// Refuse every change
        #[arg(long)]
        read_only: bool,
    },
    /// Unmount a share that no process uses
    #[command(after_help = "Example:\n  stele share unmount /mnt/records")]
    Unmount {
        /// The directory at which it is mounted
        directory: PathBuf,
    },
    /// Archive a file now, without waiting until it is idle
    #[command(after_help = "Example:\n  stele share archive records/2026/ledger.pdf")]
    Archive {
        /// NAME/PATH
        path: String,
    },
    /// Keep a file's content in the cache, and fetch what is not there
    #[command(after_help = "\
Examples:
  stele share pin records/catalogue.db
  stele share pin records/catalogue.db --off

Pinned files take at most half of the cache. Reads of a pinned file do not wait for the archive.")]
    Pin {
        /// NAME/PATH
        path: String,
        /// Let the content go again when the cache needs room
        #[arg(long)]
        off: bool,
    },
    /// Say why a file cannot be removed, and when it could
    #[command(after_help = "Example:\n  stele share why records/2026/ledger.pdf")]
    Why {
        /// NAME/PATH
        path: String,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele share create home --cache 10GiB
  stele share create records --lock --retention compliance:7y --allow 10.1.0.0/16
  stele share create scans --cache 4GiB --caching off
  mount -t nfs -o vers=3,nolock,proto=tcp,port=2049,mountport=2049 HOST:/records /mnt

A bucket of this name is made, or an empty one is taken. It stays a share for good: clients of files and S3
clients reach its files by their paths. With --lock, removing every write permission of a file commits it: nobody
changes or removes the file before its retention ends. The access time names that end; without one in the future,
--retention counts.")]
pub struct ShareCreate {
    /// The share, and its bucket
    pub name: String,
    /// Size of the cache volume, which holds content until it is archived
    #[arg(long, value_parser = size, default_value = "1GiB")]
    pub cache: Bytes,
    /// Code of the cache volume: mirror-2 to mirror-5, or k+m
    #[arg(long, value_name = "CODE", default_value = "mirror-2")]
    pub cache_code: Code,
    /// Enable Object Lock in the new bucket: files can be committed
    #[arg(long)]
    pub lock: bool,
    /// Retention of committed files whose access time names no date, as MODE:PERIOD; enables --lock
    #[arg(long, value_name = "MODE:PERIOD")]
    pub retention: Option<String>,
    #[command(flatten)]
    pub offer: OfferArgs,
    /// Refuse every change over NFS and SMB
    #[arg(long)]
    pub read_only: bool,
    /// Owner of the root directory
    #[arg(long, value_name = "UID:GID", default_value = "0:0", value_parser = owner)]
    pub owner: (u32, u32),
    /// Mode of the root directory, in octal digits. By default everyone may add files and no one
    /// may remove those of others
    #[arg(long, default_value = "1777", value_parser = mode)]
    pub mode: u32,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("setting").required(true).multiple(true).args([
    "archive_after", "commit_after", "retention_min", "retention_max", "allow", "squash", "removed_versions", "caching",
    "read_only", "read_write",
]))]
#[command(after_help = "\
Examples:
  stele share set records --archive-after 60
  stele share set records --allow 10.1.0.0/16 --allow 10.2.0.0/16 --read-only
  stele share set records --removed-versions delete --yes
  stele share set scans --caching off")]
pub struct ShareSet {
    /// The share
    pub name: String,
    #[command(flatten)]
    pub offer: OfferArgs,
    /// Refuse every change over NFS and SMB
    #[arg(long, conflicts_with = "read_write")]
    pub read_only: bool,
    /// Take changes over NFS and SMB again
    #[arg(long)]
    pub read_write: bool,
    /// Do not ask before versions of removed files are deleted
    #[arg(long)]
    pub yes: bool,
}

/// What `create` and `set` share.
#[derive(Args, Debug)]
pub struct OfferArgs {
    /// Seconds that a file is left alone before it is archived [default of a new share: 10]
    #[arg(long, value_name = "SECONDS")]
    pub archive_after: Option<u32>,
    /// Commit files that were not changed for so many seconds; 0: never. The share needs --lock. A
    /// commit cannot be undone
    #[arg(long, value_name = "SECONDS")]
    pub commit_after: Option<u32>,
    /// The shortest retention of a commit, in days; an earlier date is moved up to it. At most
    /// 36,500; 0: none. The share needs --lock
    #[arg(long, value_name = "DAYS")]
    pub retention_min: Option<u64>,
    /// The longest retention of a commit, in days; a later date is moved down to it. At most
    /// 36,500; 0: none. The share needs --lock
    #[arg(long, value_name = "DAYS")]
    pub retention_max: Option<u64>,
    /// Network of NFS and SMB clients that may use it; repeat for more
    /// [default of a new share: this machine]
    #[arg(long, value_name = "NETWORK")]
    pub allow: Vec<Network>,
    /// Users that count as the anonymous user, 65534 [default of a new share: root]
    #[arg(long)]
    pub squash: Option<Squash>,
    /// Versions of removed files, where the bucket keeps versions. `delete` takes also those that
    /// were kept before, and leaves what retention or a hold keeps
    /// [default of a new share with Object Lock: delete; else keep]
    #[arg(long)]
    pub removed_versions: Option<RemovedVersions>,
    /// Whether the cache volume keeps archived content, for reads [default of a new share: on]
    #[arg(long)]
    pub caching: Option<Caching>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Caching {
    /// It does, while there is room
    On,
    /// It holds only what is not archived yet: writes are durable when they are answered, files are
    /// archived after a second
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum RemovedVersions {
    /// They stay behind a delete marker
    Keep,
    /// They are deleted once nothing keeps them
    Delete,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Squash {
    /// The user and the group root
    Root,
    /// Everyone
    All,
    /// No one: root of a client is root here
    None,
}

fn owner(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("'{text}' is not UID:GID, two numbers as in 1000:1000");
    let (uid, gid) = text.split_once(':').ok_or_else(wrong)?;
    // The last number is none: `chown` takes it for "as before".
    let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX).ok_or_else(wrong);
    Ok((number(uid)?, number(gid)?))
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("'{text}' is not a mode, such as 0755")),
    }
}
