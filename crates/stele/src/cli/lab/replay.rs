//! The arguments of `stele lab replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stele_lab::replay::{Fit, Format, Map};

use super::LiveArgs;
use super::words::{count, time, workers};

#[derive(Args, Debug)]
pub struct Replay {
    /// Files of one trace; several files are those of a machine's processors, as blktrace writes
    /// them
    #[arg(required = true)]
    pub trace: Vec<PathBuf>,
    /// The target, as in `stele lab run`
    #[arg(long, value_name = "TARGET")]
    pub on: String,
    /// Bytes of the target to use; required for a file that does not exist yet
    #[arg(long)]
    pub size: Option<String>,
    /// Use the page cache
    #[arg(long)]
    pub buffered: bool,
    /// Allow overwriting the data on the target
    #[arg(long)]
    pub destroy: bool,
    /// Keep the objects or files on a server after the replay
    #[arg(long)]
    pub keep: bool,
    /// Format of the trace [default: detected from its contents]
    #[arg(long, value_enum)]
    pub format: Option<FormatArg>,
    /// Replay only this device, file or unit of the trace (--plan lists them)
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Accesses beyond the target's end: refuse the trace, wrap their offsets around, or scale all
    /// offsets down
    #[arg(long, value_enum, default_value = "refuse")]
    pub map: MapArg,
    /// Accesses that are not whole blocks of the target: refuse the trace, or extend the accesses
    /// to whole blocks
    #[arg(long, value_enum, default_value = "refuse")]
    pub fit: FitArg,
    /// Speed relative to the trace's clock; `max` ignores the clock and goes as fast as the target
    /// answers [default: 1]
    #[arg(long, value_name = "TIMES")]
    pub speed: Option<String>,
    /// With `--speed max`: number of outstanding accesses [default: 32]
    #[arg(long, allow_negative_numbers = true, value_parser = count())]
    pub outstanding: Option<u32>,
    /// Number of threads, from 1 to 512 [default: one for each processor]
    #[arg(long, allow_negative_numbers = true, value_parser = workers())]
    pub workers: Option<u32>,
    /// Length of a round [default: 1s, or a tenth of a trace shorter than ten seconds]
    #[arg(long, allow_hyphen_values = true, value_parser = time)]
    pub round: Option<String>,
    /// Time without any answer after which a target has failed [default: 30s]
    #[arg(long, allow_hyphen_values = true, value_parser = time)]
    pub patience: Option<String>,
    /// Report whether the accesses met this objective, for example p99=2ms; exit code 13 if they
    /// missed it
    #[arg(long, value_name = "STATISTIC=TIME")]
    pub objective: Option<String>,
    /// Keep all measurements in this .lab file; in a directory, the starting time gives the file
    /// its name
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub live: LiveArgs,
    /// Show the accesses that the trace demands; do not touch the target
    #[arg(long, display_order = 74)]
    pub plan: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FormatArg {
    Blktrace,
    Fio,
    Spc,
    Msr,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Format {
        match format {
            FormatArg::Blktrace => Format::Blktrace,
            FormatArg::Fio => Format::Fio,
            FormatArg::Spc => Format::Spc,
            FormatArg::Msr => Format::Msr,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MapArg {
    Refuse,
    Wrap,
    Scale,
}

impl From<MapArg> for Map {
    fn from(map: MapArg) -> Map {
        match map {
            MapArg::Refuse => Map::Refuse,
            MapArg::Wrap => Map::Wrap,
            MapArg::Scale => Map::Scale,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FitArg {
    Refuse,
    Round,
}

impl From<FitArg> for Fit {
    fn from(fit: FitArg) -> Fit {
        match fit {
            FitArg::Refuse => Fit::Refuse,
            FitArg::Round => Fit::Round,
        }
    }
}
