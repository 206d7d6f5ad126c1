//! `stele lab paper`: writes a report of a file, or runs a recipe and writes its paper.

use std::path::{Path, PathBuf};

use stele_lab::error::LabError;
use stele_lab::job::{Job, JobCell, RecipePart, TimePart};
use stele_lab::live::target::Target;
use stele_lab::modelled::run::QueryPlan;
use stele_lab::record::{self, Recorded};
use stele_lab::report;
use stele_lab::report::document::Document;
use stele_papers::recipe;
use stele_papers::recipe::live::Asked;
use stele_papers::recipe::page::Order;
use stele_server::failure::{Failure, Kind, Outcome};

use super::{Ending, pages, show};
use crate::cli::lab::{Against, Paper};

pub async fn run(json: bool, asked: Paper) -> Outcome<()> {
    let against = asked.against == Some(Against::Published);
    if let Some(out) = asked.out.as_deref().filter(|_| !asked.pdf) {
        pages::is_page(out)?;
    }
    if let Some(name) = asked.recipe.clone() {
        return of_recipe(json, asked, name, against).await;
    }
    let Some(file) = asked.file else { return Err(Failure::usage("a paper is made of a .lab file, or of a --recipe")) };
    let mut document = document_of(&record::read(&file)?, asked.title.as_deref(), against)?;
    document.byline = asked.byline.clone();
    let pdf = is_pdf(asked.pdf, asked.out.as_deref());
    let ending = if pdf { "pdf" } else { "html" };
    pages::write(&document, &asked.out.unwrap_or_else(|| file.with_extension(ending)), pdf, json)
}

fn is_pdf(asked: bool, out: Option<&Path>) -> bool {
    asked || out.and_then(Path::extension).is_some_and(|ending| ending.eq_ignore_ascii_case("pdf"))
}

fn document_of(recorded: &Recorded, title: Option<&str>, against: bool) -> Outcome<Document> {
    match &recorded.head.job.recipe {
        Some(part) => Ok(recipe::paper(Order { recorded, part, title, against })?),
        None if against => Err(Failure::usage("there are published figures for the cells of a recipe only")
            .next("leave out --against, or measure with --recipe")),
        None => Ok(report::report(recorded, title)),
    }
}

/// The work of a recipe.
enum Work {
    Modelled(Vec<(JobCell, QueryPlan)>),
    Live { asked: Vec<Asked>, targets: Vec<Target> },
}

impl Work {
    fn cells(&self) -> Vec<JobCell> {
        match self {
            Work::Modelled(plan) => plan.iter().map(|(cell, _)| cell.clone()).collect(),
            Work::Live { asked, .. } => asked.iter().map(|asked| asked.cell.clone()).collect(),
        }
    }
}

/// The job of a recipe. Addresses are kept as displayed, because they may contain a secret.
fn job_of(asked: &Paper, name: &str, targets: &[Target]) -> Job {
    let place = &asked.place;
    let mut shown = targets.iter().map(Target::to_string);
    let on = shown.next();
    Job {
        on,
        size: place.size.clone(),
        files: place.files,
        time: TimePart {
            warm_up: place.warm_up.clone(),
            round: place.round.clone(),
            least: place.time.clone().or(place.least.clone()),
            most: place.time.clone().or(place.most.clone()),
            patience: None,
        },
        recipe: Some(RecipePart { name: name.to_owned(), quick: asked.quick, beside: shown.collect() }),
        ..Job::default()
    }
}

async fn of_recipe(json: bool, asked: Paper, name: String, against: bool) -> Outcome<()> {
    let targets = asked.on.iter().map(|target| target.parse()).collect::<Result<Vec<Target>, LabError>>()?;
    let job = job_of(&asked, &name, &targets);
    let work = match (asked.modelled, job.recipe.as_ref().filter(|_| targets.is_empty())) {
        (true, Some(part)) => Work::Modelled(recipe::plan(part)?.cells),
        (false, Some(part)) => {
            recipe::known(part)?;
            return Err(Failure::usage(format!("recipe '{name}': nothing says what to measure"))
                .next("add --virtual, or --on with a target"));
        }
        _ => Work::Live { asked: recipe::live::plan(&job, &targets)?, targets },
    };
    if asked.plan {
        return show::plan(&job, &work.cells(), json);
    }
    let pdf = is_pdf(asked.pdf, asked.out.as_deref());
    let ending = if pdf { "pdf" } else { "html" };
    let page = asked.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.{ending}")));
    let lab = asked.lab.clone().unwrap_or_else(|| page.with_extension("lab"));
    // Check that the page can be written before minutes of work.
    if page.exists() && !(asked.resume && lab.exists()) {
        return Err(Failure::new(Kind::Exists, format!("{}: exists already", page.display()))
            .next("name another file with -o, or resume the stopped recipe with --resume"));
    }
    let (kept, resume, destroy, keep) = (lab.clone(), asked.resume, asked.place.destroy, asked.place.keep);
    let came = super::stop::until_stopped(move |stop| match work {
        Work::Modelled(plan) => {
            super::modelled::measure(json, &job, "modelled arrays", &plan, Some(&kept), resume, stop)
        }
        Work::Live { asked, targets } => {
            let measured = super::recipe::Measured { job: &job, targets: &targets, asked: &asked, destroy, keep };
            measured.measure(json, &kept, resume, stop)
        }
    })
    .await?;
    let written = match came.cells.is_empty() && matches!(came.ending, Ending::Failed(_)) {
        true => Ok(()),
        false => document_of(&Recorded::from(&came), asked.title.as_deref(), against).and_then(|mut document| {
            document.byline = asked.byline.clone();
            match asked.resume {
                true => pages::write_over(&document, &page, pdf, json),
                false => pages::write(&document, &page, pdf, json),
            }
        }),
    };
    match came.ending {
        // The cause goes before what follows from it.
        Ending::Failed(failure) => Err(failure),
        Ending::Whole => written,
        Ending::Stopped => written.and(Err(super::stopped(Some(&lab), &[]))),
    }
}
