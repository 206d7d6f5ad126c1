//! Words that options of the laboratory take.

use clap::ValueEnum;
use stele_lab::job::{Align, Arrivals, When};
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
