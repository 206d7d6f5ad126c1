//! What one job of a file asks for: every key with fio's meaning, or an error that names its line.

use super::blocks::BlockSizes;
use super::file::{OptionLine, Section};
use super::spread::Distribution;
use super::units::{Amount, amount, both, bytes, count, percent, time, truth, whole};
use crate::error::LabError;

/// Keys that change nothing here: what fio reports, how it starts its processes, and how it draws.
const WITHOUT_EFFECT: &[&str] = &[
    "description",
    "thread",
    "randrepeat",
    "allrandrepeat",
    "random_generator",
    "gtod_reduce",
    "clocksource",
    "fixedbufs",
    "registerfiles",
    "hipri",
    "sqthread_poll",
    "nonvectored",
    "disable_lat",
    "disable_clat",
    "disable_slat",
    "disable_bw_measurement",
    "lat_percentiles",
    "clat_percentiles",
    "slat_percentiles",
    "percentile_list",
    "bwavgtime",
    "iopsavgtime",
    "create_serialize",
    "create_fsync",
    "gtod_cpu",
    "norandommap_soft",
    "softrandommap",
    "disk_util",
    "log_avg_msec",
    "rate_ignore_thinktime",
    "eta",
    "allow_mounted_write",
    "exit_what",
    "continue_on_error",
    "scramble_buffers",
    "stats",
    "unified_rw_reporting",
    "nice",
    "experimental_verify",
    "openfiles",
];

/// Engines with one access under way for each job: they ignore `iodepth`.
const SYNCHRONOUS: &[&str] = &["psync", "pvsync", "pvsync2", "sync", "vsync"];
const SEVERAL: &[&str] = &["io_uring", "libaio", "posixaio"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoEngine {
    Synchronous,
    Ring,
    Null,
}

/// Which file the next access goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    RoundRobin,
    Random,
    Sequential,
}

/// What writes hold.
#[derive(Clone, PartialEq, Debug)]
pub enum Fill {
    /// Random once, and changed in every sector by each write.
    Scrambled,
    /// Made anew for each write; size over compressed size and blocks over distinct ones, in
    /// hundredths.
    Fresh {
        compress: u32,
        dedupe: u32,
    },
    Zeros,
    Pattern(Vec<u8>),
}

impl Fill {
    /// Made anew, with nothing to gain by compression or deduplication.
    const PLAIN: Fill = Fill::Fresh { compress: 100, dedupe: 100 };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preallocation {
    /// As the file system does it, or not at all.
    Blocks,
    Length,
    None,
}

/// What the kernel is told of the accesses to come; it reads ahead by that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    None,
    /// What the job does.
    Pattern,
    Sequential,
    Random,
    /// Each place once.
    Once,
}

/// A pause of each copy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Think {
    pub nanoseconds: u64,
    pub spin: u64,
    pub blocks: u64,
    /// Counted when they are issued, not when they are answered.
    pub when_issued: bool,
}

/// Limits of the rate, of reads and of writes. 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rate {
    pub bytes: [u64; 2],
    pub accesses: [u64; 2],
    pub bytes_least: [u64; 2],
    pub accesses_least: [u64; 2],
    pub poisson: bool,
    /// Nanoseconds over which the least is looked at.
    pub cycle: u64,
}

