//! `stele backup`.

mod key;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
pub use key::BackupKey;
use values::{at_once, date, days, from_zero, keep_until, lock_until, period, sessions, word};

#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  export STELE_BACKUP_REPOSITORY=/mnt/backup STELE_BACKUP_PASSWORD_FILE=/root/backup-password
  stele backup init
  stele backup run /home /etc
  stele backup snapshots
  stele backup restore latest:/home/anna --to /tmp/restored

A repository is a directory, or a bucket of any S3 server, whose keys come from AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY or ~/.aws/credentials. Its content and its names are encrypted: without a password or a copy
of the key nothing can be restored. Exit codes beside those of every command: 3 some files could not be saved or restored, or the
store refused (`stele backup run` ends with 1 then); 5 damage was found; 10 no repository; 11 another process prunes;
12 wrong password; 130 interrupted.")]
pub enum Backup {
    /// Make a repository
    #[command(after_help = "\
Examples:
  stele backup init --repository /mnt/backup --password-file /root/backup-password
  stele backup init --repository /mnt/backup --password-command 'pass show backup' --label laptop

Keep the password, and a copy of the key (`stele backup key export --to FILE`), where the data cannot be lost
with them.")]
    Init {
        #[command(flatten)]
        place: RepositoryArgs,
        /// A word about this password, stored in plain text
        #[arg(long, default_value = "")]
        label: String,
        /// Lock every snapshot for this period, set for good, unless a backup names one: 30d, 7y
        #[arg(long, value_name = "PERIOD", value_parser = period)]
        keep_for: Option<u64>,
    },
    /// Save files, a volume, or standard input, as a new snapshot
    Run(Box<BackupRun>),
    /// List the snapshots, oldest first
    #[command(after_help = "\
Examples:
  stele backup snapshots
  stele backup snapshots --host web1 --json")]
    Snapshots {
        #[command(flatten)]
        place: RepositoryArgs,
        /// Only those of this host
        #[arg(long, value_name = "HOST", value_parser = word)]
        host: Option<String>,
    },
    /// List the files of a snapshot
    #[command(after_help = "\
Examples:
  stele backup ls latest
  stele backup ls 3f09c2e4:/home/anna --json
  stele backup ls latest:/etc --host web1 --at 2026-11-20")]
    Ls {
        #[command(flatten)]
        place: RepositoryArgs,
        /// SNAPSHOT or SNAPSHOT:PATH; a snapshot is `latest` or the first digits of its id
        snapshot: OsString,
        #[command(flatten)]
        latest: LatestArgs,
    },
    /// Find files by a pattern in all snapshots, or in one
    #[command(after_help = "\
Examples:
  stele backup find '*.pdf'
  stele backup find ledger.xlsx --snapshot latest
  stele backup find ledger.xlsx --host web1

Without --snapshot, --host and --at leave only the snapshots of that host, and those stored by that date.")]
    Find {
        #[command(flatten)]
        place: RepositoryArgs,
        /// Pattern as for --exclude
        pattern: OsString,
        /// Only in this snapshot
        #[arg(long)]
        snapshot: Option<String>,
        #[command(flatten)]
        latest: LatestArgs,
    },
    /// Show the differences of two snapshots
    #[command(after_help = "\
Examples:
  stele backup diff 3f09c2e4 latest
  stele backup diff 3f09c2e4 latest --path /etc --json

+ added, - removed, M another content, U other metadata with the same content.")]
    Diff {
        #[command(flatten)]
        place: RepositoryArgs,
        /// The earlier snapshot: `latest` or the first digits of its id
        first: String,
        /// The later one
        second: String,
        /// Only this directory or file
        #[arg(long)]
        path: Option<PathBuf>,
        #[command(flatten)]
        latest: LatestArgs,
    },
    /// Restore a snapshot, or a part of it, into a directory; or a volume into a volume
    Restore(Box<Restore>),
    /// Write a file of a snapshot to standard output
    #[command(after_help = "\
Examples:
  stele backup dump latest:/app.sql | psql app
  stele backup dump 3f09c2e4:/etc/fstab | diff - /etc/fstab

Each part is verified before it is written. If one is lost (exit code 5), the output ends before it, and the program
behind the pipe has what came until then: `set -o pipefail` tells a script. Holes are written as zeros.")]
    Dump {
        #[command(flatten)]
        place: RepositoryArgs,
        /// SNAPSHOT:PATH; a snapshot is `latest` or the first digits of its id
        file: OsString,
        #[command(flatten)]
        latest: LatestArgs,
    },
    /// Mount the snapshots as a read-only file system, until Ctrl-C
    #[command(after_help = "\
Examples:
  stele backup mount /mnt/snapshots
  ls /mnt/snapshots/latest/home/anna
  cp -a /mnt/snapshots/dates/2026-11-22T03:00:07Z/etc/fstab /tmp

ids/ has a directory for each snapshot, dates/ links to them by the store's clock, and latest is a link to the latest one
of this machine, or of --host. Where that could be one of several hosts, there is no such link.
It shows the snapshots that exist now, and reads only what is opened. Only the user who mounts may look. Needs root.")]
    Mount {
        #[command(flatten)]
        place: RepositoryArgs,
        /// An empty directory
        directory: PathBuf,
        #[command(flatten)]
        latest: LatestArgs,
    },
    /// Check that every snapshot can be restored
    #[command(after_help = "\
Examples:
  stele backup verify
  stele backup verify --data
  stele backup verify --without-password      # compares segments and snapshots with their names; for the holder of the store

Without --data it reads all trees and looks up every chunk. With --data it reads and decrypts all content, and marks
damaged chunks: the next backup that has their content stores them again. Exit code 5: damage was found. Exit code 3: a
later version of Stele wrote a part of the repository, which is no damage and was not checked.")]
    Verify {
        #[command(flatten)]
        place: RepositoryArgs,
        /// Read all content
        #[arg(long)]
        data: bool,
        /// Compare segments and snapshots with their names only, without the key
        #[arg(long, conflicts_with = "data")]
        without_password: bool,
        #[command(flatten)]
        telling: Telling,
    },
    /// Lock a stored snapshot, or prolong its lock
    #[command(after_help = "\
Examples:
  stele backup lock 3f09c2e4 --until 2027-01-31
  stele backup lock latest --host web1 --until 90d
  stele backup snapshots

It locks the snapshot and all that it needs in a bucket with Object Lock, as `stele backup run --keep-until` does for a
new one. It takes a key that may set retention. A longer lock stays, and nothing shortens a lock. Until the command has
ended well, the snapshot is not locked. Content is not read: `stele backup verify --data` does that.")]
    Lock {
        #[command(flatten)]
        place: RepositoryArgs,
        /// `latest` or the first digits of an id
        snapshot: String,
        #[command(flatten)]
        latest: LatestArgs,
        /// Until a date (2027-01-31), or for a period by the server's clock (30d, 12w, 7y)
        #[arg(long, value_name = "DATE|PERIOD", value_parser = lock_until)]
        until: KeepUntil,
    },
    /// Remove snapshots, by rules or by name; their content goes with `stele backup prune`
    Forget(Box<BackupForget>),
    /// Remove the content that no snapshot needs, beside running backups
    #[command(after_help = "\
Examples:
  stele backup prune
  stele backup prune --dry-run

It needs no password. Content goes with the third run after its last snapshot was removed, and never while a backup
runs that began earlier.")]
    Prune {
        #[command(flatten)]
        place: RepositoryArgs,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        telling: Telling,
    },
    /// Show the classes of a policy, or the classes of paths
    #[command(after_help = "\
Examples:
  stele backup policy /etc/stele/policy.toml
  stele backup policy /etc/stele/policy.toml /srv/records/2026.ods /tmp/x
  stele backup forget --policy /etc/stele/policy.toml --dry-run

A file of two classes:
  least_days = 30
  [[class]]
  name = \"records\"
  include = [\"/srv/records\"]
  versions = 10
  deleted_days = 3650
  [[class]]
  name = \"all\"
  versions = 5
  days = 90
  deleted_versions = 2
  deleted_days = 90

The first class with a matching pattern counts; one without patterns is for everything. A limit that is missing is none.
The file belongs to the job that may delete, not to the machines that are saved.")]
    Policy {
        /// The file with the classes
        file: PathBuf,
        /// Absolute paths
        paths: Vec<OsString>,
    },
    /// Run the schedules of this machine
    Schedule(Schedule),
    /// Show which schedules were missed, late, failed or incomplete
    Report(Report),
    /// Passwords of a repository, and the export of its key
    #[command(subcommand)]
    Key(BackupKey),
}

/// Whether the progress is told without a terminal too.
#[derive(Args, Clone, Copy, Debug)]
pub struct Telling {
    /// Progress on standard error every second, also without a terminal; --json: an object a line
    #[arg(long)]
    pub progress: bool,
}

/// Which snapshot `latest` is.
#[derive(Args, Clone, PartialEq, Eq, Default, Debug)]
pub struct LatestArgs {
    /// The latest of this host [default: this machine, or the only host there is]
    #[arg(long, value_name = "HOST", value_parser = word)]
    pub host: Option<String>,
    /// The latest stored by this date, by the store's clock: 2027-01-31 or 2027-01-31T08:00:00Z
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub at: Option<u64>,
}

/// The repository, and the way to its password.
#[derive(Args, Debug)]
pub struct RepositoryArgs {
    /// The repository: a directory, or s3://HOST[:PORT]/BUCKET[/PREFIX]; s3+http:// is without TLS
    #[arg(long, env = "STELE_BACKUP_REPOSITORY", value_name = "PLACE")]
    pub repository: PathBuf,
    /// File with the password on its first line [env: STELE_BACKUP_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Command that prints the password [env: STELE_BACKUP_PASSWORD_COMMAND]
    #[arg(long, value_name = "COMMAND", conflicts_with = "password_file")]
    pub password_command: Option<String>,
}

/// Until when a snapshot is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeepUntil {
    Never,
    /// Seconds since 1970.
    Date(u64),
    /// Seconds from the beginning of the backup on.
    Period(u64),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele backup run /home /etc --exclude '*.tmp' --exclude-caches
  stele backup run / --one-file-system --exclude-file /etc/stele/excludes --tag nightly
  pg_dump app | stele backup run --stdin-name app.sql
  stele backup run /srv --before 'systemctl stop app' --after 'systemctl start app'
  stele backup run /srv --keep-until 90d
  stele backup run --volume vm1
  stele backup run /srv --progress --json 2>progress.log

Patterns are those of restic: `*.o`, `/home/*/tmp`, `a/**/b`, and `!keep` takes back. Neither `~` nor a variable such as
`$HOME` is expanded in them. A file whose size, times and inode are those of the previous snapshot of the same paths is
not read. Exit code 3: the snapshot was made, but files changed, vanished or could not be read; they are listed. With
every other code but 0 there may be no snapshot. An interrupted backup is repeated, and stores nothing twice.

--keep-until locks the snapshot and all that it needs in a bucket with Object Lock, by retention in COMPLIANCE mode: no
right removes it before. A period counts from the beginning of the backup by the server's clock. It takes a key that may
set retention, and nothing shortens the lock afterwards. `stele backup lock` prolongs it.")]
pub struct BackupRun {
    #[command(flatten)]
    pub place: RepositoryArgs,
    /// Files and directories
    #[arg(required_unless_present_any = ["stdin_name", "volume"])]
    pub paths: Vec<PathBuf>,
    /// Save a volume of this machine's array: a snapshot, of which only what changed is read
    #[arg(long, value_name = "NAME", conflicts_with_all = [
        "paths", "stdin_name", "exclude", "iexclude", "exclude_file", "exclude_caches", "exclude_if_present",
        "one_file_system",
    ])]
    pub volume: Option<String>,
    /// Save standard input as a file of this name
    #[arg(long, value_name = "NAME", conflicts_with = "paths")]
    pub stdin_name: Option<OsString>,
    /// Leave out what matches
    #[arg(long, short = 'e', value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// Leave out what matches, whatever its case
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<OsString>,
    /// File with patterns, one on each line
    #[arg(long, value_name = "FILE")]
    pub exclude_file: Vec<PathBuf>,
    /// Leave out the content of directories with a CACHEDIR.TAG
    #[arg(long)]
    pub exclude_caches: bool,
    /// Leave out the content of directories with a file of this name
    #[arg(long, value_name = "NAME")]
    pub exclude_if_present: Vec<OsString>,
    /// Stay on the file system of each path
    #[arg(long, short = 'x')]
    pub one_file_system: bool,
    /// Read every file, also those that look unchanged
    #[arg(long)]
    pub read_all: bool,
    /// A word by which rules and people find the snapshot
    #[arg(long, value_parser = word)]
    pub tag: Vec<String>,
    /// Lock the snapshot: until a date (2027-01-31), for a period (30d, 12w, 7y), or `none`
    #[arg(long, env = "STELE_BACKUP_KEEP_UNTIL", value_name = "DATE|PERIOD", value_parser = keep_until)]
    pub keep_until: Option<KeepUntil>,
    /// Name of the host [default: that of this machine]
    #[arg(long, value_parser = word)]
    pub host: Option<String>,
    /// Segments that are stored at the same time, from 1 to 16; each takes 64 MiB
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = sessions, allow_negative_numbers = true)]
    pub sessions: usize,
    /// Level of zstd, from 1 to 19
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression: i32,
    /// Command to run before; if it fails, nothing is saved
    #[arg(long, value_name = "COMMAND")]
    pub before: Option<String>,
    /// Command to run afterwards, in any case; STELE_BACKUP_EXIT has the exit code. With --volume
    /// it runs as soon as the array has its snapshot
    #[arg(long, value_name = "COMMAND")]
    pub after: Option<String>,
    #[command(flatten)]
    pub telling: Telling,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele backup restore latest --to /tmp/restored
  stele backup restore 3f09c2e4:/home/anna --to /home/anna
  stele backup restore latest --to / --include '*.conf' --verify
  stele backup restore latest:/etc --host web1 --at 2026-11-20 --to /tmp/etc
  stele backup restore latest --to-volume vm1-restored
  stele backup restore 3f09c2e4:/stele-volumes/vm1 --to-volume vm1 --overwrite --verify

