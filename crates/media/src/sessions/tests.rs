use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};

use super::*;
use crate::Engine;
use crate::system::now;

/// Echoes its input, and reports it to the test.
struct Echo {
    stream: UnixStream,
    waker: Sender<Waker>,
    turns: Sender<usize>,
    interest: Interest,
}

impl ReactorSession for Echo {
    fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
    fn start(&mut self, waker: Waker) {
        let _ = self.waker.send(waker);
    }
    fn turn(&mut self, _: Instant) -> Interest {
        let mut bytes = [0; 64];
        let read = self.stream.read(&mut bytes);
        let _ = self.turns.send(read.as_ref().map_or(usize::MAX, |count| *count));
        match read {
            Ok(0) => Interest { end: true, ..Interest::default() },
            Ok(count) => {
                let _ = self.stream.write_all(&bytes[..count]);
                self.interest
            }
            Err(_) => self.interest,
        }
    }
}

fn each_engine(check: impl Fn(Engine)) {
    check(Engine::Best);
    check(Engine::Threads);
}

#[test]
fn a_session_is_woken_by_its_descriptor_its_waker_and_the_time_and_ends_when_it_wants() {
    each_engine(|engine| {
        let bell = Arc::new(EventFd::new().unwrap());
        let (ring, mut sessions) = (Ring::new(Arc::clone(&bell), engine), SessionSet::new(&bell));
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (wakers, waker) = channel();
        let (turns, taken) = channel();
        let interest = Interest { read: true, ..Interest::default() };
        sessions.add(Box::new(Echo { stream: ours, waker: wakers, turns, interest }));
        let until_quiet = |sessions: &mut SessionSet| while sessions.run(now(), &ring) {};
        until_quiet(&mut sessions);
        assert_eq!(taken.try_iter().collect::<Vec<_>>(), [usize::MAX], "the first turn comes by itself");

        theirs.write_all(b"hail").unwrap();
        assert!(sessions.fall_asleep());
        ring.wait(None);
        sessions.woken();
        until_quiet(&mut sessions);
        assert_eq!(taken.try_iter().next(), Some(4));
        let mut back = [0; 4];
        theirs.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hail");

        let waker = waker.recv().unwrap();
        assert!(sessions.fall_asleep());
        let other = waker.clone();
        std::thread::spawn(move || other.wake()).join().unwrap();
        ring.wait(None);
        sessions.woken();
        until_quiet(&mut sessions);
        assert_eq!(taken.try_iter().collect::<Vec<_>>(), [usize::MAX]);

        drop(theirs);
        ring.wait(None);
        until_quiet(&mut sessions);
        assert_eq!(taken.try_iter().collect::<Vec<_>>(), [0]);
        assert!(sessions.entries.iter().all(Option::is_none), "the entry is free again");
    });
}

#[test]
fn a_session_that_ends_while_its_descriptor_is_watched_closes_it() {
    each_engine(|engine| {
        let bell = Arc::new(EventFd::new().unwrap());
        let (ring, mut sessions) = (Ring::new(Arc::clone(&bell), engine), SessionSet::new(&bell));
        struct Ending(UnixStream, Option<Waker>, Sender<Waker>, bool);
        impl ReactorSession for Ending {
            fn descriptor(&self) -> RawFd {
                self.0.as_raw_fd()
            }
            fn start(&mut self, waker: Waker) {
                let _ = self.2.send(waker.clone());
                self.1 = Some(waker);
            }
            fn turn(&mut self, _: Instant) -> Interest {
                let end = std::mem::replace(&mut self.3, true);
                Interest { read: true, end, ..Interest::default() }
            }
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (wakers, waker) = channel();
        sessions.add(Box::new(Ending(ours, None, wakers, false)));
        while sessions.run(now(), &ring) {}
        waker.recv().unwrap().wake();
        let mut rounds = 0;
        while !sessions.entries.iter().all(Option::is_none) {
            if !sessions.run(now(), &ring) {
                ring.wait(Some(stele_ground::Duration::from_millis(10)));
            }
            rounds += 1;
            assert!(rounds < 100, "the entry is never free again");
        }
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0, "the other end sees the end");
    });
}
