//! The index of a large repository: its memory, and how fast chunks are added and found.
//!
//! The segments are made up, with 64 chunks each, as those of 64 MiB and chunks of 1 MiB have.
//! Their footers are made anew where the index asks for one, as if they came from a cache beside
//! the repository. All rates include the making of the ids.

use std::hint::black_box;
use std::time::Instant;

use stele_backup::crypt::{ChunkId, Kind, SALT_BYTES};
use stele_backup::index::{FooterSource, Index};
use stele_backup::references::Ordinals;
use stele_backup::segment::{ChunkEntry, Footer, SegmentId};
use stele_ground::Dice;

use crate::harness::{Bench, TARGET, Unit};
use crate::process::resident;

/// Chunks of an index, in millions.
const SIZES: [u64; 3] = [1, 10, 100];
const CHUNKS: u64 = 64;
/// The index of so many million chunks is to take at most this many bytes.
const BOUNDED: (u64, f64) = (100, 1e9);
const LOOKUPS: u64 = 1_000_000;

const MEMORY: Unit = Unit::less("bytes a chunk");
const ADDED: Unit = Unit::more("chunks/s");
const FOUND: Unit = Unit::more("lookups/s");

fn name(millions: u64, what: &str) -> String {
    format!("index: {millions} million chunks, {what}")
}

/// The chunk of this number. Ids are random, as keyed hashes are.
fn chunk(number: u64) -> ChunkId {
    let mut id = [0; 32];
    Dice::new(number).fill(&mut id);
    ChunkId(id)
}

fn segment(number: u64) -> SegmentId {
    let mut id = [0; 32];
    Dice::new(u64::MAX - number).fill(&mut id);
    // By which the source knows it.
    id[..8].copy_from_slice(&number.to_le_bytes());
    SegmentId(id)
}

fn footer(number: u64) -> Footer {
    let entry = |chunk_number: u64| ChunkEntry {
        id: chunk(chunk_number),
        offset: 0,
        stored: 1 << 20,
        length: 1 << 20,
        compressed: false,
    };
    let entries = (number * CHUNKS..(number + 1) * CHUNKS).map(entry).collect();
    Footer { kind: Kind::Content, salt: [0; SALT_BYTES], entries }
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    for millions in SIZES {
        let names = ["memory", "adding", "finding", "finding what is not there"].map(|what| name(millions, what));
        if !names.iter().any(|name| bench.wants(name)) {
            continue;
        }
        let [memory, adding, finding, missing] = names;
        let source: FooterSource = Box::new(|id| {
            let number = id.0.first_chunk().map(|first| u64::from_le_bytes(*first));
            Ok(footer(number.unwrap_or_default()))
        });
        let before = resident();
        let mut index = Index::new(source);
        let chunks = millions * 1_000_000;
        let begun = Instant::now();
        for number in 0..chunks / CHUNKS {
            index.add(segment(number), footer(number), Ordinals::default()).map_err(|error| error.to_string())?;
        }
        let rate = chunks as f64 / begun.elapsed().as_secs_f64();
        let (bounded, most) = BOUNDED;
        let target = (millions == bounded).then_some((TARGET, most / chunks as f64));
        let each = resident().saturating_sub(before) as f64 / chunks as f64;
        bench.figures(&memory, MEMORY, &[each], target, target.map(|_| 1.0));
        bench.figures(&adding, ADDED, &[rate], None, None);
        let mut dice = Dice::new(millions);
        let mut lookups = |first: u64, is_there: bool| -> Result<f64, String> {
            let begun = Instant::now();
            for _ in 0..LOOKUPS {
                let found = black_box(index.find(&chunk(first + dice.below(chunks / CHUNKS * CHUNKS))));
                if found.is_some() != is_there {
                    return Err("the index found a wrong chunk, or lost one".to_owned());
                }
            }
            Ok(LOOKUPS as f64 / begun.elapsed().as_secs_f64())
        };
        let (there, elsewhere) = (lookups(0, true)?, lookups(1 << 60, false)?);
        bench.figures(&finding, FOUND, &[there], None, None);
        bench.figures(&missing, FOUND, &[elsewhere], None, None);
    }
    Ok(())
}
