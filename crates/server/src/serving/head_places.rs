//! The places that signed heads are sent to, on a schedule and at a stop: directories, a bucket of
//! another S3 server, syslog servers, mail addresses. A time stamp authority stamps each head
//! meanwhile, and the stamp goes beside the head in the directories and the bucket. A witness
//! countersigns the log's head, if it continues the one signed before.
//!
//! Failure model: every place gets the head at the same time and has [`PATIENCE`] to take it. A
//! place that takes none is logged and asked again at the next turn, and raises the alarm `heads`
//! once two turns have passed. A share that hangs holds one thread and one head until it answers;
//! no further head is written there meanwhile. An authority that gives no time stamp is treated the
//! same way, and keeps no head from any place. A stop ends a turn anywhere and takes one more with
//! the same state, so all places and the stamp get the same bytes for the same log. At a start the
//! server compares its log with the heads in directories and the bucket (`node::heads`); what went
//! out by syslog or mail, a person compares with `stele audit verify --anchor`.

mod authority;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use stele_archive::{Archive, SignedHead};
use stele_ground::counted;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use self::authority::{Authority, Stamped};
use crate::config::{Config, Site};
use crate::failure::Outcome;
use crate::node::heads::witness::{Unsigned, WitnessClient};
use crate::node::heads::{self, HeadBucket, HeadFinding, Keeper};
use crate::serving::messages::mail::Mail;
use crate::serving::syslog::Syslog;
use crate::witness::Countersigned;

/// Time limit for a place to take a head.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time limit for a countersignature: two requests, and the proof between them.
const WITNESS_PATIENCE: Duration = Duration::from_secs(40);
/// Turns after which a place that took no head raises an alarm.
const TURNS_MISSED: u32 = 2;

enum Way {
    Storage(Storage),
    Syslog(Syslog),
    Mail(Box<Mail>),
}

/// What a thread does at such a place.
type Work = Box<dyn FnOnce(&dyn Keeper) -> Outcome<()> + Send>;

/// A directory, perhaps of a share, or a bucket, and what it has not taken yet.
struct Storage {
    keeper: Arc<dyn Keeper>,
    /// The number of records of the last head whose time stamp it has.
    stamped: Option<u64>,
    under_way: Option<oneshot::Receiver<Outcome<()>>>,
    patience: Duration,
}

/// A place, and the number of records that it has.
struct HeadPlace {
    way: Way,
    has: Option<u64>,
    heads: Lack,
    stamps: Lack,
    countersignatures: Lack,
}

/// Since when something has failed, and the alarm about it, which stands until it works again.
#[derive(Default)]
struct Lack {
    since: Option<Instant>,
    told: Option<String>,
}

/// All places of a configuration.
#[derive(Default)]
pub struct HeadPlaces {
    places: Vec<HeadPlace>,
    authority: Option<Authority>,
    /// The head of the last turn, which goes out with these bytes until the log has grown.
    sent: Option<SignedHead>,
    /// The time stamp of that head.
    stamped: Option<Stamped>,
    stamps: Lack,
    witness: Option<Arc<WitnessClient>>,
    countersignatures: Lack,
    /// The witness refused. A silence before keeps no refusal from being told.
    refusals: Lack,
    /// Time for the pool to give the head.
    patience: Duration,
}

