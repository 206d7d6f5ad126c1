//! Runs `stele lab`: builds a job, runs its cells, and shows the contents of result files. It needs
//! no pool and no server.

mod asked;
mod backup;
mod check;
mod ffsb;
mod fio;
mod history;
mod hosts;
mod live;
mod modelled;
mod pages;
mod paper;
mod progress;
mod recipe;
mod replay;
mod show;
mod stop;
mod tenants;
mod turns;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use stele_ground::Duration;
use stele_ground::shown::{Shown, shown};
use stele_lab::error::LabError;
use stele_lab::job::{Given, Job, JobCell};
use stele_lab::live::read_back;
use stele_lab::live::target::{Opening, Ready, Target};
use stele_lab::record::{self, CellRecord, Head, Recorder};
use stele_lab::report::{Side, bytes_of, called, chosen, rate_said, remark, sides};
use stele_lab::workload::AccessSpec;
use stele_lab::{ab_test, environment, sweep, workload};
use stele_papers::import::{self, Origin};
use stele_server::failure::{Failure, Kind, Outcome};

use crate::cli::lab::{Compare, Lab, LabRun, OriginArg, PapersCommand, Search, What};
use crate::commands::print_json;
use crate::output::{Align, Table};
use asked::{add_load, add_search, job_of, kept_in_directory, text_of};
use live::Live;
use progress::Progress;
use stop::until_stopped;
use turns::{Draft, Ending, in_turn, keep, stopped};

pub async fn run(json: bool, command: Lab) -> Outcome<()> {
    backup::reach();
    match command {
        Lab::Run(LabRun { hosts, token, what, load }) => {
            let what = kept_in_directory(what)?;
            let mut job = job_of(&what)?;
            add_load(&mut job, load);
            match hosts.is_empty() {
                true => measure(json, what, job, None).await,
                false => hosts::run(json, what, job, hosts, hosts::secret(&token)?).await,
            }
        }
        Lab::Replay(asked) => replay::run(json, asked).await,
        Lab::Serve { listen, token, destroy } => hosts::serve(json, listen, hosts::secret(&token)?, destroy).await,
        Lab::Search(search) => {
            let search = Search { what: kept_in_directory(search.what)?, ..search };
            let mut job = job_of(&search.what)?;
            add_search(&mut job, &search);
            match search.hosts.is_empty() {
                true => measure(json, search.what, job, None).await,
                false => hosts::run(json, search.what, job, search.hosts, hosts::secret(&search.token)?).await,
            }
        }
        Lab::Compare(Compare { what, load, against, blocks }) => {
            let what = kept_in_directory(what)?;
            let mut job = job_of(&what)?;
            add_load(&mut job, load);
            measure(json, what, job, Some((against.parse()?, blocks))).await
        }
        Lab::Ffsb(asked) => ffsb::run(json, asked).await,
        Lab::Fio(asked) => fio::run(json, asked).await,
        Lab::Export { file, format, out } => pages::export(&file, format, out.as_deref(), json),
        Lab::Show { file, rounds } => show::file(&record::read(&file)?, json, rounds),
        Lab::Paper(asked) => paper::run(json, asked).await,
        Lab::Plot { files, chart, out } => pages::plot(&files, chart.as_deref(), out.as_deref(), json),
        Lab::Check(asked) => check::run(json, &asked),
        Lab::History(asked) => history::run(json, &asked),
        Lab::Diff { first, second } => show::difference(&record::read(&first)?, &record::read(&second)?, json),
        Lab::Import { file, from, into, lenient } => import_jobs(&file, from, &into, lenient, json),
        Lab::Published | Lab::Papers(PapersCommand::Check) => show::published(json),
        Lab::Workloads => workloads(json),
    }
}

