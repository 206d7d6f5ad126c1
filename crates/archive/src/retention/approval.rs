//! Requests that take two people: one officer asks, another one approves.
//!
//! Two callers are two people if both their keys and their users of this machine differ. A request
//! states its effect, is void after some days (`retention::requests`), and is never approved by its
//! author. Where no officer is left, a new one can be admitted after a waiting time. An alarm
//! stands all the while, and any officer can refuse the request.
//!
//! Failure model: a request takes effect with the commit that removes it, so once or not at all. A
//! key that waited for a request that is refused or void is revoked with it.

use serde::{Deserialize, Serialize};
use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::act::Act;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::matter::VersionName;
use crate::model::principal::{Actor, Caller, Role};
use crate::model::time::{DAY, Timestamp};
use crate::model::version::VersionId;
use crate::record::access_key::AccessKeyRow;
use crate::record::request::{Asked, RequestRow};
use crate::record::settings::OFFICERS;
use crate::record::{ACCESS_KEYS, REQUESTS, REVOKED, SETTINGS, decode, encode};
use crate::retention::events::event_times;
use crate::state::clock::{ComplianceClock, Credit};
use crate::store::{Archive, Store};

/// Days until a request is void, and days until a new officer needs no approval after a loss of
/// officers.
const LIFE_DAYS: u64 = 3;
const LOST_DAYS: u64 = 30;
/// Open requests at most. An administrator makes pending keys of officers without any officer, so
/// those leave room for the officers' own requests.
pub(super) const OPEN_MAX: usize = 64;
const PENDING_KEYS_MAX: usize = OPEN_MAX - 16;

/// The reason why the list calls a request void.
const MADE_BY: &str = "since the key that made it has expired, was revoked or has fewer rights now";

/// A request that waits for another officer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestInfo {
    pub id: String,
    /// The effect of an approval, in words.
    pub says: String,
    pub asked_by: String,
    /// RFC 3339.
    pub expires: String,
    /// After a loss of officers: the time on the compliance clock from which no approval is needed.
    pub alone_from: Option<String>,
}

impl Caller {
    /// Whether two callers are two people: different actors, and different users of this machine.
    fn is_another_person_than(&self, actor: &Actor, peer: Option<u32>) -> bool {
        self.actor != *actor && self.peer.is_some() && peer.is_some() && self.peer != peer
    }

    /// Refuses unless the caller is an officer with a key of its own and a user of this machine.
    fn require_approver(&self) -> Result<()> {
        let officer = matches!(self.actor, Actor::Key(_)) && self.rights.approves() && self.peer.is_some();
        match officer {
            true => Ok(()),
            false => Err(ArchiveError::Denied(format!(
                "{} is no retention officer with a key of its own: a request for two people takes the keys of two officers, and \
                 an administrator's key is none",
                self.actor
            ))),
        }
    }
}

impl RequestRow {
    fn info(&self, id: &str) -> RequestInfo {
        RequestInfo {
            id: id.into(),
            says: match &self.approved {
                Some(by) => format!("{}; approved by {by}", self.says),
                None => self.says.clone(),
            },
            asked_by: self.by.to_string(),
            expires: self.expires.to_string(),
            alone_from: self.alone_from.map(|time| time.to_string()),
        }
    }
}

