//! The paper of the recipe: the five published results with the measured peaks, and rates over
//! sessions.

use super::{ACCESS, DIRECTIONS, DRIVES, Found, OBJECT, PROCESSORS, STROKE, highest, left_out, sessions_of};
use crate::published::{self, Streamed};
use crate::recipe::page::{self, Curve, Order, SummaryPeak, is_virtual, megabytes};
use crate::recipe::set_up;
use stele_ground::{Bytes, Duration};
use stele_lab::error::LabError;
use stele_lab::modelled::processors::Processors;
use stele_lab::raid::Level;
use stele_lab::record::{Recorded, RunRecord};
use stele_lab::report::chart::{Axis, Chart, Series, figure};
use stele_lab::report::document::{Document, Entry, Place, Table, Text};
use stele_lab::workload::Access;

const SOURCE: &str = "IBM's “Elastic Storage with GPFS Native RAID performance test results with Tivoli Storage Manager over 40 GBit Ethernet” (2014)";

pub fn document(order: Order<'_>) -> Result<Document, LabError> {
    let Order { recorded, part, against, .. } = order;
    let found = Found { recorded };
    let what = if is_virtual(recorded) { "modelled drives" } else { &recorded.head.target };
    let own = format!("Backup, restore and mixed streams: {what}");
    let mut page = order.begin(own, ", beside TSM on GPFS Native RAID");
    summary(&mut page, found, against);
    let least = if is_backup(recorded) { 20.0 } else { 10.0 };
    let shorter = match is_virtual(recorded) {
        true => None,
        false => page::shorter(recorded, "a cell", least, &format!("{least:.0} and more")),
    };
    let left_out = left_out(part.quick, is_backup(recorded)).into_iter().chain(shorter);
    page::lacks(&mut page, recorded, &left_out.collect::<Vec<_>>());
    method(&mut page, recorded, against);
    match is_virtual(recorded) {
        true => page.diagram(set_up::modelled("8+2", &DRIVES.to_string(), STROKE)),
        false => page::environment(&mut page, recorded),
    }
    if against {
        page.diagram(set_up::gnr_tsm());
    }
    results(&mut page, found, against);
    if against {
        page.table(published_table(found));
    }
    if let Some(table) = charged_table(found, against) {
        page.section("With its processor modelled");
        page.paragraph(format!(
            "These are the same streams with a server before the array. An access first takes the server's one processor, for {}. That is \
             all processor time of Stele's server over NBD for such an access, as docs/block.md has it from volumes on drives of memory: \
             protocol, digests, code and destage. The client's processors are not modelled.",
            charges()
        ));
        page.table(table);
    }
    page::odd(&mut page, odd(found), if against { &["Backup"] } else { &[] });
    limits(&mut page, found, against);
    conclusion(&mut page, found);
    page::again(&mut page, order, SOURCE);
    Ok(page)
}

/// The code of backups is at work.
fn is_backup(recorded: &Recorded) -> bool {
    !is_virtual(recorded) && super::is_backup(&recorded.head.target)
}

/// The published result for such streams. Virtual time has no servers: beside it stand the results
/// of two, which the drives limit; those of one, which the link limits, are in the table of
/// published results.
fn published_of(found: Found<'_>, direction: &str, servers: u32) -> Option<Streamed> {
    let servers = if is_virtual(found.recorded) { 2 } else { servers };
    published::streamed().into_iter().find(|one| (one.direction.as_str(), one.servers) == (direction, servers))
}

fn name_of(found: Found<'_>, direction: &str, servers: u32) -> String {
    match (is_virtual(found.recorded), servers) {
        (true, _) => direction.to_owned(),
        (false, 1) => format!("{direction}, one server"),
        (false, _) => format!("{direction}, two servers"),
    }
}

fn row_of(direction: &str, servers: u32) -> String {
    format!("peak-{direction}-{servers}")
}