fn import_jobs(file: &Path, from: Option<OriginArg>, into: &Path, lenient: bool, json: bool) -> Outcome<()> {
    let text = text_of(file)?;
    let origin = from.map_or_else(|| Origin::of(&text), Into::into);
    let jobs =
        import::jobs(&text, origin, lenient).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    std::fs::create_dir_all(into).map_err(|error| LabError::of(&error, "cannot be made", into))?;
    for imported in jobs {
        imported.warnings.iter().for_each(|warning| eprintln!("stele: {}: {}", file.display(), Shown(warning)));
        let text = toml::to_string(&imported.job)
            .map_err(|error| Failure::failed(format!("job '{}' cannot be written: {error}", imported.name)))?;
        // A name must not act as a path.
        let name: String =
            imported.name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
        write_new(&into.join(format!("{name}.toml")), &text, json).map_err(|failure| match failure.kind {
            Kind::Exists => failure.next("name another directory with --into"),
            _ => failure,
        })?;
    }
    Ok(())
}

/// Writes a file; it must not exist yet.
fn write_new(path: &Path, bytes: impl AsRef<[u8]>, json: bool) -> Outcome<()> {
    stele_server::files::create(path, bytes.as_ref()).map_err(|failure| match failure.kind {
        Kind::Exists => exists(path),
        _ => failure,
    })?;
    written(path, json)
}

/// Another file stands in the way of one that is to be written.
fn exists(path: &Path) -> Failure {
    Failure::new(Kind::Exists, format!("{}: exists already", path.display())).next("name another file with --out")
}

/// A result file is in the way: the laboratory's error, with the exit code for a thing that exists.
fn result_exists(path: &Path) -> Failure {
    Failure::new(Kind::Exists, record::exists(path).to_string())
}

/// A new result file; it must not exist yet.
fn created(path: &Path, head: &Head) -> Outcome<Recorder> {
    Recorder::create(path, head.clone()).map_err(|error| match error == record::exists(path) {
        true => result_exists(path),
        false => error.into(),
    })
}

/// The same in the place of a file that is there.
fn write_over(path: &Path, bytes: impl AsRef<[u8]>, json: bool) -> Outcome<()> {
    stele_server::files::replace_among_others(path, bytes.as_ref())?;
    written(path, json)
}

fn written(path: &Path, json: bool) -> Outcome<()> {
    match json {
        true => print_json(&serde_json::json!({ "written": path })),
        false => {
            println!("{}", path.display());
            Ok(())
        }
    }
}

/// `against` holds the other target of a comparison and the number of blocks.
async fn measure(json: bool, what: What, job: Job, against: Option<(Target, u32)>) -> Outcome<()> {
    if let Some(part) = job.modelled.clone() {
        return match against {
            None => modelled::job(json, what, job, &part).await,
            Some(_) => {
                Err(Failure::usage("modelled arrays are compared without chance: give both as values of an axis"))
            }
        };
    }
    if job.replay.is_some() && against.is_none() {
        return replay::job(json, what, job).await;
    }
    let mut cells = job.cells()?;
    if against.is_some() && !job.tenant.is_empty() {
        return Err(Failure::usage("a comparison takes one cell at a time, and tenants are several at once")
            .next("run the tenants on each target, and compare the results with `stele lab diff`"));
    }
    if let Some((_, blocks)) = &against {
        cells = ab_test::expanded(&cells, *blocks, job.content()?.seed)?;
    }
    if !job.tenant.is_empty() && against.is_none() {
        return tenants::run(json, what, job, cells).await;
    }
    let Some(on) = &job.on else { return Err(no_target()) };
    let targets: Vec<Target> = std::iter::once(on.parse()?).chain(against.map(|(target, _)| target)).collect();
    // A volume in this process goes with its drives when it is closed.
    let reopens = |target: &Target| matches!(target, Target::Path(_) | Target::Directory(_));
    if matches!(job.buffered, Given::Many(_)) && !targets.iter().all(reopens) {
        return Err(Failure::usage(
            "buffered as a list opens the target again in between: only a file, a device or a directory is",
        )
        .next("give one value, and run it twice"));
    }
    if what.plan {
        return show::plan(&job, &cells, json);
    }
    until_stopped(move |stop| sweep(json, &what, &job, &targets, &cells, stop)).await
}

