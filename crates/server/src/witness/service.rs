//! The witness's side of HTTP: one request, a [`Submission`], and one [`Answer`].
//!
//! Bounded: connections, those of one host, the life of a connection, the time of a head and of a
//! body, the bytes of a body, and the lines in the log. Anyone who holds an old head can send it
//! without end. Requests are answered one after the other, so that two heads of a store never race.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use axum::response::{IntoResponse, Response};
use hyper::{Method, Request, StatusCode, body::Incoming};
use stele_archive::check_head;
use stele_ground::Shown;
use stele_ground::calendar::moment;
use stele_object::host_of;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::journal::Journal;
use super::{Answer, Countersigned, Submission, Verdict, is_store, judge};
use crate::failure::Outcome;
use crate::serving::http::{Place, Places, accept_each, body, converse};
use crate::serving::seldom::Seldom;

static UNKEPT: Seldom = Seldom::new(TOLD_MAX);

/// The path of all requests.
pub const PATH: &str = "/witness";
/// Bytes of a request: a head and a proof have about 5000.
const BODY_MAX: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(20);
/// Life of a connection. A store asks twice in a turn, and connects anew in the next one.
const LIFE_MAX: Duration = Duration::from_secs(60);
const CONNECTIONS_MAX: usize = 256;
const CONNECTIONS_OF_ONE: usize = 16;
/// Lines of the log about refused heads of one store, and about what cannot be kept, in a minute.
const TOLD_MAX: u32 = 5;
/// Stores that one witness serves.
const STORES_MAX: usize = 1000;

/// A witness: its key, the keys of the stores it knows, and what it has signed.
pub struct WitnessService {
    dir: std::path::PathBuf,
    key: Ed25519KeyPair,
    public: [u8; 32],
    stores: Vec<[u8; 32]>,
    journals: BTreeMap<String, Journal>,
    /// Of each store: those of one do not hide those of another.
    refusals: BTreeMap<String, Seldom>,
}

impl WitnessService {
    pub fn new(dir: &Path, key: Ed25519KeyPair, stores: Vec<[u8; 32]>) -> WitnessService {
        let mut public = [0; 32];
        public.copy_from_slice(key.public_key().as_ref());
        WitnessService {
            dir: dir.to_owned(),
            key,
            public,
            stores,
            journals: BTreeMap::new(),
            refusals: BTreeMap::new(),
        }
    }

    /// Opens what was signed before: a file that was changed stops the start.
    pub fn open_all(&mut self, names: Vec<String>) -> Outcome<()> {
        for name in names {
            let journal = Journal::open(&self.dir, &name, &self.public)?;
            if journal.forks() > 0 {
                tracing::error!(
                    "store {name} has signed {} heads that contradict others: {name}.forks",
                    journal.forks()
                );
            }
            self.journals.insert(name, journal);
        }
        Ok(())
    }

    /// Answers a request. None: the store is none that this witness knows.
    pub fn answer(&mut self, asked: Submission, now: u64) -> Outcome<Option<Answer>> {
        let Some(head) = asked.head else {
            let last = self.journals.get(&asked.store).and_then(Journal::last).cloned();
            return Ok(Some(Answer { countersigned: last, refused: None }));
        };
        let Some(key) = self.stores.iter().find(|key| check_head(&head, *key).is_ok()).copied() else {
            return Ok(None);
        };
        // The first head of a store binds its name to its key: a head of this name under another
        // known key is foreign.
        if !is_store(&head.store) || head.store != asked.store {
            return Ok(None);
        }
        if !self.journals.contains_key(&head.store) {
            if self.journals.len() >= STORES_MAX {
                return Ok(None);
            }
            let journal = Journal::open(&self.dir, &head.store, &self.public)?;
            self.journals.insert(head.store.clone(), journal);
        }
        let Some(journal) = self.journals.get_mut(&head.store) else { return Ok(None) };
        let last = journal.last().map(|last| last.head.clone());
        if last.as_ref().is_some_and(|last| last.public_key != head.public_key) {
            return Ok(None);
        }
        let verdict = judge(last.as_ref(), &head, asked.proof.as_ref(), &key);
        let time = moment(now);
        Ok(Some(match verdict {
            Verdict::Sign => {
                let made = Countersigned::sign(head, time, &self.key);
                journal.keep(&made)?;
                Answer { countersigned: Some(made), refused: None }
            }
            Verdict::Signed => Answer { countersigned: journal.last().cloned(), refused: None },
            Verdict::Behind(records) => {
                let why = format!(
                    "this witness has signed {records} records of that store, and the head has {}: the store was set back, or \
                 the head is old",
                    head.records
                );
                self.refuse(&head.store, why)
            }
            Verdict::Fork(why) => {
                let why = format!("the head of {} records contradicts the last one: {why}", head.records);
                journal.keep_fork(&time, &why, &head)?;
                self.refuse(&head.store, why)
            }
        }))
    }