impl Archive {
    /// One officer asks to credit the time for which the store was closed. Another one has to
    /// approve.
    pub async fn request_credit(&self, caller: &Caller) -> Result<RequestInfo> {
        let store = &self.store();
        store.writable()?;
        let event = || Event::new(caller, Action::ClockAccept).detail("asks to credit the time spent closed".into());
        store.compliance_now();
        let credit = store.clock().look(ComplianceClock::creditable);
        let asked = store.require_approver(caller).and(store.require_not_off(Act::ClockCredit));
        let asked = asked.and(match credit.from < credit.to {
            true => Ok(()),
            false => Err(ArchiveError::Denied(
                "there is no time spent closed that the compliance clock has not made up".into(),
            )),
        });
        store.audited(asked, event).await?;
        // The alarm stays where its acceptance is switched off.
        let accepts = store.frozen().filter(|_| store.require_not_off(Act::ClockAccept).is_ok());
        let and =
            accepts.as_ref().map_or_else(String::new, |reason| format!("; the clock's alarm is accepted: {reason}"));
        let says = format!(
            "{}, for time in which the store was closed; versions whose retention ends by then can be deleted from then \
             on{and}",
            moved(credit)
        );
        let asked = Asked::CreditClock(credit.to.0 - credit.from.0, accepts);
        let (id, row) = store.new_request(caller, asked, says, false);
        store.audited(store.room_for_request(), event).await?;
        let event = event().detail(format!("asks with request {id}: {}", row.says));
        store.record(store.with_request(Transaction::new(), &id, &row), event).await?;
        Ok(row.info(&id))
    }

    /// One officer asks to end the matter `rebuild` and to accept the found state as complete.
    /// Another one has to approve.
    pub async fn request_release(&self, caller: &Caller) -> Result<RequestInfo> {
        let store = &self.store();
        store.writable()?;
        let event = || Event::new(caller, Action::Rebuild).detail("asks to end the matter `rebuild`".into());
        let missing = || ArchiveError::NoSuchThing("there is no matter `rebuild`".into());
        // A key that the matter suspends may still decide about the matter itself.
        let asked = caller.require_approver().and_then(|()| store.doubt().ok_or_else(missing));
        let doubt = store.audited(asked, event).await?;
        let says = format!(
            "the matter `rebuild` of {} ends: what was found counts as all there is, and the keys it suspends are revoked, \
             those of the two officers apart",
            doubt.since
        );
        let (id, row) = store.new_request(caller, Asked::Release(doubt.since), says, false);
        store.audited(store.room_for_request(), event).await?;
        let event = event().detail(format!("asks with request {id}: {}", row.says));
        store.record(store.with_request(Transaction::new(), &id, &row), event).await?;
        Ok(row.info(&id))
    }

    /// One officer asks to take an event back whose date has not come. Another one has to approve.
    pub async fn request_revocation(&self, caller: &Caller, name: &VersionName) -> Result<RequestInfo> {
        let store = &self.store();
        store.writable()?;
        let event = || {
            let event = Event::new(caller, store.class_action()).object(&name.bucket, &name.key);
            event.detail("asks to take its event back".into())
        };
        let asked = store.require_approver(caller).and_then(|()| self.revocable(name));
        let (_, found) = store.audited(asked, event).await?;
        let version = found.id().to_string();
        let says = format!(
            "the event of `{}/{}` version {version} is taken back: the version is kept without an end until an event is told \
             again",
            name.bucket, name.key
        );
        let asked = Asked::RevokeEvent(name.bucket.clone(), name.key.clone(), version, event_times(&found.row));
        let (id, row) = store.new_request(caller, asked, says, false);
        store.audited(store.room_for_request(), event).await?;
        let event = event().detail(format!("asks with request {id}: {}", row.says));
        store.record(store.with_request(Transaction::new(), &id, &row), event).await?;
        Ok(row.info(&id))
    }

    /// One officer asks to close a matter. Another one has to approve.
    pub async fn request_close(&self, caller: &Caller, name: &str) -> Result<RequestInfo> {
        let store = &self.store();
        store.writable()?;
        let event = || Event::new(caller, store.matter_action()).detail(format!("asks to close the matter `{name}`"));
        let asked = store.require_approver(caller).and_then(|()| self.check_closable(name).map(drop));
        store.audited(asked, event).await?;
        let says = format!(
            "the matter `{name}` is closed for good, and every version under it is released from it; those without another \
             hold or retention can be deleted from then on"
        );
        let (id, row) = store.new_request(caller, Asked::CloseMatter(name.into()), says, false);
        store.audited(store.room_for_request(), event).await?;
        let event = event().detail(format!("asks with request {id}: {}", row.says));
        store.record(store.with_request(Transaction::new(), &id, &row), event).await?;
        Ok(row.info(&id))
    }

