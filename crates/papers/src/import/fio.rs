//! Jobs from fio's job files: the keys for the kind, the intensity and the duration of the work. A
//! key with another meaning here, or with none, is an error that names it, or with `lenient` a
//! warning.
//!
//! fio's `iodepth` is per job, and each of its `numjobs` copies has its own; here the sum of these
//! accesses is outstanding. Both tools draw `percentage_random` and `rwmixread` for each access.
//! fio uses each block once before it comes again, unless `norandommap` is given; here every access
//! is drawn anew. A rate is kept whatever the answers: `iodepth` does not bound it.
//!
//! fio's defaults are kept: the page cache is used unless `direct` or `buffered` say otherwise, and
//! the engine is `psync`, which has one access under way whatever `iodepth` says. In fio, jobs run
//! side by side unless `stonewall` stands between them. Here they run one after another, so a file
//! with several jobs without it is an error. `stele lab fio` runs such files, and all others
//! without a counterpart, directly.

use super::{Complaints, Imported, whole};
use stele_ground::Bytes;
use stele_lab::error::LabError;
use stele_lab::fio::file::{self, OptionLine, Section};
use stele_lab::job::{Given, Job, When};

/// Keys without effect here: for fio's random numbers, reports and processes.
const WITHOUT_EFFECT: &[&str] = &[
    "group_reporting",
    "thread",
    "randrepeat",
    "norandommap",
    "time_based",
    "name",
    "description",
    "refill_buffers",
    "gtod_reduce",
    "clocksource",
    "allrandrepeat",
    "random_generator",
    "invalidate",
    "fixedbufs",
    "registerfiles",
    "hipri",
    "stonewall",
    "wait_for_previous",
    "exitall",
    "overwrite",
    "fallocate",
    "create_on_open",
    "unlink",
];

/// Engines with one access under way for each job: they ignore `iodepth`.
const SYNCHRONOUS: &[&str] = &["psync", "pvsync", "pvsync2", "sync"];

const ENGINES: &[&str] = &["io_uring", "libaio", "psync", "pvsync", "pvsync2", "sync", "posixaio", "null"];

/// All jobs of a fio job file, in their order.
pub fn fio(text: &str, lenient: bool) -> Result<Vec<Imported>, LabError> {
    let sections = file::sections(text)?;
    let mut complaints = Complaints::new(lenient);
    let waits = |section: &Section| {
        let is =
            |entry: &OptionLine| matches!(entry.key.as_str(), "stonewall" | "wait_for_previous") && entry.value != "0";
        section.entries.iter().any(is)
    };
    for section in sections.iter().skip(1).filter(|section| !waits(section)) {
        let name = &section.name;
        let what = format!(
            "job '{name}' runs at the same time as those before it in fio, for want of `stonewall`; `stele lab fio` does that"
        );
        complaints.lost(section.line, &what)?;
    }
    let mut jobs: Vec<Imported> =
        sections.iter().map(|section| import(section, lenient)).collect::<Result<_, LabError>>()?;
    if let Some(first) = jobs.first_mut() {
        first.warnings.splice(0..0, complaints.warnings);
    }
    Ok(jobs)
}

#[derive(Default)]
struct Reading {
    job: Job,
    /// Reads, writes, and at random places. A later line of the same key takes its place, as in
    /// fio: so what keys mean together is known at the end.
    pattern: Option<(bool, bool, bool)>,
    read_percent: Option<u8>,
    random_percent: Option<u8>,
    /// Sizes with shares go before a size, in whichever order they stand.
    split: Option<String>,
    depth: u32,
    copies: u32,
    burst: Option<u32>,
    when: Option<When>,
    /// Whether the file sets the page cache.
    cache_stated: bool,
    engine: Option<String>,
    warnings: Vec<String>,
}

