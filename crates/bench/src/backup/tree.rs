//! The tree of files that backups are measured with: 65,623 files of 2.15 GB in 4,136 directories,
//! the same on every machine.
//!
//! | share of the files | content | zstd makes of it |
//! | --- | --- | --- |
//! | half | text of 4,096 words, frequent and rare | about a third |
//! | a quarter | records with counters and few random bytes | about a half |
//! | a fifth | random bytes, as in pictures and archives | nothing less |
//! | the rest | copies of earlier files | no new chunk |
//!
//! All but 23 files have up to 64 KiB, 21 KiB on average. The 23 have 0.63 GB together.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stele_ground::Dice;

pub const FILES: u64 = 65_623;
const LARGE: u64 = 23;
const LARGE_BYTES: u64 = 26 << 20;
const FILES_OF_DIRECTORY: u64 = 16;
/// Bytes of a small file are at most `1 << SMALL_BITS`.
const SMALL_BITS: u64 = 16;
const WORDS: usize = 4096;
const SEED: u64 = 2014;

/// The content of all files.
struct Generator {
    words: Vec<Vec<u8>>,
}

impl Generator {
    fn new() -> Generator {
        let mut dice = Dice::new(SEED);
        let letters = b"etaoinshrdlucmfwypvbgk";
        let word = |dice: &mut Dice| {
            let length = 2 + dice.below(9);
            (0..length).map(|_| letters[dice.below(letters.len() as u64).min(dice.below(22)) as usize]).collect()
        };
        Generator { words: (0..WORDS).map(|_| word(&mut dice)).collect() }
    }

    fn fill(&self, kind: u64, length: usize, dice: &mut Dice) -> Vec<u8> {
        let mut content = Vec::with_capacity(length + 64);
        match kind {
            0..=9 => {
                while content.len() < length {
                    // The smaller of two is skewed towards the frequent words.
                    let word = dice.below(WORDS as u64).min(dice.below(WORDS as u64));
                    content.extend_from_slice(&self.words[word as usize]);
                    content.push(if dice.one_in(12) { b'\n' } else { b' ' });
                }
            }
            10..=14 => {
                let mut number = dice.roll() >> 32;
                while content.len() < length {
                    number += dice.below(9);
                    content.extend_from_slice(&number.to_le_bytes());
                    content.extend_from_slice(&dice.roll().to_le_bytes()[..5]);
                    content.extend_from_slice(&[0, 0, 1]);
                }
            }
            _ => {
                content.resize(length, 0);
                dice.fill(&mut content);
            }
        }
        content.truncate(length);
        content
    }
}

fn path_of(root: &Path, number: u64) -> PathBuf {
    let directory = number / FILES_OF_DIRECTORY;
    root.join(format!("part-{:02}", directory / 128))
        .join(format!("set-{directory:04}"))
        .join(format!("file-{number:05}"))
}

/// Makes the tree, or its first files. Returns their bytes.
pub fn make(root: &Path, files: u64) -> io::Result<u64> {
    let generator = Generator::new();
    let mut bytes = 0;
    for number in 0..files {
        let path = path_of(root, number);
        if number % FILES_OF_DIRECTORY == 0 {
            fs::create_dir_all(path.parent().unwrap_or(root))?;
        }
        let mut dice = Dice::new(SEED ^ (number + 1) << 20);
        let large = number % (FILES / LARGE) == FILES / LARGE - 1;
        // Each power of two is as frequent as the next, and within it all lengths are.
        let small = |dice: &mut Dice| {
            let top = 1 << (SMALL_BITS - dice.below(10) * dice.below(10) / 12);
            top / 4 + dice.below(top / 4 * 3)
        };
        let length = if large { LARGE_BYTES } else { small(&mut dice) };
        let kind = dice.below(20);
        if kind == 19 && number > 1000 {
            bytes += fs::copy(path_of(root, number - 1 - dice.below(900)), &path)?;
            continue;
        }
        let content = generator.fill(kind, length as usize, &mut dice);
        bytes += content.len() as u64;
        fs::write(&path, content)?;
    }
    Ok(bytes)
}

/// Gives one file in 20 another content of the same kind and length.
pub fn change(root: &Path, files: u64) -> io::Result<()> {
    let generator = Generator::new();
    for number in (0..files).step_by(20) {
        let path = path_of(root, number);
        let mut dice = Dice::new(SEED ^ (number + 1) << 20 ^ 1);
        let length = fs::metadata(&path)?.len();
        let content = generator.fill(number % 19, length as usize, &mut dice);
        fs::write(&path, content)?;
    }
    Ok(())
}
