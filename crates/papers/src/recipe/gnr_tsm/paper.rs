//! The paper of the recipe: the five published results with the measured peaks, and rates over sessions.

use super::{ACCESS, DIRECTIONS, DRIVES, Found, OBJECT, STROKE, left_out, sessions_of};
use crate::published::{self, Streamed};
use crate::recipe::page::{self, Curve, Order, Peak, is_virtual, megabytes};
use stele_ground::Bytes;
use stele_lab::error::LabError;
use stele_lab::record::{Recorded, RunRecord};
use stele_lab::report::chart::{Axis, Chart, Series};
use stele_lab::report::document::{Document, Entry, Table, Text};

const SOURCE: &str = "IBM's “Elastic Storage with GPFS Native RAID performance test results with Tivoli Storage Manager over 40 GBit Ethernet” (2014)";

pub fn document(order: Order<'_>) -> Result<Document, LabError> {
    let Order { recorded, part, against, .. } = order;
    let found = Found { recorded };
    let what = if is_virtual(recorded) { "modelled drives" } else { &recorded.head.target };
    let own = format!("Backup, restore and mixed streams: {what}");
    let mut page = order.begin(own, ", beside TSM on GPFS Native RAID");
    summary(&mut page, found, against);
    page::lacks(&mut page, recorded, &left_out(part.quick, is_backup(recorded)));
    method(&mut page, recorded, against);
    if !is_virtual(recorded) {
        page::environment(&mut page, recorded);
    }
    results(&mut page, found, against);
    page::odd(&mut page, odd(found), if against { &["Backup"] } else { &[] });
    limits(&mut page, found, against);
    page::again(&mut page, order, SOURCE);
    Ok(page)
}

/// The code of backups is at work.
fn is_backup(recorded: &Recorded) -> bool {
    !is_virtual(recorded) && super::is_backup(&recorded.head.target)
}

/// The published result for such streams. Virtual time has no servers: it takes the results of two, which the drives
/// limit.
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
            "Sessions of backups and restores, to and from {}. The content is generated in memory; what is restored is checked by \
             the code of backups and thrown away.",
            found.recorded.head.reached
        ),
        false => format!(
            "Sessions streamed to and from {}: writes as a backup does, reads as a restore does, and both at once. What is written is \
             generated in memory, and what is read is thrown away.",
            found.recorded.head.reached
        ),
    });
    let peak = |(direction, servers)| Peak {
        name: name_of(found, direction, servers),
        row: row_of(direction, servers),
        count: ("sessions", "session", found.highest(direction, servers).is_some_and(|(sessions, _)| sessions == 1)),
        of: None,
        published: against && published_of(found, direction, servers).is_some(),
        flattened: page::flattened(&points(&found.curve(direction, servers))),
        caveat: None,
    };
    page.list(found.kinds().into_iter().map(|kind| peak(kind).sentence()));
}

fn method(page: &mut Document, recorded: &Recorded, against: bool) {
    page.section("Tool, workloads and method");
    page.paragraph(format!(
        "The published measurement is of backup servers under a load that is generated in memory, over one link of 40 Gbit/s for each \
         server, to a machine with 116 nearline drives in two groups of 58, data as 8+2 with declustered parity. It states neither how \
         many sessions there were nor how long their accesses are, nor the shares of backup and restore in what is mixed. {}",
        sessions_said(recorded)
    ));
    if is_backup(recorded) {
        page.paragraph(
            "A session of a backup cuts the content of an object into chunks, hashes, compresses and encrypts them, and sends them to \
             the repository as a segment. The response is the time from the content in memory to the answer that the segment is \
             durable. The sessions share one index of chunks. Behind each run the objects become part of a snapshot. A session of a \
             restore reads the segments of an object that a snapshot has, decrypts, decompresses and compares each chunk with its hash.",
        );
        page.paragraph(
            "To make this page: start a server, make a bucket in it, and give its address to this command. Without a repository at \
             that place one is made for the run, and removed behind it.",
        );
    }
    if is_virtual(recorded) {
        page.paragraph(format!(
            "The array: Stele's code, 8+2, declustered over all {DRIVES} drives as one pool, {STROKE} % of each in use; each session has its own \
             part of the volume. The drives are modelled ones of 18.2 GB at 15,000 rpm that were fitted to another published machine; the \
             speed of the published nearline drives is not stated. Writes are answered from a log in 2 GiB of memory. There is no \
             link and no server: the published results of two servers stand beside, which its authors hold to be bound by the drives."
        ));
    } else {
        page.paragraph(match recorded.head.job.recipe.as_ref().is_some_and(|part| !part.beside.is_empty()) {
            true => "Each of the two targets stands for a server; with two servers all sessions of both run at once, generated by this machine.",
            false => "One server was measured: one target was given. With a second --on, both are driven at once.",
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
            "Here a session saves or restores one object of {} after the other, and mixed is half restores.",
            Bytes(OBJECT)
        ),
        false => format!(
            "Here a session has one access of {} under way, and goes on where its last one ended; with one access in a hundred it begins \
             at another place, as one object ends and the next begins. Mixed is half reads.",
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
            Entry::span(run.total().response.mean()),
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
            "The share is of 5,000 million bytes a second for each link of 40 Gbit/s, if the published MB are millions of bytes. Of the links \
             to this target nothing is known here.",
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
                    Entry::span(response.mean()),
                    Entry::span(response.percentile(0.99)),
                ],
            );
        }
    }
    table
}

fn odd(found: Found<'_>) -> Vec<String> {
    let mut lines = page::remarks(found.recorded);
    let curve = |(direction, servers): (&'static str, u32)| Curve {
        name: format!("{}, MB/s", name_of(found, direction, servers)),
        over: "sessions",
        points: points(&found.curve(direction, servers)),
    };
    let curves: Vec<Curve> = found.kinds().into_iter().map(curve).collect();
    lines.extend(page::falls(&curves));
    for (direction, _) in DIRECTIONS {
        let (one, two) = (found.highest(direction, 1), found.highest(direction, 2));
        if let (Some((_, one)), Some((_, two))) = (one, two)
            && megabytes(two) < megabytes(one)
        {
            lines.push(format!("{direction}: two servers are slower than one."));
        }
    }
    lines
}

fn limits(page: &mut Document, found: Found<'_>, against: bool) {
    page.section("Limits");
    let program = match is_backup(found.recorded) {
        true => {
            "Generated content has no files: nothing is walked or opened, and there is no metadata of a tree. What the generator \
             takes to make the content in memory is part of the processor time of the sessions."
        }
        false => {
            "No backup program is at work: no database of objects, no catalog, no protocol of its own. These are its streams alone."
        }
    };
    let mut lines = vec![
        program.to_owned(),
        "The size of an access and the sessions were chosen here, since the published ones are not stated.".to_owned(),
    ];
    if is_virtual(found.recorded) {
        lines.push(
            "Virtual time counts no processor, no network and no memory: where those are the bound, real storage is slower. 116 drives \
             of another kind are no statement of what the published drives would do."
                .to_owned(),
        );
    } else {
        lines.push(
            "Generator and target may share this machine's processors and memory, as the published clients and servers did; what the \
             generator takes is not taken off."
                .to_owned(),
        );
    }
    if against {
        lines.push(
            "The published machines are of 2014, with links and drives of that time: a ratio compares two whole systems, and no part of them."
                .to_owned(),
        );
    }
    page.list(lines);
}