impl HeadPlaces {
    /// Reads the configuration. Nothing is sent yet.
    pub fn of(site: &Site, config: &Config) -> Outcome<HeadPlaces> {
        let storage = |keeper| Way::Storage(Storage { keeper, stamped: None, under_way: None, patience: PATIENCE });
        let directories = heads::places(site, config).into_iter().map(|path| Arc::new(path) as Arc<dyn Keeper>);
        let bucket = HeadBucket::of(site, config)?.map(|bucket| bucket as Arc<dyn Keeper>);
        let mut ways: Vec<Way> = directories.chain(bucket).map(storage).collect();
        for text in &config.archive.heads_syslog {
            ways.push(Way::Syslog(Syslog::parse(text)?));
        }
        if !config.archive.heads_mail.is_empty() {
            // A place for each address: one that refuses the head lacks it, and an alarm tells so.
            let each = Mail::each(site, &config.messages, "heads_mail", &config.archive.heads_mail)?;
            ways.extend(each.into_iter().map(|mail| Way::Mail(Box::new(mail))));
        }
        let places = ways.into_iter().map(HeadPlace::new).collect();
        let (authority, witness) = (Authority::of(site, config)?, WitnessClient::of(site, config)?.map(Arc::new));
        Ok(HeadPlaces { places, authority, witness, patience: PATIENCE, ..HeadPlaces::default() })
    }

    /// Sends the head as it is now to each place that lacks it. Returns what an alarm should tell,
    /// with `every` between two turns.
    pub async fn send(&mut self, archive: &Archive, every: Duration) -> Vec<String> {
        // Drives that do not answer hold it without end.
        let head = match timeout(self.patience, archive.audit_head_to_send()).await {
            Ok(head) => head.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the pool did not give the head within {} s", self.patience.as_secs())),
        };
        let now = Instant::now();
        let witness = self.witness.clone();
        let signing = async {
            let witness = witness.as_ref()?;
            let signed = timeout(WITNESS_PATIENCE, witness.send(archive)).await;
            let late = || format!("{}: no answer within {} s", witness.name(), WITNESS_PATIENCE.as_secs());
            Some(signed.unwrap_or_else(|_| Err(Unsigned::Silent(late()))))
        };
        let sending = self.send_head(head, every, now);
        let (signed, mut told) = tokio::join!(signing, sending);
        if let Some(signed) = signed {
            told.extend(self.note_countersigned(signed, every, now).await);
        }
        told
    }

    /// What stands of the turns so far: each has been told.
    pub fn lacking(&self) -> Vec<HeadFinding> {
        let own = [
            self.stamps.finding(|| "time stamps".to_owned()),
            self.countersignatures.finding(|| "countersignatures".to_owned()),
            self.refusals.finding(|| "witness".to_owned()),
        ];
        own.into_iter().flatten().chain(self.places.iter().flat_map(HeadPlace::lacking)).collect()
    }

    /// Keeps what the witness signed, or tells why it signed nothing. A refusal is told at once,
    /// and again only after the witness has signed.
    async fn note_countersigned(
        &mut self,
        signed: Result<Countersigned, Unsigned>,
        every: Duration,
        now: Instant,
    ) -> Vec<String> {
        match signed {
            Ok(made) => {
                self.countersignatures.end();
                self.refusals.end();
                let kept = self.places.iter_mut().map(|place| place.keep_countersigned(&made, every, now));
                join_all(kept).await.into_iter().flatten().collect()
            }
            Err(Unsigned::Silent(why)) => {
                tracing::warn!("the audit head was not countersigned: {why}");
                let told = |time| format!("heads had no countersignature for {time}: {why}");
                self.countersignatures.note(every, now, told).into_iter().collect()
            }
            Err(Unsigned::Refused(why)) => {
                tracing::error!("the audit head was not countersigned: {why}");
                self.refusals.note_at_once(now, why).into_iter().collect()
            }
        }
    }

