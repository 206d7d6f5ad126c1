use md5::{Digest, Md5};

use super::*;
use crate::{Md5Stream, stream::DIRECT_MAX};

/// A small generator, so that a seed names a case.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % limit
    }

    fn bytes(&mut self, length: usize) -> Bytes {
        let seed = self.below(1 << 20);
        (0..length).map(|at| (at * 31 + at / 253 + seed) as u8).collect::<Vec<u8>>().into()
    }

    fn chunk(&mut self) -> usize {
        match self.below(4) {
            0 => [0, 1, 55, 56, 63, 64, 65, 127, 128, 129][self.below(10)],
            1 => self.below(5000),
            2 => 64 << 10,
            _ => self.below(300_000),
        }
    }
}

fn twin(data: &[u8]) -> [u8; 16] {
    Md5::digest(data).into()
}

/// Feeds streams in turns, drops some midway, and compares the finished ones with the twin.
fn upload(lanes: &Arc<Lanes>, seed: u64) {
    let mut dice = Dice(seed | 1);
    let count = 1 + dice.below(20);
    let mut streams: Vec<(Md5Stream, Md5, usize)> = (0..count)
        .map(|_| {
            let most = [100, DIRECT_MAX, DIRECT_MAX + 1, 300_000, 2_000_000][dice.below(5)];
            (Md5Stream::new(lanes), Md5::new(), dice.below(most + 1))
        })
        .collect();
    while !streams.is_empty() {
        let at = dice.below(streams.len());
        if dice.below(200) == 0 {
            drop(streams.swap_remove(at));
            continue;
        }
        let (stream, twin, left) = &mut streams[at];
        let length = dice.chunk().min(*left);
        let chunk = dice.bytes(length);
        twin.update(&chunk);
        stream.push(chunk);
        *left -= length;
        if *left == 0 {
            let (stream, twin, _) = streams.swap_remove(at);
            let digest: [u8; 16] = twin.finalize().into();
            assert_eq!(stream.finish(), digest, "seed {seed}, {:?}", lanes);
        }
    }
}

#[test]
fn streams_in_any_number_and_order_answer_what_the_twin_does() {
    for kernel in Kernel::available() {
        for seed in 1..40 {
            let lanes = Lanes::with_kernel(kernel);
            upload(&lanes, seed * 7919);
            assert_eq!(lanes.streams(), 0, "nothing stays behind");
        }
    }
}

#[test]
fn uploads_on_several_threads_share_the_lanes() {
    let lanes = Lanes::fastest();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let lanes = &lanes;
            scope.spawn(move || (1..8).for_each(|round| upload(lanes, thread * 1000 + round * 17)));
        }
    });
    assert_eq!(lanes.streams(), 0, "nothing stays behind");
}

#[test]
fn a_short_stream_never_enters_the_lanes() {
    let lanes = Lanes::fastest();
    let data = Dice(5).bytes(DIRECT_MAX);
    let mut stream = Md5Stream::new(&lanes);
    stream.push(data.clone());
    assert_eq!(lanes.streams(), 0);
    assert_eq!(stream.finish(), twin(&data));
}

#[test]
fn a_stream_keeps_no_more_than_its_backlog_unhashed() {
    let lanes = Lanes::fastest();
    let mut stream = Md5Stream::new(&lanes);
    for _ in 0..100 {
        stream.push(Bytes::from(vec![7; 100_000]));
        let backlog: usize = lanes.locked().entries.values().map(|entry| entry.backlog).sum();
        assert!(backlog < Lanes::BACKLOG_MAX, "{backlog} bytes");
    }
    assert_eq!(stream.finish(), twin(&vec![7; 10_000_000]));
}

#[test]
fn a_client_that_dribbles_has_few_chunks_kept() {
    let lanes = Lanes::fastest();
    let mut stream = Md5Stream::new(&lanes);
    stream.push(Bytes::from(vec![0; DIRECT_MAX + 1]));
    for at in 0..10_000 {
        stream.push(Bytes::from(vec![at as u8; 1]));
        let kept: usize = lanes.locked().entries.values().map(|entry| entry.chunks.len()).sum();
        assert!(kept <= Lanes::BACKLOG_MAX / WEIGHT_MIN, "{kept} chunks of one byte");
    }
    let data = std::iter::repeat_n(0, DIRECT_MAX + 1).chain((0..10_000).map(|at| at as u8));
    assert_eq!(stream.finish(), twin(&data.collect::<Vec<u8>>()));
}

#[test]
fn chunks_are_given_back_when_their_stream_is_dropped() {
    let chunk = Bytes::from(vec![1; 200_000]);
    let lanes = Lanes::fastest();
    let mut stream = Md5Stream::new(&lanes);
    stream.push(chunk.clone());
    assert_eq!(lanes.streams(), 1);
    drop(stream);
    assert_eq!(lanes.streams(), 0);
    assert!(chunk.is_unique(), "the lanes still hold it");
}

#[test]
fn one_who_has_gathered_enough_hashes_what_the_others_have_gathered_too() {
    let lanes = Lanes::fastest();
    if lanes.kernel.lanes() == 1 {
        return;
    }
    let mut streams: Vec<Md5Stream> = (0..8).map(|_| Md5Stream::new(&lanes)).collect();
    let chunk = Dice(9).bytes(200_000);
    streams.iter_mut().for_each(|stream| stream.push(chunk.clone()));
    streams[3].push(chunk.clone());
    // All but the continuing stream are empty at once; its rest is hashed later.
    let waiting = lanes.locked().entries.values().filter(|entry| entry.is_waiting()).count();
    assert_eq!(waiting, 0);
}

#[test]
fn a_lock_poisoned_by_a_panic_is_taken_all_the_same() {
    let lanes = Lanes::fastest();
    let held = Arc::clone(&lanes);
    let panicked = std::thread::spawn(move || {
        let _work = held.working();
        let _streams = held.locked();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    upload(&lanes, 4711);
}
