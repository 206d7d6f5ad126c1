//! FFSB's profiles: a job for each group of threads.
//!
//! FFSB weighs whole operations. Each draws a file, and reads or writes a number of bytes of it in
//! blocks, sequentially from a random place on, or each at a random place. The job does the same,
//! on files of a directory; a thread has one access outstanding. There are three differences.
//! Random places are multiples of the block here, and of 4096 or of 1 in FFSB. Files stay open
//! here, while FFSB opens one for each operation. FFSB counts a whole file for each write
//! operation, however little it wrote. The laboratory counts bytes when they are answered, read and
//! written apart.

use super::{Complaints, Imported, size, whole};
use stele_lab::error::LabError;
use stele_lab::job::{Given, Job};
use stele_lab::live::directory::FILES_MAX;

/// Keys for FFSB's reports, and for work that is not measured.
const WITHOUT_EFFECT: &[&str] = &[
    "verbose",
    "reuse",
    "callout",
    "init_util",
    "init_size",
    "bufferedio",
    "num_dirs",
    "age_fs",
    "enable_stats",
    "clone",
];

/// Operations on names, or on whole files in ways without a counterpart.
const OTHERS: &[&str] = &[
    "append_weight",
    "append_fsync_weight",
    "create_weight",
    "create_fsync_weight",
    "delete_weight",
    "metaop_weight",
    "createdir_weight",
    "stat_weight",
    "open_close_weight",
    "writeall_fsync_weight",
    "write_fsync_weight",
];

#[derive(Default)]
struct Files {
    place: Option<String>,
    count: u64,
    bytes: u64,
}

#[derive(Default)]
struct Group {
    line: usize,
    name: String,
    threads: u32,
    read: Kind,
    write: Kind,
}

/// One kind of operations.
#[derive(Default)]
struct Kind {
    weight: u64,
    bytes: u64,
    block: u64,
    random: bool,
    /// Whether each covers a file from its beginning to its end, whatever `bytes` and `random` say.
    whole: bool,
}

impl Kind {
    fn weigh(&mut self, weight: u64, whole: bool) {
        self.weight = self.weight.max(weight);
        self.whole |= whole && weight > 0;
    }
}

pub fn ffsb(text: &str, lenient: bool) -> Result<Vec<Imported>, LabError> {
    let mut complaints = Complaints::new(lenient);
    let (mut direct, mut seconds) = (false, 0);
    let (mut files, mut groups) = (Files::default(), Vec::<Group>::new());
    let mut filesystems = 0;
    let mut section = String::new();
    for (at, raw) in text.lines().enumerate() {
        let number = at + 1;
        let line = raw.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let name = name.trim().to_ascii_lowercase();
            if name.starts_with("end") {
                section.clear();
            } else if name.starts_with("filesystem") {
                filesystems += 1;
                section = "filesystem".into();
                if filesystems > 1 {
                    complaints.lost(number, "one file system is known here, and the first one counts")?;
                    section = "left out".into();
                }
            } else if name.starts_with("threadgroup") {
                section = "threadgroup".into();
                groups.push(Group { line: number, name, threads: 1, ..Group::default() });
            } else {
                complaints.lost(number, &format!("the section [{name}] is not known here"))?;
                section = "left out".into();
            }
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        let key = key.to_ascii_lowercase();
        let bad = |why: &str| LabError::Usage(format!("line {number}: {key}={value}: {why}"));
        let bytes = || size(value).map(|bytes| bytes.0).ok_or_else(|| bad("say it in bytes, like 4k"));
        let count = || value.parse::<u64>().map_err(|_| bad("a whole number is needed"));
        match (section.as_str(), key.as_str()) {
            ("left out", _) => {}
            ("", "directio") => direct = value == "1",
            ("", "time") => seconds = count()?,
            ("", "alignio") => {}
            ("filesystem", "location") => files.place = Some(value.to_owned()),
            ("filesystem", "num_files") => files.count = count()?,
            ("filesystem", "min_filesize" | "max_filesize") => {
                let bytes = bytes()?;
                if files.bytes > 0 && files.bytes != bytes {
                    complaints.lost(number, "files of one length are known here, and the first one counts")?;
                } else {
                    files.bytes = bytes;
                }
            }
            ("threadgroup", key) => {
                let Some(group) = groups.last_mut() else { continue };
                match key {
                    "num_threads" => group.threads = whole(value).map_err(|why| bad(&why))?,
                    "read_weight" | "readall_weight" => {
                        let weight = count()?;
                        if weight > 0 && group.read.weight > 0 {
                            complaints.lost(number, "read and readall together are not known here")?;
                        }
                        group.read.weigh(weight, key == "readall_weight");
                    }
                    "write_weight" | "writeall_weight" => {
                        let weight = count()?;
                        if weight > 0 && group.write.weight > 0 {
                            complaints.lost(number, "write and writeall together are not known here")?;
                        }
                        group.write.weigh(weight, key == "writeall_weight");
                    }
                    "read_size" => group.read.bytes = bytes()?,
                    "write_size" => group.write.bytes = bytes()?,
                    "read_blocksize" => group.read.block = bytes()?,
                    "write_blocksize" => group.write.block = bytes()?,
                    "read_random" => group.read.random = value == "1",
                    "write_random" => group.write.random = value == "1",
                    key if OTHERS.contains(&key) && value == "0" => {}
                    key if WITHOUT_EFFECT.contains(&key) => {}
                    key if OTHERS.contains(&key) => {
                        let what = format!(
                            "{key}={value}: no job has this operation; `stele lab ffsb` runs the profile as it is"
                        );
                        complaints.lost(number, &what)?;
                    }
                    _ => complaints.lost(number, &format!("{key}={value}: this key is not known here"))?,
                }
            }
            (_, key) if WITHOUT_EFFECT.contains(&key) => {}
            (_, key) => complaints.lost(number, &format!("{key}={value}: this key is not known here"))?,
        }
    }
    if groups.is_empty() {
        return Err(LabError::Usage("the profile has no [threadgroup]".into()));
    }
    groups.iter().map(|group| job_of(group, &files, direct, seconds, &mut complaints)).collect()
}

