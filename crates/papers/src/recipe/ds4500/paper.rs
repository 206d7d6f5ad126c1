//! The paper of the recipe, from its results: in the order of the published one, with its tables
//! and charts by number.

use super::nearness::{self, Row};
use crate::ds4500::profile::{Machine, PROFILE_SAMPLE};
use crate::oddities;
use crate::published::{self, suspicion};
use crate::recipe::page::{self, Order};
use crate::recipe::{self, ds4500, set_up};
use found::{Found, bound_by, busy, rate};
use stele_lab::error::LabError;
use stele_lab::job::RecipePart;
use stele_lab::modelled::processors::Processors;
use stele_lab::raid::Level;
use stele_lab::record::Recorded;
use stele_lab::report::document::{Document, Entry, Table, Text};
use tables::{PUBLISHED, STELE};

mod charts;
mod found;
mod tables;

/// The published paper.
pub const SOURCE: &str = "IBM's “Comparison of the Raw Performance of the DS4500 and DS4400 Storage Servers” (2004)";

/// Drives of the smallest arrays, whose controllers were not the limit.
const FEWEST: u64 = 20;
/// Number of the model's errors in the list.
const WORST: usize = 8;

/// A whole number with separators.
pub fn whole(value: f64) -> String {
    page::thousands(value)
}

/// The fewest and the most drives of the cells: a quick run has none of the large arrays.
fn drives(recorded: &Recorded) -> String {
    let counts = || recorded.cells.iter().filter_map(|cell| cell.axis("drives")?.parse::<u32>().ok());
    match (counts().min(), counts().max()) {
        (Some(fewest), Some(most)) if fewest < most => format!("{fewest} to {most}"),
        (Some(only), _) => only.to_string(),
        (None, _) => "20 to 180".to_owned(),
    }
}

pub fn document(order: Order<'_>) -> Result<Document, LabError> {
    let Order { recorded, part, against, .. } = order;
    let found = Found { recorded };
    let drives = drives(recorded);
    let own = format!("RAID-5 and RAID-10 over {drives} drives: what Stele sustains at 20 ms");
    let mut page = order.begin(own, ", beside the DS4500");
    let left_out = recipe::plan(part)?.left_out;
    summary(&mut page, found, part, against);
    page::lacks(&mut page, recorded, &left_out);
    method(&mut page);
    page.diagram(set_up::modelled("9+1 for RAID-5, mirror-2 for RAID-10", &drives, ds4500::STROKE));
    if against {
        page.diagram(set_up::ds4500());
    }
    for (level, first) in [(Level::Raid5, 1), (Level::Raid10, 5)] {
        results(&mut page, found, part, level, first, against);
    }
    if let Some(table) = tables::logs(found) {
        page.section("Stele with its log on the hard drives");
        page.paragraph(
            "Here a server has no memory to keep its log in: four of the drives carry the log, at the outer edge, beside their share of \
             the data. Writes are still acknowledged from the log.",
        );
        page.table(table);
    }
    if let Some(table) = tables::charged(found, against) {
        page.section("With its processors modelled");
        page.paragraph(processors());
        page.table(table);
    }
    if against {
        near(&mut page, found);
    }
    let odd = oddities::of_tables(&tables::as_printed(found));
    let odd = odd.into_iter().map(|odd| format!("{}: {}.", odd.place, odd.why)).collect();
    page::odd(&mut page, odd, if against { &["Table", "Chart"] } else { &[] });
    limits(&mut page);
    conclusion(&mut page, found, against);
    page::again(&mut page, order, SOURCE);
    Ok(page)
}

fn conclusion(page: &mut Document, found: Found<'_>, against: bool) {
    let models = tables::beside_model(found);
    let bound: Vec<_> = models.iter().filter(|one| one.drive_bound).collect();
    let above = bound.iter().filter(|one| one.ours >= one.model * 0.99).count();
    let mut says = Text::from(match bound.is_empty() {
        true => "No cell was measured with both arrays.".to_owned(),
        false => format!(
            "Where the controllers of the DS4500's model are not the bound, Stele's array code reaches its rate (to 1 %) in {above} of {} \
             cells: both ask about the same of the same drives.",
            bound.len()
        ),
    });
    let beside = |printed: &published::Printed| {
        Some((rate_or_bytes(printed, found.charged(printed)?), printed.rate.or(printed.throughput)?))
    };
    let charged: Vec<(f64, f64)> =
        published::ds4500_tables().iter().filter(|printed| suspicion(printed).is_none()).filter_map(beside).collect();
    if against && !charged.is_empty() {
        let above = charged.iter().filter(|(ours, theirs)| ours >= theirs).count();
        says = says.say(format!(
            " With the measured time of its processors counted, it is at or above the published figure in {above} of {} cells of the \
             charts' number of drives.",
            charged.len()
        ));
    }
    page::conclusion(
        page,
        found.recorded,
        says,
        "These are figures of code on modelled drives in virtual time. They compare designs; they do not measure a machine that one can \
         buy.",
    );
}

