//! The arguments of `stele lab paper`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::words::{count, time, time_to_measure};

#[derive(Args, Debug)]
pub struct Paper {
    // The parser passes over a requirement that another option rules out: what belongs to a recipe
    // also has to conflict with the file.
    /// The .lab file
    #[arg(required_unless_present = "recipe", conflicts_with = "recipe")]
    pub file: Option<PathBuf>,
    /// Measure as this paper did (ds4500, dr550, gnr-tsm or fc8), or by these rules (snia-pts,
    /// spc1-like)
    #[arg(long, value_name = "NAME")]
    pub recipe: Option<String>,
    /// Measure modelled arrays in virtual time: Stele's own code, and the profile of the published
    /// machine
    #[arg(long = "virtual", requires = "recipe", conflicts_with_all = ["file", "on"])]
    pub modelled: bool,
    /// Measure this target; gnr-tsm takes a second target, which stands for a second server, and
    /// dr550 one that stands for the first one with its cache
    #[arg(long, value_name = "TARGET", requires = "recipe", conflicts_with = "file")]
    pub on: Vec<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Measure fewer cells, or shorter ones; the paper lists the cells that it leaves out
    #[arg(long, requires = "recipe", conflicts_with = "file")]
    pub quick: bool,
    /// Show the published figures beside the measured ones
    #[arg(long, value_enum)]
    pub against: Option<Against>,
    /// File to write; its ending decides between page and PDF
    /// [default: beside the .lab file, or RECIPE.html]
    #[arg(long, short)]
    pub out: Option<PathBuf>,
    /// Title of the paper [default: what was measured]
    #[arg(long)]
    pub title: Option<String>,
    /// Author and date to print under the title
    #[arg(long, value_name = "TEXT")]
    pub byline: Option<String>,
    /// Write a PDF, whatever the name of the file
    #[arg(long)]
    pub pdf: bool,
    /// File in which a recipe keeps its measurements [default: beside the page]
    #[arg(long, value_name = "FILE", requires = "recipe", conflicts_with = "file")]
    pub lab: Option<PathBuf>,
    /// Resume a recipe that was stopped
    #[arg(long, requires = "recipe", conflicts_with = "file")]
    pub resume: bool,
    /// Show the cells that would run and their duration, and run nothing
    #[arg(long, requires = "recipe", conflicts_with = "file")]
    pub plan: bool,
}

/// The use of a real target by a recipe, and the measuring times.
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// Bytes of the target to use [default: as in the paper, less for a quick run; all of a device]
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub size: Option<String>,
    /// Number of files in a directory target; objects of each length in a bucket [default: 100]
    #[arg(long, requires = "on", conflicts_with = "modelled", allow_negative_numbers = true, value_parser = count())]
    pub files: Option<u32>,
    /// Allow overwriting the data on the target
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub destroy: bool,
    /// Keep the files of a directory, or the objects on a server, for the next run
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub keep: bool,
    /// Time to measure each cell, exactly
    #[arg(long, requires = "on", conflicts_with_all = ["modelled", "least", "most"], allow_hyphen_values = true, value_parser = time_to_measure)]
    pub time: Option<String>,
    /// Time to measure each cell at least [default: 10s; 600ms of a quick run]
    #[arg(long, requires = "on", conflicts_with = "modelled", allow_hyphen_values = true, value_parser = time_to_measure)]
    pub least: Option<String>,
    /// Time to measure each cell at most, if it does not become steady
    /// [default: three times the least]
    #[arg(long, requires = "on", conflicts_with = "modelled", allow_hyphen_values = true, value_parser = time)]
    pub most: Option<String>,
    /// Warm-up time that does not count [default: 2s; 200ms of a quick run]
    #[arg(long, requires = "on", conflicts_with = "modelled", allow_hyphen_values = true, value_parser = time)]
    pub warm_up: Option<String>,
    /// Length of a round [default: 1s; 100ms of a quick run]
    #[arg(long, requires = "on", conflicts_with = "modelled", allow_hyphen_values = true, value_parser = time)]
    pub round: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Against {
    Published,
}