    /// All requests that wait for approval.
    pub async fn requests(&self, caller: &Caller) -> Result<Vec<RequestInfo>> {
        let roles = [Role::StorageAdministrator, Role::RetentionOfficer, Role::Auditor];
        let allowed = caller.require_role(&roles, Action::Read);
        self.store().audited(allowed, || Event::new(caller, Action::Read)).await?;
        let store = &self.store();
        let infos = store.open_requests()?.into_iter().map(|(id, row)| {
            let info = RequestInfo { expires: store.void_from(&row).to_string(), ..row.info(&id) };
            match store.end_of_request(&id, &row) {
                // It stays until its end, or until it is refused, and takes room.
                Err(ArchiveError::Denied(_)) => {
                    Ok(RequestInfo { says: format!("void, {MADE_BY}: {}", info.says), ..info })
                }
                Ok(_) if store.is_settled(&row.asked)? => Ok(RequestInfo {
                    says: format!("void, since it can change nothing any more: {}", info.says),
                    ..info
                }),
                answer => answer.map(|_| info),
            }
        });
        infos.collect()
    }

    /// Approves a request as another officer than its author. Returns its effect.
    pub async fn approve(&self, caller: &Caller, id: &str) -> Result<String> {
        let store = &self.store();
        store.writable()?;
        let judged = self.judge_approval(caller, id);
        let event = || Event::new(caller, Action::Approve).detail(format!("request {id}"));
        let row = store.audited(judged, event).await?;
        let event = event().detail(format!("request {id}, asked by {}{}: {}", row.by, of_peer(row.peer), row.says));
        let event = match &row.asked {
            // A certificate of disposal lists the approval by these names. The words could quote
            // another object.
            Asked::Delete(bucket, key, version, _) | Asked::RevokeEvent(bucket, key, version, _) => {
                event.object(bucket, key).named_version(version)
            }
            _ => event,
        };
        // Both officers are ones until the commit.
        let over = store.end_of_request(id, &row);
        let over =
            over.and_then(|over| store.while_valid(over, &caller.actor, |rights| caller.rights.is_within(rights)));
        let over = store.audited(over, || event.clone()).await?;
        match &row.asked {
            Asked::CreditClock(most, accepts) => {
                self.credit_clock(id, &row, (*most, accepts.as_deref()), over, event).await
            }
            Asked::Officer(key) => self.admit_officer(&row, key, over, event).await,
            Asked::Release(since) => {
                self.end_rebuild_matter(caller, &row, *since, over, event).await?;
                Ok(row.says)
            }
            Asked::RevokeEvent(bucket, key, version, named) => {
                let version = Some(VersionId::parse(version)?);
                let name = VersionName { bucket: bucket.clone(), key: key.clone(), version };
                let revoked = self.revoke_event(caller, id, (&name, *named), over, event).await;
                let event = || Event::new(caller, Action::Approve).detail(format!("request {id}"));
                store.audited(revoked, event).await?;
                Ok(row.says)
            }
            Asked::AcceptClock(reason) => {
                let accepted = self.accept_approved(reason, over, event).await;
                self.approved(caller, id, row.says.clone(), accepted).await
            }
            Asked::ExportKey => {
                let approved = store.note_approval(caller, id, &row, over, event).await;
                self.approved(caller, id, row.says.clone(), approved).await
            }
            Asked::Delete(bucket, key, version, shown) => {
                let version = Some(VersionId::parse(version)?);
                let name = VersionName { bucket: bucket.clone(), key: key.clone(), version };
                let deleted = self.delete_approved(caller, &row, (&name, *shown), over, event).await;
                self.approved(caller, id, row.says.clone(), deleted).await
            }
            Asked::Restrict(act, people) => {
                let restricted = self.restrict(*act, *people, over, event).await;
                self.approved(caller, id, row.says.clone(), restricted).await
            }
            Asked::CloseMatter(name) => {
                let closed = self.close_matter(caller, &row, name, over, event).await;
                let event = || Event::new(caller, Action::Approve).detail(format!("request {id}"));
                store.audited(closed, event).await?;
                Ok(row.says)
            }
        }
    }

