//! Requests from the thread of one reactor to another reactor, and their answers back, in batches.
//!
//! A session runs on a reactor's thread, and its volume may lie on several shards. What it asks of
//! another reactor is collected, and handed over once a turn. The answers come back the same way
//! and are called on the session's own thread. So two threads meet twice a turn, not several times
//! for each request.
//!
//! A request that a closed reactor cannot take is answered with `Gone`. An answer to a reactor that
//! has ended is called on the thread that has it.

use std::cell::RefCell;
use std::sync::Arc;

use stele_media::mailbox::Refused;
use stele_media::{Done, MediaError, MediaFault, Op};

use super::turn::{Mail, Shared};

/// What one reactor hands to another.
pub enum Handed {
    Requests { from: Arc<Shared>, mail: Vec<Mail> },
    Answers(Vec<Answered>),
}

/// A finished request of a session on the other thread.
pub struct Answered {
    pub done: Done,
    pub op: Op,
    pub result: Result<(), MediaError>,
}

/// A reactor that this thread exchanges requests with: its place in the thread's list.
#[derive(Clone, Copy)]
pub struct Peer(usize);

thread_local! {
    /// Set on the threads of reactors.
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

struct Here {
    own: Arc<Shared>,
    peers: Vec<Exchange>,
    /// Requests handed over, or to be, that are not answered yet.
    awaited: usize,
}

struct Exchange {
    with: Arc<Shared>,
    requests: Vec<Mail>,
    answers: Vec<Answered>,
}

impl Here {
    fn peer(&mut self, with: &Arc<Shared>) -> usize {
        let known = self.peers.iter().position(|peer| Arc::ptr_eq(&peer.with, with));
        known.unwrap_or_else(|| {
            self.peers.push(Exchange { with: Arc::clone(with), requests: Vec::new(), answers: Vec::new() });
            self.peers.len() - 1
        })
    }
}

/// This thread is from now on the reactor's.
pub fn begin(own: &Arc<Shared>) {
    HERE.set(Some(Here { own: Arc::clone(own), peers: Vec::new(), awaited: 0 }));
}

/// This thread's reactor ends.
pub fn end() {
    flush();
    HERE.set(None);
}

/// Takes a request to `to` along to the end of the turn, where this is the thread of another
/// reactor; else gives it back.
pub fn collect(to: &Arc<Shared>, mail: Mail) -> Result<(), Mail> {
    // An ordered write tells of its order and of its end on one thread.
    if mail.ordered.is_some() {
        return Err(mail);
    }
    HERE.with_borrow_mut(|here| match here {
        Some(here) if !Arc::ptr_eq(&here.own, to) => {
            let peer = here.peer(to);
            here.peers[peer].requests.push(mail);
            here.awaited += 1;
            Ok(())
        }
        _ => Err(mail),
    })
}

/// Whether another reactor has something of this thread's sessions to answer.
pub fn awaits() -> bool {
    HERE.with_borrow(|here| here.as_ref().is_some_and(|here| here.awaited > 0))
}

/// Calls answers that came back.
pub fn receive(answers: Vec<Answered>) {
    HERE.with_borrow_mut(|here| {
        if let Some(here) = here {
            here.awaited = here.awaited.saturating_sub(answers.len());
        }
    });
    answers.into_iter().for_each(Answered::call);
}

/// Who handed these requests over, as the place of their answers. None on other threads.
pub fn peer(from: &Arc<Shared>) -> Option<Peer> {
    HERE.with_borrow_mut(|here| here.as_mut().map(|here| Peer(here.peer(from))))
}

/// Takes an answer along to the end of the turn.
pub fn answer(to: Peer, answered: Answered) {
    let left = HERE.with_borrow_mut(|here| match here.as_mut().and_then(|here| here.peers.get_mut(to.0)) {
        Some(peer) => {
            peer.answers.push(answered);
            None
        }
        None => Some(answered),
    });
    left.into_iter().for_each(Answered::call);
}

impl Answered {
    pub fn call(self) {
        (self.done)(self.op, self.result);
    }
}

/// Hands over what was collected.
pub fn flush() {
    let mut peer = 0;
    loop {
        // Nothing is borrowed while an answer is called: it may ask for more.
        let taken = HERE.with_borrow_mut(|here| {
            let here = here.as_mut()?;
            let own = Arc::clone(&here.own);
            let with = here.peers.get_mut(peer)?;
            let handed = (std::mem::take(&mut with.requests), std::mem::take(&mut with.answers));
            Some((own, Arc::clone(&with.with), handed))
        });
        let Some((own, with, (mail, answers))) = taken else { return };
        peer += 1;
        if !answers.is_empty() {
            post(&with, Handed::Answers(answers));
        }
        if !mail.is_empty() {
            post(&with, Handed::Requests { from: own, mail });
        }
    }
}

fn post(with: &Shared, handed: Handed) {
    match with.handed.post(handed) {
        Ok(()) => {}
        Err(Refused::Full(handed) | Refused::Closed(handed)) => refuse(handed, &with.stopped().to_string()),
    }
}

/// Answers what no reactor takes any more.
pub fn refuse(handed: Handed, message: &str) {
    match handed {
        Handed::Answers(answers) => answers.into_iter().for_each(Answered::call),
        Handed::Requests { mail, .. } => {
            for Mail { op, done, .. } in mail {
                done(op, Err(MediaError::new(MediaFault::Gone, message.to_owned())));
            }
        }
    }
}
