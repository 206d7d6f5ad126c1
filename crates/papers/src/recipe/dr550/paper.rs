//! The paper of the recipe: the peaks beside the published ones, and its sixteen charts with their
//! numbers.

use super::{DRIVES, Found, Highest, PROCESSORS, RunKind, SIZES, STROKE, THREADS, kinds, left_out};
use crate::published;
use crate::recipe::page::{self, Curve, Order, SummaryPeak, is_virtual, megabytes, rate};
use crate::recipe::set_up;
use stele_ground::{Bytes, Duration};
use stele_lab::error::LabError;
use stele_lab::job::RecipePart;
use stele_lab::modelled::processors::Processors;
use stele_lab::raid::Level;
use stele_lab::record::{Recorded, RunRecord};
use stele_lab::report::chart::{Axis, Chart, Series, figure};
use stele_lab::report::document::{Document, Entry, Place, Table, Text};
use stele_lab::workload::Access;

const SOURCE: &str = "IBM's “DR550 v4.5 File System Gateway Performance Evaluation” (2008)";

/// A measure of each run.
struct Measure {
    unit: &'static str,
    /// The beginning of the names of rows.
    short: &'static str,
    of: fn(&RunRecord) -> f64,
}

const MEGABYTES: Measure = Measure { unit: "MB/s", short: "mb", of: megabytes };
const ACCESSES: Measure = Measure { unit: "accesses/s", short: "io", of: rate };

pub fn document(order: Order<'_>) -> Result<Document, LabError> {
    let Order { recorded, part, against, .. } = order;
    let found = Found { recorded };
    let own = format!("Reads and writes of 512 bytes to 8 KiB by 1 to 32 threads: {}", subject(recorded));
    let mut page = order.begin(own, ", beside the DR550");
    summary(&mut page, found, against);
    let shorter = match is_virtual(recorded) {
        true => None,
        false => page::shorter(recorded, "a cell", 10.0, "ten and more"),
    };
    page::lacks(&mut page, recorded, &left_out(part.quick).into_iter().chain(shorter).collect::<Vec<_>>());
    method(&mut page, recorded, part, against);
    match is_virtual(recorded) {
        true => page.diagram(set_up::modelled("9+1", &DRIVES.to_string(), STROKE)),
        false => page::environment(&mut page, recorded),
    }
    if against {
        page.diagram(set_up::dr550());
    }
    peaks(&mut page, found, against);
    for (number, kind) in kinds().enumerate().filter(|(_, kind)| found.has(*kind)) {
        results(&mut page, found, kind, 2 * number + 1, against);
    }
    if let Some(table) = charged_table(found, against) {
        page.section("With its processor modelled");
        page.paragraph(format!(
            "These are the same accesses with a server before the array. An access first takes the server's one processor, for {}. That is \
             all processor time of Stele's server over NBD for such an access, as docs/block.md has it from volumes on drives of memory: \
             protocol, digests, code and destage. A file protocol takes more. Reads that the gateway's memory answers are left out: their \
             cost was not measured.",
            charges()
        ));
        page.table(table);
    }
    page::odd(&mut page, odd(found), if against { &["DR550"] } else { &[] });
    limits(&mut page, found, part);
    conclusion(&mut page, found, against);
    page::again(&mut page, order, SOURCE);
    Ok(page)
}

fn subject(recorded: &Recorded) -> String {
    let target = recorded.head.target.split('?').next().unwrap_or_default();
    match recorded.head.job.recipe.as_ref().is_some_and(|part| !part.beside.is_empty()) {
        _ if is_virtual(recorded) => "modelled drives".to_owned(),
        true => "a file server without and with its cache".to_owned(),
        false => target.to_owned(),
    }
}

fn published_of(kind: RunKind) -> Option<published::Peak> {
    published::archive_peaks().into_iter().find(|peak| {
        (peak.pattern.as_str(), peak.direction.as_str(), peak.cached) == (kind.pattern, kind.direction, kind.cached)
    })
}

/// The row of a kind in the table of peaks.
fn row_of(kind: RunKind) -> String {
    format!("peak-{}-{}-{}", kind.pattern, kind.direction, kind.cache())
}