    /// Records the refusal of an approval that can no longer take effect.
    async fn approved(&self, caller: &Caller, id: &str, says: String, done: Result<()>) -> Result<String> {
        let event = || Event::new(caller, Action::Approve).detail(format!("request {id}"));
        self.store().audited(done, event).await.map(|()| says)
    }

    /// Makes a request of an officer, if the act is possible now.
    pub(crate) async fn ask(
        &self,
        caller: &Caller,
        action: Action,
        asked: Asked,
        says: String,
        possible: Result<()>,
    ) -> Result<RequestInfo> {
        let store = &self.store();
        store.writable()?;
        let event = || Event::new(caller, action).detail(format!("asks: {says}"));
        let allowed = store.require_approver(caller).and(possible).and(store.room_for_request());
        store.audited(allowed, event).await?;
        let (id, row) = store.new_request(caller, asked, says.clone(), false);
        let event = Event::new(caller, action).detail(format!("asks with request {id}: {says}"));
        store.record(store.with_request(Transaction::new(), &id, &row), event).await?;
        Ok(row.info(&id))
    }

    /// Refuses a request. Any officer may do so.
    pub async fn refuse_request(&self, caller: &Caller, id: &str) -> Result<()> {
        let store = &self.store();
        store.writable()?;
        let event = || Event::new(caller, Action::Approve).detail(format!("request {id} is refused"));
        let allowed = match caller.actor {
            // An administrator may withdraw a request that it could have made. That weakens
            // nothing.
            Actor::Local(_) => Ok(()),
            _ => store.require_approver(caller),
        };
        let row = store.audited(allowed.and_then(|()| store.request(id)), event).await?;
        let transaction = Transaction::new().with_reserve().equals(REQUESTS, id.to_string(), encode(&row));
        store.end_unapproved(&row, transaction.delete(REQUESTS, id.to_string()), event()).await
    }

    fn judge_approval(&self, caller: &Caller, id: &str) -> Result<RequestRow> {
        let row = self.store().request(id)?;
        if let Some(from) = row.alone_from {
            let now = self.store().compliance_now();
            if self.store().require_approver(caller).is_err() {
                caller.require_role(&[Role::StorageAdministrator], Action::Approve)?;
                return match now >= from {
                    true => Ok(row),
                    false => Err(ArchiveError::Denied(format!(
                        "without an officer's approval it takes until {from} on the compliance clock, which shows {now}"
                    ))),
                };
            }
        }
        if let Some(by) = &row.approved {
            return Err(ArchiveError::Denied(format!("{by} has approved the request already")));
        }
        match row.asked {
            Asked::Release(_) => caller.require_approver()?,
            _ => self.store().require_approver(caller)?,
        }
        if !caller.is_another_person_than(&row.by, row.peer) {
            return Err(ArchiveError::Denied(format!(
                "{}{} asked for it: another person approves, with another key and as another user of this machine",
                row.by,
                of_peer(row.peer)
            )));
        }
        // The key that the request admits cannot be used before. A key that the author made earlier
        // is not detected here.
        Ok(row)
    }

