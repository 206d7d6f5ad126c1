use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use stele_ground::MIB;

use super::*;
use crate::conformance::{self, Subject};
use crate::file::tests::Scratch;
use crate::{Access, Buffer, ExtentState, Priority, Shared, Space};

struct OnFile {
    ring: Ring,
    drive: Option<FileDrive>,
    path: PathBuf,
    engine: Engine,
}

fn ring(engine: Engine) -> Ring {
    Ring::new(Arc::new(EventFd::new().expect("an eventfd")), engine)
}

impl OnFile {
    fn new(scratch: &Scratch, space: Space, engine: Engine) -> OnFile {
        let path = scratch.path("drive");
        let _ = std::fs::remove_file(&path);
        let file = DriveFile::create(&path, Bytes(5 * MIB), space).expect("created");
        let ring = ring(engine);
        OnFile { drive: Some(ring.attach(file)), ring, path, engine }
    }
}

impl Subject for OnFile {
    fn drive(&mut self) -> &mut dyn Drive {
        self.drive.as_mut().expect("attached")
    }
    fn wait(&mut self) -> Instant {
        self.ring.wait(Some(Duration::from_millis(1)));
        Instant(0)
    }
    /// Cuts off the process, not the power: all completed writes must be there, flushed or not.
    fn cut_power(&mut self) -> bool {
        self.drive = None;
        self.ring = ring(self.engine);
        let file = DriveFile::open(&self.path, Access::Exclusive).expect("opened again");
        self.drive = Some(self.ring.attach(file));
        true
    }
    fn whole_blocks(&self) -> bool {
        false
    }
}

#[test]
fn files_conform_on_io_uring() {
    let scratch = Scratch::new("uring");
    conformance::check("sparse file", 1, &mut |_| Box::new(OnFile::new(&scratch, Space::Sparse, Engine::Best)));
    conformance::check("written file", 2, &mut |_| Box::new(OnFile::new(&scratch, Space::Written, Engine::Best)));
}

#[test]
fn files_conform_on_threads() {
    let scratch = Scratch::new("threads");
    conformance::check("file", 3, &mut |_| Box::new(OnFile::new(&scratch, Space::Reserved, Engine::Threads)));
}

#[test]
fn files_in_memory_conform() {
    let scratch = Scratch::in_memory("inline");
    conformance::check("tmpfs file", 4, &mut |_| Box::new(OnFile::new(&scratch, Space::Sparse, Engine::Best)));
}

/// The middle one of three parts of a file.
struct OnPart(OnFile);

impl OnPart {
    const PARTS: [(u64, Bytes); 3] = [(0, Bytes(MIB)), (MIB, Bytes(5 * MIB)), (6 * MIB, Bytes(MIB))];

    fn new(scratch: &Scratch, engine: Engine) -> OnPart {
        let path = scratch.path("divided");
        let _ = std::fs::remove_file(&path);
        drop(DriveFile::create(&path, Bytes(7 * MIB), Space::Sparse).expect("created"));
        let mut part = OnPart(OnFile { ring: ring(engine), drive: None, path, engine });
        part.attach();
        part
    }

    fn attach(&mut self) {
        let file = DriveFile::open(&self.0.path, Access::Exclusive).expect("opened");
        let middle = file.divide(&OnPart::PARTS).expect("divided").swap_remove(1);
        self.0.drive = Some(self.0.ring.attach(middle));
    }
}

impl Subject for OnPart {
    fn drive(&mut self) -> &mut dyn Drive {
        self.0.drive()
    }
    fn wait(&mut self) -> Instant {
        self.0.wait()
    }
    fn cut_power(&mut self) -> bool {
        self.0.drive = None;
        self.0.ring = ring(self.0.engine);
        self.attach();
        true
    }
    fn whole_blocks(&self) -> bool {
        false
    }
}

