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
    wish: Wish,
}

impl Guest for Echo {
    fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
    fn settle(&mut self, waker: Waker) {
        let _ = self.waker.send(waker);
    }
    fn turn(&mut self, _: Instant) -> Wish {
        let mut bytes = [0; 64];
        let read = self.stream.read(&mut bytes);
        let _ = self.turns.send(read.as_ref().map_or(usize::MAX, |count| *count));
        match read {
            Ok(0) => Wish { leave: true, ..Wish::default() },
            Ok(count) => {
                let _ = self.stream.write_all(&bytes[..count]);
                self.wish
            }
            Err(_) => self.wish,
        }
    }
}

fn each_engine(check: impl Fn(Engine)) {
    check(Engine::Best);
    check(Engine::Threads);
}

#[test]
fn a_guest_is_woken_by_its_descriptor_its_waker_and_the_time_and_leaves_when_it_wants() {
    each_engine(|engine| {
        let bell = Arc::new(EventFd::new().unwrap());
        let (ring, mut lodge) = (Ring::new(Arc::clone(&bell), engine), Lodge::new(&bell));
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (wakers, waker) = channel();
        let (turns, taken) = channel();
        let wish = Wish { read: true, ..Wish::default() };
        lodge.arrive(Box::new(Echo { stream: ours, waker: wakers, turns, wish }));
        let until_quiet = |lodge: &mut Lodge| while lodge.run(now(), &ring) {};
        until_quiet(&mut lodge);
        assert_eq!(taken.try_iter().collect::<Vec<_>>(), [usize::MAX], "the first turn comes by itself");

        theirs.write_all(b"hail").unwrap();
        assert!(lodge.fall_asleep());
        ring.wait(None);
        lodge.woken();
        until_quiet(&mut lodge);
        assert_eq!(taken.try_iter().next(), Some(4));
        let mut back = [0; 4];
        theirs.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hail");

        let waker = waker.recv().unwrap();
        assert!(lodge.fall_asleep());
        let other = waker.clone();
        std::thread::spawn(move || other.wake()).join().unwrap();
        ring.wait(None);
        lodge.woken();
        until_quiet(&mut lodge);
        assert_eq!(taken.try_iter().collect::<Vec<_>>(), [usize::MAX]);

        drop(theirs);
        ring.wait(None);
        until_quiet(&mut lodge);
        assert_eq!(taken.try_iter().collect::<Vec<_>>(), [0]);
        assert!(lodge.rooms.iter().all(Option::is_none), "the room is free again");
    });
}

#[test]
fn a_guest_that_leaves_while_its_descriptor_is_watched_closes_it() {
    each_engine(|engine| {
        let bell = Arc::new(EventFd::new().unwrap());
        let (ring, mut lodge) = (Ring::new(Arc::clone(&bell), engine), Lodge::new(&bell));
        struct Leaver(UnixStream, Option<Waker>, Sender<Waker>, bool);
        impl Guest for Leaver {
            fn descriptor(&self) -> RawFd {
                self.0.as_raw_fd()
            }
            fn settle(&mut self, waker: Waker) {
                let _ = self.2.send(waker.clone());
                self.1 = Some(waker);
            }
            fn turn(&mut self, _: Instant) -> Wish {
                let leave = std::mem::replace(&mut self.3, true);
                Wish { read: true, leave, ..Wish::default() }
            }
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (wakers, waker) = channel();
        lodge.arrive(Box::new(Leaver(ours, None, wakers, false)));
        while lodge.run(now(), &ring) {}
        waker.recv().unwrap().wake();
        let mut rounds = 0;
        while !lodge.rooms.iter().all(Option::is_none) {
            if !lodge.run(now(), &ring) {
                ring.wait(Some(stele_ground::Duration::from_millis(10)));
            }
            rounds += 1;
            assert!(rounds < 100, "the room is never free again");
        }
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0, "the other end sees the end");
    });
}
