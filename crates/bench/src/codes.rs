//! Parity, reconstruction and digests on one thread. ISA-L runs beside it (its general
//! `ec_encode_data` and its RAID-6 kernel `pq_gen`), or copying if ISA-L is not installed. GB/s
//! count data strips, not parity.

use std::time::Duration;

use stele_codes::{Code, Coder, Kernel, Strips};
use stele_ground::digest::crc32c;
use stele_ground::units::{BLOCK, Bytes};
use stele_isal::{Isal, Tables};
use stele_media::Buffer;

use crate::harness::{Bench, Unit, rate};

const GIGABYTES: Unit = Unit::more("GB/s");
const ROUND: Duration = Duration::from_millis(60);
/// Larger than any last-level cache of the machines we know.
const COLD_BYTES: usize = 512 << 20;

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let peer = Isal::load().inspect_err(|reason| bench.note(&format!("beside copying: {reason}"))).ok();
    let code = |data, parity| Code::parity(data, parity).ok_or("not a code");
    let main = code(8, 2)?;
    for strip in [64 << 10, 1 << 20] {
        for kernel in Kernel::available().into_iter().rev() {
            encode(bench, peer, main, strip, kernel, kernel == Kernel::best())?;
        }
        if let Some(isal) = peer {
            beside_raid6(bench, isal, main, strip)?;
        }
        for lost in [Strips::of([2, 5]), Strips::of([2, 8]), Strips::of([2])] {
            decode(bench, peer, main, strip, lost)?;
        }
    }
    cold(bench, peer, main, 64 << 10)?;
    for code in [code(4, 2)?, code(5, 1)?, code(8, 3)?, code(16, 3)?] {
        encode(bench, peer, code, 64 << 10, Kernel::best(), true)?;
    }
    update(bench, main, BLOCK)?;
    [BLOCK, 64 << 10].into_iter().try_for_each(|size| digest(bench, size))
}

fn encode(
    bench: &mut Bench,
    peer: Option<Isal>,
    code: Code,
    strip: usize,
    kernel: Kernel,
    best: bool,
) -> Result<(), String> {
    let coder = Coder::with_kernel(code, kernel);
    let (data, mut parity, mut other) = strips(code, strip);
    let data = borrowed(&data);
    let bytes = strip * code.data();
    let case = bench.case(format!("encode {code} {} {kernel}", size(strip)), GIGABYTES);
    let case = if best { case.target(1.0) } else { case };
    let ours = || {
        let mut parity = borrowed_mut(&mut parity);
        Ok(gigabytes(bytes, || coder.encode(&data, &mut parity)))
    };
    match peer {
        Some(isal) => {
            let tables = isal.tables(code.data(), &isal.rs_matrix(code.data(), code.tolerates())[code.data().pow(2)..]);
            let theirs = || Ok(isal_rate(isal, &tables, &data, &mut other));
            case.beside("ISA-L ec_encode_data", theirs).run(ours)
        }
        None => case.beside("copying", || Ok(copy_rate(&data))).run(ours),
    }
}

fn beside_raid6(bench: &mut Bench, isal: Isal, code: Code, strip: usize) -> Result<(), String> {
    let coder = Coder::new(code);
    let (data, mut parity, mut other) = strips(code, strip);
    let data = borrowed(&data);
    let bytes = strip * code.data();
    bench
        .case(format!("encode {code} {} beside RAID-6", size(strip)), GIGABYTES)
        .target(1.0)
        .beside("ISA-L pq_gen", || {
            let mut parity = borrowed_mut(&mut other);
            Ok(gigabytes(bytes, || isal.pq(&data, &mut parity)))
        })
        .run(|| {
            let mut parity = borrowed_mut(&mut parity);
            Ok(gigabytes(bytes, || coder.encode(&data, &mut parity)))
        })
}

/// Reads the first k of the remaining strips. The peer gets the same factors, as its own inversion
/// would find.
fn decode(bench: &mut Bench, peer: Option<Isal>, code: Code, strip: usize, lost: Strips) -> Result<(), String> {
    let (k, m) = (code.data(), code.tolerates());
    let plan = Coder::new(code).plan(Strips::all(k + m).without(lost), lost).ok_or("too many strips lost")?;
    let (sources, mut outputs, mut other) = strips(code, strip);
    let sources = borrowed(&sources);
    let bytes = strip * k;
    let case = bench.case(format!("decode {code} {} without {lost:?}", size(strip)), GIGABYTES).target(1.0);
    let ours = || {
        let mut outputs: Vec<&mut [u8]> = borrowed_mut(&mut outputs).into_iter().take(lost.len()).collect();
        Ok(gigabytes(bytes, || plan.run(&sources, &mut outputs)))
    };
    match peer {
        Some(isal) => {
            // All nonzero factors cost it the same.
            let tables = isal.tables(k, &vec![0x53; lost.len() * k]);
            let theirs = || Ok(isal_rate(isal, &tables, &sources, &mut other[..lost.len()]));
            case.beside("ISA-L ec_encode_data", theirs).run(ours)
        }
        None => case.beside("copying", || Ok(copy_rate(&sources))).run(ours),
    }
}