fn summary(page: &mut Document, found: Found<'_>, against: bool) {
    page.section("Summary");
    page.paragraph(match is_virtual(found.recorded) {
        true => format!(
            "Sessions streamed to and from a volume of Stele on {DRIVES} modelled drives, 8+2. Time is virtual, so the same command gives \
             the same digits on any machine."
        ),
        false if is_backup(found.recorded) => format!(
            "Sessions of stele backup saved objects to and restored them from {}. Their content was generated in memory. The \
             code of backups checked what was restored, and the generator threw it away.",
            found.recorded.head.reached
        ),
        false => format!(
            "Sessions streamed to and from {}: they wrote as a backup does, read as a restore does, and did both at once. What they wrote \
             was generated in memory, and what they read was thrown away.",
            found.recorded.head.reached
        ),
    });
    let peak = |(direction, servers)| SummaryPeak {
        name: name_of(found, direction, servers),
        row: row_of(direction, servers),
        count: ("sessions", "session", found.highest(direction, servers).is_some_and(|(sessions, _)| sessions == 1)),
        of: None,
        published: against && published_of(found, direction, servers).is_some(),
        flattened: page::flattened(&points(&found.curve(direction, servers))),
        caveat: beyond_links(found, direction, servers).filter(|_| against),
    };
    page.list(found.kinds().into_iter().map(|kind| {
        let mut text = peak(kind).sentence();
        text.0.extend(with_processor(found, kind.0).into_iter().flat_map(|more| more.0));
        text
    }));
}

fn method(page: &mut Document, recorded: &Recorded, against: bool) {
    page.section("Tool, workloads and method");
    page.paragraph(format!(
        "The published measurement is of backup servers under a load that is generated in memory, over one link of 40 Gbit/s for each \
         server, to a machine with 116 nearline drives in two groups of 58, data as 8+2 with declustered parity. Its paper states neither \
         the number of sessions, nor the length of their accesses, nor the shares of backup and restore in the mixed streams. {}",
        sessions_said(recorded)
    ));
    if is_backup(recorded) {
        page.paragraph(
            "A session of a backup cuts the content of an object into chunks, hashes, compresses and encrypts them, and sends them to \
             the repository as a segment. The response is the time from the content in memory to the answer that the segment is \
             durable. The sessions share one index of chunks. After each run the objects become part of a snapshot. A session of a \
             restore reads the segments of an object in a snapshot, decrypts and decompresses its chunks, and compares each with its hash.",
        );
        page.paragraph(
            "To make such a page, start a server, make a bucket in it, and give its address to the command below. Where the bucket holds no \
             repository, the command makes one for the run, and removes it afterwards.",
        );
    }
    if is_virtual(recorded) {
        page.paragraph(format!(
            "The array is Stele's code, 8+2, declustered over all {DRIVES} drives as one pool, {STROKE} % of each in use. Each session has its \
             own part of the volume. The modelled drives have 18.2 GB at 15,000 rpm and were fitted to another published machine; the speed \
             of the published nearline drives is not stated. Writes are answered from a log in 2 GiB of memory. No link and no server is \
             modelled. So the figures stand beside the published results of two servers, which its authors call bound by the drives; \
             the results of one server, which they call bound by its link, have a table of their own."
        ));
    } else {
        page.paragraph(match recorded.head.job.recipe.as_ref().is_some_and(|part| !part.beside.is_empty()) {
            true => "Each of the two targets stands for a server. With two servers, all sessions of both run at once, and this machine \
                     generates them.",
            false => "One target was given, so one server was measured. With a second --on, both are driven at once.",
        });
        page::clock(page);
    }
    if against {
        page::unit(page);
    }
}

/// The sessions of this measurement.
fn sessions_said(recorded: &Recorded) -> String {
    match is_backup(recorded) {
        true => format!(
            "Here a session saves or restores one object of {} after the other. Half of the mixed sessions' objects are restores.",
            Bytes(OBJECT)
        ),
        false => format!(
            "Here a session has one access of {} outstanding, and goes on where its last one ended. With one access in a hundred it begins \
             at another place, as where one object ends and the next begins. Half of the mixed accesses are reads.",
            Bytes(ACCESS)
        ),
    }
}

