//! A new drive in the place of a lost one, and a drive that is taken out.

use stele_array::Command;
use stele_ground::{Duration, MIB};
use stele_media::faulty::FaultPlan;

use super::{DRIVE, HELD, MOMENT, MOST, Measured, drives, is_well, is_whole, limit};
use crate::harness::{Bench, Unit};

/// The share of what the drives allow that both are to reach.
const SHARE: f64 = 0.7;

/// The figures, behind the number of drives.
pub const ENDS: [&str; 2] = [", one replaced: copied back", ", one leaves: moved"];

/// Bytes a second that the drives allow to be copied back: all of them are written to the new
/// drive. So it bounds them, as fast as a drive reads in one go; it writes no faster. The others,
/// which read the strips in spare space, allow (drives - 1) times as much.
fn copy_back_limit(drives: usize) -> f64 {
    let one = drives::sequential_rate();
    one.min((drives - 1) as f64 * one)
}

impl Measured {
    /// Bytes a second that are copied back to a new drive, once spare space has all that the lost
    /// one held.
    fn copy_back(&mut self) -> Result<f64, String> {
        self.pool.machine.detach(0);
        self.rebuild()?;
        self.pool.until(MOMENT, MOST, is_whole)?;
        let machine = &mut self.pool.machine;
        let enclosure = machine.bays[0].enclosure;
        let bay = machine.add_bay(drives::blank(), &FaultPlan::new(1), enclosure);
        let identity = machine.bays[bay].identity;
        let new = machine.attach(bay).ok_or("the pool is gone")? as u32;
        self.pool.pass(Duration::from_millis(100));
        self.pool.command(Command::ReplaceDrive { old: 0, new, identity, enclosure: None, give_up: false })?;
        let rate = self.sustained("copying back", |status| status.copy_back)?;
        self.pool.until(Duration::from_secs(1), MOST, is_well)?;
        match self.pool.status()?.lost_stripes {
            0 => Ok(rate),
            lost => Err(format!("{} drives: {lost} stripes were lost", self.drives)),
        }
    }

    /// Bytes a second that move away from a drive while it leaves, and seconds from the command to
    /// the moment when the pool is without it.
    fn leave(&mut self) -> Result<(f64, f64), String> {
        let begun = self.pool.machine.now;
        self.pool.command(Command::RemoveDrive { drive: 0 })?;
        let rate = self.sustained("emptying a drive", |status| status.moving)?;
        self.pool.until(MOMENT, MOST, |status| !status.removed.is_empty())?;
        Ok((rate, self.pool.machine.now.since(begun).as_secs_f64()))
    }
}

/// The row of the page.
pub fn cases(bench: &mut Bench, case: &str, drives: usize) -> Result<String, String> {
    let mut row = format!("| {drives}");
    let [copied, moved] = ENDS.map(|end| format!("{case}{end}"));
    let mut tell = |bench: &mut Bench, name: &str, rate: f64, bound: &str, limit: f64| {
        let [shown, allowed] = [rate, limit].map(|bytes| bytes / MIB as f64);
        bench.figure(name, Unit::more("MiB/s"), shown, Some((bound, allowed)), Some(SHARE));
        let (share, hours) = (rate / limit, DRIVE / rate / 3600.0);
        row.push_str(&format!(" | {shown:.1} | {allowed:.0} | {share:.2} | {hours:.0}"));
    };
    if bench.wants(&copied) {
        let rate = Measured::new(drives, Duration(0))?.copy_back()?;
        tell(bench, &copied, rate, "what the new drive allows", copy_back_limit(drives));
    }
    if bench.wants(&moved) {
        let (rate, seconds) = Measured::new(drives, Duration(0))?.leave()?;
        tell(bench, &moved, rate, "what the drives allow", limit(drives));
        let whole = HELD as f64 / seconds / MIB as f64;
        bench.figure(&format!("{moved}, to its end"), Unit::more("MiB/s"), whole, None, None);
        row.push_str(&format!(" | {seconds:.1}"));
    }
    Ok(row + " |\n")
}

/// Below the table.
pub const BELOW: &str = "
- **Copied back** is the rate at which a new drive in the place of a lost one gets its strips, from
  15 % to 85 % of them. They are all in spare space before. The **limit** is the sequential rate of
  one drive: all strips are written to the new one, and the others could read (drives - 1) times as
  much.
- **Moved** is the rate at which a drive that leaves is emptied, from 15 % to 85 % of what it held.
  The **limit** is that of a rebuild: what the others can compute. The drive itself reads a part of
  it. **Gone after** is the time from the command until the pool is without the drive: the beginning
  and the end, with tables, log and labels, take as long for any content.
";