    async fn send_head(&mut self, mut head: Result<SignedHead, String>, every: Duration, now: Instant) -> Vec<String> {
        // The time stamp is about the head that was sent when the log ended here.
        if let Ok(head) = &mut head {
            match self.sent.take().filter(|sent| ends_the_same_log(sent, head)) {
                Some(sent) => *head = sent,
                None => self.stamped = None,
            }
            self.sent = Some(head.clone());
        }
        let stamping = stamp(self.authority.as_ref(), self.stamped.as_ref(), head.as_ref());
        let sent = self.places.iter_mut().map(|place| place.send(head.as_ref(), every, now));
        let (stamp, told) = tokio::join!(stamping, join_all(sent));
        let mut told: Vec<String> = told.into_iter().flatten().collect();
        match stamp {
            Some(Ok(stamped)) => {
                self.stamped = Some(stamped);
                self.stamps.end();
            }
            Some(Err(reason)) => {
                tracing::warn!("the audit head was not stamped: {reason}");
                let says = |time| format!("heads had no time stamp for {time}: {reason}");
                told.extend(self.stamps.note(every, now, says));
            }
            None => {}
        }
        if let Some(stamped) = &self.stamped {
            let kept = self.places.iter_mut().map(|place| place.keep(stamped, every, now));
            told.extend(join_all(kept).await.into_iter().flatten());
        }
        told
    }
}

/// How long something lasts: minutes, or seconds where `heads_every` is so short.
fn in_words(lasts: Duration) -> String {
    match lasts.as_secs() {
        seconds @ 0..120 => counted(seconds, "second"),
        seconds => counted(seconds / 60, "minute"),
    }
}

/// Whether both heads end one log at the same record. Their times may differ.
fn ends_the_same_log(one: &SignedHead, other: &SignedHead) -> bool {
    (one.records, &one.link, &one.public_key) == (other.records, &other.link, &other.public_key)
}

/// Asks for the time stamp of a head that has none.
async fn stamp(
    authority: Option<&Authority>,
    stamped: Option<&Stamped>,
    head: Result<&SignedHead, &String>,
) -> Option<Result<Stamped, String>> {
    let (Some(authority), None, Ok(head)) = (authority, stamped, head) else { return None };
    Some(authority.stamp(head).await)
}

impl Lack {
    fn end(&mut self) {
        *self = Lack::default();
    }

    /// Notes a failure. Once two turns have passed since the first one, the alarm stands, with
    /// `told` of the time since then. Returns it when it begins.
    fn note(&mut self, every: Duration, now: Instant, told: impl FnOnce(String) -> String) -> Option<String> {
        let lasts = now.duration_since(*self.since.get_or_insert(now));
        if lasts < every.saturating_mul(TURNS_MISSED) {
            return None;
        }
        let message = told(in_words(lasts));
        self.told.replace(message.clone()).is_none().then_some(message)
    }

    /// Notes a failure whose alarm begins at once. Returns it then.
    fn note_at_once(&mut self, now: Instant, message: String) -> Option<String> {
        self.since.get_or_insert(now);
        self.told.replace(message.clone()).is_none().then_some(message)
    }

    fn finding(&self, subject: impl FnOnce() -> String) -> Option<HeadFinding> {
        self.told.as_ref().map(|message| HeadFinding { subject: subject(), message: message.clone() })
    }
}

impl HeadPlace {
    fn new(way: Way) -> HeadPlace {
        let [heads, stamps, countersignatures] = [(); 3].map(|()| Lack::default());
        HeadPlace { way, has: None, heads, stamps, countersignatures }
    }

    async fn send(&mut self, head: Result<&SignedHead, &String>, every: Duration, now: Instant) -> Option<String> {
        let sent = match head {
            Ok(head) if self.has == Some(head.records) => Ok(()),
            Ok(head) => self.way.take(head).await,
            Err(reason) => Err(reason.clone()),
        };
        let Err(reason) = sent else {
            self.has = head.map(|head| head.records).ok();
            self.heads.end();
            return None;
        };
        tracing::warn!("the audit head was not exported: {reason}");
        let told = |time| format!("a place for signed heads took none for {time}: {reason}");
        self.heads.note(every, now, told)
    }

    fn lacking(&self) -> impl Iterator<Item = HeadFinding> {
        let of = |lack: &Lack, what: &str| lack.finding(|| format!("{}{what}", self.way.name()));
        let lacks = [
            of(&self.heads, ""),
            of(&self.stamps, ": time stamps"),
            of(&self.countersignatures, ": countersigned heads"),
        ];
        lacks.into_iter().flatten()
    }