fn results(page: &mut Document, found: Found<'_>, against: bool) {
    page.section("Results");
    let mut table = Table::new("The highest rate of each kind of stream")
        .left("kind", "")
        .right("rate", "MB/s")
        .right("sessions", "sessions a server")
        .right("mean", "mean response");
    if against {
        table = table
            .right("published", "published, MB/s")
            .right("ratio", "here / published")
            .right("link", "published share of its links");
    }
    for (direction, servers) in found.kinds() {
        let Some((sessions, run)) = found.highest(direction, servers) else { continue };
        let ours = megabytes(run);
        let mut row = vec![
            Entry::text(name_of(found, direction, servers)),
            page::measured(run, ours).strong(),
            Entry::said(f64::from(sessions), sessions.to_string()),
            Entry::span(run.total().response.mean()).if_any(run.total().response.count()),
        ];
        if against {
            let theirs = published_of(found, direction, servers);
            row.push(page::printed(theirs.as_ref().map(|one| one.rate)));
            row.push(page::times(ours, theirs.as_ref().map(|one| one.rate)));
            row.push(theirs.map_or(Entry::absent(), |one| {
                let share = one.rate / one.link * 100.0;
                Entry::said(share, format!("{share:.1} %"))
            }));
        }
        table.row(row_of(direction, servers), row);
    }
    if against {
        table.remark = Some(Text::from(
            "The share is of 5,000 million bytes a second for each link of 40 Gbit/s, if a published MB is a million bytes. The laboratory does \
             not know the links to this target.",
        ));
    }
    page.table(table);
    page.chart(bars(found, against));
    page.table(by_sessions(found));
    let series = found.kinds().into_iter().map(|(direction, servers)| Series {
        name: name_of(found, direction, servers),
        points: points(&found.curve(direction, servers)),
        marked: true,
    });
    let counts = sessions_of(is_backup(found.recorded), false);
    let marks = counts.iter().map(|count| (f64::from(*count), count.to_string()));
    let across = Axis::logarithmic("sessions a server").marked(marks);
    page.chart(Chart::lines("MB/s over sessions", across, Axis::linear("MB/s"), series.collect()));
}

fn points(runs: &[(u32, &RunRecord)]) -> Vec<(f64, f64)> {
    runs.iter().map(|(sessions, run)| (f64::from(*sessions), megabytes(run))).collect()
}

fn bars(found: Found<'_>, against: bool) -> Chart {
    let kinds = found.kinds();
    let ours =
        kinds.iter().map(|(direction, servers)| Some(megabytes(found.highest(direction, *servers)?.1))).collect();
    let theirs = kinds.iter().map(|(direction, servers)| Some(published_of(found, direction, *servers)?.rate));
    let theirs = against.then(|| ("as published", theirs.collect()));
    let groups = kinds.iter().map(|(direction, servers)| name_of(found, direction, *servers)).collect();
    page::bars(("The highest rate of each kind of stream", "MB/s"), groups, ("measured here", ours), theirs)
}

fn by_sessions(found: Found<'_>) -> Table {
    let mut table = Table::new("MB/s, and read and written of it, by sessions")
        .left("kind", "")
        .right("sessions", "sessions a server")
        .right("both", "MB/s")
        .right("read", "read")
        .right("written", "written")
        .right("mean", "mean response")
        .right("p99", "99 %");
    for (direction, servers) in found.kinds() {
        for (sessions, run) in found.curve(direction, servers) {
            let mean = |of: fn(&stele_lab::record::RoundRecord) -> f64| run.mean(of) / 1e6;
            let response = run.total().response;
            table.row(
                format!("at-{direction}-{servers}-{sessions}"),
                vec![
                    Entry::text(name_of(found, direction, servers)),
                    Entry::said(f64::from(sessions), sessions.to_string()),
                    page::measured(run, megabytes(run)),
                    Entry::number(mean(|round| round.read_bytes)),
                    Entry::number(mean(|round| round.written_bytes)),
                    Entry::span(response.mean()).if_any(response.count()),
                    Entry::span(response.percentile(0.99)).if_any(response.count()),
                ],
            );
        }
    }
    table
}