    fn refuse(&mut self, store: &str, why: String) -> Answer {
        if let Some(line) = self.refusal(store, &why, Instant::now()) {
            tracing::error!("{line}");
        }
        Answer { countersigned: self.journals.get(store).and_then(Journal::last).cloned(), refused: Some(why) }
    }

    /// The line of the log about a refused head, if it is time for one.
    pub(super) fn refusal(&mut self, store: &str, why: &str, now: Instant) -> Option<String> {
        let refusals = self.refusals.entry(store.to_owned()).or_insert(const { Seldom::new(TOLD_MAX) });
        let (true, untold) = refusals.count(now) else { return None };
        let more = if untold > 0 { format!("; {untold} more heads were refused since") } else { String::new() };
        Some(format!("store {}: {why}; nothing was signed{more}", Shown(store)))
    }
}

/// A place for a connection. None: its host has as many as one may have, or all together do.
pub(super) fn enter(places: &Arc<Places<IpAddr>>, peer: IpAddr) -> Option<Place<IpAddr>> {
    places.enter(host_of(peer), CONNECTIONS_OF_ONE, CONNECTIONS_MAX)
}

/// Serves until `stopping` is true.
pub async fn serve(listener: TcpListener, witness: WitnessService, stopping: watch::Receiver<bool>) {
    let (witness, places) = (Arc::new(Mutex::new(witness)), Arc::new(Places::default()));
    let serve = |(stream, peer): (TcpStream, SocketAddr)| {
        let place = enter(&places, peer.ip())?;
        let (witness, stopping) = (Arc::clone(&witness), stopping.clone());
        Some(async move {
            attend(stream, witness, stopping, LIFE_MAX).await;
            drop(place);
        })
    };
    accept_each(async move || listener.accept().await, serve, stopping.clone()).await;
}

/// Serves one connection to its end. What was signed is kept before it is sent, so one whose life
/// is over loses nothing but its answer, which the store asks for again.
pub(super) async fn attend<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    witness: Arc<Mutex<WitnessService>>,
    stopping: watch::Receiver<bool>,
    life: Duration,
) {
    let answer = |request| respond(Arc::clone(&witness), request);
    let _ = timeout(life, converse(stream, PATIENCE, answer, stopping)).await;
}

async fn respond(witness: Arc<Mutex<WitnessService>>, request: Request<Incoming>) -> Response {
    if request.method() != Method::POST || request.uri().path() != PATH {
        return (StatusCode::NOT_FOUND, "a witness answers POST /witness\n").into_response();
    }
    let text = match body(request, BODY_MAX, PATIENCE).await {
        Ok(text) => text,
        Err((status, why)) => return (status, format!("{why}\n")).into_response(),
    };
    let Ok(asked) = serde_json::from_slice::<Submission>(&text) else {
        return (StatusCode::BAD_REQUEST, "the request is no head for a witness\n").into_response();
    };
    // Making a line durable blocks; no other task of this thread should wait for it.
    let answered = tokio::task::spawn_blocking(move || {
        witness.lock().unwrap_or_else(PoisonError::into_inner).answer(asked, crate::node::wall_clock())
    });
    match answered.await {
        Ok(Ok(Some(answer))) => axum::Json(answer).into_response(),
        Ok(Ok(None)) => (StatusCode::FORBIDDEN, "no store that this witness knows signed the head\n").into_response(),
        Ok(Err(failure)) => {
            if let (true, untold) = UNKEPT.count(Instant::now()) {
                tracing::error!("nothing was signed: {}; {untold} times more before", failure.error);
            }
            (StatusCode::INTERNAL_SERVER_ERROR, "the witness cannot keep what it signs\n").into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the witness broke off\n").into_response(),
    }
}