    /// Keeps a countersigned head. Syslog and mail keep none.
    async fn keep_countersigned(&mut self, made: &Countersigned, every: Duration, now: Instant) -> Option<String> {
        let Way::Storage(storage) = &mut self.way else { return None };
        let copy = made.clone();
        let kept = storage.within_patience(Box::new(move |keeper| keeper.write_countersigned(&copy))).await;
        let Err(reason) = kept else {
            self.countersignatures.end();
            return None;
        };
        tracing::warn!("the countersigned head was not kept: {reason}");
        let told = |time| format!("a place for signed heads took no countersigned one for {time}: {reason}");
        self.countersignatures.note(every, now, told)
    }

    /// Keeps the time stamp of the head that the place has. Syslog and mail keep none.
    async fn keep(&mut self, stamped: &Stamped, every: Duration, now: Instant) -> Option<String> {
        let records = Some(stamped.head.records);
        let Way::Storage(storage) = &mut self.way else { return None };
        if self.has != records || storage.stamped == records {
            return None;
        }
        let Err(reason) = storage.keep(stamped).await else {
            storage.stamped = records;
            self.stamps.end();
            return None;
        };
        tracing::warn!("the time stamp of the audit head was not kept: {reason}");
        let told = |time| format!("a place for signed heads took no time stamp for {time}: {reason}");
        self.stamps.note(every, now, told)
    }
}

impl Way {
    fn name(&self) -> String {
        match self {
            Way::Storage(storage) => storage.keeper.name(),
            Way::Syslog(syslog) => syslog.name(),
            Way::Mail(mail) => mail.name(),
        }
    }

    async fn take(&mut self, head: &SignedHead) -> Result<(), String> {
        match self {
            Way::Storage(storage) => storage.take(head).await,
            Way::Syslog(syslog) => syslog.send(head).await.map_err(|failure| failure.to_string()),
            Way::Mail(mail) => {
                let subject = format!("[stele] head of {} records", head.records);
                let sent = timeout(PATIENCE, mail.deliver_exact(subject, heads::text(head))).await;
                sent.map_err(|_| late(mail.name()))?.map_err(|reason| format!("{}: {reason}", mail.name()))
            }
        }
    }
}

fn late(name: impl std::fmt::Display) -> String {
    format!("{name}: it did not answer within {} s", PATIENCE.as_secs())
}

impl Storage {
    async fn take(&mut self, head: &SignedHead) -> Result<(), String> {
        let head = head.clone();
        self.within_patience(Box::new(move |keeper| keeper.write(&head))).await
    }

    async fn keep(&mut self, stamped: &Stamped) -> Result<(), String> {
        let Stamped { head, reply } = stamped.clone();
        self.within_patience(Box::new(move |keeper| keeper.write_stamp(&head, &reply))).await
    }

    async fn within_patience(&mut self, work: Work) -> Result<(), String> {
        let done = timeout(self.patience, self.on_a_thread(work)).await;
        done.unwrap_or_else(|_| Err(late(self.keeper.name())))
    }

    /// Works on a thread of its own, since a share that is away can hold a thread for ever. The
    /// caller may stop waiting; no other thread starts while this one works.
    async fn on_a_thread(&mut self, work: Work) -> Result<(), String> {
        if let Some(last) = &mut self.under_way {
            let _ = last.await;
            self.under_way = None;
        }
        let (sender, receiver) = oneshot::channel();
        let keeper = Arc::clone(&self.keeper);
        std::thread::Builder::new()
            .name("stele-head".into())
            .spawn(move || drop(sender.send(work(&*keeper))))
            .map_err(|error| format!("no thread writes the head: {error}"))?;
        let written = self.under_way.insert(receiver).await;
        self.under_way = None;
        let written = written.map_err(|_| "the thread that writes the head ended".to_owned())?;
        written.map_err(|failure| failure.on_one_line())
    }
}

#[cfg(test)]
mod tests;