#[test]
fn a_part_of_a_file_conforms() {
    let scratch = Scratch::new("part");
    conformance::check("part, io_uring", 7, &mut |_| Box::new(OnPart::new(&scratch, Engine::Best)));
    conformance::check("part, threads", 8, &mut |_| Box::new(OnPart::new(&scratch, Engine::Threads)));
    let scratch = Scratch::in_memory("part");
    conformance::check("part, tmpfs", 9, &mut |_| Box::new(OnPart::new(&scratch, Engine::Best)));
}

/// What is written to one part is at its place in the file, and the other parts keep what they had.
#[test]
fn parts_of_a_file_do_not_reach_into_each_other() {
    let scratch = Scratch::new("parts");
    let path = scratch.path("drive");
    let ring = ring(Engine::Best);
    let file = DriveFile::create(&path, Bytes(3 * MIB), Space::Sparse).expect("created");
    let parts = file.divide(&[0, 1, 2].map(|part| (part * MIB, Bytes(MIB)))).expect("divided");
    let mut drives: Vec<FileDrive> = parts.into_iter().map(|part| ring.attach(part)).collect();
    for (drive, byte) in drives.iter_mut().zip([1, 2, 3]) {
        let data = vec![Shared::from(vec![byte; MIB as usize])];
        assert_eq!(one(&ring, drive, Op::Write { at: 0, data, fua: true }).1, Ok(()));
    }
    assert_eq!(one(&ring, &mut drives[1], Op::Zero { at: 0, length: MIB }).1, Ok(()));
    assert_eq!(one(&ring, &mut drives[0], Op::Discard { at: 0, length: 4096 }).1, Ok(()));
    let (op, _) = one(&ring, &mut drives[1], Op::Extents { at: 0, length: MIB, since: None, extents: Vec::new() });
    let Op::Extents { extents, .. } = op else { panic!("{op:?}") };
    assert!(extents.iter().map(|extent| extent.length).sum::<u64>() == MIB, "{extents:?}");
    let error = one(&ring, &mut drives[1], Op::Zero { at: MIB, length: 4096 }).1.expect_err("behind its end");
    assert_eq!(error.fault, MediaFault::Invalid);
    drop(drives);
    let bytes = std::fs::read(&path).expect("read");
    let expected = |at: u64| [1, 0, 3][(at / MIB) as usize] * u8::from(at >= 4096);
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at as u64)));
}

/// The lock of a divided file lasts as long as any of its parts.
#[test]
fn a_divided_file_stays_locked_until_its_last_part_is_dropped() {
    let scratch = Scratch::new("held");
    let path = scratch.path("drive");
    let file = DriveFile::create(&path, Bytes(2 * MIB), Space::Sparse).expect("created");
    let mut parts = file.divide(&[(0, Bytes(MIB)), (MIB, Bytes(MIB))]).expect("divided");
    drop(parts.pop());
    let error = DriveFile::open(&path, Access::Exclusive).expect_err("is held");
    assert_eq!(error.fault, MediaFault::Refused);
    drop(parts.pop());
    let file = DriveFile::open(&path, Access::Exclusive).expect("is free");
    for bad in [(0, Bytes(0)), (MIB, Bytes(2 * MIB)), (100, Bytes(4096)), (u64::MAX - 4095, Bytes(4096))] {
        assert_eq!(file.geometry().size, Bytes(2 * MIB));
        let file = DriveFile::open(&path, Access::Peek).expect("a look");
        assert_eq!(file.divide(&[bad]).expect_err("no such part").fault, MediaFault::Invalid);
    }
}

fn request(tag: u64, op: Op) -> Request {
    Request { tag, op, priority: Priority::Host, deadline: None }
}

fn finish(ring: &Ring, count: usize) -> Vec<(usize, Completion)> {
    let mut finished = Vec::new();
    while finished.len() < count {
        ring.kick();
        ring.reap(&mut finished);
        if finished.len() < count {
            ring.wait(None);
        }
    }
    assert_eq!(finished.len(), count);
    finished
}

fn one(ring: &Ring, drive: &mut FileDrive, op: Op) -> (Op, Result<(), MediaError>) {
    drive.submit(request(1, op));
    let (slot, completion) = finish(ring, 1).remove(0);
    assert_eq!(slot, drive.slot());
    (completion.op, completion.result)
}

