//! The hunt: each mutant alone, against the tests that reach it, the quickest first.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::detectors::{Ended, Test, run};
use crate::sites::Site;
use crate::tree::Program;
use crate::{abreast, place};

/// Tests with a mutant may take this many times as long as without one, and `GRACE` more: a mutant
/// may hang.
const PATIENCE: u32 = 8;
const GRACE: Duration = Duration::from_secs(5);
/// Tests run in one process up to this long in all; the next process may take four times as long.
const FIRST: Duration = Duration::from_millis(500);

/// Draws `count` of the mutants, in order and with equal probability.
pub fn sample(sites: &mut Vec<Site>, count: usize, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut keyed: Vec<(u64, Site)> = sites
        .drain(..)
        .map(|site| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 20, site)
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.truncate(count);
    keyed.sort_by_key(|(_, site)| site.number);
    sites.extend(keyed.into_iter().map(|(_, site)| site));
}

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// By this test.
    Noticed(String),
    /// By none of the tests that were run.
    Survived(Asked),
}

/// How many tests reach a mutant, and how many of them were run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub run: usize,
    pub reach: usize,
}

pub struct Hunt<'a> {
    pub programs: &'a [Program],
    pub tests: &'a [Test],
    pub jobs: usize,
    /// Tests of a mutant take no longer than this together, as long as they take without it.
    pub budget: Duration,
    /// The test that noticed a mutant in an earlier hunt is run once more.
    pub again: bool,
}

impl Hunt<'_> {
    pub fn hunt(&self, chosen: &[Site], book: &Book) -> Result<Vec<(Site, Verdict)>, String> {
        let begun = Instant::now();
        let Known { noticed, survived } = book.read()?;
        let is_known = |site: &&Site| !self.again && noticed.contains_key(&site.key);
        let mut asked: Vec<&Site> = chosen.iter().filter(|site| !is_known(site)).collect();
        // New ones first: most of those that survived before do so again.
        asked.sort_by_key(|site| survived.contains_key(&site.key));
        println!("{} mutants, of which earlier hunts noticed {}", chosen.len(), chosen.len() - asked.len());
        let done = Mutex::new(0_u64);
        let verdicts = abreast(self.jobs, &asked, |_, site| {
            let verdict = match noticed.get(&site.key) {
                Some(test) if self.notices(test, site)? => Verdict::Noticed(test.clone()),
                _ => self.verdict(site, survived.get(&site.key), book)?,
            };
            let mut done = done.lock().map_err(|_| "a thread of the hunt panicked")?;
            *done += 1;
            let left = begun.elapsed().as_secs() * (asked.len() as u64 - *done) / *done;
            let told = match &verdict {
                Verdict::Noticed(test) => test.clone(),
                Verdict::Survived(asked) => format!("SURVIVED {} of {} tests", asked.run, asked.reach),
            };
            println!(
                "{:>5} {:<26} {:<24} {:<12} {:.60}  {told:.90}  ({done} of {}, {left} s left)",
                site.number,
                place(site),
                site.function,
                site.change.word(),
                site.text,
                asked.len()
            );
            Ok((site.key.clone(), verdict))
        });
        let mut all: HashMap<String, Verdict> =
            noticed.into_iter().map(|(key, test)| (key, Verdict::Noticed(test))).collect();
        all.extend(verdicts.into_iter().collect::<Result<Vec<_>, String>>()?);
        Ok(chosen.iter().filter_map(|site| Some((site.clone(), all.get(&site.key)?.clone()))).collect())
    }

    /// Whether the test, as the book has it, still notices the mutant.
    fn notices(&self, told: &str, site: &Site) -> Result<bool, String> {
        let is_it = |test: &&Test| told.split(' ').next() == Some(test.name.as_str());
        let Some(test) = self.tests.iter().find(is_it) else { return Ok(false) };
        let environment = [("STELE_MUTANT", site.number.to_string())];
        let ended = run(&self.programs[test.program], &[&test.name], test.took * PATIENCE + GRACE, &environment)?;
        Ok(matches!(ended, Ended::Red(_)))
    }

    /// Asks the tests that reach the mutant, the quickest of them within the budget, but none that
    /// let it live `before`: of two, first the one that noticed more mutants in less time.
    fn verdict(&self, site: &Site, before: Option<&HashSet<String>>, book: &Book) -> Result<Verdict, String> {
        let mut tests: Vec<&Test> = self.tests.iter().filter(|test| test.reached.contains(&site.number)).collect();
        let reach = tests.len();
        tests.sort_by_key(|test| test.took);
        let mut spent = Duration::ZERO;
        tests.retain(|test| {
            spent += test.took;
            spent <= self.budget
        });
        let fit = tests.len();
        tests.retain(|test| before.is_none_or(|before| !before.contains(&test.name)));
        let cost = |test: &Test| test.took.as_micros() / (1 + test.noticed.load(Ordering::Relaxed) as u128);
        tests.sort_by_cached_key(|test| cost(test));
        let environment = [("STELE_MUTANT", site.number.to_string())];
        let (mut rest, mut limit) = (tests.as_slice(), FIRST);
        while let Some(first) = rest.first() {
            let mut time = Duration::ZERO;
            let fits = |test: &&&Test| {
                time += test.took;
                test.program == first.program && (time <= limit || test.name == first.name)
            };
            let count = rest.iter().take_while(fits).count();
            let (batch, later) = rest.split_at(count);
            let names: Vec<&String> = batch.iter().map(|test| &test.name).collect();
            let took: Duration = batch.iter().map(|test| test.took).sum();
            if let Ended::Red(test) = run(&self.programs[first.program], &names, took * PATIENCE + GRACE, &environment)?
            {
                if let Some(known) = batch.iter().find(|known| known.name == test) {
                    known.noticed.fetch_add(1, Ordering::Relaxed);
                }
                book.note_noticed(site, &test)?;
                return Ok(Verdict::Noticed(test));
            }
            (rest, limit) = (later, limit * 4);
        }
        book.note_survived(site, &tests)?;
        Ok(Verdict::Survived(Asked { run: fit, reach }))
    }
}