/// Encodes stripe after stripe, over more memory than the caches hold.
fn cold(bench: &mut Bench, peer: Option<Isal>, code: Code, strip: usize) -> Result<(), String> {
    let name = format!("encode {code} {} from memory", size(strip));
    if !bench.wants(&name) {
        return Ok(());
    }
    let coder = Coder::new(code);
    let stripes: Vec<_> = (0..COLD_BYTES / (strip * code.width())).map(|_| strips(code, strip).0).collect();
    let (_, mut parity, mut other) = strips(code, strip);
    let bytes = strip * code.data();
    let sweep = |encode: &mut dyn FnMut(&[&[u8]])| {
        let mut next = stripes.iter().cycle();
        gigabytes(bytes, || next.next().into_iter().for_each(|stripe| encode(&borrowed(stripe))))
    };
    let ours = || {
        let mut parity = borrowed_mut(&mut parity);
        Ok(sweep(&mut |data| coder.encode(data, &mut parity)))
    };
    let case = bench.case(name, GIGABYTES).target(1.0);
    match peer {
        Some(isal) => {
            let tables = isal.tables(code.data(), &isal.rs_matrix(code.data(), code.tolerates())[code.data().pow(2)..]);
            let theirs = || {
                let mut parity = borrowed_mut(&mut other);
                Ok(sweep(&mut |data| isal.encode(&tables, data, &mut parity)))
            };
            case.beside("ISA-L ec_encode_data", theirs).run(ours)
        }
        None => case.run(ours),
    }
}

/// A small write: one strip's block changes, and all parity follows.
fn update(bench: &mut Bench, code: Code, block: usize) -> Result<(), String> {
    let coder = Coder::new(code);
    let (data, mut parity, _) = strips(code, block);
    bench.case(format!("update {code} {} of one strip", size(block)), GIGABYTES).run(|| {
        let mut parity = borrowed_mut(&mut parity);
        Ok(gigabytes(block, || coder.update(3, &data[0], &data[1], &mut parity)))
    })
}

fn digest(bench: &mut Bench, length: usize) -> Result<(), String> {
    let bytes = Buffer::zeroed(length);
    bench.case(format!("digest crc32c {}", size(length)), GIGABYTES).beside("copying", || Ok(copy_rate(&[&bytes]))).run(
        || {
            Ok(gigabytes(length, || {
                std::hint::black_box(crc32c(std::hint::black_box(&bytes)));
            }))
        },
    )
}

fn isal_rate(isal: Isal, tables: &Tables, sources: &[&[u8]], outputs: &mut [Buffer]) -> f64 {
    let bytes = sources.iter().map(|source| source.len()).sum();
    let mut outputs = borrowed_mut(outputs);
    gigabytes(bytes, || isal.encode(tables, sources, &mut outputs))
}

fn copy_rate(sources: &[&[u8]]) -> f64 {
    let mut copy = Buffer::zeroed(sources[0].len());
    let bytes = sources.iter().map(|source| source.len()).sum();
    gigabytes(bytes, || sources.iter().for_each(|source| std::hint::black_box(&mut copy).copy_from_slice(source)))
}

fn gigabytes(bytes: usize, work: impl FnMut()) -> f64 {
    rate(ROUND, work) * bytes as f64 / 1e9
}

/// k data strips with content, and m parity strips twice.
fn strips(code: Code, length: usize) -> (Vec<Buffer>, Vec<Buffer>, Vec<Buffer>) {
    let filled = |strip: usize| {
        let mut buffer = Buffer::zeroed(length);
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 + strip * 7) as u8);
        buffer
    };
    let parity = || (0..code.tolerates()).map(|_| Buffer::zeroed(length)).collect();
    ((0..code.data()).map(filled).collect(), parity(), parity())
}

fn borrowed(strips: &[Buffer]) -> Vec<&[u8]> {
    strips.iter().map(|strip| &**strip).collect()
}

fn borrowed_mut(strips: &mut [Buffer]) -> Vec<&mut [u8]> {
    strips.iter_mut().map(|strip| &mut **strip).collect()
}

fn size(bytes: usize) -> String {
    Bytes(bytes as u64).to_string()
}
