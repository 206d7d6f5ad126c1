//! Deliberate damage: flipped bytes on a drive, a removed enclosure.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stele_ground::Dice;

use crate::Outcome;

/// Labels, anchors and log end here; cells begin. (FORMAT/drive.md; the log of a 1 GiB drive is 16
/// MiB.)
const CELLS: u64 = 24 << 20;

/// Flips eight bytes in every non-empty 64 KiB, without the server's knowledge. Returns the number
/// of places.
pub fn flip_bytes(drive: &Path) -> Outcome<u64> {
    let fail = |error: std::io::Error| format!("cannot damage {}: {error}", drive.display());
    let file = OpenOptions::new().read(true).write(true).open(drive).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    let mut dice = Dice::new(20_041_120);
    let mut piece = vec![0; 64 << 10];
    let mut places = 0;
    let mut at = CELLS;
    while at + piece.len() as u64 <= length.saturating_sub(1 << 20) {
        file.read_exact_at(&mut piece, at).map_err(fail)?;
        if piece.iter().any(|byte| *byte != 0) {
            let place = dice.below(piece.len() as u64 - 8);
            let bytes: Vec<u8> = piece.iter().skip(place as usize).take(8).map(|byte| byte ^ 0xA5).collect();
            file.write_all_at(&bytes, at + place).map_err(fail)?;
            places += 1;
        }
        at += piece.len() as u64;
    }
    file.sync_all().map_err(fail)?;
    Ok(places)
}

/// Moves the two drives of an enclosure out of the pool's directory, as if its cable were pulled.
pub fn take_enclosure(drives: &Path, enclosure: u32, away: &Path) -> Outcome<Vec<PathBuf>> {
    fs::create_dir_all(away).map_err(|error| format!("cannot make {}: {error}", away.display()))?;
    let mut taken = Vec::new();
    for entry in fs::read_dir(drives).map_err(|error| format!("cannot read {}: {error}", drives.display()))?.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(&format!("e{enclosure}-"))) {
            fs::rename(entry.path(), away.join(&name))
                .map_err(|error| format!("cannot move {}: {error}", entry.path().display()))?;
            taken.push(entry.path());
        }
    }
    if taken.len() == 2 {
        Ok(taken)
    } else {
        Err(format!("enclosure {enclosure} has {} drives instead of two", taken.len()))
    }
}