/// The system refuses the write, and the flush linked behind it ends with it: one answer, and the
/// place is reused.
#[test]
fn a_durable_write_that_the_system_refuses_answers_once() {
    let scratch = Scratch::new("refused");
    let path = scratch.path("drive");
    drop(DriveFile::create(&path, Bytes(MIB), Space::Sparse).expect("created"));
    let file = Arc::new(DriveFile::open(&path, Access::ReadOnly).expect("opened"));
    let Ok(mut uring) = Uring::new(Arc::new(EventFd::new().expect("an eventfd"))) else { return };
    uring.register(0, std::os::fd::AsRawFd::as_raw_fd(file.file()));
    let buffers = BufferPool::new(Bytes(MIB));
    for tag in 0..100 {
        let data = vec![Buffer::zeroed(4096).freeze()];
        // This bypasses the check that would refuse it before it reached the system.
        uring.start(PendingOperation::new(0, &file, request(tag, Op::Write { at: 0, data, fua: true }), &buffers));
        let mut finished = Vec::new();
        while uring.in_flight() > 0 {
            uring.wait(None);
            uring.collect(&mut finished, &mut Vec::new());
        }
        assert!(matches!(&finished[..], [(_, Err(_))]), "one answer to {tag}");
    }
}

/// The kernel reports a failed write-back to one flush, and success to the next.
#[test]
fn a_flush_that_overlaps_a_failed_one_fails_too() {
    let scratch = Scratch::new("overlap");
    let file = Arc::new(DriveFile::create(scratch.path("drive"), Bytes(MIB), Space::Sparse).expect("created"));
    let buffers = BufferPool::new(Bytes(MIB));
    for durable in [false, true] {
        file.can.durable_write.store(durable, std::sync::atomic::Ordering::Relaxed);
        let data = vec![Buffer::zeroed(4096).freeze()];
        let log = Op::Write { at: 0, data, fua: true };
        let [mut flush, mut write] =
            [Op::Flush, log].map(|op| PendingOperation::new(0, &file, request(1, op), &buffers));
        if !durable {
            assert!(write.outcome(write.step(), Ok(4096)).is_none(), "its flush is to come");
        }
        file.set_failed();
        for work in [&mut flush, &mut write] {
            let step = work.step();
            let error = work.outcome(step, Ok(4096)).expect("the last step").expect_err("the drive is given up");
            assert_eq!(error.fault, MediaFault::Gone, "{step:?}");
        }
    }
}

/// Without turns, a flush that succeeds could be answered before the one that took the error.
#[test]
fn flushes_through_the_page_cache_take_turns() {
    let scratch = Scratch::in_memory("turns");
    let file = DriveFile::create(scratch.path("drive"), Bytes(MIB), Space::Sparse).expect("created");
    let parts = file.divide(&[(0, Bytes(MIB / 2)), (MIB / 2, Bytes(MIB / 2))]).expect("divided");
    let files: Vec<_> = parts.into_iter().map(Arc::new).collect();
    let Ok(mut uring) = Uring::new(Arc::new(EventFd::new().expect("an eventfd"))) else { return };
    let buffers = BufferPool::new(Bytes(MIB));
    for tag in 0..20 {
        let op = match tag % 4 {
            0 | 1 => Op::Flush,
            _ => Op::Write { at: 0, data: vec![Buffer::zeroed(4096).freeze()], fua: true },
        };
        let slot = tag as usize % 2;
        uring.start(PendingOperation::new(slot, &files[slot], request(tag, op), &buffers));
    }
    assert_eq!(uring.waiting_flushes(), 8, "one of five flushes of each file is in the kernel");
    let mut finished = Vec::new();
    while uring.in_flight() > 0 {
        uring.wait(None);
        uring.collect(&mut finished, &mut Vec::new());
    }
    let mut tags: Vec<u64> = finished.iter().map(|(work, _)| work.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, Vec::from_iter(0..20));
    assert!(finished.iter().all(|(_, result)| result.is_ok()));
    assert_eq!(uring.waiting_flushes(), 0);
}

