//! The tables as Markdown: published, ours, error; then Stele.

use std::fmt::Write;

use crate::modelled::{Machine, PROFILE_SAMPLE};
use crate::published::{Level, suspicion};
use crate::set::{Row, StrokeRow, is_fitted, nearness};

pub fn thousands(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// The whole page.
pub fn markdown(rows: &[Row], strokes: &[StrokeRow]) -> String {
    let mut page = String::new();
    head(&mut page);
    near(&mut page, rows);
    judged(&mut page, rows);
    missed(&mut page, rows);
    for (table, level, title) in [
        (1, Level::Raid5, "OLTP (67 % reads)"),
        (4, Level::Raid5, "random reads and random writes"),
        (5, Level::Raid10, "OLTP (67 % reads)"),
        (8, Level::Raid10, "random reads and random writes"),
    ] {
        let _ = writeln!(page, "\n## Table {table}: {} {title}\n", level.name());
        table_of(&mut page, rows, table);
    }
    stroke_tables(&mut page, strokes);
    log_on_drives(&mut page, rows);
    page
}

fn head(page: &mut String) {
    let (drive, charge) = (Machine::PUBLISHED.drive, Machine::PUBLISHED.charge);
    let _ = write!(
        page,
        "# The DS4500's experiments in virtual time\n\n\
         Made by `./x bench virtual`; the same digits at every run. The unit is accesses a second at a mean response of 20 ms.\n\n\
         **Published** is the table's cell as printed. **Profile** is a model of the published machine: 15,000 rpm drives \
         (track {} to average {} to full {}, writes {} more, {} a command, a window of {} commands), two controllers that \
         charge {:.2} us for each command to a drive and {:.3} us for each KiB, RAID-5 9+1 and RAID-10 in arrays of ten, \
         reads and writes in place, 8 % of each drive in use, accesses aligned to their size. **Stele** is the array's own \
         code on the same modelled drives without those controllers, declustered, 9+1 and mirror-2: write-through where the \
         published cache is off, write-back where it is on. Its log lies in the same 2 GiB of memory that the published \
         machine had as its cache, on four replicas; its time on a processor is not counted. Working set and cache are \
         sampled to one part in 4, spread over the whole share of the drives. Reads are not cached, as the published \
         machine read without a cache. These runs end before table pages are stored at the \
         rate of the long run: by calculation a page for every fifteen to forty small writes, in runs, up to 3 % of the drives' time. \
         The profile's cache is sampled to one part in {PROFILE_SAMPLE}, and full when it is asked, so that it is as full as it stays \
         before it is measured.\n\n\
         The drive's seeks, settling, overhead and window were fitted to the 18 uncached cells of 20 drives, the \
         controllers' charge to the four random reads of 140 drives; those cells are marked f. Everything else is held out. \
         Cells that contradict their own table or text are marked with what is wrong with them.\n",
        drive.seek_track,
        drive.seek_average,
        drive.seek_full,
        drive.write_settle,
        drive.overhead,
        drive.window,
        charge.command_nanos / 1000.0,
        charge.kib_nanos / 1000.0,
    );
}

fn near(page: &mut String, rows: &[Row]) {
    let _ = writeln!(
        page,
        "\n## How near the profile comes\n\n| cells | count | mean absolute error |\n| --- | --- | --- |"
    );
    let trusted = |row: &Row| suspicion(&row.cell).is_none();
    for (name, found) in nearness_lines(rows) {
        let _ = writeln!(page, "| {name} | {} | {:.1} % |", found.cells, found.error * 100.0);
    }
    let _ = writeln!(page, "\nThe largest errors among the cells that nothing speaks against:\n");
    let mut worst: Vec<&Row> = rows.iter().filter(|row| trusted(row)).collect();
    worst.sort_by(|a, b| b.error().abs().total_cmp(&a.error().abs()));
    for row in worst.iter().take(8) {
        let _ = writeln!(page, "- {}: {}", crate::set::name(&row.cell), percent(row.error()));
    }
}

/// What the errors are taken over, with each.
pub fn nearness_lines(rows: &[Row]) -> Vec<(&'static str, crate::set::Nearness)> {
    let trusted = |row: &Row| suspicion(&row.cell).is_none();
    let held_out = |row: &Row| !is_fitted(&row.cell);
    let bound = |row: &Row| row.profile.controller_bound();
    vec![
        (
            "drive-bound, uncached, held out, not suspect",
            nearness(rows, |row| !row.cell.cached && held_out(row) && trusted(row) && !bound(row)),
        ),
        (
            "controller-bound, uncached, held out, not suspect",
            nearness(rows, |row| !row.cell.cached && held_out(row) && trusted(row) && bound(row)),
        ),
        ("drive-bound, cached, not suspect", nearness(rows, |row| row.cell.cached && trusted(row) && !bound(row))),
        ("controller-bound, cached, not suspect", nearness(rows, |row| row.cell.cached && trusted(row) && bound(row))),
        ("drive-bound, fitted", nearness(rows, |row| is_fitted(&row.cell) && !bound(row))),
        ("suspect, all", nearness(rows, |row| !trusted(row))),
        ("all cells", nearness(rows, |_| true)),
    ]
}

fn judged(page: &mut String, rows: &[Row]) {
    let asked: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((row, row.stele?.rate))).collect();
    let count = |passes: &dyn Fn(&Row, f64) -> bool| asked.iter().filter(|(row, rate)| passes(row, *rate)).count();
    let bound = |row: &Row| row.profile.controller_bound();
    let doubled = |row: &Row| row.cell.cached && row.cell.workload == "random_write" && row.cell.level == Level::Raid5;
    let _ = write!(
        page,
        "\n## How Stele stands\n\n\
         - at or above the profile (to 1 %) in {} of {} cells; of those that the profile's drives bound, in {} of {}\n\
         - above the published figure in {} of {} controller-bound cells\n\
         - RAID-5 random writes with write-back: {} of {} cells at twice the profile, {} at twice the published figure\n",
        count(&|row, rate| rate >= row.profile.rate * 0.99),
        asked.len(),
        count(&|row, rate| !bound(row) && rate >= row.profile.rate * 0.99),
        count(&|row, _| !bound(row)),
        count(&|row, rate| bound(row) && rate > row.cell.rate),
        count(&|row, _| bound(row)),
        count(&|row, rate| doubled(row) && rate >= 2.0 * row.profile.rate),
        count(&|row, _| doubled(row)),
        count(&|row, rate| doubled(row) && rate >= 2.0 * row.cell.rate),
    );
}

