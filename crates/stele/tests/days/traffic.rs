//! S3 requests beside the events of a day: a thread stores objects and reads them back, one request
//! after the other, until it is stopped. Every answer must be a success, and every content must be
//! what was stored last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use stele_ground::Dice;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::records::Written;
use super::site::{Site, pause};
use crate::support::content;
use crate::support::http::{Answer, Ask, answer};
use crate::support::server::runtime;

const KEYS: u64 = 24;
const LENGTH_MAX: u64 = 120_000;
/// Pause between two requests: the fio load and the events need the machine too.
const BETWEEN: u64 = 60;
/// Largest time for one request.
const PATIENCE: Duration = Duration::from_secs(120);
/// Seeds of its contents begin here, so that they differ from all others.
pub const SEEDS: u64 = 1 << 40;

/// What a thread knows at its end.
#[derive(Default)]
pub struct Seen {
    /// The objects by key.
    pub objects: BTreeMap<String, Written>,
    /// After a request without an answer: its key, the former content as far as it is known, and
    /// the new one.
    pub unsure: Option<(String, Option<Written>, Written)>,
    /// The first answer that was not a success.
    pub complaint: Option<String>,
    pub totals: Totals,
}

#[derive(Default)]
pub struct Totals {
    pub requests: u64,
    pub objects_compared: u64,
    pub bytes_compared: u64,
    pub bytes_stored: u64,
}

pub struct Traffic {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

impl Traffic {
    /// Starts the requests. The objects are those that earlier traffic stored.
    pub fn start(site: &Site, objects: BTreeMap<String, Written>, dice: Dice) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let ask = site.server().ask("GET", "/plain/b0");
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || run(&told, &ask, objects, dice));
        Traffic { stop, thread: Some(thread) }
    }

    /// Ends the requests after the one under way.
    pub fn ends(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it ends once");
        thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A server that is stopped meanwhile ends the last request.
        drop(self.thread.take());
    }
}

fn run(stop: &AtomicBool, plain: &Ask, objects: BTreeMap<String, Written>, mut dice: Dice) -> Seen {
    let mut seen = Seen { objects, ..Seen::default() };
    let runtime = runtime();
    let send = |ask: Ask| runtime.block_on(sent(&ask.at(SystemTime::now())));
    while !stop.load(Ordering::Relaxed) && seen.complaint.is_none() {
        let key = format!("b{}", dice.below(KEYS));
        let known = seen.objects.get(&key).copied();
        let ask = Ask { path: format!("/plain/{key}"), ..plain.clone() };
        if let Some((seed, length)) = known.filter(|_| dice.one_in(2)) {
            let answer = send(ask);
            if answer.status == 200 && answer.body.len() == length {
                assert!(answer.body == content(seed, length), "a wrong byte in /plain/{key}, read while events came");
                seen.totals.objects_compared += 1;
                seen.totals.bytes_compared += length as u64;
            } else {
                seen.complaint = Some(format!("GET /plain/{key}: {}\n{}", answer.head, short(&answer)));
            }
        } else {
            let written = (SEEDS + (dice.roll() >> 24), 1 + dice.below(LENGTH_MAX) as usize);
            let ask = Ask { method: "PUT".to_owned(), ..ask }.body(content(written.0, written.1));
            let answer = send(ask);
            if answer.status == 200 {
                seen.totals.bytes_stored += written.1 as u64;
                seen.objects.insert(key, written);
            } else {
                seen.complaint = Some(format!("PUT /plain/{key}: {}\n{}", answer.head, short(&answer)));
                seen.objects.remove(&key);
                seen.unsure = Some((key, known, written));
            }
        }
        seen.totals.requests += 1;
        pause(BETWEEN);
    }
    seen
}

fn short(answer: &Answer) -> String {
    answer.text().chars().take(400).collect()
}

/// The answer, or an empty one if there is no connection, or none in time.
async fn sent(ask: &Ask) -> Answer {
    tokio::time::timeout(PATIENCE, exchanged(ask)).await.unwrap_or_default()
}

async fn exchanged(ask: &Ask) -> Answer {
    let address =
        ask.headers.iter().find(|(name, _)| name == "host").map(|(_, value)| value.clone()).unwrap_or_default();
    let Ok(mut stream) = TcpStream::connect(address).await else { return Answer::default() };
    // A server may answer and close before it has read everything.
    let _ = stream.write_all(&ask.signed().0.bytes()).await;
    answer(&mut stream, false).await
}