/// In the unit of its table.
fn rate_or_bytes(printed: &published::Printed, cell: &stele_lab::record::CellRecord) -> f64 {
    if printed.size.is_none() { found::throughput(cell) } else { rate(cell) }
}

fn summary(page: &mut Document, found: Found<'_>, part: &RecipePart, against: bool) {
    page.section("Summary");
    page.paragraph(
        "Every figure is the highest rate that an array sustains at a mean response of 20 ms. Stele's own array code ran on \
         modelled 15,000 rpm drives, and so did a model of the DS4500's two controllers. Time is virtual, so the same command \
         gives the same digits on any machine.",
    );
    let told = [
        ("Table 1", "oltp", Some(8192), true, "RAID-5 OLTP of 8 KiB with the write cache"),
        ("Table 4", "random_read", Some(8192), false, "RAID-5 random reads of 8 KiB"),
        ("Table 4", "random_write", Some(8192), true, "RAID-5 random writes of 8 KiB with the write cache"),
        ("Table 5", "oltp", Some(8192), true, "RAID-10 OLTP of 8 KiB with the write cache"),
        ("Table 8", "random_write", Some(8192), true, "RAID-10 random writes of 8 KiB with the write cache"),
    ];
    // If drives limit the published rate, the comparison concerns the software above them; such
    // cells come first.
    let mut lines: Vec<(bool, Text)> = Vec::new();
    for (drives, (table, workload, size, cached, what)) in
        [FEWEST, ds4500::curve_drives(part.quick).into()].into_iter().flat_map(|drives| told.map(|cell| (drives, cell)))
    {
        let cells = tables::measured(found, table);
        let same = cells.iter().find(|(printed, _)| {
            (printed.drives, printed.workload.as_str(), printed.size, printed.cached)
                == (drives, workload, size, cached)
        });
        let Some((printed, _)) = same else { continue };
        let ours = tables::place(printed, STELE);
        let by_controllers = found.printed("ds4500", printed).map(bound_by) == Some("controllers");
        let mut text = Text::from(format!("{what}, {drives} drives: ")).cell_as(&ours, " accesses a second");
        if against {
            let theirs = tables::place(printed, PUBLISHED);
            text = text.say(", ").ratio(&ours, &theirs).say(" times the DS4500's published ").cell(&theirs);
            if let Some(why) = suspicion(printed) {
                text = text.say(format!(" (suspect: {why})"));
            }
            if by_controllers {
                text = text.say(", whose controllers set its rate; no controller is modelled for Stele");
            }
            if found.charged(printed).is_some() {
                let charged = tables::charged_place(printed, tables::CHARGED);
                text = text.say(". With the measured time of its processors counted: ").cell(&charged).say(", ");
                text = text.ratio(&charged, &theirs).say(" times");
            }
        }
        lines.push((by_controllers, text.say(".")));
    }
    lines.sort_by_key(|(by_controllers, _)| *by_controllers);
    let streams = if against { tables::streams_said(found) } else { Vec::new() };
    page.list(lines.into_iter().map(|(_, text)| text).chain(streams));
    let models = tables::beside_model(found);
    if !models.is_empty() {
        // A search finds a rate to within about 1 %.
        let at = |bound: bool| models.iter().filter(move |one| one.drive_bound || !bound);
        let above = |bound| at(bound).filter(|one| one.ours >= one.model * 0.99).count();
        page.paragraph(format!(
            "Stele is at or above the model of the DS4500 (to 1 %) in {} of {} cells, and in {} of the {} in which the model's controllers \
             are not the bound.",
            above(false),
            at(false).count(),
            above(true),
            at(true).count()
        ));
    }
    if against {
        let mut all = tables::beside(found);
        let suspect = all.extract_if(.., |(printed, ..)| suspicion(printed).is_some()).count();
        let level = |level| all.iter().filter(move |(printed, ..)| tables::of_level(printed, level));
        let above = |level_of| level(level_of).filter(|(_, ours, theirs)| ours >= theirs).count();
        let count = |level_of| level(level_of).count();
        page.paragraph(format!(
            "Stele is at or above the published figure in {} of {} cells of RAID-5, and in {} of {} of RAID-10. Where the published machine's \
             drives set the rate, the two are near each other, since both ask the same of the same drives. Where its controllers set the \
             rate, Stele goes on, because no controller is modelled for it (see Limits). {suspect} cells whose published figure is \
             suspect count as neither.",
            above(Level::Raid5),
            count(Level::Raid5),
            above(Level::Raid10),
            count(Level::Raid10)
        ));
    }
}