/// Where Stele misses what it was to reach, and why.
fn missed(page: &mut String, rows: &[Row]) {
    let _ = writeln!(page, "\n## Where it falls short, and what would help\n");
    let asked = || rows.iter().filter_map(|row| Some((row, row.stele?.rate)));
    let _ = writeln!(page, "Below 0.99 of the profile:\n");
    for (row, rate) in asked().filter(|(row, rate)| *rate < row.profile.rate * 0.99) {
        let _ = writeln!(page, "- {}: {:.2}", crate::set::name(&row.cell), rate / row.profile.rate);
    }
    let _ = writeln!(page, "\nWith more drives the rate falls here:\n");
    for (row, rate) in asked() {
        let cell = &row.cell;
        let before = asked().rfind(|(other, _)| {
            let other = &other.cell;
            other.drives < cell.drives
                && (other.table, other.cached, other.size, &other.workload)
                    == (cell.table, cell.cached, cell.size, &cell.workload)
        });
        if let Some((fewer, former)) = before.filter(|(_, former)| rate < *former) {
            let name = crate::set::name(cell);
            let _ =
                writeln!(page, "- {name}: {} after {} at {}", thousands(rate), thousands(former), fewer.cell.drives);
        }
    }
    let _ = writeln!(
        page,
        "\nA small write to 9+1 is four commands of drives in place, here as there: old data and old parity are read, both are \
         written; to a mirror it is two. What Stele adds (table pages, anchors) is at most a tenth of a command; its log is in \
         memory. Without a cache it can therefore not be faster than the profile, and is slower: an access waits for \
         the later of two drives, and in a declustered pool any two drives form a pair, with queues of their own, while the \
         two of a fixed pair get the same writes in the same order; and the profile's load is dealt out to each array of ten in equal \
         parts. With write-back it gains from the order in which dirty stripes leave, not from fewer commands: its log of \
         512 MiB a replica holds some 15,000 dirty blocks with their parity's images, less than one for each stripe, and hosts \
         wait whenever the oldest of them keeps the log from being trimmed, which is what makes those cells unsteady. Twice the \
         profile at every number of drives takes fewer commands: a stripe that moves whole to a new slot with what is dirty of \
         it, once the log holds enough of it; or a type of volume that appends small writes to new stripes and cleans. Neither \
         exists."
    );
}