#[test]
fn flushes_of_threads_take_turns() {
    let scratch = Scratch::in_memory("thread-turns");
    let file = Arc::new(DriveFile::create(scratch.path("drive"), Bytes(MIB), Space::Sparse).expect("created"));
    let mut second = PendingOperation::new(0, &file, request(1, Op::Flush), &BufferPool::new(Bytes(MIB)));
    let first = file.flush_turn().expect("a buffered file");
    std::thread::scope(|scope| {
        let second = scope.spawn(move || direct::carry_out(&mut second));
        // Time for the second flush to end, if it did not wait.
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
        file.set_failed();
        drop(first);
        let error = second.join().expect("it ends").expect_err("the first flush failed");
        assert_eq!(error.fault, MediaFault::Gone);
    });
}

#[test]
fn files_in_the_page_cache_get_no_durable_writes() {
    for (direct, pay) in [(false, false), (false, true), (true, false), (true, true)] {
        assert_eq!(crate::file::uses_durable_writes(direct, pay), direct && pay, "{direct} {pay}");
    }
    let scratch = Scratch::in_memory("buffered");
    let file = DriveFile::create(scratch.path("drive"), Bytes(MIB), Space::Sparse).expect("created");
    assert!(!file.is_direct() && !file.can.durable_write.load(std::sync::atomic::Ordering::Relaxed));
}

/// The outcome of a flush counts only behind the last write of the operation.
#[test]
fn only_the_last_write_of_an_operation_links_its_flush() {
    let scratch = Scratch::new("links");
    let path = scratch.path("drive");
    let file = Arc::new(DriveFile::create(&path, Bytes(MIB), Space::Sparse).expect("created"));
    file.can.durable_write.store(false, std::sync::atomic::Ordering::Relaxed);
    let buffers = BufferPool::new(Bytes(MIB));
    let check = |pieces: usize, each: usize, fua: bool, linked: bool| {
        let piece = Buffer::zeroed(each).freeze();
        let data = vec![piece.clone(); pieces];
        let work = PendingOperation::new(0, &file, request(1, Op::Write { at: 0, data, fua }), &buffers);
        let listed: Vec<libc::iovec> = (0..pieces)
            .map(|_| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() })
            .collect();
        let expected = linked.then_some((pieces * each) as u64);
        assert_eq!(uring::linked_length(&work, work.step(), &listed), expected, "{pieces} pieces of {each}");
    };
    check(1, 4096, true, true);
    check(1, 4096, false, false);
    check(1024, 4096, true, true);
    check(1025, 4096, true, false);
    // The kernel takes 1 GiB at once.
    check(512, 2 << 20, true, true);
    check(513, 2 << 20, true, false);
}

#[test]
fn one_ring_drives_many_files_and_more_operations_than_the_kernel_takes() {
    let scratch = Scratch::new("many");
    for engine in [Engine::Best, Engine::Threads] {
        let ring = ring(engine);
        let mut drives: Vec<FileDrive> = (0..20)
            .map(|n| {
                let path = scratch.path(&format!("{engine:?}-{n}"));
                ring.attach(DriveFile::create(path, Bytes(MIB), Space::Sparse).expect("created"))
            })
            .collect();
        const EACH: u64 = 100;
        let pages: Vec<Shared> = (0..20u8).map(|n| Buffer::copy_of(&[n + 1; 4096]).freeze()).collect();
        for n in 0..EACH {
            for (drive, page) in drives.iter_mut().zip(&pages) {
                let data = vec![page.clone()];
                drive.submit(request(n, Op::Write { at: n * 4096, data, fua: false }));
            }
        }
        assert_eq!(ring.outstanding(), 20 * EACH as usize);
        let mut seen = vec![0u128; 20];
        for (slot, Completion { tag, result, .. }) in finish(&ring, 20 * EACH as usize) {
            result.expect("written");
            seen[slot] |= 1 << tag;
        }
        assert!(seen.iter().all(|tags| *tags == (1 << EACH) - 1), "each operation comes back to its own drive once");
        // A drive dropped with operations in flight waits for them; its slot is reused.
        let mut dropped = drives.remove(7);
        dropped.submit(request(5, Op::Zero { at: 0, length: MIB }));
        let (slot, path) = (dropped.slot(), dropped.file().path().to_owned());
        drop(dropped);
        assert_eq!(std::fs::read(&path).expect("read")[..4096], [0; 4096]);
        let mut again = ring.attach(DriveFile::open(&path, Access::Exclusive).expect("its lock is gone"));
        assert_eq!(again.slot(), slot);
        let (op, result) = one(&ring, &mut again, Op::Read { at: 0, buffer: Buffer::zeroed(MIB as usize) });
        result.expect("read");
        assert!(matches!(op, Op::Read { buffer, .. } if buffer.iter().all(|byte| *byte == 0)));
    }
}