fn no_target() -> Failure {
    Failure::usage("nothing says what to measure").next("add --on with a file, a block device or null")
}

/// Reads a whole target back if its reads are verified: after its last cell, and after a cell that
/// read wrong data. Skipped if writes may still be under way, or if the run was stopped. The result
/// file has the measurement before.
fn read_back(
    ready: &Ready,
    cell: &JobCell,
    found: CellRecord,
    is_last: bool,
    (progress, stop): (&Progress<'_>, &AtomicBool),
    draft: Draft<'_>,
) -> Outcome<CellRecord> {
    let content = cell.setup.content;
    let wrong = found.wrong_sectors > 0;
    let due = content.verify && (is_last || wrong) && (found.failed.is_none() || wrong) && !found.left_behind;
    if !due || stop.load(Ordering::Relaxed) {
        return Ok(found);
    }
    draft(&found)?;
    let begun = std::time::Instant::now();
    let read = read_back::read_back(ready, content, &mut |done, all| {
        progress.bulk("reading the target back", begun, done, all);
        !stop.load(Ordering::Relaxed)
    });
    match read {
        Ok(read) => Ok(CellRecord { read_back: read, ..found }),
        // Keep the figures, and keep an earlier fault.
        Err(error) if found.failed.is_none() => Ok(CellRecord { failed: Some(error.to_string()), ..found }),
        Err(_) => Ok(found),
    }
}

/// The result file, and the cells that it already holds.
fn recorder(out: Option<&Path>, resume: bool, head: &Head) -> Outcome<(Option<Recorder>, Vec<CellRecord>)> {
    match (out, resume) {
        (None, _) => Ok((None, Vec::new())),
        (Some(path), true) if Recorder::never_began(path) && path.exists() => {
            Recorder::admit(path)?;
            std::fs::remove_file(path).map_err(|error| LabError::of(&error, "cannot be made anew", path))?;
            Ok((Some(created(path, head)?), Vec::new()))
        }
        (Some(path), true) if path.exists() => {
            let (recorder, recorded) = Recorder::resume(path)?;
            same_job(path, &recorded.head, head)?;
            Ok((Some(recorder), recorded.cells))
        }
        (Some(path), _) => Ok((Some(created(path, head)?), Vec::new())),
    }
}

/// Refuses a result file that cannot be written, before a target is opened: to open one is to fill
/// it. Only the job and the targets of the head count.
fn admit(out: Option<&Path>, resume: bool, head: &Head) -> Outcome<()> {
    let Some(path) = out else { return Ok(()) };
    match std::fs::symlink_metadata(path) {
        Ok(_) if !resume => Err(result_exists(path)),
        Ok(_) if Recorder::never_began(path) => Ok(()),
        Ok(_) => {
            Recorder::admit(path)?;
            let recorded = record::read(path)?;
            if recorded.digest.is_some() {
                return Err(record::ended(path).into());
            }
            same_job(path, &recorded.head, head)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            match std::fs::metadata(parent) {
                Ok(found) if found.is_dir() => Ok(()),
                Ok(_) => Err(Failure::usage(format!("{}: {} is no directory", path.display(), parent.display()))),
                Err(error) => Err(LabError::of(&error, "cannot be created", path).into()),
            }
        }
        Err(error) => Err(LabError::of(&error, "cannot be created", path).into()),
    }
}

/// A result goes on only with the job and the targets that it has.
fn same_job(path: &Path, one: &Head, other: &Head) -> Outcome<()> {
    let of = |head: &Head| (head.job.clone(), head.target.clone(), head.against.clone());
    match of(one) == of(other) {
        true => Ok(()),
        false => Err(Failure::usage(format!("{}: is of another job, or of another target", path.display()))
            .next("give the same options as before, or name another file")),
    }
}

/// Runs the cells on one target, or on the two targets of a comparison.
fn sweep(json: bool, what: &What, job: &Job, targets: &[Target], cells: &[JobCell], stop: &AtomicBool) -> Outcome<()> {
    let opening = job.opening(cells, what.destroy)?;
    if let Some(target) = targets.first() {
        admit(what.out.as_deref(), what.resume, &head_before(job, target, targets.get(1)))?;
    }
    let shown = targets.first().map_or_else(String::new, Target::to_string);
    let progress = Progress::new(json, cells).showing(Live::begin(&what.live, &shown, cells.len())?);
    let mut readies: Vec<Ready> = Vec::new();
    let opened = open(targets, opening, &progress, stop, &mut readies);
    let mut measured = opened
        .and_then(|()| measure_ready(json, what, (job, opening), targets, cells, stop, (&progress, &mut readies)));
    for ready in &readies {
        let removed = if what.keep { Ok(()) } else { ready.remove() };
        measured = measured.and(removed.map_err(Failure::from));
    }
    measured
}

/// Opens all targets. If one fails, `readies` holds those opened before it.
fn open(
    targets: &[Target],
    opening: Opening,
    progress: &Progress<'_>,
    stop: &AtomicBool,
    readies: &mut Vec<Ready>,
) -> Outcome<()> {
    // Close open targets first: an open target may refuse a second opening.
    readies.clear();
    for target in targets {
        readies.push(target.open(opening, &mut |done, all| {
            progress.filling(done, all);
            !stop.load(Ordering::Relaxed)
        })?);
    }
    // Both sides of a comparison use the same size.
    let size = readies.iter().map(|ready| ready.size).min();
    readies.iter_mut().for_each(|ready| ready.size = size.unwrap_or(ready.size));
    Ok(())
}

fn measure_ready(
    json: bool,
    what: &What,
    (job, mut opening): (&Job, Opening),
    targets: &[Target],
    cells: &[JobCell],
    stop: &AtomicBool,
    (progress, readies): (&Progress<'_>, &mut Vec<Ready>),
) -> Outcome<()> {
    let (Some(target), Some(ready)) = (targets.first(), readies.first()) else {
        return Err(Failure::usage("nothing says what to measure"));
    };
    let of_target = (ready.description.clone(), ready.size.0, environment::capture(target.path()));
    let head = Head {
        reached: of_target.0,
        target_bytes: of_target.1,
        environment: of_target.2,
        ..head_before(job, target, targets.get(1))
    };
    all_fit(cells, opening.buffered, readies)?;
    let (mut recorder, before) = recorder(what.out.as_deref(), what.resume, &head)?;
    let mut done = before;
    progress.begin(&head, done.len());
    let ending = in_turn(cells, &mut done, &mut recorder, progress, stop, &mut |number, cell, watch, draft| {
        if cell.buffered != opening.buffered {
            opening.buffered = cell.buffered;
            open(targets, opening, progress, stop, readies)?;
            all_fit(cells, opening.buffered, readies)?;
        }
        let side = ab_test::is_against(&cell.axes);
        let Some(ready) = readies.get(usize::from(side)) else {
            return Err(Failure::usage("nothing says what to measure"));
        };
        let found = sweep::cell(ready, number, cell, stop, watch)?;
        let is_last = !cells.iter().skip(number + 1).any(|later| ab_test::is_against(&later.axes) == side);
        found.map(|found| read_back(ready, cell, found, is_last, (progress, stop), draft)).transpose()
    });
    let (ending, digest) = ending.finish(recorder);
    match head.against.is_some() {
        true => show::compared(&ab_test::judged(&done), json)?,
        false => show::outcome(&done, json, what.out.as_deref(), digest.as_deref()),
    }
    match ending {
        // A comparison judges its blocks by itself, steady or not.
        Ending::Whole => verdict(&done, head.against.is_none()),
        Ending::Stopped => Err(stopped(what.out.as_deref(), &done)),
        Ending::Failed(failure) => Err(failure),
    }
}

/// Refuses what a later cell asks of the target and the target does not take, before the first one
/// is measured. Cells that are buffered otherwise have another opening of the target.
fn all_fit(cells: &[JobCell], buffered: bool, readies: &[Ready]) -> Outcome<()> {
    for cell in cells.iter().filter(|cell| cell.buffered == buffered) {
        if let Some(ready) = readies.get(usize::from(ab_test::is_against(&cell.axes))) {
            sweep::admit(ready, cell)?;
        }
    }
    Ok(())
}

/// Gives the exit code for cells without a result or with a reservation.
fn verdict(cells: &[CellRecord], steady: bool) -> Outcome<()> {
    let count = |is: &dyn Fn(&CellRecord) -> bool| cells.iter().filter(|cell| is(cell)).count();
    let is_damaged = CellRecord::is_damaged;
    let is_partial = |cell: &CellRecord| cell.failed.is_some() || cell.hosts.iter().any(|host| host.failed.is_some());
    let is_void = |cell: &CellRecord| chosen(cell).is_some_and(|run| sweep::void(run.lag_share).is_some());
    let is_unsteady = |cell: &CellRecord| steady && !cell.is_steady();
    let is_missed = |cell: &CellRecord| cell.objective.as_ref().is_some_and(|objective| !objective.is_kept());
    let all = cells.len();
    for (kind, count, what) in [
        (Kind::Damaged, count(&is_damaged), "damaged"),
        (Kind::Partial, count(&is_partial), "partial"),
        (Kind::Void, count(&is_void), "void"),
        (
            Kind::Regressed,
            count(&is_missed),
            if count(&is_missed) == 1 { "missed its objective" } else { "missed their objective" },
        ),
        (Kind::Unsteady, count(&is_unsteady), "not steady"),
    ] {
        if count > 0 {
            return Err(Failure::new(kind, format!("{count} of {} {what}: see the remarks", progress::cells(all))));
        }
    }
    Ok(())
}

/// What is known of it before the target is opened.
fn head_before(job: &Job, target: &Target, against: Option<&Target>) -> Head {
    Head { against: against.map(Target::to_string), ..head_of(job, target, (String::new(), 0, Vec::new())) }
}

fn head_of(
    job: &Job,
    target: &Target,
    (reached, target_bytes, environment): (String, u64, Vec<(String, String)>),
) -> Head {
    Head {
        version: record::VERSION,
        program: format!("stele {}", env!("CARGO_PKG_VERSION")),
        begun: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        target: target.to_string(),
        against: None,
        reached,
        target_bytes,
        environment,
        // As displayed: the address may contain a secret.
        job: Job { on: Some(target.to_string()), ..job.clone() },
    }
}

fn workloads(json: bool) -> Outcome<()> {
    let all = workload::shipped();
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|spec| {
                serde_json::json!({ "name": spec.name, "random_percent": spec.random, "read_percent": spec.read, "sizes": spec.sizes })
            })
            .collect();
        return print_json(&rows);
    }
    let mut table = Table::new(&[
        ("workload", Align::Left),
        ("random", Align::Right),
        ("read", Align::Right),
        ("access", Align::Left),
    ]);
    for spec in &all {
        table.row(vec![spec.name.clone(), percent(spec.random), percent(spec.read), sizes(spec)]);
    }
    print!("{}", table.render());
    Ok(())
}

