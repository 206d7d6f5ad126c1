//! MD5 of several streams at once on one thread, beside the md-5 crate taking them one after
//! another in the same run.

use std::time::Duration;

use bytes::Bytes;
use md5::{Digest, Md5};
use stele_digests::{Lanes, Md5Stream};

use crate::harness::{Bench, Unit, rate};

const ROUND: Duration = Duration::from_millis(60);
const LENGTH: usize = 1 << 20;
const CHUNK: usize = 64 << 10;

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let content = Bytes::from((0..LENGTH).map(|at| (at * 31 + at / 251) as u8).collect::<Vec<u8>>());
    for streams in [1, 2, 4, 8, 16] {
        bench
            .case(format!("md5 {streams} streams"), Unit::more("GB/s"))
            .target(1.0)
            .beside("md-5 crate", || {
                Ok(gigabytes(streams, || {
                    (0..streams).for_each(|_| {
                        std::hint::black_box(Md5::digest(&content));
                    });
                }))
            })
            .run(|| Ok(gigabytes(streams, || side_by_side(&content, streams))))?;
    }
    Ok(())
}

/// The streams take turns, as uploads on one thread do.
fn side_by_side(content: &Bytes, count: usize) {
    let lanes = Lanes::fastest();
    let mut streams: Vec<Md5Stream> = (0..count).map(|_| Md5Stream::new(&lanes)).collect();
    for from in (0..LENGTH).step_by(CHUNK) {
        streams.iter_mut().for_each(|stream| stream.push(content.slice(from..from + CHUNK)));
    }
    streams.into_iter().for_each(|stream| {
        std::hint::black_box(stream.finish());
    });
}

fn gigabytes(streams: usize, work: impl FnMut()) -> f64 {
    rate(ROUND, work) * (streams * LENGTH) as f64 / 1e9
}
