//! No simulation: a served pool of 8+2 on loop devices, under verified writes over NBD, while
//! devices are pulled, given back and replaced.
//!
//! The checks after every round: the content is that written. Untouched drives have not counted a
//! single error. A scrub finds nothing, both when the lost drives are rebuilt into spare space and
//! when others have replaced them. The campaign needs root, for loop devices. At its end, also
//! after a signal, it removes everything that it made, and the remains of an earlier killed
//! campaign.

use std::path::Path;
use std::time::{Duration, Instant};

use stele_ground::Dice;

mod load;
mod site;
mod system;

use load::Load;
pub use site::Stop;
use site::{Site, pause};

const DRIVES: usize = 12;
const CODE: &str = "8+2";
const SIZE: &str = "2GiB";
/// Least duration of the writes in a round: a rebuild begins five seconds after a loss.
const ROUND: Duration = Duration::from_secs(35);
/// Time limit for a pool to become whole.
const HEALING: Duration = Duration::from_secs(300);

/// The events on two drives while hosts write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ordeal {
    /// The second is lost after the first is rebuilt.
    OneAfterTheOther,
    /// The second is lost while the first is rebuilt.
    OneUponTheOther,
    /// The first fails for a moment only.
    Blink,
    /// The first is replaced under load, and the second is lost meanwhile.
    ReplacedUnderLoad,
}

const ORDEALS: [Ordeal; 4] =
    [Ordeal::OneAfterTheOther, Ordeal::OneUponTheOther, Ordeal::Blink, Ordeal::ReplacedUnderLoad];

/// The totals so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct LoopTally {
    pub rounds: u64,
    pub pulls: u64,
    pub replaced: u64,
    pub scrubs: u64,
    pub written: u64,
}

impl LoopTally {
    /// One line for programs.
    pub fn json(&self, seconds: u64, failed: Option<&str>) -> String {
        let LoopTally { rounds, pulls, replaced, scrubs, written } = self;
        serde_json::json!({
            "campaign": "drives", "seconds": seconds, "rounds": rounds, "pulls": pulls, "replaced": replaced,
            "scrubs": scrubs, "written_bytes": written, "failed": failed,
        })
        .to_string()
    }
}

struct Campaign<'a> {
    site: Site,
    dice: Dice,
    tally: LoopTally,
    say: &'a mut dyn FnMut(&LoopTally, &str),
}

/// Runs rounds until the time is over, and finishes the last one. `say` reports each step.
pub fn campaign(
    directory: &Path,
    span: Duration,
    seed: u64,
    say: &mut dyn FnMut(&LoopTally, &str),
) -> (LoopTally, Result<(), Stop>) {
    let begun = Instant::now();
    let site = match prepare(directory) {
        Ok(site) => site,
        Err(stop) => return (LoopTally::default(), Err(stop)),
    };
    let mut campaign = Campaign { site, dice: Dice::new(seed), tally: LoopTally::default(), say };
    let mut result = campaign.begin();
    while result.is_ok() && begun.elapsed() < span {
        result = campaign.round();
    }
    (campaign.tally, result)
}

fn prepare(directory: &Path) -> Result<Site, Stop> {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata("/proc/self").map_err(|error| site::trouble("/proc/self", error))?;
    if own.uid() != 0 {
        return Err(Stop::Trouble("loop devices need root; run it with sudo".into()));
    }
    load::check_fio()?;
    system::hold_signals().map_err(|error| site::trouble("holding signals back", error))?;
    Site::new(directory, DRIVES)
}