fn percent(value: Option<u8>) -> String {
    value.map_or("not stated".into(), |value| format!("{value} %"))
}

fn sizes(spec: &AccessSpec) -> String {
    let size = |(bytes, share): &(u64, u8)| match share {
        100 => stele_ground::Bytes(*bytes).to_string(),
        share => format!("{} ({share} %)", stele_ground::Bytes(*bytes)),
    };
    spec.sizes.iter().map(size).collect::<Vec<_>>().join(", ")
}

/// The table row of one cell; remarks stand below the table, since they are longer than a line.
fn row_of(cell: &CellRecord, name: String) -> Vec<String> {
    let Some(run) = chosen(cell) else { return vec![name] };
    let total = run.total();
    let response = &total.response;
    let (rate, load) = match &cell.search {
        Some(search) => {
            let margin = search.margin().map_or(String::new(), |margin| format!(" ± {margin:.0}"));
            let load = match search.rate_asked {
                Some(asked) => format!("{asked:.0} a second"),
                // No rate kept the objective.
                None if search.beyond.is_some() => "-".into(),
                None => format!("{:.1} outstanding", search.outstanding),
            };
            (format!("{:.0}{margin}", search.rate), load)
        }
        None => (show::a_second(total.rate), run.load()),
    };
    // Without an answer there is no response.
    let said = |span: Duration| if response.count() == 0 { "-".into() } else { span.to_string() };
    vec![
        name,
        load,
        rate_said(cell, rate),
        megabytes(cell, bytes_of(cell, &total)),
        said(response.mean()),
        said(response.percentile(0.5)),
        said(response.percentile(0.99)),
        said(response.percentile(0.999)),
        said(response.longest()),
        microseconds(total.cpu_own),
    ]
}