fn import(section: &Section, lenient: bool) -> Result<Imported, LabError> {
    let name = section.name.clone();
    let mut reading = Reading { depth: 1, copies: 1, ..Reading::default() };
    for OptionLine { line: number, key, value } in &section.entries {
        match reading.take(key, value) {
            Ok(()) => {}
            Err(why) if lenient => reading.warnings.push(format!("line {number}: {key}={value}: {why}; left out")),
            Err(why) => {
                return Err(LabError::Usage(format!(
                    "job '{name}', line {number}: {key}={value}: {why}; with --lenient it is left out, and `stele lab fio` runs the \
                     file as it is"
                )));
            }
        }
    }
    let (read, random, split) = (reading.read(), reading.random(), reading.split.take());
    let Reading { mut job, depth, copies, burst, when, cache_stated, engine, mut warnings, .. } = reading;
    (job.workload.read, job.workload.random) = (Some(Given::One(read)), Some(Given::One(random)));
    job.workload.access = split.map(Given::One).or(job.workload.access);
    let engine = engine.as_deref().unwrap_or("psync");
    if engine == "null" {
        job.on = Some("null".into());
    }
    let local = job.on.as_deref().is_none_or(|on| on != "null" && !on.contains("://"));
    if !cache_stated && local {
        job.buffered = Given::One(true);
    }
    let depth = if SYNCHRONOUS.contains(&engine) { 1 } else { depth };
    // fio's rates apply to each copy, and each copy pauses by itself.
    if let Some(Given::One(rate)) = &mut job.load.rate {
        *rate *= f64::from(copies);
    }
    if let Some(Given::One(rate)) = &mut job.load.rate_bytes {
        let each = size(rate).map_or(0, |bytes| bytes.0);
        *rate = each.saturating_mul(copies.into()).to_string();
    }
    let rated = job.load.rate.is_some() || job.load.rate_bytes.is_some();
    let mixed = matches!(job.workload.read, Some(Given::One(1..=99)));
    let both = [
        (rated, "a rate is of reads and of writes each in fio, and of both together here", "it is taken for both"),
        (
            random < 100,
            "reads and writes in order go on each behind its own in fio, and behind one another here",
            "they do that",
        ),
    ];
    for (_, why, otherwise) in both.into_iter().filter(|(differs, ..)| mixed && *differs) {
        let why = format!("job '{name}', line {}: {why}", section.line);
        match lenient {
            true => warnings.push(why),
            false => return Err(LabError::Usage(format!("{why}; with --lenient {otherwise}"))),
        }
    }
    if !rated {
        // In fio it has no meaning without a rate either.
        job.load.arrivals = None;
        job.load.outstanding = Some(Given::One(depth.saturating_mul(copies)));
    }
    // Without a pause a burst has no meaning in either tool.
    if job.load.pause.is_some() {
        (job.load.burst, job.load.pause_when) = (burst, when);
    }
    job.load.workers = Some(Given::One(copies));
    // Each key may be known, and all together no job: a rate with pauses, or two rates.
    job.cells().map_err(|why| {
        let line = section.line;
        LabError::Usage(format!("job '{name}', line {line}: {why}; `stele lab fio` runs the file as it is"))
    })?;
    Ok(Imported { name, job, warnings })
}

impl Reading {
    /// Percent that read. A mix is of patterns that do both.
    fn read(&self) -> u8 {
        match self.pattern {
            Some((true, true, _)) => self.read_percent.unwrap_or(50),
            Some((false, ..)) => 0,
            _ => 100,
        }
    }