/// One job, of which `copies` run.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub name: String,
    /// Where it begins in the file.
    pub line: usize,
    /// As the file has them, for the report.
    pub said: Vec<(String, String)>,
    pub reads: bool,
    pub writes: bool,
    pub random: bool,
    /// Accesses of which the first is at a random place, and the others follow it.
    pub run: u64,
    /// Bytes that are left out between sequential accesses.
    pub skip: u64,
    /// Those that follow are at the same place.
    pub identical: bool,
    pub read_percent: u8,
    pub random_percent: [u8; 2],
    pub blocks: [BlockSizes; 2],
    pub align: Option<[u64; 2]>,
    pub repeats: bool,
    pub distribution: Distribution,
    pub engine: IoEngine,
    pub depth: u32,
    pub submit: u32,
    pub complete: u32,
    pub depth_low: u32,
    pub copies: u32,
    pub size: Amount,
    pub io_size: Amount,
    pub file_size: Option<u64>,
    pub offset: Amount,
    pub offset_increment: Amount,
    pub offset_align: u64,
    pub accesses: Option<u64>,
    pub directory: Option<String>,
    pub names: Vec<String>,
    pub name_format: Option<String>,
    pub files: u32,
    pub service: Service,
    pub service_run: u64,
    pub direct: bool,
    pub sync_flags: i32,
    pub loops: u64,
    pub runtime: u64,
    pub time_based: bool,
    pub ramp: u64,
    pub start_delay: u64,
    pub fsync: u64,
    pub fdatasync: u64,
    pub end_fsync: bool,
    pub fsync_on_close: bool,
    pub think: Think,
    pub rate: Rate,
    pub fill: Fill,
    pub preallocation: Preallocation,
    pub overwrite: bool,
    pub invalidate: bool,
    pub hint: Hint,
    pub unlink: bool,
    pub create_only: bool,
    pub stonewall: bool,
    pub new_group: bool,
    pub group_reporting: bool,
    pub exit_all: bool,
    pub seed: u64,
    pub log: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: String::new(),
            line: 0,
            said: Vec::new(),
            reads: true,
            writes: false,
            random: false,
            run: 1,
            skip: 0,
            identical: false,
            read_percent: 50,
            random_percent: [100; 2],
            blocks: [BlockSizes::default(), BlockSizes::default()],
            align: None,
            repeats: false,
            distribution: Distribution::Even,
            engine: IoEngine::Synchronous,
            depth: 1,
            submit: 1,
            complete: 1,
            depth_low: 0,
            copies: 1,
            size: Amount::Unsaid,
            io_size: Amount::Unsaid,
            file_size: None,
            offset: Amount::Unsaid,
            offset_increment: Amount::Unsaid,
            offset_align: 0,
            accesses: None,
            directory: None,
            names: Vec::new(),
            name_format: None,
            files: 1,
            service: Service::RoundRobin,
            service_run: 1,
            direct: false,
            sync_flags: 0,
            loops: 1,
            runtime: 0,
            time_based: false,
            ramp: 0,
            start_delay: 0,
            fsync: 0,
            fdatasync: 0,
            end_fsync: false,
            fsync_on_close: false,
            think: Think { blocks: 1, ..Think::default() },
            rate: Rate { cycle: 1_000_000_000, ..Rate::default() },
            fill: Fill::Scrambled,
            preallocation: Preallocation::Blocks,
            overwrite: false,
            invalidate: true,
            hint: Hint::Pattern,
            unlink: false,
            create_only: false,
            stonewall: false,
            new_group: false,
            group_reporting: false,
            exit_all: false,
            seed: 1,
            log: None,
        }
    }
}

impl Options {
    /// From a section; what cannot be done is an error that names its line.
    pub fn of(section: &Section) -> Result<Options, LabError> {
        let mut options = Options { name: section.name.clone(), line: section.line, ..Options::default() };
        let in_job = |why: String| LabError::Usage(format!("job '{}', {why}", section.name));
        // A later line of the same key takes its place, as in fio.
        for OptionLine { line, key, value } in &section.entries {
            let taken = options.take(key, value);
            taken.map_err(|why| in_job(format!("line {line}: {key}={value}: {why}")))?;
            options.said.retain(|(before, _)| before != key);
            options.said.push((key.clone(), value.clone()));
        }
        options.check().map_err(|why| in_job(format!("line {}: {why}", section.line)))?;
        Ok(options)
    }

    /// Whether its files are removed at the end; an engine that touches none removes none.
    pub fn removes(&self) -> bool {
        self.unlink && self.engine != IoEngine::Null
    }

    /// What the kernel is told of its files, as the constant that it knows.
    pub fn advice(&self) -> Option<i32> {
        match (self.hint, self.random) {
            (Hint::None, _) => None,
            (Hint::Random, _) | (Hint::Pattern, true) => Some(libc::POSIX_FADV_RANDOM),
            (Hint::Sequential, _) | (Hint::Pattern, false) => Some(libc::POSIX_FADV_SEQUENTIAL),
            (Hint::Once, _) => Some(libc::POSIX_FADV_NOREUSE),
        }
    }