    async fn credit_clock(
        &self,
        id: &str,
        row: &RequestRow,
        (most, accepts): (u64, Option<&str>),
        over: Transaction,
        event: Event,
    ) -> Result<String> {
        let store = &self.store();
        let rules = store.rules();
        store.require_not_off(Act::ClockCredit)?;
        let accepts = accepts.filter(|_| store.require_not_off(Act::ClockAccept).is_ok());
        store.compliance_now();
        // The requested credit is an upper limit. The slew may have made up some of it since.
        let credit = {
            let credit = store.clock().look(ComplianceClock::creditable);
            Credit { to: credit.to.min(Timestamp(credit.from.0.saturating_add(most))), ..credit }
        };
        let accepts = accepts.filter(|reason| store.frozen().as_deref() == Some(*reason));
        let done = match (accepts, store.frozen()) {
            (Some(_), _) => format!("{}, and the clock's alarm is accepted", moved(credit)),
            (None, Some(reason)) => format!("{}; expiration stays frozen: {reason}", moved(credit)),
            (None, None) => moved(credit),
        };
        let event = event.detail(format!("request {id}, asked by {}{}: {done}", row.by, of_peer(row.peer)));
        let change = |clock: &mut ComplianceClock| {
            clock.credit(credit);
            accepts.into_iter().for_each(|reason| clock.accept(reason));
        };
        store.change_clock(rules.stand(over), event, change).await?;
        Ok(done)
    }

    async fn admit_officer(&self, row: &RequestRow, key: &str, over: Transaction, event: Event) -> Result<String> {
        let store = &self.store();
        let rules = store.rules();
        store.require_not_off(Act::NewOfficer)?;
        let lock = store.lock_named::<AccessKeyRow>(key).await?;
        let snapshot = store.snapshot()?;
        let missing = || ArchiveError::NoSuchAccessKey(key.into());
        let raw = snapshot.get(ACCESS_KEYS, key.as_bytes())?.ok_or_else(missing)?;
        let mut found: AccessKeyRow = decode(ACCESS_KEYS, key.as_bytes(), &raw)?;
        if found.revoked.is_some() || !found.is_pending() {
            return Err(missing());
        }
        found.pending = None;
        found.officer = Some(true);
        let mut transaction = rules.stand(over).equals(ACCESS_KEYS, key.to_string(), raw);
        if let Some(raw) = snapshot.get(SETTINGS, OFFICERS)? {
            let officers: u64 = decode(SETTINGS, OFFICERS, &raw)?;
            transaction = transaction.put(SETTINGS, OFFICERS, encode(&(officers + 1)));
        }
        let answer = store.write_named(key, found, transaction, Some(event), lock).await?;
        store.compensated(answer).await?;
        Ok(row.says.clone())
    }
}

impl Store {
    /// Refuses unless the officer may ask and approve now. The matter `rebuild` suspends keys that
    /// existed, except for ending it.
    fn require_approver(&self, caller: &Caller) -> Result<()> {
        caller.require_approver()?;
        match &caller.actor {
            Actor::Key(id) if self.suspends(id) => Err(ArchiveError::Denied(format!(
                "the matter `rebuild` suspends key {id}, which may decide about that matter only"
            ))),
            _ => Ok(()),
        }
    }

    /// The transaction that ends a request: it is still there, and a key that made it is still
    /// valid and, for an act of two officers, still an officer's.
    pub(crate) fn end_of_request(&self, id: &str, row: &RequestRow) -> Result<Transaction> {
        let over = Transaction::new().equals(REQUESTS, id.to_string(), encode(row)).delete(REQUESTS, id.to_string());
        let Actor::Key(author) = &row.by else { return Ok(over) };
        let over = over.absent(REVOKED, author.clone());
        // No row of a key ever goes.
        let Some(raw) = self.snapshot()?.get(ACCESS_KEYS, author.as_bytes())? else { return Ok(over) };
        let key: AccessKeyRow = decode(ACCESS_KEYS, author.as_bytes(), &raw)?;
        let by_officers = !matches!(row.asked, Asked::Officer(_));
        let is_valid = key.revoked.is_none() && !key.is_expired(self.key_now());
        match is_valid && (key.rights.approves() || !by_officers) {
            true => Ok(over.equals(ACCESS_KEYS, author.clone(), raw)),
            false => Err(ArchiveError::Denied(format!(
                "request {id} is void: key {author}, which made it, has expired, was revoked or has fewer rights now; another officer asks again"
            ))),
        }
    }