/// The highest rate of a kind of stream that is comparable with a published result; in virtual time
/// that of any number of servers, since none is modelled.
fn beside<'a>(found: Found<'a>, theirs: &Streamed) -> Option<&'a RunRecord> {
    let servers = if is_virtual(found.recorded) { 1 } else { theirs.servers };
    Some(found.highest(&theirs.direction, servers)?.1)
}

/// The processor time of an access, for a sentence.
fn charges() -> String {
    let processors = Processors::measured(Level::Raid6, PROCESSORS);
    let [read, write] = [false, true]
        .map(|write| Duration(processors.nanos(&Access { target: 0, at: 0, length: ACCESS, write })).to_string());
    format!("{read} to read {size} and {write} to write it", size = Bytes(ACCESS))
}

/// The row of a kind of stream in the table of processors.
fn charged_row(direction: &str) -> String {
    format!("charged-{direction}")
}

/// The highest rates without and with the server's processor. `None` if those with it were not
/// measured.
fn charged_table(found: Found<'_>, against: bool) -> Option<Table> {
    let mut table = Table::new("The highest rates without and with the server's processor")
        .left("kind", "")
        .right("free", "without, MB/s")
        .right("rate", "with, MB/s")
        .right("sessions", "sessions")
        .right("share", "with / without");
    if against {
        table = table.right("published", "published, two servers, MB/s").right("ratio", "with / published");
    }
    let mut any = false;
    for (direction, _) in DIRECTIONS {
        let (Some((_, free)), Some((sessions, with))) =
            (found.highest(direction, 1), highest(found.charged(direction)))
        else {
            continue;
        };
        any = true;
        let share = megabytes(with) / megabytes(free);
        let mut row = vec![
            Entry::text(direction),
            page::measured(free, megabytes(free)),
            page::measured(with, megabytes(with)).strong(),
            Entry::said(f64::from(sessions), sessions.to_string()),
            Entry::said(share, format!("{share:.2}")),
        ];
        if against {
            let theirs = published_of(found, direction, 1).map(|one| one.rate);
            row.extend([page::printed(theirs), page::times(megabytes(with), theirs)]);
        }
        table.row(charged_row(direction), row);
    }
    any.then_some(table)
}

/// What the sentence of a peak says of the same streams behind a processor.
fn with_processor(found: Found<'_>, direction: &str) -> Option<Text> {
    highest(found.charged(direction))?;
    let place = Place::new(charged_row(direction), "rate");
    Some(
        Text::from(" With the measured time of the server's one processor counted: ").cell_as(&place, " MB/s").say("."),
    )
}

/// A note where the published links could not have carried such a rate.
fn beyond_links(found: Found<'_>, direction: &str, servers: u32) -> Option<String> {
    let (theirs, run) = (published_of(found, direction, servers)?, found.highest(direction, servers)?.1);
    let here = if is_virtual(found.recorded) { "no link is modelled here" } else { "the links here are others" };
    (megabytes(run) > theirs.link).then(|| {
        format!(
            "such a rate is more than the links of the published servers carry ({} MB/s); {here}",
            page::thousands(theirs.link)
        )
    })
}

/// All five published results, those of one server too, each beside the figure from here.
fn published_table(found: Found<'_>) -> Table {
    let mut table = Table::new("The published results of one and two servers, and their links")
        .left("kind", "")
        .right("servers", "servers")
        .right("rate", "published, MB/s")
        .right("link", "its links, MB/s")
        .right("share", "share of its links")
        .right("here", "here, MB/s")
        .right("ratio", "here / published");
    for theirs in published::streamed() {
        let run = beside(found, &theirs);
        let share = theirs.rate / theirs.link * 100.0;
        table.row(
            format!("published-{}-{}", theirs.direction, theirs.servers),
            vec![
                Entry::text(theirs.direction.as_str()),
                Entry::said(f64::from(theirs.servers), theirs.servers.to_string()),
                page::printed(Some(theirs.rate)),
                page::printed(Some(theirs.link)),
                Entry::said(share, format!("{share:.1} %")),
                run.map_or(Entry::absent(), |run| page::measured(run, megabytes(run))),
                run.map_or(Entry::absent(), |run| page::times(megabytes(run), Some(theirs.rate))),
            ],
        );
    }
    table.remark = Some(Text::from(match is_virtual(found.recorded) {
        true => {
            "Neither servers nor links are modelled here: beside a published result of one server, whose link is its bound, stands the \
             same figure as beside that of two. No mixed result of one server was published."
        }
        false => "No mixed result of one server was published.",
    }));
    table
}