fn summary(page: &mut Document, found: Found<'_>, against: bool) {
    page.section("Summary");
    let about = match is_virtual(found.recorded) {
        true => format!(
            "Stele's array code ran on {DRIVES} modelled drives as RAID-5, under the published accesses and numbers of threads. Time is \
             virtual, so the same command gives the same digits on any machine."
        ),
        false => format!(
            "As in the published measurement, many threads read and wrote {}. The accesses were small, at random places and in \
             sequence{}.",
            found.recorded.head.reached,
            if has_cached(found.recorded) { ", with and without a cache" } else { "" }
        ),
    };
    page.paragraph(about);
    let peak = |kind: RunKind| SummaryPeak {
        name: kind.title(),
        row: row_of(kind),
        count: ("threads", "thread", found.highest(kind, megabytes).is_some_and(|most| most.threads == 1)),
        of: Some("size"),
        published: against && published_of(kind).is_some_and(|peak| peak.rate.is_some()),
        flattened: found
            .highest(kind, megabytes)
            .is_some_and(|most| page::flattened(&points(&found.curve(kind, most.size), megabytes))),
        caveat: found
            .highest(kind, megabytes)
            .and_then(|most| beyond_link(megabytes(most.run), found.recorded))
            .filter(|_| against),
    };
    page.list(kinds().filter(|kind| found.has(*kind)).map(|kind| peak(kind).sentence()));
}

/// Whether the target is one file of a server, not a set of files.
fn is_one_file(recorded: &Recorded) -> bool {
    recorded.head.target.starts_with("nfs://")
}

/// Whether the half with the cache was measured.
fn has_cached(recorded: &Recorded) -> bool {
    recorded.cells.iter().any(|cell| cell.axis("cache") == Some("on"))
}

/// Millions of bytes a second of one of its network adapters, which have 1 Gbit/s.
const LINK: f64 = 125.0;

/// A note if the published machine could not have shown such a rate with any drives.
fn beyond_link(rate: f64, recorded: &Recorded) -> Option<String> {
    let here = if is_virtual(recorded) { "; no network is modelled here" } else { "" };
    (rate > LINK).then(|| {
        format!("such a rate is more than a network adapter of the DR550 carries (1 Gbit/s, {LINK} MB/s){here}")
    })
}

fn method(page: &mut Document, recorded: &Recorded, part: &RecipePart, against: bool) {
    page.section("Tool, workloads and method");
    page.paragraph(
        "The published tool is FFSB: threads that each read or write one block after another in 100 files of 40 MB, for about five \
         minutes. The same accesses are made here. Each thread has one access outstanding, of 512 bytes, 1, 2, 4 or 8 KiB. A random access \
         goes to a random place of a random file, at a multiple of its own size. A sequential access begins where the last one of its thread \
         ended, and at the end of a file at the start of another file, at random.",
    );
    if is_one_file(recorded) {
        page.paragraph(
            "The target is one file of an NFS server, in place of 100 files. A random access goes to a random place of it, and a thread's \
             sequential accesses go on at its beginning after its end.",
        );
    }
    if is_virtual(recorded) {
        page.paragraph(format!(
            "The array is Stele's code, 9+1, declustered over {DRIVES} drives of 18.2 GB at 15,000 rpm, of which {STROKE} % is in use. The \
             drives were fitted to another published machine. The DR550 has {DRIVES} SATA drives of 750 GB, whose speed its paper does not state. \
             A file server and a network stand before them, and it writes to an archive that keeps what it was given. Of all this only the \
             gateway's memory is modelled. This page says what the code asks of drives under these accesses; it is no model of the DR550. \
             Threads are outstanding accesses of one host, and sequential ones all belong to one stream. With the cache, writes are answered \
             from a log in 2 GiB of memory, and reads pass a model of the gateway's memory. That memory holds half of the data in use, as 2 GB \
             of memory hold half of 4 GB of files. It answers what it holds within 50 us, and reads 128 KiB ahead of sequential accesses."
        ));
    } else if let Some(with) = part.beside.first() {
        page.paragraph(format!(
            "The published cache is that of the file server, and so it is here: {} is the file server without its cache, {with} with it. \
             {}, and the file server may run on the measuring machine as well.",
            recorded.head.target,
            match is_one_file(recorded) {
                true => "The generator has an NFS client of its own, without a cache; every write is stable when it is answered",
                false => "Both are accessed past the page cache of the measuring machine (O_DIRECT)",
            }
        ));
        page::clock(page);
    } else {
        page.paragraph(
            "The published cache is that of the file server. Here it is the page cache of the measuring machine. With the cache, files are \
             read and written through it; without the cache, past it (O_DIRECT). A write with the cache is answered when it is in memory, \
             and does not wait for the drives as long as the system has room.",
        );
        page::clock(page);
    }
    if against {
        page::unit(page);
    }
}

