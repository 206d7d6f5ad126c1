//! The trace of a run: every event goes into one hash, and the last events are kept for reading.
//!
//! Two runs of one seed must end with equal hashes. If they do not, some code depended on chance or
//! order that the seed does not decide.

use std::collections::VecDeque;
use std::fmt;

use stele_ground::Instant;
use stele_ground::digest::context;

/// Default number of lines kept.
pub const TAIL: usize = 60;

/// One event: a sentence with a `{}` for each of its numbers, or a free text.
#[derive(Clone, Debug)]
struct Note {
    time: Instant,
    sentence: &'static str,
    numbers: [u64; 5],
    text: Option<Box<str>>,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.3} ms  ", self.time.0 as f64 / 1e6)?;
        let mut numbers = self.numbers.iter();
        let mut parts = self.sentence.split("{}");
        f.write_str(parts.next().unwrap_or_default())?;
        for part in parts {
            match numbers.next() {
                Some(number) => write!(f, "{number}{part}")?,
                None => write!(f, "?{part}")?,
            }
        }
        match &self.text {
            Some(text) => f.write_str(text),
            None => Ok(()),
        }
    }
}

/// The trace of one run.
pub struct Trace {
    hash: u64,
    events: u64,
    tail: VecDeque<Note>,
    kept: usize,
}

impl Trace {
    /// Keeps the last `kept` lines.
    pub fn new(kept: usize) -> Trace {
        Trace { hash: 0, events: 0, tail: VecDeque::new(), kept }
    }

    /// Records an event; `sentence` has a `{}` for each number.
    pub fn note(&mut self, time: Instant, sentence: &'static str, numbers: &[u64]) {
        let mut five = [0; 5];
        five.iter_mut().zip(numbers).for_each(|(place, number)| *place = *number);
        self.add(Note { time, sentence, numbers: five, text: None });
    }

    /// Records a rare event in words.
    pub fn say(&mut self, time: Instant, text: impl Into<String>) {
        let text: String = text.into();
        self.add(Note { time, sentence: "", numbers: [0; 5], text: Some(text.into_boxed_str()) });
    }

    fn add(&mut self, note: Note) {
        self.events += 1;
        let mut hash = context(self.hash, note.time.0);
        hash = context(hash, note.sentence.len() as u64);
        hash = note.numbers.iter().fold(hash, |hash, number| context(hash, *number));
        if let Some(text) = &note.text {
            hash = text.bytes().fold(hash, |hash, byte| context(hash, u64::from(byte)));
        }
        self.hash = hash;
        if self.kept > 0 {
            if self.tail.len() >= self.kept {
                self.tail.pop_front();
            }
            self.tail.push_back(note);
        }
    }

    /// The hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last lines, oldest first.
    pub fn tail(&self) -> impl Iterator<Item = String> + '_ {
        self.tail.iter().map(ToString::to_string)
    }
}