fn conclusion(page: &mut Document, found: Found<'_>) {
    let most = found.kinds().into_iter().filter_map(|(direction, servers)| {
        Some(((direction, servers), megabytes(found.highest(direction, servers)?.1)))
    });
    let says = match most.max_by(|left, right| left.1.total_cmp(&right.1)) {
        Some(((direction, servers), _)) => {
            Text::from(format!("The highest throughput is that of {}: ", name_of(found, direction, servers)))
                .cell_as(&Place::new(row_of(direction, servers), "rate"), " MB/s")
                .say(".")
        }
        None => Text::from("Nothing was measured."),
    };
    let says_not = match is_virtual(found.recorded) {
        true => {
            "The figures say what the array's code asks of drives. They are no prediction for a backup server with its links; those with the \
             server's processor counted are the nearest to one."
        }
        false if is_backup(found.recorded) => {
            "The figures are those of the code of backups with this repository, on this machine. Where server, repository and sessions \
             share its processors, they say nothing of a server that has processors of its own."
        }
        false => "The figures are those of streams to and from this target, not of a backup program.",
    };
    page::conclusion(page, found.recorded, says, says_not);
}

fn odd(found: Found<'_>) -> Vec<String> {
    let mut lines = page::remarks(found.recorded);
    let at = |(sessions, run): (u32, &RunRecord)| (f64::from(sessions), page::megabytes_estimated(run));
    let curve = |(direction, servers): (&'static str, u32)| Curve {
        name: format!("{}, MB/s", name_of(found, direction, servers)),
        over: "sessions",
        points: found.curve(direction, servers).into_iter().map(at).collect(),
    };
    let curves: Vec<Curve> = found.kinds().into_iter().map(curve).collect();
    lines.extend(page::falls(&curves));
    for (direction, _) in DIRECTIONS {
        let (one, two) = (found.highest(direction, 1), found.highest(direction, 2));
        if let (Some((_, one)), Some((_, two))) = (one, two)
            && page::megabytes_estimated(two).is_below(page::megabytes_estimated(one))
        {
            lines.push(format!(
                "{direction}: two servers are slower than one, {} MB/s instead of {}.",
                figure(megabytes(two)),
                figure(megabytes(one))
            ));
        }
    }
    lines
}

fn limits(page: &mut Document, found: Found<'_>, against: bool) {
    page.section("Limits");
    let program = match is_backup(found.recorded) {
        true => {
            "Generated content has no files: nothing is walked or opened, and there is no metadata of a tree. The time that the generator \
             takes to make the content in memory is part of the sessions' processor time."
        }
        false => {
            "No backup program is at work: there is no database of objects, no catalog and no protocol of backups. These are its streams alone."
        }
    };
    let mut lines = vec![
        program.to_owned(),
        "The size of an access and the numbers of sessions were chosen here, since the published ones are not stated."
            .to_owned(),
    ];
    if is_virtual(found.recorded) {
        lines.push(
            "Virtual time counts no network and no memory, and processors only in their own section: where those are the bound, real storage \
             is slower. Figures of 116 drives of another kind do not say what the published drives would do."
                .to_owned(),
        );
    } else {
        lines.push(
            "Generator and target may share this machine's processors and memory, as the published clients and servers did: the \
             generator's share is not subtracted."
                .to_owned(),
        );
    }
    if against {
        lines.push(
            "The published machines are of 2014, with links and drives of that time: a ratio compares two whole systems, not their parts."
                .to_owned(),
        );
    }
    page.list(lines);
}