A file that has its size and its modification time is taken as restored, so an interrupted restore goes on. With
--verify the content of such files is compared too, and all files are read again at the end. Nothing that the snapshot
lacks is removed. Owners need root. Exit code 3: some files could not be restored, and are listed, or the store refused.
Exit code 4: the snapshot has nothing of that path, or nothing that --include selects.

`latest` is the latest snapshot of this machine. If there is none, it is that of the only host in the repository; with
several hosts the command refuses with exit code 2 until --host names one. A day of --at is its last second, in UTC.

--to-volume makes a new volume of the size and the code of the saved one, through the server of this machine. With
--overwrite it may exist, if its size is the same and no export has it. Its content is kept as the snapshot
NAME-before-restore-SECONDS first, so `stele volume rollback` brings it back. With --to a volume becomes a file.")]
pub struct Restore {
    #[command(flatten)]
    pub place: RepositoryArgs,
    /// SNAPSHOT or SNAPSHOT:PATH
    pub snapshot: OsString,
    #[command(flatten)]
    pub latest: LatestArgs,
    /// The directory to restore into
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "to_volume")]
    pub to: Option<PathBuf>,
    /// The volume to restore the snapshot's volume into
    #[arg(long, value_name = "VOLUME", conflicts_with_all = ["to", "include", "exclude"])]
    pub to_volume: Option<String>,
    /// Code of the new volume [default: that of the saved one]
    #[arg(long, value_name = "CODE", requires = "to_volume", conflicts_with = "to")]
    pub code: Option<stele_codes::Code>,
    /// Write over a volume that exists; its content is kept as a snapshot
    #[arg(long, requires = "to_volume", conflicts_with = "to")]
    pub overwrite: bool,
    /// Restore only what matches
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<OsString>,
    /// Leave out what matches
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// Compare the content with the snapshot
    #[arg(long)]
    pub verify: bool,
    /// Segments that are read at the same time, from 1 to 16
    /// [default: one for each processor, at most 8]
    #[arg(long, value_name = "NUMBER", value_parser = sessions, allow_negative_numbers = true)]
    pub sessions: Option<usize>,
    #[command(flatten)]
    pub telling: Telling,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele backup forget --keep-daily 14 --keep-weekly 8 --keep-monthly 24 --dry-run
  stele backup forget --keep-within-days 30 --keep-tag yearly
  stele backup forget --policy /etc/stele/policy.toml
  stele backup forget 3f09c2e4