fn job_of(
    group: &Group,
    files: &Files,
    direct: bool,
    seconds: u64,
    complaints: &mut Complaints,
) -> Result<Imported, LabError> {
    let bad = |why: &str| LabError::Usage(format!("line {}: [{}]: {why}", group.line, group.name));
    let kind = |kind: &Kind| {
        let bytes = if kind.whole { files.bytes } else { kind.bytes };
        Kind { bytes, random: kind.random && !kind.whole, ..*kind }
    };
    let (read, write) = (kind(&group.read), kind(&group.write));
    let used: Vec<&Kind> = [&read, &write].into_iter().filter(|kind| kind.weight > 0).collect();
    let Some(first) = used.first() else { return Err(bad("it neither reads nor writes")) };
    if used.iter().any(|kind| kind.block == 0 || kind.bytes == 0) {
        return Err(bad("the sizes of its operations and of their blocks are needed"));
    }
    if used.iter().any(|kind| kind.block != first.block) {
        return Err(bad("reads and writes in blocks of different sizes are not known here; make two profiles of it"));
    }
    if used.iter().any(|kind| kind.random != first.random) {
        complaints
            .lost(group.line, "reads and writes of which one is random are not known here, and the reads count")?;
    }
    let count = match u32::try_from(files.count.max(1)) {
        Ok(count) if count <= FILES_MAX => count,
        _ => {
            let why =
                format!("{} files are more than the {FILES_MAX} that stay open here, and so many count", files.count);
            complaints.lost(group.line, &why)?;
            FILES_MAX
        }
    };
    let share = 100.0 * read.weight as f64 / (read.weight as f64 + write.weight as f64);
    let mut job = Job { buffered: Given::One(!direct), files: Some(count), ..Job::default() };
    job.on = files.place.as_ref().map(|place| format!("dir:{place}"));
    let bytes = u64::from(count).checked_mul(files.bytes).filter(|bytes| *bytes > 0);
    job.size = bytes.map(|bytes| bytes.to_string());
    job.workload.read = Some(Given::One(share.round() as u8));
    job.workload.random = Some(Given::One(if first.random { 100 } else { 0 }));
    job.workload.access = Some(Given::One(first.block.to_string()));
    job.workload.operation = Some(match used.as_slice() {
        [read, write] => format!("{}/{}", read.bytes, write.bytes),
        _ => first.bytes.to_string(),
    });
    (job.load.outstanding, job.load.workers) = (Some(Given::One(group.threads)), Some(Given::One(group.threads)));
    if seconds > 0 {
        (job.time.least, job.time.most) = (Some(format!("{seconds}s")), Some(format!("{seconds}s")));
    }
    Ok(Imported { name: group.name.clone(), job, warnings: complaints.warnings.clone() })
}

#[cfg(test)]
mod tests;
