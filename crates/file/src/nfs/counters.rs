//! The server's counts, for metrics: calls and failures of each procedure, bytes, and connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// A program that this server speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    Nfs,
    Mount,
    Lock,
    Status,
    /// Version 4.1: its procedures are the operations of COMPOUND, by number.
    Nfs4,
}

impl Program {
    pub const ALL: [Program; 5] = [Program::Nfs, Program::Mount, Program::Lock, Program::Status, Program::Nfs4];

    /// The program's number and the version of it that is spoken here.
    pub fn number(self) -> (u32, u32) {
        match self {
            Program::Nfs => (100_003, 3),
            Program::Mount => (100_005, 3),
            Program::Lock => (100_021, 4),
            Program::Status => (100_024, 1),
            Program::Nfs4 => (100_003, 4),
        }
    }

    /// The program with this number in the wanted version, or the lowest and highest version that
    /// it has here. None: there is no such program.
    pub fn find(number: u32, version: u32) -> Option<Result<Program, (u32, u32)>> {
        let versions = || Program::ALL.into_iter().filter(|program| program.number().0 == number);
        let numbers = || versions().map(|program| program.number().1);
        let known = versions().find(|program| program.number().1 == version);
        let (lowest, highest) = (numbers().min()?, numbers().max()?);
        Some(known.ok_or((lowest, highest)))
    }

    /// The names of its procedures; an empty name is a number without a procedure here.
    pub fn procedures(self) -> &'static [&'static str] {
        match self {
            Program::Nfs => &NFS,
            Program::Mount => &["null", "mnt", "dump", "umnt", "umntall", "export"],
            Program::Lock => &LOCK,
            Program::Nfs4 => &super::v4::OPERATIONS,
            Program::Status => &["null", "stat", "mon", "unmon", "unmon_all", "simu_crash", "notify"],
        }
    }
}

const NFS: [&str; 22] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];

const LOCK: [&str; 24] = [
    "null", "test", "lock", "cancel", "unlock", "granted", "", "", "", "", "", "", "", "", "", "", "", "", "", "",
    "share", "unshare", "nm_lock", "free_all",
];

const PROCEDURES_MAX: usize = 60;

struct Tally {
    calls: [AtomicU64; PROCEDURES_MAX],
    failures: [AtomicU64; PROCEDURES_MAX],
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { calls: [const { AtomicU64::new(0) }; _], failures: [const { AtomicU64::new(0) }; _] }
    }
}

/// Counts since the server began. Each is read by itself.
#[derive(Default)]
pub struct Counters {
    programs: [Tally; Program::ALL.len()],
    /// Records that were no call, or a call that RPC refused.
    pub refused: AtomicU64,
    /// Calls that were answered from the cache of answers.
    pub repeated: AtomicU64,
    pub bytes_received: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub connections_opened: AtomicU64,
    pub connections_closed: AtomicU64,
}

impl Counters {
    pub(super) fn called(&self, program: Program, procedure: u32) {
        add(self.programs.get(program as usize).and_then(|tally| tally.calls.get(procedure as usize)));
    }

    pub(super) fn failed(&self, program: Program, procedure: u32) {
        add(self.programs.get(program as usize).and_then(|tally| tally.failures.get(procedure as usize)));
    }

    /// Program, name of the procedure, calls, and calls that failed.
    pub fn procedures(&self) -> impl Iterator<Item = (Program, &'static str, u64, u64)> {
        Program::ALL.into_iter().zip(&self.programs).flat_map(|(program, tally)| {
            let counts = tally.calls.iter().zip(&tally.failures);
            let named = program.procedures().iter().zip(counts).filter(|(name, _)| !name.is_empty());
            named.map(move |(name, (calls, failures))| {
                (program, *name, calls.load(Ordering::Relaxed), failures.load(Ordering::Relaxed))
            })
        })
    }
}

fn add(counter: Option<&AtomicU64>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