fn peaks(page: &mut Document, found: Found<'_>, against: bool) {
    page.section("Peaks");
    let mut table = Table::new("The highest rate of each kind of run")
        .left("kind", "")
        .right("rate", "MB/s")
        .right("threads", "threads")
        .right("size", "of");
    if against {
        table = table.right("published", "DR550, MB/s").right("theirs", "its threads").right("ratio", "here / DR550");
    }
    table =
        table.right("accesses", "most accesses/s").right("accesses-threads", "threads").right("accesses-size", "of");
    for kind in kinds() {
        let Some(most) = found.highest(kind, megabytes) else { continue };
        let Some(accesses) = found.highest(kind, rate) else { continue };
        let ours = megabytes(most.run);
        let mut row = vec![
            Entry::text(kind.title()),
            page::measured(most.run, ours).strong(),
            count(most.threads),
            Entry::text(Bytes(most.size).to_string()),
        ];
        if against {
            let peak = published_of(kind);
            let theirs = peak.as_ref().and_then(|peak| peak.rate);
            let threads: Vec<String> = peak.iter().flat_map(|peak| &peak.threads).map(u32::to_string).collect();
            row.push(page::printed(theirs));
            row.push(if threads.is_empty() { Entry::absent() } else { Entry::text(threads.join(" or ")) });
            row.push(page::times(ours, theirs));
        }
        let Highest { size, threads, run } = accesses;
        row.extend([page::measured(run, rate(run)), count(threads), Entry::text(Bytes(size).to_string())]);
        table.row(row_of(kind), row);
    }
    if against {
        table.remark = Some(Text::from(
            "The published paper states neither the size of an access at the peak, nor any number of accesses a second, nor the peak of \
             sequential reads with the cache.",
        ));
    }
    page.table(table);
    page.chart(bars(found, against));
}

/// The processor time of the largest accesses, for a sentence.
fn charges() -> String {
    let processors = Processors::measured(Level::Raid5, PROCESSORS);
    let size = SIZES[SIZES.len() - 1];
    let [read, write] = [false, true]
        .map(|write| Duration(processors.nanos(&Access { target: 0, at: 0, length: size, write })).to_string());
    format!("{read} to read {size} and {write} to write it", size = Bytes(size))
}

/// The highest rates without and with the server's processor. `None` if those with it were not
/// measured.
fn charged_table(found: Found<'_>, against: bool) -> Option<Table> {
    let mut table = Table::new("The highest rates without and with the server's processor")
        .left("kind", "")
        .right("free", "without, MB/s")
        .right("rate", "with, MB/s")
        .right("threads", "threads")
        .right("size", "of")
        .right("share", "with / without");
    if against {
        table = table.right("published", "DR550, MB/s").right("ratio", "with / DR550");
    }
    let mut any = false;
    for kind in kinds() {
        let (Some(free), Some(with)) = (found.highest(kind, megabytes), found.highest_charged(kind, megabytes)) else {
            continue;
        };
        any = true;
        let (free_rate, rate) = (megabytes(free.run), megabytes(with.run));
        let mut row = vec![
            Entry::text(kind.title()),
            page::measured(free.run, free_rate),
            page::measured(with.run, rate).strong(),
            count(with.threads),
            Entry::text(Bytes(with.size).to_string()),
            Entry::said(rate / free_rate, format!("{:.2}", rate / free_rate)),
        ];
        if against {
            let theirs = published_of(kind).and_then(|peak| peak.rate);
            row.extend([page::printed(theirs), page::times(rate, theirs)]);
        }
        table.row(format!("charged-{}-{}-{}", kind.pattern, kind.direction, kind.cache()), row);
    }
    any.then_some(table)
}