/// Processor time of an access. It is not known of modelled arrays, nor of all tenants but the
/// first.
fn microseconds(cpu: f64) -> String {
    if cpu > 0.0 { format!("{cpu:.2}") } else { "-".into() }
}

/// Operations on names move no bytes.
fn megabytes(cell: &CellRecord, bytes: f64) -> String {
    if cell.names { "-".into() } else { format!("{:.1}", bytes / 1e6) }
}

/// Rows for the reads and writes of a mixed load, each with its own response times.
fn rows_of_sides(cell: &CellRecord) -> Vec<Vec<String>> {
    let all = chosen(cell).map(|run| sides(cell, run)).unwrap_or_default();
    let row = |side: Side| {
        let response = &side.response;
        vec![
            format!("  {}", side.name),
            String::new(),
            show::a_second(side.rate),
            megabytes(cell, side.bytes),
            response.mean().to_string(),
            response.percentile(0.5).to_string(),
            response.percentile(0.99).to_string(),
            response.percentile(0.999).to_string(),
            response.longest().to_string(),
            String::new(),
        ]
    };
    all.into_iter().map(row).collect()
}

/// In a narrow terminal cells are named by their values alone, below the names of the axes: a name
/// that loses its middle may be that of another cell.
fn table(cells: &[CellRecord]) -> String {
    let whole = table_of(cells, called);
    let values = |cell: &CellRecord| match cell.axes.as_slice() {
        [] => called(cell),
        axes => axes.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", "),
    };
    let short = table_of(cells, values);
    let mut text = match (whole.fits(), short.fits()) {
        (false, true) => {
            let axes = cells.iter().map(|cell| &cell.axes).find(|axes| !axes.is_empty()).into_iter().flatten();
            let names: Vec<String> = axes.map(|(name, _)| shown(name)).collect();
            format!("cells by {}\n{}", names.join(", "), short.render())
        }
        _ => whole.render(),
    };
    for (cell, remark) in cells.iter().map(|cell| (cell, remark(cell))).filter(|(_, remark)| !remark.is_empty()) {
        text.push_str(&format!("\n{}: {}\n", Shown(&called(cell)), Shown(&remark)));
    }
    text
}

fn table_of(cells: &[CellRecord], named: impl Fn(&CellRecord) -> String) -> Table {
    let mut table = Table::new(&[
        ("cell", Align::Whole),
        ("load", Align::Right),
        ("accesses/s", Align::Right),
        ("MB/s", Align::Right),
        ("mean", Align::Right),
        ("50 %", Align::Right),
        ("99 %", Align::Right),
        ("99.9 %", Align::Right),
        ("longest", Align::Right),
        ("CPU us", Align::Right),
    ]);
    for cell in cells.iter().filter(|cell| chosen(cell).is_some()) {
        table.row(row_of(cell, shown(&named(cell))));
        rows_of_sides(cell).into_iter().for_each(|row| table.row(row));
    }
    table
}