fn table_of(page: &mut String, rows: &[Row], table: u8) {
    let _ = writeln!(
        page,
        "| drives | cache | access | published | profile | error | bound by | Stele | of profile | of published | |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for row in rows.iter().filter(|row| row.cell.table == table) {
        let cell = &row.cell;
        let stele = match row.stele {
            Some(figure) => format!(
                "{} | {:.2} | {:.2}",
                thousands(figure.rate),
                figure.rate / row.profile.rate,
                figure.rate / cell.rate
            ),
            None => " | | ".to_owned(),
        };
        let unsteady = row.stele.is_some_and(|figure| !figure.steady) || !row.profile.steady;
        let mut marks: Vec<&str> = Vec::new();
        marks.extend(is_fitted(cell).then_some("f"));
        marks.extend(unsteady.then_some("not steady"));
        marks.extend(suspicion(cell));
        let _ = writeln!(
            page,
            "| {} | {} | {} {} KiB | {} | {} | {} | {} | {stele} | {} |",
            cell.drives,
            if cell.cached { "on" } else { "off" },
            cell.workload.replace('_', " "),
            cell.size >> 10,
            thousands(cell.rate),
            thousands(row.profile.rate),
            percent(row.error()),
            if row.profile.controller_bound() { "controllers" } else { "drives" },
            marks.join("; "),
        );
    }
}

fn stroke_tables(page: &mut String, strokes: &[StrokeRow]) {
    let _ = writeln!(
        page,
        "\n## Tables 2 and 6: factor on the rate at 8 % when more of each drive is in use\n\n\
         OLTP at 20 drives, cache off; ours is the mean over 4, 8 and 16 KiB, for which the paper states one factor.\n\n\
         | table | level | share in use | published | profile | error |\n| --- | --- | --- | --- | --- | --- |"
    );
    for row in strokes {
        let _ = writeln!(
            page,
            "| {} | {} | {} % | {:.2} | {:.3} | {} |",
            row.table,
            row.level.name(),
            row.percent,
            row.published,
            row.ours,
            percent(row.ours / row.published - 1.0)
        );
    }
}

fn log_on_drives(page: &mut String, rows: &[Row]) {
    let _ = writeln!(
        page,
        "\n## Stele with its log on the hard drives\n\n\
         Write-back, no memory beside the drives: four of them carry the log, at the outer edge, beside their share of the data.\n\n\
         | level | drives | access | log in memory | log on the drives | ratio |\n| --- | --- | --- | --- | --- | --- |"
    );
    for row in rows {
        let (Some(memory), Some(drives)) = (row.stele, row.stele_log_on_drives) else { continue };
        let _ = writeln!(
            page,
            "| {} | {} | {} {} KiB | {} | {} | {:.2} |",
            row.cell.level.name(),
            row.cell.drives,
            row.cell.workload.replace('_', " "),
            row.cell.size >> 10,
            thousands(memory.rate),
            thousands(drives.rate),
            drives.rate / memory.rate
        );
    }
}

#[cfg(test)]
mod tests;