#[test]
fn the_bell_wakes_a_sleeping_ring() {
    for engine in [Engine::Best, Engine::Threads] {
        let bell = Arc::new(EventFd::new().expect("an eventfd"));
        let ring = Ring::new(Arc::clone(&bell), engine);
        for _ in 0..100 {
            // No time limit: a lost wake-up must hang the test.
            std::thread::scope(|scope| {
                scope.spawn(|| bell.signal());
                ring.wait(None);
            });
            ring.reap(&mut Vec::new());
        }
        ring.wait(Some(Duration(1000)));
    }
}

/// A worker finishes while the ring collects, as the bell's readiness is already reported.
#[test]
fn clearing_the_bell_loses_no_result_of_a_worker() {
    let scratch = Scratch::new("bell");
    let bell = Arc::new(EventFd::new().expect("an eventfd"));
    let ring = Ring::new(Arc::clone(&bell), Engine::Best);
    if ring.engine() != "io_uring" {
        return;
    }
    let file = DriveFile::create(scratch.path("drive"), Bytes(MIB), Space::Sparse).expect("created");
    let drive = ring.attach(file);
    let (slot, file) = (drive.slot(), Arc::clone(&drive.file));
    // The kernel watches the bell, and has seen it ring.
    ring.wait(Some(Duration(0)));
    bell.signal();
    ring.0.borrow_mut().between = Some(Box::new(move |core| {
        core.bell.wait(Some(Duration(0)));
        core.submit(slot, &file, request(1, Op::Extents { at: 0, length: MIB, since: None, extents: Vec::new() }));
        // The worker rings once its result is there.
        let mut ready = Vec::new();
        while ready.is_empty() {
            core.bell.wait_beside(None, &mut vec![(7, core.bell.as_raw_fd(), false)], &mut ready);
        }
        core.bell.signal();
    }));
    let mut finished = Vec::new();
    ring.reap(&mut finished);
    assert_eq!(finished.len(), 1, "the result is collected");
}

#[test]
fn a_ring_dropped_with_operations_in_flight_finishes_them() {
    let scratch = Scratch::new("drop");
    for engine in [Engine::Best, Engine::Threads] {
        let path = scratch.path(&format!("{engine:?}"));
        let ring = ring(engine);
        let mut drive = ring.attach(DriveFile::create(&path, Bytes(4 * MIB), Space::Sparse).expect("created"));
        for n in 0..64 {
            let data = vec![Buffer::copy_of(&[n as u8 + 1; 65536]).freeze()];
            drive.submit(request(n, Op::Write { at: n * 65536, data, fua: n % 2 == 0 }));
        }
        drop(ring);
        drop(drive);
        let found = std::fs::read(&path).expect("read");
        assert!(found.chunks(65536).enumerate().all(|(n, chunk)| chunk.iter().all(|byte| *byte == n as u8 + 1)));
    }
}