Snapshots of the same host and paths are one series, and the rules count in each: by the store's clock, and by the ends
of the backups. Hours, days, weeks, months and years are those of UTC. A snapshot stays if any rule keeps it by either
date, or if both lie more than two days apart. For ages in days, a time without snapshots counts as 7 days at most: a
clock that jumps ahead makes nothing old.")]
pub struct BackupForget {
    #[command(flatten)]
    pub place: RepositoryArgs,
    /// Snapshots to remove, whatever the rules; `latest` only where all are of one host
    pub snapshots: Vec<String>,
    /// Keep what versions of files need by this file's classes, beside what other rules keep
    #[arg(long, value_name = "FILE", conflicts_with = "snapshots")]
    pub policy: Option<PathBuf>,
    /// Keep so many of the latest snapshots of each series
    #[arg(long, default_value_t = 0, value_name = "NUMBER", conflicts_with = "snapshots", allow_negative_numbers = true, value_parser = from_zero)]
    pub keep_last: usize,
    /// Keep the latest of each hour, for so many hours
    #[arg(long, default_value_t = 0, value_name = "NUMBER", conflicts_with = "snapshots", allow_negative_numbers = true, value_parser = from_zero)]
    pub keep_hourly: usize,
    /// Keep the latest of each day, for so many days
    #[arg(long, default_value_t = 0, value_name = "NUMBER", conflicts_with = "snapshots", allow_negative_numbers = true, value_parser = from_zero)]
    pub keep_daily: usize,
    /// Keep the latest of each week, for so many weeks
    #[arg(long, default_value_t = 0, value_name = "NUMBER", conflicts_with = "snapshots", allow_negative_numbers = true, value_parser = from_zero)]
    pub keep_weekly: usize,
    /// Keep the latest of each month, for so many months
    #[arg(long, default_value_t = 0, value_name = "NUMBER", conflicts_with = "snapshots", allow_negative_numbers = true, value_parser = from_zero)]
    pub keep_monthly: usize,
    /// Keep the latest of each year, for so many years
    #[arg(long, default_value_t = 0, value_name = "NUMBER", conflicts_with = "snapshots", allow_negative_numbers = true, value_parser = from_zero)]
    pub keep_yearly: usize,
    /// Keep all that are not older than so many days before the latest of their series
    #[arg(long, default_value_t = 0, value_name = "DAYS", conflicts_with = "snapshots", allow_negative_numbers = true, value_parser = days)]
    pub keep_within_days: u64,
    /// Keep all with this tag
    #[arg(long, value_name = "TAG", conflicts_with = "snapshots", value_parser = word)]
    pub keep_tag: Vec<String>,
    /// Also where the rules keep no snapshot of a series (a host's paths); it is refused otherwise,
    /// since a mistyped tag keeps nothing
    #[arg(long, conflicts_with = "snapshots")]
    pub remove_series: bool,
    /// Count gaps between snapshots in full for --keep-within-days and --policy, not 7 days at most
    #[arg(long, conflicts_with = "snapshots")]
    pub accept_gaps: bool,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele backup schedule /etc/stele/schedules.toml
  stele backup schedule /etc/stele/schedules.toml --once

A file of one schedule:
  [[schedule]]
  name = \"home\"
  every = \"1d\"
  at = \"03:00\"
  late_after = \"2h\"
  longest = \"12h\"
  silent_days = 3
  paths = [\"/home\", \"/etc\"]
  options = [\"--exclude-caches\"]

A schedule divides time into slots by the store's clock, in UTC, and runs `stele backup run` in each until there is a
snapshot, at most three times, an eighth of the slot apart. A backup that takes longer than `longest` is ended; if that is
missing, one that takes longer than a slot and two days. With --once it looks once and ends, for a timer of the system.
Ctrl-C, SIGTERM and SIGHUP end the backups that run, and then the command.
`volume` takes the place of `paths`, and schedules with the `host` of another machine are only reported.")]
pub struct Schedule {
    #[command(flatten)]
    pub place: RepositoryArgs,
    /// The file with the schedules
    pub file: PathBuf,
    /// Run what is due, and end
    #[arg(long)]
    pub once: bool,
    /// Backups that run at the same time, from 1 to 64; the others wait
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = at_once, allow_negative_numbers = true)]
    pub at_once: usize,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele backup report /etc/stele/schedules.toml
  stele backup report /etc/stele/schedules.toml --json

It goes by the snapshots in the repository, so it finds out an agent that does not run at all. Exit code 3: a schedule is
late, missed, failed, incomplete or silent, or has no snapshot.")]
pub struct Report {
    #[command(flatten)]
    pub place: RepositoryArgs,
    /// The file with the schedules
    pub file: PathBuf,
}