fn method(page: &mut Document) {
    let (drive, charge) = (Machine::PUBLISHED.drive, Machine::PUBLISHED.charge);
    page.section("Arrays, workloads and method");
    page.paragraph(format!(
        "The drives have 18.2 GB at 15,000 rpm. The arm takes {} from track to track, {} on average and {} for the full stroke; a write \
         takes {} more, a command {}, and a drive chooses among {} commands. Seeks, settling, overhead and window were fitted to the \
         published uncached cells of 20 drives. All arrays use 8 % of each drive, except in tables 2 and 6.",
        drive.seek_track, drive.seek_average, drive.seek_full, drive.write_settle, drive.overhead, drive.window
    ));
    page.paragraph(
        "Stele is the array's own code, declustered, 9+1 in place of RAID-5 and two copies in place of RAID-10, with room to rebuild \
         one drive. Where the table says that the cache is off, a write is acknowledged when it is on the drives; where it is on, from the \
         log. The log lies in the same 2 GiB of memory that the published machine had as its cache, in four replicas. \
         Reads are not cached, as those of the published machine were not. Processor time is not counted, except in the section \
         on processors.",
    );
    page.paragraph(format!(
        "The DS4500's model has arrays of ten drives, written in place, and two controllers that charge {:.2} us for each command to a \
         drive and {:.3} us for each KiB. Both charges are solved from the published random reads of 140 drives. Its write cache is full \
         when a probe begins.",
        charge.command_nanos / 1000.0,
        charge.kib_nanos / 1000.0
    ));
    page.paragraph(format!(
        "Working set and caches are sampled, the log is not: 367 MB of each drive are simulated, in bands spread over its used part. Of the \
         model's cache one part in {PROFILE_SAMPLE} is simulated. Workloads are Iometer's as published, accesses aligned to their size: OLTP \
         is 67 % reads at random places; the file server is 80 % reads of 0.5 to 64 KiB; the static web server reads 0.5 to 512 KiB. A closed \
         loop keeps accesses outstanding. The search multiplies their number until the response is beyond 20 ms, and then closes in by \
         Little's law. A run is steady when over five rounds the rates' range is at most 20 % of their mean and their rise at most \
         10 %. The sign ± stands for half of the 95 % confidence interval from those rounds."
    ));
    page.paragraph(
        "A cell is bound by drives, controllers or processors where these were at work for 85 % of the time or more, in the mean. It is bound \
         by memory where hosts waited for room in the log, and by queues where too few accesses were outstanding at 20 ms to keep all \
         drives at work.",
    );
}

/// Where the costs of a processor come from.
fn processors() -> String {
    let micros = |nanos: u64| format!("{:.1} us", nanos as f64 / 1000.0);
    let of = |level: Level| {
        let Processors { read, write, .. } = Processors::measured(level, ds4500::PROCESSORS);
        format!(
            "{} and {} for each KiB of a read, {} and {} of a write",
            micros(read.access),
            micros(read.kib),
            micros(write.access),
            micros(write.kib)
        )
    };
    format!(
        "These are the same cells with a server before the array. An access first takes the server's processor{}. \
         For 8+2, which stands for 9+1, it takes {}; for mirror-2, {}. That is all processor time of Stele's server over NBD, with \
         protocol, digests, codes and destage, as docs/block.md has it from volumes on drives of memory. These are the figures to set \
         beside a machine whose controllers are its bound.",
        if ds4500::PROCESSORS == 1 {
            "; there is one, since one thread serves a pool".to_owned()
        } else {
            format!("; there are {}", ds4500::PROCESSORS)
        },
        of(Level::Raid5),
        of(Level::Raid10)
    )
}

