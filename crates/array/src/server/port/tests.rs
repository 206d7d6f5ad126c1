use std::sync::atomic::AtomicUsize;

use stele_ground::{KIB, MIB};
use stele_media::{Buffer, ExtentState};

use super::*;

const SHARDS: usize = 16;
/// Units on each shard.
const ROWS: u64 = 4;

/// A part that counts what it is asked, and shows zeros.
struct Counting(Arc<AtomicUsize>);

impl Port for Counting {
    fn geometry(&self) -> Geometry {
        Geometry { size: Bytes(ROWS * MIB), block: Bytes(4096) }
    }

    fn submit(&self, mut op: Op, _priority: Priority, done: Done) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let result = self.geometry().admit_range(&op);
        match &mut op {
            Op::View { length, pieces, .. } => pieces.push(Buffer::zeroed(*length as usize).freeze()),
            Op::Extents { length, extents, .. } => extents.push(Extent { length: *length, state: ExtentState::Hole }),
            _ => {}
        }
        done(op, result);
    }
}

struct Bench {
    port: SpreadPort,
    messages: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Bench {
        let messages = Arc::new(AtomicUsize::new(0));
        let parts = (0..SHARDS).map(|_| Handle::new(Counting(Arc::clone(&messages)))).collect();
        let striping = Striping::new(MIB, SHARDS);
        let port = SpreadPort::new(parts, striping, Bytes(4096), Arc::default(), Arc::default());
        Bench { port, messages }
    }

    /// Messages to shards that one request takes.
    fn messages(&self, op: Op) -> usize {
        let before = self.messages.load(Ordering::Relaxed);
        let (sender, receiver) = std::sync::mpsc::channel();
        self.port.submit(op, Priority::Host, Box::new(move |op, result| drop(sender.send((op, result)))));
        receiver.recv().expect("answered").1.expect("done");
        self.messages.load(Ordering::Relaxed) - before
    }
}

fn write(at: u64, length: u64) -> Op {
    Op::Write { at, data: vec![Buffer::zeroed(length as usize).freeze()], fua: false }
}

/// What a request costs in messages on 16 shards: one inside a unit, as many as the shards it
/// touches, and a flush all.
#[test]
fn a_request_takes_a_message_to_each_shard_that_it_concerns() {
    let bench = Bench::new();
    let size = SHARDS as u64 * ROWS * MIB;
    assert_eq!(bench.port.geometry().size, Bytes(size));
    let read = |at, length: u64| Op::Read { at, buffer: Buffer::zeroed(length as usize) };
    for at in (0..size).step_by(256 << 10) {
        assert_eq!(bench.messages(read(at, 4096)), 1);
        assert_eq!(bench.messages(write(at, 256 * KIB)), 1, "an aligned long request lies in one unit");
    }
    assert_eq!(bench.messages(write(MIB, MIB)), 1);
    assert_eq!(bench.messages(write(MIB / 2, MIB)), 2);
    assert_eq!(bench.messages(read(MIB - 4096, 8192)), 2);
    assert_eq!(bench.messages(write(0, 8 * MIB)), 8);
    // However long: one to a shard, since its units lie one behind the other there.
    assert_eq!(bench.messages(Op::View { at: 0, length: size, pieces: Vec::new() }), SHARDS);
    assert_eq!(bench.messages(Op::Zero { at: 0, length: size }), SHARDS);
    assert_eq!(bench.messages(Op::Flush), SHARDS);
    // Of requests at random places, 15 of 16 concern another shard than their session's.
    let own =
        (0..size / 4096).filter(|block| Striping::new(MIB, SHARDS).runs(block * 4096, 4096).all(|run| run.shard == 3));
    assert_eq!(own.count() as u64 * SHARDS as u64, size / 4096);
}

/// A request that one shard refuses fails as a whole, and comes back as it was given.
#[test]
fn a_failed_request_comes_back_whole() {
    struct Failing;
    impl Port for Failing {
        fn geometry(&self) -> Geometry {
            Geometry { size: Bytes(MIB), block: Bytes(4096) }
        }
        fn submit(&self, op: Op, _priority: Priority, done: Done) {
            done(op, Err(MediaError::new(MediaFault::Retry, "later")));
        }
    }
    let parts = vec![Handle::new(Counting(Arc::default())), Handle::new(Failing)];
    let port = SpreadPort::new(parts, Striping::new(MIB, 2), Bytes(4096), Arc::default(), Arc::default());
    for (at, length) in [(0, 2 * MIB), (MIB, 4096)] {
        let (sender, receiver) = std::sync::mpsc::channel();
        port.submit(write(at, length), Priority::Host, Box::new(move |op, result| drop(sender.send((op, result)))));
        let (op, result) = receiver.recv().expect("answered");
        assert_eq!(op.range(), Some((at, length)));
        assert!(
            matches!(&op, Op::Write { data, .. } if data.iter().map(|piece| piece.len() as u64).sum::<u64>() == length)
        );
        assert_eq!(result.expect_err("refused").fault, MediaFault::Retry);
    }
    // The gate counts both as gone.
    drop(port.0.gate.close());
}