    /// What only all keys together tell.
    fn check(&mut self) -> Result<(), String> {
        if self.engine == IoEngine::Synchronous {
            self.depth = 1;
        }
        if self.engine == IoEngine::Null && !matches!(self.size, Amount::Bytes(1..)) {
            return Err("ioengine=null has no files whose size could be taken; say size= in bytes".into());
        }
        if self.time_based && self.runtime == 0 {
            return Err("time_based needs a runtime".into());
        }
        self.depth_low = if self.depth_low == 0 { self.depth } else { self.depth_low.min(self.depth) };
        self.submit = self.submit.clamp(1, self.depth);
        self.complete = self.complete.clamp(1, self.depth);
        // A distribution with weights, and other beginnings than multiples of the size, come again
        // by chance.
        self.repeats |= self.align.is_some() || self.distribution != Distribution::Even;
        if !self.names.is_empty() {
            self.files = self.names.len() as u32;
        }
        match (u64::from(self.copies) * u64::from(self.depth), self.files) {
            (65_537.., _) => Err("numjobs times iodepth are more than 65536 accesses under way".into()),
            (_, 901..) => Err("more than 900 files stay open; fewer are known here".into()),
            _ => Ok(()),
        }
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "rw" | "readwrite" => self.pattern(value)?,
            "rw_sequencer" => {
                self.identical = match value {
                    "identical" => true,
                    "sequential" => false,
                    _ => return Err("it is `sequential` or `identical`".into()),
                }
            }
            "rwmixread" => self.read_percent = percent(value)?,
            "rwmixwrite" => self.read_percent = 100 - percent(value)?,
            "percentage_random" => self.random_percent = both(value, self.random_percent, percent)?,
            "bs" | "blocksize" => self.lengths(value, BlockSizes::size)?,
            "bsrange" | "blocksize_range" => self.lengths(value, BlockSizes::range)?,
            "bssplit" => self.lengths(value, BlockSizes::split)?,
            "bs_unaligned" | "blocksize_unaligned" => {
                let unaligned = truth(value)?;
                self.blocks.iter_mut().for_each(|blocks| blocks.unaligned = unaligned);
            }
            "blockalign" | "ba" => {
                let align = |text: &str| bytes(text).filter(|size| *size > 0).ok_or("a size is needed".to_owned());
                self.align = Some(both(value, self.align.unwrap_or([4096; 2]), align)?);
            }
            "norandommap" => self.repeats = truth(value)?,
            "random_distribution" => self.distribution = Distribution::parse(value)?,
            "ioengine" => self.engine = engine(value)?,
            "iodepth" => self.depth = whole(value)?,
            "iodepth_batch" | "iodepth_batch_submit" => self.submit = whole(value)?,
            "iodepth_batch_complete" | "iodepth_batch_complete_min" => self.complete = count(value)?.max(1) as u32,
            "iodepth_batch_complete_max" => drop(count(value)?),
            "iodepth_low" => self.depth_low = whole(value)?,
            "numjobs" => self.copies = whole(value)?,
            _ => return self.take_of_files(key, value),
        }
        Ok(())
    }

    fn take_of_files(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "size" => self.size = amount(value)?,
            "io_size" | "io_limit" => self.io_size = amount(value)?,
            "filesize" => {
                let size = bytes(value).ok_or("one size is known here, and no range")?;
                self.file_size = (size > 0).then_some(size);
            }
            "offset" => self.offset = amount(value)?,
            "offset_increment" => self.offset_increment = amount(value)?,
            "offset_align" => self.offset_align = count(value)?,
            "number_ios" => self.accesses = Some(count(value)?).filter(|count| *count > 0),
            "directory" if value.contains(':') => return Err("one directory is known here".into()),
            "directory" => self.directory = Some(value.to_owned()),
            "filename" => self.names = colons(value),
            "filename_format" => self.name_format = Some(value.to_owned()),
            "nrfiles" => self.files = whole(value)?,
            "file_service_type" => {
                let (kind, run) = value.split_once(':').unwrap_or((value, "1"));
                self.service_run = u64::from(whole(run)?);
                self.service = match kind {
                    "roundrobin" => Service::RoundRobin,
                    "random" => Service::Random,
                    "sequential" => Service::Sequential,
                    _ => return Err("roundrobin, random and sequential are known here".into()),
                };
            }
            "direct" => self.direct = truth(value)?,
            "buffered" => self.direct = !truth(value)?,
            "sync" => {
                self.sync_flags = match value {
                    "0" | "none" => 0,
                    "" | "1" | "sync" => libc::O_SYNC,
                    "dsync" => libc::O_DSYNC,
                    _ => return Err("it is none, sync or dsync".into()),
                }
            }
            "fallocate" => {
                self.preallocation = match value {
                    "native" | "posix" | "1" => Preallocation::Blocks,
                    "truncate" => Preallocation::Length,
                    "none" | "0" => Preallocation::None,
                    _ => return Err("native, posix, truncate and none are known here".into()),
                }
            }
            "overwrite" => self.overwrite = truth(value)?,
            "invalidate" => self.invalidate = truth(value)?,
            "fadvise_hint" => {
                self.hint = match value {
                    "0" | "none" => Hint::None,
                    "" | "1" => Hint::Pattern,
                    "sequential" => Hint::Sequential,
                    "random" => Hint::Random,
                    "noreuse" => Hint::Once,
                    _ => return Err("0, 1, sequential, random and noreuse are known here".into()),
                }
            }
            "unlink" => self.unlink = truth(value)?,
            "create_only" => self.create_only = truth(value)?,
            "zero_buffers" if truth(value)? => self.fill = Fill::Zeros,
            "zero_buffers" if self.fill == Fill::Zeros => self.fill = Fill::Scrambled,
            "zero_buffers" => {}
            "refill_buffers" if truth(value)? => self.fresh(|_, _| ()),
            "refill_buffers" if self.fill == Fill::PLAIN => self.fill = Fill::Scrambled,
            "refill_buffers" => {}
            "buffer_pattern" => self.fill = Fill::Pattern(pattern_of(value)?),
            "buffer_compress_percentage" | "dedupe_percentage" => {
                let saved = u32::from(percent(value)?).min(99);
                let ratio = 10_000 / (100 - saved);
                self.fresh(|compress, dedupe| *(if key.starts_with("dedupe") { dedupe } else { compress }) = ratio);
            }
            _ => return self.take_of_time(key, value),
        }
        Ok(())
    }

    fn take_of_time(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "loops" => self.loops = u64::from(whole(value)?),
            "runtime" | "timeout" => self.runtime = time(value, "s")?,
            "time_based" => self.time_based = truth(value)?,
            "ramp_time" => self.ramp = time(value, "s")?,
            "startdelay" => self.start_delay = time(value, "s")?,
            "fsync" => self.fsync = count(value)?,
            "fdatasync" => self.fdatasync = count(value)?,
            "end_fsync" => self.end_fsync = truth(value)?,
            "fsync_on_close" => self.fsync_on_close = truth(value)?,
            "thinktime" => self.think.nanoseconds = time(value, "us")?,
            "thinktime_spin" => self.think.spin = time(value, "us")?,
            "thinktime_blocks" => self.think.blocks = u64::from(whole(value)?),
            "thinktime_blocks_type" => {
                self.think.when_issued = match value {
                    "complete" => false,
                    "issue" => true,
                    _ => return Err("it is `complete` or `issue`".into()),
                }
            }
            "rate" => self.rate.bytes = both(value, self.rate.bytes, count)?,
            "rate_iops" => self.rate.accesses = both(value, self.rate.accesses, count)?,
            "rate_min" => self.rate.bytes_least = both(value, self.rate.bytes_least, count)?,
            "rate_iops_min" => self.rate.accesses_least = both(value, self.rate.accesses_least, count)?,
            "rate_cycle" | "ratecycle" => self.rate.cycle = time(value, "ms")?.max(1_000_000),
            "rate_process" => {
                self.rate.poisson = match value {
                    "linear" => false,
                    "poisson" => true,
                    _ => return Err("it is `linear` or `poisson`".into()),
                }
            }
            "stonewall" | "wait_for_previous" => self.stonewall = truth(value)?,
            "new_group" => self.new_group = truth(value)?,
            "group_reporting" => self.group_reporting = truth(value)?,
            "exitall" => self.exit_all = truth(value)?,
            "randseed" => self.seed = count(value)?,
            "name" => self.name = value.to_owned(),
            "write_iolog" => self.log = Some(value.to_owned()),
            "verify" if matches!(value, "0" | "none" | "null") => {}
            "verify" => {
                return Err("data is not verified by a job file here; `stele lab run --verify` does that".into());
            }
            key if key.starts_with("verify") || key == "do_verify" => {}
            "kb_base" if value == "1024" => {}
            // Asked for, both change what is measured.
            "uncached" | "ramp_size" if value == "0" => {}
            key if WITHOUT_EFFECT.contains(&key) => {}
            _ => return Err("this key is not known here".into()),
        }
        Ok(())
    }

    fn pattern(&mut self, value: &str) -> Result<(), String> {
        let (kind, behind) = value.split_once(':').map_or((value, None), |(kind, behind)| (kind, Some(behind)));
        (self.reads, self.writes, self.random) = match kind {
            "read" => (true, false, false),
            "write" => (false, true, false),
            "randread" => (true, false, true),
            "randwrite" => (false, true, true),
            "rw" | "readwrite" => (true, true, false),
            "randrw" => (true, true, true),
            _ => return Err("read, write, randread, randwrite, rw and randrw are known here".into()),
        };
        (self.run, self.skip) = (1, 0);
        match (behind, self.random) {
            (None, _) => {}
            (Some(run), true) => self.run = u64::from(whole(run)?),
            (Some(skip), false) => {
                self.skip = bytes(skip).ok_or("bytes to skip are needed behind the colon, like 64k")?
            }
        }
        Ok(())
    }

    fn lengths(&mut self, value: &str, of: impl Fn(&str) -> Result<BlockSizes, String>) -> Result<(), String> {
        let (reads, writes) = value.split_once(',').unwrap_or((value, value));
        let writes = writes.split(',').next().unwrap_or_default();
        for (blocks, part) in self.blocks.iter_mut().zip([reads, writes]).filter(|(_, part)| !part.is_empty()) {
            let mut found = of(part.trim())?;
            found.unaligned = blocks.unaligned;
            if found.ranged || !blocks.ranged {
                *blocks = found;
            }
        }
        Ok(())
    }

    fn fresh(&mut self, change: impl FnOnce(&mut u32, &mut u32)) {
        let (mut compress, mut dedupe) = match self.fill {
            Fill::Fresh { compress, dedupe } => (compress, dedupe),
            _ => (100, 100),
        };
        change(&mut compress, &mut dedupe);
        self.fill = Fill::Fresh { compress, dedupe };
    }

    /// Bytes of the shortest access, and of the longest, of what the job does.
    pub fn block_least(&self) -> u64 {
        self.of_ways().map(|blocks| blocks.least).min().unwrap_or(4096)
    }

    pub fn block_most(&self) -> u64 {
        self.of_ways().map(|blocks| blocks.most).max().unwrap_or(4096)
    }

    fn of_ways(&self) -> impl Iterator<Item = &BlockSizes> {
        let ways = [(self.reads, 0), (self.writes, 1)];
        ways.into_iter().filter(|way| way.0).filter_map(|way| self.blocks.get(way.1))
    }
}