/// The mutants of earlier hunts, by their keys.
struct Known {
    /// The test that noticed each.
    noticed: HashMap<String, String>,
    /// The tests that let each live.
    survived: HashMap<String, HashSet<String>>,
}

/// What earlier hunts found, so that a hunt goes on after a stop.
pub struct Book {
    /// A line for each mutant: its key, and the test that noticed it. It holds as long as the code
    /// of the mutated function is the same.
    noticed: PathBuf,
    /// The same, with all tests that let it live. It holds for the same programs only: of others, a
    /// test may have changed.
    survived: PathBuf,
}

impl Book {
    pub fn open(folder: &Path, fingerprint: &str, anew: bool) -> Result<Book, String> {
        let survived = folder.join(format!("survived-{fingerprint}.tsv"));
        let book = Book { noticed: folder.join("noticed.tsv"), survived };
        for path in [&book.noticed, &book.survived].into_iter().filter(|path| anew && path.exists()) {
            std::fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(book)
    }

    fn read(&self) -> Result<Known, String> {
        let noticed = lines(&self.noticed)?.into_iter().filter_map(|line| {
            let (key, test) = line.split_once('\t')?;
            Some((key.to_owned(), test.to_owned()))
        });
        let mut survived: HashMap<String, HashSet<String>> = HashMap::new();
        for line in lines(&self.survived)? {
            let mut fields = line.split('\t').map(str::to_owned);
            survived.entry(fields.next().unwrap_or_default()).or_default().extend(fields);
        }
        Ok(Known { noticed: noticed.collect(), survived })
    }

    fn note_noticed(&self, site: &Site, test: &str) -> Result<(), String> {
        append(&self.noticed, &format!("{}\t{test}\n", site.key))
    }

    fn note_survived(&self, site: &Site, tests: &[&Test]) -> Result<(), String> {
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        append(&self.survived, &format!("{}\t{}\n", site.key, names.join("\t")))
    }
}

fn lines(path: &Path) -> Result<Vec<String>, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn append(path: &Path, line: &str) -> Result<(), String> {
    let file = std::fs::File::options().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|error| format!("{}: {error}", path.display()))
}