fn results(page: &mut Document, found: Found<'_>, part: &RecipePart, level: Level, first: u8, against: bool) {
    let name = level.name();
    let (drives, chart) = (ds4500::curve_drives(part.quick), if first == 1 { 1 } else { 7 });
    page.section(name);
    let rates = |page: &mut Document, number: u8, title: String| {
        let name = format!("Table {number}");
        if let Some(table) = tables::rates(found, &name, &title, against) {
            page.table(table);
            page.list(tables::remarks(found, &name, against));
        }
    };
    page.part(format!("{name}: OLTP"));
    rates(page, first, format!("{name}, OLTP (67 % reads)"));
    page.chart(charts::bars(found, "oltp_8k", level, true, against));
    if let Some(table) = tables::strokes(found, &format!("Table {}", first + 1), level, against) {
        page.table(table);
    }
    page.chart(charts::curves(found, chart, "oltp_8k", level, drives, against));
    page.part(format!("{name}: streams"));
    if let Some(table) = tables::streams(found, level, chart + 1, against) {
        page.table(table);
    }
    page.chart(charts::streams(found, chart + 1, "streaming_read", level, against));
    page.chart(charts::streams(found, chart + 2, "streaming_write", level, against));
    page.part(format!("{name}: file server and static web server"));
    rates(page, first + 2, format!("{name}, file server and static web server"));
    page.chart(charts::curves(found, chart + 3, "file_server", level, drives, against));
    page.part(format!("{name}: random reads and random writes"));
    rates(page, first + 3, format!("{name}, random reads and random writes"));
    page.chart(charts::bars(found, "random_write_8k", level, true, against));
    page.chart(charts::curves(found, chart + 4, "random_write_8k", level, drives, against));
    page.chart(charts::curves(found, chart + 5, "random_read_8k", level, drives, against));
}

/// The distance of the model from the published figures: a measure of the modelled drives that both
/// ran on.
fn near(page: &mut Document, found: Found<'_>) {
    let row = |cell: published::Printed| {
        let model = found.printed("ds4500", &cell)?;
        let (published, busy) = (cell.rate?, busy(model, "controllers").unwrap_or(0.0));
        Some(Row { cell, published, model: rate(model), busy })
    };
    let rows: Vec<Row> = published::rated().into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return;
    }
    let mut table = Table::new("The model's rates against the published ones")
        .left("cells", "cells")
        .right("count", "count")
        .right("error", "mean absolute error");
    let lines = nearness::lines(&rows);
    for (number, (name, found)) in lines.into_iter().enumerate().filter(|(_, (_, found))| found.cells > 0) {
        let error = found.error * 100.0;
        let count = Entry::said(found.cells as f64, found.cells.to_string());
        table
            .row(format!("near-{number}"), vec![Entry::text(name), count, Entry::said(error, format!("{error:.1} %"))]);
    }
    page.section("How near the model is");
    page.paragraph(
        "Stele's figures rest on the modelled drives. The published machine's model runs on the same drives, so its distance from the \
         published figures shows how far the drives can be trusted. Cells that the model was fitted to stand apart from those held out. \
         Cells that contradict their own table or text are called suspect, and nothing was fitted to them.",
    );
    page.table(table);
    let mut worst: Vec<&Row> = rows.iter().filter(|row| suspicion(&row.cell).is_none()).collect();
    worst.sort_by(|left, right| right.error().abs().total_cmp(&left.error().abs()));
    page.paragraph("The largest errors among the cells that are not suspect:");
    page.list(worst.iter().take(WORST).map(|row| {
        let cache = if row.cell.cached { "on" } else { "off" };
        let error = row.error() * 100.0;
        let (table, drives) = (&row.cell.table, row.cell.drives);
        format!("{table}, {}, {drives} drives, write cache {cache}: {error:+.1} %.", tables::workload_of(&row.cell))
    }));
}

fn limits(page: &mut Document) {
    page.section("Limits");
    page.list([
        "The drives are modelled by arm, platter, settling and a window of commands. Nothing else that a drive does is modelled.",
        "The network between hosts and array and the memory's bandwidth are not counted, and processor time only in its own section. So \
         rates elsewhere, where the DS4500's controllers were the bound, say what Stele's code asks of drives, not what a given server \
         reaches.",
        "The published machine's own cache algorithm, its loops of drives, and the reason why its rates fall from 140 to 180 drives are \
         not known, and not in its model. The model of its streams reads eight segments ahead, as is stated of its predecessor. Its charge \
         for a KiB is solved from the streaming reads of RAID-5 at 64 KiB; the other three stated streams show how far it can be trusted.",
        "Runs end before table pages are stored at the rate of a long run, which would take up to 3 % of the drives' time by calculation.",
        "The published charts are lost: only the figures that the text states are shown.",
    ]);
}