impl Campaign<'_> {
    fn begin(&mut self) -> Result<(), Stop> {
        self.say("creates the pool");
        self.site.create_pool(DRIVES, CODE, SIZE)?;
        self.tally.written += load::write_cold(&self.site)?;
        Ok(())
    }

    fn round(&mut self) -> Result<(), Stop> {
        let ordeal = ORDEALS[self.tally.rounds as usize % ORDEALS.len()];
        let first = self.dice.below(DRIVES as u64) as usize;
        let second = (first + 1 + self.dice.below(DRIVES as u64 - 1) as usize) % DRIVES;
        let before = self.site.drives()?;
        let load = Load::start(&self.site, ROUND)?;
        self.befall(ordeal, first, second)?;
        self.tally.written += load.finish(&self.site)?;
        self.say("waits for the rebuild");
        self.until_whole(true)?;
        self.judge(&before, [first, second])?;
        self.replace([first, second])?;
        self.until_whole(false)?;
        self.judge(&before, [first, second])?;
        self.tally.rounds += 1;
        Ok(())
    }

    fn befall(&mut self, ordeal: Ordeal, first: usize, second: usize) -> Result<(), Stop> {
        self.wait(2000, 3000)?;
        self.pull(first)?;
        match ordeal {
            Ordeal::OneAfterTheOther => self.wait(12_000, 16_000)?,
            Ordeal::OneUponTheOther => self.wait(500, 7000)?,
            Ordeal::Blink => {
                self.wait(5, 300)?;
                self.site.give_back(first)?;
                self.wait(4000, 8000)?;
            }
            Ordeal::ReplacedUnderLoad => {
                self.wait(1000, 3000)?;
                self.say(&format!("the drive at place {first} is replaced under load"));
                self.exchange(first, false)?;
                self.wait(5, 2000)?;
            }
        }
        self.pull(second)
    }

    fn pull(&mut self, place: usize) -> Result<(), Stop> {
        self.tally.pulls += 1;
        self.say(&format!("the drive at place {place} is pulled"));
        self.site.pull(place)
    }

    /// Waits for a random number of milliseconds in this range.
    fn wait(&mut self, least: u64, most: u64) -> Result<(), Stop> {
        pause(Duration::from_millis(least + self.dice.below(most - least)))
    }

    /// Replaces each unhealthy drive by a blank device.
    fn replace(&mut self, touched: [usize; 2]) -> Result<(), Stop> {
        for said in self.site.drives()? {
            if let Some(place) = said.place.filter(|place| said.health != "healthy" && touched.contains(place)) {
                self.say(&format!("drive {} is replaced", said.number));
                self.exchange(place, true)?;
            }
        }
        Ok(())
    }

    fn exchange(&mut self, place: usize, wait: bool) -> Result<(), Stop> {
        self.site.exchange(place, wait)?;
        self.tally.replaced += 1;
        Ok(())
    }

    /// Waits until nothing is left to move; drives that were given up may be missing if
    /// `without_lost`.
    fn until_whole(&mut self, without_lost: bool) -> Result<(), Stop> {
        let end = Instant::now() + HEALING;
        loop {
            let status = self.site.status()?;
            let moves = ["rebuild", "copy_back"].iter().any(|work| !status[*work].is_null());
            // A slow drive, and one with earlier errors, are complete.
            let whole = |health: &str| matches!(health, "healthy" | "suspect") || without_lost && health == "failed";
            let drives = self.site.drives()?;
            let open = drives.iter().find(|drive| !whole(&drive.health));
            if !moves && open.is_none() {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(self.site.fault(&format!("the pool does not become whole: {open:?}, {status}")));
            }
            pause(Duration::from_millis(500))?;
        }
    }

    /// Checks the content, the errors of untouched drives, and the result of a scrub.
    fn judge(&mut self, before: &[site::DriveSaid], touched: [usize; 2]) -> Result<(), Stop> {
        load::verify_cold(&self.site)?;
        self.site.stele(&["pool", "scrub", "--wait"])?;
        self.tally.scrubs += 1;
        let status = self.site.status()?;
        let found = status["scrub_damage_found"].as_u64();
        if found != Some(0) || status["lost_stripes"].as_u64() != Some(0) {
            return Err(self
                .site
                .fault(&format!("a scrub of drives {touched:?} found {found:?} damaged places: {status}")));
        }
        for now in self.site.drives()? {
            let was = before.iter().find(|drive| drive.number == now.number);
            let untouched = now.place.is_none_or(|place| !touched.contains(&place));
            if untouched && was.is_none_or(|was| was.errors != now.errors) {
                let what =
                    format!("drive {} has errors, and nothing was done to it: {now:?}, before {was:?}", now.number);
                return Err(self.site.fault(&what));
            }
        }
        Ok(())
    }

    fn say(&mut self, what: &str) {
        (self.say)(&self.tally, what);
    }
}
