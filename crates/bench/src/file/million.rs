//! A directory of a million files: whether a name costs as much as in a small one, how long a
//! listing takes, and how the server opens it after kill -9.

use std::time::Instant;

use stele_ground::Dice;

use crate::harness::{Bench, Unit};
use crate::process;

use super::RATE;
use super::client::{Call, NfsClient};
use super::servers::SteleFileServer;

const FILES: u64 = 1_000_000;
const PART: u64 = 100_000;
const DEPTH: u64 = 32;
const SHARE: &str = "million";
const CASE: &str = "a million files";

fn name(index: u64) -> String {
    format!("record-{index:07}")
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    if !bench.wants(CASE) {
        return Ok(());
    }
    let mut stele = SteleFileServer::start("4GiB")?;
    // None is archived during the measurement.
    let mut client = stele.share(SHARE, "64MiB", "86400")?;
    let root = client.root().to_vec();
    let mut first = None;
    for part in 0..FILES / PART {
        let begun = Instant::now();
        client.many(PART, DEPTH, |index| Call::create(&root, &name(part * PART + index)))?;
        let rate = PART as f64 / begun.elapsed().as_secs_f64();
        first.get_or_insert(rate);
        if part + 1 == FILES / PART {
            let reference = first.map(|first| ("the first 100,000", first));
            bench.figure(&format!("{CASE}: create, the last 100,000"), RATE, rate, reference, Some(0.8));
        }
    }
    listing(bench, &mut client)?;
    lookups(bench, &mut client, "")?;
    let memory = |stele: &SteleFileServer| process::anonymous(stele.process()) as f64 / f64::from(1 << 20);
    bench.figure(&format!("{CASE}: memory of the server"), super::MEMORY, memory(&stele), None, None);

    stele.kill();
    let begun = Instant::now();
    stele.serve()?;
    bench.figure(&format!("{CASE}: open after kill -9"), Unit::less("s"), begun.elapsed().as_secs_f64(), None, None);
    let mut client = stele.mount(SHARE)?;
    lookups(bench, &mut client, ", after kill -9")?;
    listing(bench, &mut client)?;
    let root = client.root().to_vec();
    let begun = Instant::now();
    client.many(FILES, DEPTH, |index| Call::remove(&root, &name(index)))?;
    let rate = FILES as f64 / begun.elapsed().as_secs_f64();
    bench.figure(&format!("{CASE}: unlink"), RATE, rate, None, None);
    bench.figure(&format!("{CASE}: memory of the server, at the end"), super::MEMORY, memory(&stele), None, None);
    Ok(())
}

/// Names drawn at random, each of which is there.
fn lookups(bench: &mut Bench, client: &mut NfsClient, when: &str) -> Result<(), String> {
    let root = client.root().to_vec();
    let mut dice = Dice::new(5);
    let begun = Instant::now();
    client.many(PART, DEPTH, |_| Call::lookup(&root, &name(dice.below(FILES))))?;
    let rate = PART as f64 / begun.elapsed().as_secs_f64();
    bench.figure(&format!("{CASE}: lookup{when}"), RATE, rate, None, None);
    Ok(())
}

/// The whole directory; each name must be there once.
fn listing(bench: &mut Bench, client: &mut NfsClient) -> Result<(), String> {
    let mut seen = vec![false; FILES as usize];
    let begun = Instant::now();
    client.list(|found| {
        let index = found.strip_prefix("record-").and_then(|number| number.parse::<usize>().ok());
        let seen = index.and_then(|index| seen.get_mut(index)).ok_or_else(|| format!("`{found}` is listed"))?;
        if std::mem::replace(seen, true) { Err(format!("`{found}` is listed twice")) } else { Ok(()) }
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let missing = seen.iter().filter(|seen| !**seen).count();
    if missing > 0 {
        return Err(format!("{missing} files are not listed"));
    }
    bench.figure(
        &format!("{CASE}: listing with attributes"),
        Unit::more("names/s"),
        FILES as f64 / seconds,
        None,
        None,
    );
    Ok(())
}