fn engine(value: &str) -> Result<IoEngine, String> {
    match value {
        "null" => Ok(IoEngine::Null),
        value if SYNCHRONOUS.contains(&value) => Ok(IoEngine::Synchronous),
        value if SEVERAL.contains(&value) => Ok(IoEngine::Ring),
        _ => Err(format!("{}, {} and null are known here", SYNCHRONOUS.join(", "), SEVERAL.join(", "))),
    }
}

/// Names between colons; `\:` is a colon of a name.
fn colons(value: &str) -> Vec<String> {
    const HELD: &str = "\u{0}";
    let held = value.replace("\\:", HELD);
    held.split(':').filter(|name| !name.is_empty()).map(|name| name.replace(HELD, ":")).collect()
}

/// `0xdeadbeef`, or `"text"`.
fn pattern_of(value: &str) -> Result<Vec<u8>, String> {
    let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let found = match (quoted, value.strip_prefix("0x")) {
        (Some(text), _) => Some(text.as_bytes().to_vec()),
        (_, Some(digits)) if digits.is_ascii() => {
            let even = if digits.len().is_multiple_of(2) { digits.to_owned() } else { format!("0{digits}") };
            (0..even.len() / 2).map(|at| u8::from_str_radix(&even[at * 2..at * 2 + 2], 16).ok()).collect()
        }
        _ => None,
    };
    found.filter(|bytes| !bytes.is_empty()).ok_or_else(|| "it is like 0xdeadbeef or \"text\"".into())
}

#[cfg(test)]
mod tests;
