use std::os::fd::AsRawFd;

use stele_ground::{Bytes, Duration, MIB};

use super::*;
use crate::file::tests::Scratch;
use crate::{BufferPool, DriveFile, Op, Priority, Request, Space};

#[test]
fn operations_refused_for_lack_of_threads_ring_the_bell() {
    let scratch = Scratch::new("threadless");
    let file = DriveFile::create(scratch.path("drive"), Bytes(MIB), Space::Sparse).expect("created");
    let bell = Arc::new(EventFd::new().expect("an eventfd"));
    let workers = Workers::new(Arc::clone(&bell));
    let request = Request { tag: 1, op: Op::Flush, priority: Priority::Host, deadline: None };
    let work = PendingOperation::new(0, &Arc::new(file), request, &BufferPool::new(Bytes(MIB)));
    workers.shared.queue.lock().expect("not poisoned").waiting.push_back(work);
    workers.shared.refuse_waiting(&std::io::Error::from_raw_os_error(libc::EAGAIN));
    let (mut watches, mut ready) = (vec![(7, bell.as_raw_fd(), false)], Vec::new());
    bell.wait_beside(Some(Duration(0)), &mut watches, &mut ready);
    assert_eq!(ready, [7], "the bell is readable");
    let mut finished = Vec::new();
    workers.collect(&mut finished);
    let [(_, Err(error))] = &finished[..] else { panic!("{} answers", finished.len()) };
    assert_eq!(error.fault, MediaFault::Retry);
}