    /// Keeps a request as approved, for an act that comes later and uses it up.
    async fn note_approval(
        &self,
        caller: &Caller,
        id: &str,
        row: &RequestRow,
        over: Transaction,
        event: Event,
    ) -> Result<()> {
        let approved = RequestRow { approved: Some(caller.actor.clone()), ..row.clone() };
        self.record(over.put(REQUESTS, id.to_string(), encode(&approved)), event).await.map(drop)
    }

    /// Adds the request that makes a pending key an officer's. Returns its id and its effect in
    /// words.
    pub(crate) fn ask_for_officer(
        &self,
        transaction: Transaction,
        caller: &Caller,
        (key, description, ends): (&str, &str, Option<Timestamp>),
        lost: bool,
    ) -> Result<(String, String, Transaction)> {
        self.require_not_off(Act::NewOfficer)?;
        self.room_for(PENDING_KEYS_MAX)?;
        let until = ends.map_or_else(|| "without an end".into(), |ends| format!("until {ends}"));
        let says = format!(
            "key {key} ({description:?}) becomes a retention officer's, {until}: it can release holds and, with another \
             officer, move the compliance clock"
        );
        let (id, row) = self.new_request(caller, Asked::Officer(key.into()), says, lost);
        let transaction = self.with_request(transaction, &id, &row);
        Ok((id, row.says, transaction))
    }

    fn new_request(&self, caller: &Caller, asked: Asked, says: String, lost: bool) -> (String, RequestRow) {
        let id = self.random_text(b"abcdefghijkmnpqrstuvwxyz23456789", 8).to_string();
        let (now, later) = (self.compliance_now(), self.later_now());
        let alone_from = lost.then(|| now.plus_days(LOST_DAYS));
        let life = if lost { 2 * LOST_DAYS } else { LIFE_DAYS };
        let open_until = self.open_time().saturating_add(life * DAY);
        let says = match alone_from {
            Some(from) => {
                format!(
                    "{says}; it needs no officer's approval from {from} on, since all officers are reported as lost"
                )
            }
            None => says,
        };
        let row = RequestRow {
            asked,
            by: caller.actor.clone(),
            peer: caller.peer,
            made: self.wall(),
            expires: later.plus_days(life),
            alone_from,
            says,
            approved: None,
            open_until: Some(open_until),
        };
        (id, row)
    }

    fn with_request(&self, transaction: Transaction, id: &str, row: &RequestRow) -> Transaction {
        transaction.absent(REQUESTS, id.to_string()).put(REQUESTS, id.to_string(), encode(row))
    }

    fn room_for_request(&self) -> Result<()> {
        self.room_for(OPEN_MAX)
    }

    fn room_for(&self, most: usize) -> Result<()> {
        match self.open_requests()?.len() < most {
            true => Ok(()),
            false => Err(ArchiveError::Denied(format!(
                "{most} requests wait for approval already; approve or refuse some of them"
            ))),
        }
    }

    fn request(&self, id: &str) -> Result<RequestRow> {
        let open = self.open_requests()?.into_iter().find(|(known, _)| known == id);
        open.map(|(_, row)| row).ok_or_else(|| {
            ArchiveError::NoSuchThing(format!(
                "no request `{id}` waits for approval: it was never made, or is void; `stele approve` lists them"
            ))
        })
    }
}

fn moved(credit: Credit) -> String {
    let seconds = credit.to.0.saturating_sub(credit.from.0) / 1000;
    format!("the compliance clock goes from {} to {}, by {seconds} s", credit.from, credit.to)
}

pub(super) fn of_peer(peer: Option<u32>) -> String {
    peer.map_or_else(String::new, |uid| format!(" (uid {uid})"))
}
