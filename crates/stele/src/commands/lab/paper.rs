//! `stele lab paper`: of a file, or of what a recipe measures now.

use std::path::{Path, PathBuf};

use stele_lab::error::LabError;
use stele_lab::job::{Job, RecipePart};
use stele_lab::paper;
use stele_lab::paper::document::Document;
use stele_lab::recipe;
use stele_lab::record::{self, Recorded};

use super::pages;
use crate::cli::lab::{Against, Paper};
use crate::failure::{Failure, Kind, Outcome};

pub async fn run(json: bool, asked: Paper) -> Outcome<()> {
    let against = asked.against == Some(Against::Published);
    if let Some(name) = asked.recipe.clone() {
        return of_recipe(json, asked, name, against).await;
    }
    let Some(file) = asked.file else { return Err(Failure::usage("a paper is made of a .lab file, or of a --recipe")) };
    let document = document_of(&record::read(&file)?, asked.title.as_deref(), against)?;
    let pdf = is_pdf(asked.pdf, asked.out.as_deref());
    let ending = if pdf { "pdf" } else { "html" };
    pages::write(&document, &asked.out.unwrap_or_else(|| file.with_extension(ending)), pdf, json)
}

fn is_pdf(asked: bool, out: Option<&Path>) -> bool {
    asked || out.and_then(Path::extension).is_some_and(|ending| ending == "pdf")
}

fn document_of(recorded: &Recorded, title: Option<&str>, against: bool) -> Outcome<Document> {
    match &recorded.head.job.recipe {
        Some(part) => Ok(recipe::paper(recorded, part, title, against)?),
        None if against => Err(Failure::usage("there are published figures for the cells of a recipe only")
            .next("leave out --against, or measure with --recipe")),
        None => Ok(paper::report(recorded, title)),
    }
}

async fn of_recipe(json: bool, asked: Paper, name: String, against: bool) -> Outcome<()> {
    let part = RecipePart { name: name.clone(), quick: asked.quick };
    let plan = recipe::plan(&part)?;
    if !asked.modelled {
        return Err(Failure::usage(format!("recipe '{name}': nothing says what to measure")).next("add --virtual"));
    }
    let pdf = is_pdf(asked.pdf, asked.out.as_deref());
    let ending = if pdf { "pdf" } else { "html" };
    let page = asked.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.{ending}")));
    let lab = asked.lab.clone().unwrap_or_else(|| page.with_extension("lab"));
    // Minutes of work are not begun for a page that cannot be written.
    if page.exists() && !asked.resume {
        return Err(Failure::new(Kind::Refused, format!("{}: exists already", page.display()))
            .next("name another file with -o, or go on with what was stopped with --resume"));
    }
    let job = Job { recipe: Some(part), ..Job::default() };
    let (kept, resume) = (lab.clone(), asked.resume);
    let came = super::stop::until_stopped(move |stop| {
        super::modelled::measure(json, &job, "modelled arrays", &plan.cells, Some(&kept), resume, stop)
    })
    .await?;
    let document = document_of(&Recorded::from(&came), asked.title.as_deref(), against)?;
    if asked.resume && page.exists() {
        std::fs::remove_file(&page).map_err(|error| LabError::of(&error, "cannot be written over", &page))?;
    }
    pages::write(&document, &page, pdf, json)?;
    match came.ended {
        true => Ok(()),
        false => Err(super::stopped(Some(&lab))),
    }
}