fn conclusion(page: &mut Document, found: Found<'_>, against: bool) {
    let all: Vec<RunKind> = kinds().filter(|kind| found.has(*kind)).collect();
    let most = all.iter().filter_map(|kind| Some((*kind, found.highest(*kind, megabytes)?)));
    let best = most.max_by(|left, right| megabytes(left.1.run).total_cmp(&megabytes(right.1.run)));
    let says = match best {
        Some((kind, most)) => {
            let name = kind.title().to_lowercase();
            let text = Text::from(format!("The highest throughput is that of {name}: "))
                .cell_as(&Place::new(row_of(kind), "rate"), " MB/s");
            match beyond_link(megabytes(most.run), found.recorded).filter(|_| against) {
                Some(caveat) => text.say(format!("; {caveat}.")),
                None => text.say("."),
            }
        }
        None => Text::from("Nothing was measured."),
    };
    let says_not = match is_virtual(found.recorded) {
        true => {
            "The figures say what the array's code asks of drives. They are no prediction for a file server with its network."
        }
        false => "The figures are those of this target, with this working set and these numbers of threads.",
    };
    page::conclusion(page, found.recorded, says, says_not);
}

fn count(number: u32) -> Entry {
    Entry::said(f64::from(number), number.to_string())
}

fn bars(found: Found<'_>, against: bool) -> Chart {
    let shown: Vec<RunKind> = kinds().filter(|kind| found.has(*kind)).collect();
    let ours = shown.iter().map(|kind| found.highest(*kind, megabytes).map(|most| megabytes(most.run))).collect();
    let theirs = against.then(|| ("DR550 as published", shown.iter().map(|kind| published_of(*kind)?.rate).collect()));
    let group = |kind: &RunKind| format!("{} {}s, cache {}", kind.pattern, kind.direction, kind.cache());
    let groups = shown.iter().map(group).collect();
    page::bars(("The highest rate of each kind of run", MEGABYTES.unit), groups, ("measured here", ours), theirs)
}

/// `number` is that of the kind's chart in MB/s; the next chart is in accesses a second.
fn results(page: &mut Document, found: Found<'_>, kind: RunKind, number: usize, against: bool) {
    page.section(kind.title());
    for (measure, number) in [(&MEGABYTES, number), (&ACCESSES, number + 1)] {
        page.table(table(found, kind, measure));
        page.chart(over_threads(found, kind, measure, number, against));
    }
    page.chart(over_size(found, kind));
}

/// Rows are sizes, columns threads.
fn table(found: Found<'_>, kind: RunKind, measure: &Measure) -> Table {
    let caption = format!("{}, {}, by threads", kind.title(), measure.unit);
    let mut table = Table::new(caption).right("access", "access");
    let of_size = |size: u64| found.curve(kind, size);
    let counts: Vec<u32> = THREADS
        .into_iter()
        .filter(|count| SIZES.iter().any(|size| of_size(*size).iter().any(|one| one.0 == *count)))
        .collect();
    for count in &counts {
        table = table.right(&count.to_string(), &count.to_string());
    }
    for size in SIZES {
        let runs = of_size(size);
        if runs.is_empty() {
            continue;
        }
        let mut row = vec![Entry::text(Bytes(size).to_string())];
        row.extend(counts.iter().map(|count| {
            let run = runs.iter().find(|(threads, _)| threads == count);
            run.map_or(Entry::absent(), |(_, run)| page::measured(run, (measure.of)(run)))
        }));
        table.row(format!("{}-{}-{}-{}-{size}", measure.short, kind.pattern, kind.direction, kind.cache()), row);
    }
    table
}

fn points(runs: &[(u32, &RunRecord)], of: fn(&RunRecord) -> f64) -> Vec<(f64, f64)> {
    runs.iter().map(|(threads, run)| (f64::from(*threads), of(run))).collect()
}

fn over_threads(found: Found<'_>, kind: RunKind, measure: &Measure, number: usize, against: bool) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for size in SIZES {
        let runs = found.curve(kind, size);
        if !runs.is_empty() {
            series.push(Series { name: Bytes(size).to_string(), points: points(&runs, measure.of), marked: true });
        }
    }
    let peak = published_of(kind).filter(|_| against && measure.short == MEGABYTES.short);
    if let Some((peak, theirs)) = peak.and_then(|peak| peak.rate.map(|rate| (peak, rate))) {
        let points = peak.threads.iter().map(|threads| (f64::from(*threads), theirs)).collect();
        series.push(Series { name: "DR550 as published, size not stated".into(), points, marked: true });
    }
    let marks = THREADS.map(|count| (f64::from(count), count.to_string()));
    let title = format!("Chart {number}. {}: {} over threads", kind.title(), measure.unit);
    Chart::lines(title, Axis::logarithmic("threads").marked(marks), Axis::linear(measure.unit), series)
}