#[test]
fn failures_carry_path_and_place() {
    let scratch = Scratch::new("fail");
    for engine in [Engine::Best, Engine::Threads] {
        let path = scratch.path(&format!("cut-{engine:?}"));
        let ring = ring(engine);
        let mut drive = ring.attach(DriveFile::create(&path, Bytes(MIB), Space::Sparse).expect("created"));
        std::fs::OpenOptions::new().write(true).open(&path).expect("opened").set_len(300_000).expect("cut");
        let (op, result) = one(&ring, &mut drive, Op::Read { at: 262_144, buffer: Buffer::zeroed(65536) });
        let error = result.expect_err("there is no such data");
        assert_eq!(error.fault, MediaFault::Damaged);
        assert!(error.message.contains("cut-") && error.message.contains("262144"), "{error}");
        assert_eq!(op.range(), Some((262_144, 65536)));
        drop(drive);
        let mut reader = ring.attach(DriveFile::open(&path, Access::ReadOnly).expect("opened"));
        let (_, result) = one(&ring, &mut reader, Op::Zero { at: 0, length: 4096 });
        assert_eq!(result.expect_err("reading only").fault, MediaFault::Refused);
    }
}

#[test]
fn extents_of_a_sparse_file_show_its_holes() {
    let scratch = Scratch::new("extents");
    let path = scratch.path("sparse");
    let ring = ring(Engine::Best);
    let mut drive = ring.attach(DriveFile::create(&path, Bytes(4 * MIB), Space::Sparse).expect("created"));
    drive.file().file().write_all_at(&Buffer::copy_of(&[1; 65536]), MIB).expect("written");
    let (op, result) = one(&ring, &mut drive, Op::Extents { at: 0, length: 4 * MIB, since: None, extents: Vec::new() });
    result.expect("listed");
    let Op::Extents { extents, .. } = op else { panic!("another operation came back") };
    let data: u64 = extents.iter().filter(|e| e.state == ExtentState::Data).map(|e| e.length).sum();
    assert_eq!(data, 65536, "{extents:?}");
}

#[test]
fn a_served_file_conforms() {
    use crate::{Remote, serve_file};
    struct Far(Remote);
    impl Subject for Far {
        fn drive(&mut self) -> &mut dyn Drive {
            &mut self.0
        }
        fn whole_blocks(&self) -> bool {
            false
        }
    }
    let scratch = Scratch::new("served");
    for engine in [Engine::Best, Engine::Threads] {
        conformance::check("served file", 5, &mut |seed| {
            let path = scratch.path(&format!("{seed}-{engine:?}"));
            let file = DriveFile::create(&path, Bytes(4 * MIB), Space::Sparse).expect("created");
            Box::new(Far(Remote::new(serve_file(file, engine).expect("a thread"))))
        });
    }
}

/// `STELE_TEST_DEVICE=/dev/loop7` names a block device of a few MiB whose content may be destroyed.
/// Without it the test has no device and does nothing.
#[test]
fn a_block_device_conforms() {
    struct Device {
        ring: Ring,
        drive: FileDrive,
    }
    impl Subject for Device {
        fn drive(&mut self) -> &mut dyn Drive {
            &mut self.drive
        }
        fn wait(&mut self) -> Instant {
            self.ring.wait(Some(Duration::from_millis(1)));
            Instant(0)
        }
        fn whole_blocks(&self) -> bool {
            false
        }
        fn discard_zeroes(&self) -> bool {
            false
        }
    }
    let Ok(path) = std::env::var("STELE_TEST_DEVICE") else { return };
    for engine in [Engine::Best, Engine::Threads] {
        conformance::check("device", 6, &mut |_| {
            let ring = ring(engine);
            let mut drive = ring.attach(DriveFile::open(&path, Access::Exclusive).expect("opened"));
            let size = drive.geometry().size.0;
            one(&ring, &mut drive, Op::Zero { at: 0, length: size }).1.expect("zeroed");
            Box::new(Device { ring, drive })
        });
    }
    let held = DriveFile::open(&path, Access::Exclusive).expect("opened");
    assert_eq!(DriveFile::open(&path, Access::Exclusive).expect_err("in use").fault, MediaFault::Refused);
    drop(held);
}
