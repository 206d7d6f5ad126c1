//! The arguments of `stele lab replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stele_lab::replay::{Fit, Format, Map};

use super::LiveArgs;

#[derive(Args, Debug)]
pub struct Replay {
    /// Files of one trace; several are those of a machine's processors, as blktrace writes them
    #[arg(required = true)]
    pub trace: Vec<PathBuf>,
    /// The target, as of `stele lab run`
    #[arg(long, value_name = "TARGET")]
    pub on: String,
    /// Bytes of it to use; needed for a file that does not exist yet
    #[arg(long)]
    pub size: Option<String>,
    /// What wrote the trace [default: what it looks like]
    #[arg(long, value_enum)]
    pub format: Option<FormatArg>,
    /// So many times as fast as the trace's clock; `max` without a clock, as fast as the target answers [default: 1]
    #[arg(long, value_name = "TIMES")]
    pub speed: Option<String>,
    /// With `--speed max`: accesses under way [default: 32]
    #[arg(long)]
    pub outstanding: Option<u32>,
    /// Accesses beyond the target's end: refuse the trace, count places from the beginning again, or bring all places closer together
    #[arg(long, value_enum, default_value = "refuse")]
    pub map: MapArg,
    /// Accesses that are no whole blocks of the target: refuse the trace, or make them longer
    #[arg(long, value_enum, default_value = "refuse")]
    pub fit: FitArg,
    /// Only this one of the trace's devices, files or units (--plan lists them)
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Say whether accesses kept this, like p99=2ms; one that is missed ends with exit code 13
    #[arg(long, value_name = "STATISTIC=TIME")]
    pub objective: Option<String>,
    /// Threads [default: one for each processor]
    #[arg(long)]
    pub workers: Option<u32>,
    /// Length of a round [default: 1s, or a tenth of a trace of less than ten seconds]
    #[arg(long)]
    pub round: Option<String>,
    /// A target that answers nothing for so long has failed [default: 30s]
    #[arg(long)]
    pub patience: Option<String>,
    /// Through the page cache
    #[arg(long)]
    pub buffered: bool,
    /// What is on the target may be written over
    #[arg(long)]
    pub destroy: bool,
    /// Leave what was made on a server where it is
    #[arg(long)]
    pub keep: bool,
    /// Keep all that was measured in this .lab file; in a directory it is named after the time at which it began
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub live: LiveArgs,
    /// Say what the trace asks for, and end; the target is not touched
    #[arg(long)]
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