fn threads(count: u32) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}

fn over_size(found: Found<'_>, kind: RunKind) -> Chart {
    let of_count = |count: u32| {
        let at = |size: u64| {
            let runs = found.curve(kind, size);
            runs.iter().find(|(threads, _)| *threads == count).map(|(_, run)| (size as f64, rate(run)))
        };
        let points: Vec<(f64, f64)> = SIZES.into_iter().filter_map(at).collect();
        let name = threads(count);
        (!points.is_empty()).then_some(Series { name, points, marked: true })
    };
    let marks = SIZES.map(|size| (size as f64, Bytes(size).to_string()));
    let title = format!("{}: accesses/s over the size of an access", kind.title());
    let across = Axis::logarithmic("bytes of an access").marked(marks);
    Chart::lines(title, across, Axis::linear(ACCESSES.unit), THREADS.into_iter().filter_map(of_count).collect())
}

fn odd(found: Found<'_>) -> Vec<String> {
    let mut lines = page::remarks(found.recorded);
    let mut curves: Vec<Curve> = Vec::new();
    for kind in kinds() {
        for size in SIZES {
            let name = format!("{}, {}, accesses/s", kind.title(), Bytes(size));
            let at = |(threads, run): (u32, &RunRecord)| (f64::from(threads), page::rate_estimated(run));
            let points = found.curve(kind, size).into_iter().map(at).collect();
            curves.push(Curve { name, over: "threads", points });
        }
        for count in THREADS {
            let at = |size: u64| {
                let runs = found.curve(kind, size);
                let one = runs.iter().find(|(threads, _)| *threads == count);
                one.map(|(_, run)| (size as f64, page::megabytes_estimated(run)))
            };
            let name = format!("{}, {}, MB/s", kind.title(), threads(count));
            curves.push(Curve { name, over: "bytes", points: SIZES.into_iter().filter_map(at).collect() });
        }
    }
    lines.extend(page::falls(&curves));
    for kind in kinds().filter(|kind| kind.cached) {
        let without = RunKind { cached: false, ..kind };
        let (with, without) = (found.highest(kind, megabytes), found.highest(without, megabytes));
        if let (Some(with), Some(without)) = (with, without)
            && page::megabytes_estimated(with.run).is_below(page::megabytes_estimated(without.run))
        {
            let (with, without) = (figure(megabytes(with.run)), figure(megabytes(without.run)));
            lines.push(format!("{}: {with} MB/s at most, less than the {without} without the cache.", kind.title()));
        }
    }
    lines
}

fn limits(page: &mut Document, found: Found<'_>, part: &RecipePart) {
    page.section("Limits");
    let recorded = found.recorded;
    let mut lines: Vec<String> = Vec::new();
    if is_virtual(recorded) {
        lines.push(
            "Virtual time counts no network and no file system, and processors only in their own section: where those are the bound, \
             real storage is slower."
                .into(),
        );
        lines.push(
            "Reads with the cache come from a model of the gateway's memory: the published paper does not state what the gateway kept, or \
             how far it read ahead."
                .into(),
        );
    } else {
        lines.push(format!(
            "Each cell was measured once, for seconds; the published runs took about five minutes each. {} {}; the published files had 100 \
             times 40 MB.",
            if is_one_file(recorded) { "All threads share one file on each server, together" } else { "The files have together" },
            Bytes(recorded.head.target_bytes)
        ));
        if !has_cached(recorded) {
            lines.push(
                "This target has no cache that a measuring client can switch: all runs stand under “without cache”, and the half with the \
                 cache was not measured."
                    .into(),
            );
        } else if !part.beside.is_empty() {
            lines.push(
                "The file server without its cache still has the memory of its storage: reads may come from the memory of a drive or an array."
                    .into(),
            );
        } else {
            lines.push(
                "Without cache means past the page cache of this machine. Reads may still come from the memory of a drive, a controller or a server."
                    .into(),
            );
        }
        let halves = if has_cached(recorded) { 2 } else { 1 };
        let (sizes, counts) = (super::sizes(part.quick).len(), super::loads(part.quick).len());
        let planned = 4 * halves * sizes * counts;
        lines.extend(page::unmeasured(recorded, planned));
    }
    lines.push(
        "Of the published paper's sixteen charts only what its text says is known: seven peaks in MB/s, none of them with its size."
            .into(),
    );
    page.list(lines);
}