    /// Percent at random places; of a sequential pattern none. fio's own pattern is `read`.
    fn random(&self) -> u8 {
        match self.pattern {
            Some((_, _, true)) => self.random_percent.unwrap_or(100),
            _ => 0,
        }
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let job = &mut self.job;
        match key {
            "rw" | "readwrite" => {
                self.pattern = Some(match value {
                    value if value.contains(':') => {
                        return Err(
                            "what stands behind the colon changes the order of the accesses, and is not known here"
                                .into(),
                        );
                    }
                    "read" => (true, false, false),
                    "write" => (false, true, false),
                    "randread" => (true, false, true),
                    "randwrite" => (false, true, true),
                    "rw" | "readwrite" => (true, true, false),
                    "randrw" => (true, true, true),
                    _ => return Err("there is no such pattern here".into()),
                });
            }
            "rwmixread" => self.read_percent = Some(percent(value)?),
            "rwmixwrite" => self.read_percent = Some(100 - percent(value)?),
            "percentage_random" => self.random_percent = Some(percent(value)?),
            "bs" | "blocksize" => {
                let bytes = size(value).ok_or("one size is known here, like 4k")?;
                job.workload.access = Some(Given::One(bytes.0.to_string()));
            }
            "bssplit" => self.split = Some(mix(value)?),
            "iodepth" => self.depth = whole(value)?,
            "numjobs" => self.copies = whole(value)?,
            "size" | "filesize" => {
                let bytes = size(value).ok_or("say it in bytes, like 10g")?;
                job.size = Some(bytes.0.to_string());
            }
            // For each copy.
            "rate_iops" | "rate" if value.contains(',') => {
                return Err("one rate for reads and writes together is known here".into());
            }
            "thinktime_spin" | "thinktime_iotime" | "startdelay" | "offset" if value == "0" => {}
            "thinktime" => {
                let text = with_unit(value, "us").ok_or("say it in microseconds, or with a unit")?;
                job.load.pause = Some(text);
            }
            "thinktime_blocks" => self.burst = Some(whole(value)?),
            "thinktime_blocks_type" => {
                self.when = Some(match value {
                    "complete" => When::Answered,
                    "issue" => When::Started,
                    _ => return Err("it is `complete` or `issue`".into()),
                });
            }
            "filename" if !value.contains(':') => job.on = Some(value.to_owned()),
            "filename" => return Err("one target is known here".into()),
            "direct" => (job.buffered, self.cache_stated) = (Given::One(value == "0"), true),
            "buffered" => (job.buffered, self.cache_stated) = (Given::One(value != "0"), true),
            "ioengine" if ENGINES.contains(&value) => self.engine = Some(value.to_owned()),
            "ioengine" => return Err("its targets are not reached from here".into()),
            // Without a limit.
            "runtime" if value == "0" => (job.time.least, job.time.most) = (None, None),
            "rate_iops" if value == "0" => job.load.rate = None,
            "rate" if value == "0" => job.load.rate_bytes = None,
            "runtime" => {
                let text = seconds(value).ok_or("say it in seconds")?;
                (job.time.least, job.time.most) = (Some(text.clone()), Some(text));
            }
            "ramp_time" => job.time.warm_up = Some(seconds(value).ok_or("say it in seconds")?),
            "rate_iops" => {
                let rate: f64 = value.parse().map_err(|_| "one number is known here".to_owned())?;
                job.load.rate = Some(Given::One(rate));
            }
            "rate" => {
                let bytes = size(value).ok_or("bytes a second are needed, like 10m")?;
                job.load.rate_bytes = Some(Given::One(bytes.0.to_string()));
            }
            "rate_process" if value == "poisson" => job.load.arrivals = Some(stele_lab::job::Arrivals::Drawn),
            "rate_process" => {}
            "verify" => job.content.verify = !matches!(value, "0" | "none" | "null"),
            "buffer_compress_percentage" => {
                let zeros = percent(value)?;
                job.content.compress = Some(if zeros < 100 { 100.0 / f64::from(100 - zeros) } else { 1000.0 });
            }
            "dedupe_percentage" => {
                let same = percent(value)?;
                job.content.dedupe = Some(if same < 100 { 100.0 / f64::from(100 - same) } else { 1000.0 });
            }
            "randseed" => job.content.seed = Some(value.parse().map_err(|_| "a whole number is needed".to_owned())?),
            "blockalign" | "ba" if size(value).is_some_and(|bytes| bytes.0 == 512) => {
                job.workload.align = Some(stele_lab::job::Align::Sector);
            }
            key if WITHOUT_EFFECT.contains(&key) => {}
            _ => return Err("this key is not known here".into()),
        }
        Ok(())
    }
}

/// Converts `4k/60:8k/40` into the form of a job. Sizes without a share divide the rest equally.
fn mix(value: &str) -> Result<String, String> {
    const LIKE: &str = "sizes and shares are needed, like 4k/60:8k/40, the same for reads and writes";
    let parts: Vec<(u64, Option<u8>)> = value
        .split(':')
        .map(|part| {
            let (bytes, share) = part.split_once('/').unwrap_or((part, ""));
            let share = if share.is_empty() { None } else { Some(percent(share)?) };
            Ok((size(bytes).ok_or(LIKE)?.0, share))
        })
        .collect::<Result<_, String>>()?;
    let given: u32 = parts.iter().filter_map(|part| part.1).map(u32::from).sum();
    let open = parts.iter().filter(|part| part.1.is_none()).count() as u32;
    let left = 100u32.checked_sub(given).ok_or("the shares are more than 100 percent")?;
    if (open == 0 && left > 0) || (open > 0 && !left.is_multiple_of(open)) {
        return Err("the shares have to come to 100 percent, in whole ones".into());
    }
    let said = parts.iter().map(|(bytes, share)| format!("{bytes}:{}", share.map_or(left / open.max(1), u32::from)));
    Ok(said.collect::<Vec<_>>().join("/"))
}

/// In fio's units, in which `kb` is 1024.
fn size(value: &str) -> Option<Bytes> {
    stele_lab::fio::bytes(value).filter(|bytes| *bytes > 0).map(Bytes)
}

fn percent(value: &str) -> Result<u8, String> {
    value
        .parse()
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| "a percentage is a whole number up to 100".into())
}

/// fio's default unit is the second.
fn seconds(value: &str) -> Option<String> {
    with_unit(value, "s")
}

fn with_unit(value: &str, unit: &str) -> Option<String> {
    let text = if value.chars().all(|c| c.is_ascii_digit()) { format!("{value}{unit}") } else { value.to_owned() };
    stele_lab::job::parse_duration(&text).map(|_| text)
}

#[cfg(test)]
mod tests;
