//! Words and numbers that options of the laboratory take.

use clap::ValueEnum;
use clap::builder::RangedI64ValueParser;
use stele_ground::Duration;
use stele_lab::job::{Align, Arrivals, When, parse_duration};
use stele_lab::live::run::WORKERS_MAX;
use stele_papers::import::Origin;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OriginArg {
    Fio,
    Iometer,
    Ffsb,
}

impl From<OriginArg> for Origin {
    fn from(origin: OriginArg) -> Origin {
        match origin {
            OriginArg::Fio => Origin::Fio,
            OriginArg::Iometer => Origin::Iometer,
            OriginArg::Ffsb => Origin::Ffsb,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ArrivalsArg {
    Even,
    Drawn,
}

impl From<ArrivalsArg> for Arrivals {
    fn from(arrivals: ArrivalsArg) -> Arrivals {
        match arrivals {
            ArrivalsArg::Even => Arrivals::Even,
            ArrivalsArg::Drawn => Arrivals::Drawn,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum WhenArg {
    Answered,
    Started,
    Overlapping,
}

impl From<WhenArg> for When {
    fn from(when: WhenArg) -> When {
        match when {
            WhenArg::Answered => When::Answered,
            WhenArg::Started => When::Started,
            WhenArg::Overlapping => When::Overlapping,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AlignArg {
    Request,
    Sector,
}

impl From<AlignArg> for Align {
    fn from(align: AlignArg) -> Align {
        match align {
            AlignArg::Request => Align::Request,
            AlignArg::Sector => Align::Sector,
        }
    }
}

/// Threads of one run.
pub fn workers() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=i64::from(WORKERS_MAX))
}

pub fn percent() -> RangedI64ValueParser<u8> {
    RangedI64ValueParser::new().range(0..=100)
}

pub fn count() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..)
}

pub fn from_one(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("from 1 to {}", u64::MAX))
}

pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("from 0 to {}", u64::MAX))
}

/// A time as text: the job parses it again, since its file has it as text too.
pub fn time(text: &str) -> Result<String, String> {
    match parse_duration(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("say it like 500us, 20ms, 1.5s, 2m or 1h; at most 100000h".to_owned()),
    }
}

pub fn time_to_measure(text: &str) -> Result<String, String> {
    match parse_duration(text) {
        Some(Duration(0)) => Err("more than 0, at most 100000h".to_owned()),
        _ => time(text),
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;

    /// The words of a command line with these options.
    fn run_on_null(options: &str) -> impl Iterator<Item = std::ffi::OsString> {
        ["stele", "lab", "run", "--on", "null"].into_iter().chain(options.split(' ')).map(Into::into)
    }

    /// The parser's message about a command line, on one line.
    fn refused(line: &str) -> String {
        let error = Cli::read(run_on_null(line)).unwrap_err();
        error.render().to_string().replace('\n', " ")
    }

    #[test]
    fn a_number_or_time_out_of_range_is_refused_with_the_range() {
        for (line, said) in [
            ("--workers 0", "0 is not in 1..=512"),
            ("--workers 100000", "100000 is not in 1..=512"),
            ("--workers -1", "-1 is not in 1..=512"),
            ("--read -1", "-1 is not in 0..=100"),
            ("--outstanding -5", "-5 is not in 1.."),
            ("--seed -1", "from 0 to 18446744073709551615"),
            ("--time 0s", "more than 0, at most 100000h"),
            ("--time -1s", "say it like 500us"),
            ("--warm-up -1", "say it like 500us"),
        ] {
            let text = refused(line);
            assert!(text.contains(said), "{line}: {text}");
            assert!(!text.contains("as a value"), "{line}: {text}");
        }
        for line in ["--workers 512 --time 1ms", "--warm-up 0s", "--rate -1", "--compress -1"] {
            let read = Cli::read(run_on_null(line));
            assert!(read.is_ok(), "{line}: the job refuses what is out of its range");
        }
    }

    #[test]
    fn help_shows_target_load_time_and_output_in_this_order() {
        for command in ["run", "search", "compare"] {
            let help = Cli::read(["stele", "lab", command, "--help"].map(Into::into)).unwrap_err().render().to_string();
            let places =
                ["--on", "--workload", "--outstanding", "--time", "--out <", "--plan", "--json"].map(|option| {
                    let starts = |line: &str| line.trim_start().starts_with(option);
                    help.lines().position(starts).unwrap_or_else(|| panic!("{command} has no {option}: {help}"))
                });
            assert!(places.is_sorted(), "{command}: {places:?}\n{help}");
        }
    }
}
