//! How many people an act takes: the rules, their change, and the requests for acts that take two
//! officers.
//!
//! A rule only gets stricter, and two officers decide that. The rule is in the store's identity, in
//! the catalog and on the data volume, so that a rebuild of the catalog finds it. It is durable in
//! both before its change is acknowledged.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_catalog::Transaction;
use zeroize::Zeroizing;

use crate::audit::Event;
use crate::model::act::{Act, People};
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::matter::{MatterState, REASON_MAX, VersionName};
use crate::model::principal::{Access, Caller, Rights, Role};
use crate::model::version::{Retention, VersionId};
use crate::record::request::{Asked, RequestRow};
use crate::record::settings::{IDENTITY, IdentityRow};
use crate::record::version::VersionRow;
use crate::record::{SETTINGS, encode};
use crate::retention::approval::RequestInfo;
use crate::retention::rules::{Cause, judge, require_lock};
use crate::space::superblock::FORMAT;
use crate::state::buckets::Bucket;
use crate::state::key_locks::KeyLock;
use crate::store::committing::{Committing, Proof};
use crate::store::lookup::{self, Found};
use crate::store::{Archive, Store};

/// An act and its rule, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActRule {
    pub act: Act,
    pub people: People,
    pub says: String,
}

/// The rules of acts as they were at some moment: a part of the store's identity.
#[derive(Clone)]
pub(crate) struct Rules(bytes::Bytes);

impl Rules {
    /// Makes a transaction require that the rules are as they were.
    pub fn stand(self, transaction: Transaction) -> Transaction {
        transaction.equals(SETTINGS, bytes::Bytes::from_static(IDENTITY), self.0)
    }
}

impl Store {
    pub(crate) fn people_for(&self, act: Act) -> People {
        let set = self.identity().look(|identity| identity.acts.as_ref().and_then(|acts| acts.get(&act).copied()));
        set.map_or(act.least(), |set| set.max(act.least()))
    }

    /// The rules of all acts, to be taken before any of them is looked at.
    pub(crate) fn rules(&self) -> Rules {
        Rules(self.identity().look(encode))
    }

    /// Makes a transaction that weakens a retention require what allowed it: the rules, and the
    /// rights of the caller's key.
    pub(crate) fn while_bypassing(
        &self,
        transaction: Transaction,
        rules: Rules,
        caller: &Caller,
        access: Access,
        bucket: &Bucket,
    ) -> Result<Transaction> {
        self.while_allowed(rules.stand(transaction), caller, access, bucket)
    }

    /// Whether a request can change nothing any more: its rule or matter is as it asks, or its
    /// version is gone.
    pub(crate) fn is_settled(&self, asked: &Asked) -> Result<bool> {
        Ok(match asked {
            Asked::Restrict(act, people) => self.people_for(*act) >= *people,
            Asked::CloseMatter(name) => self.matter_row(name)?.is_none_or(|row| row.state() != MatterState::Open),
            Asked::Delete(bucket, key, version, _) | Asked::RevokeEvent(bucket, key, version, _) => {
                let version = Some(VersionId::parse(version)?);
                match self.buckets().by_name(bucket) {
                    Ok(bucket) => lookup::version(&*self.snapshot()?, &bucket, key, version)?.is_none(),
                    Err(ArchiveError::NoSuchBucket(_)) => true,
                    Err(error) => return Err(error),
                }
            }
            _ => false,
        })
    }

    /// Refuses an act that one person asks for, if it takes two or is switched off.
    pub(crate) fn require_one(&self, act: Act, instead: &str) -> Result<()> {
        match self.people_for(act) {
            People::One => Ok(()),
            People::Two => Err(ArchiveError::Denied(format!("{} takes two officers: {instead}", act.says()))),
            People::Off => self.require_not_off(act),
        }
    }

    pub(crate) fn require_not_off(&self, act: Act) -> Result<()> {
        match self.people_for(act) {
            People::Off => Err(ArchiveError::Denied(format!("{} is switched off for good", act.says()))),
            _ => Ok(()),
        }
    }

    /// The cause by which a removal is judged: a bypass counts only while it takes one person.
    pub(crate) fn judged_cause(&self, cause: Cause) -> Cause {
        match cause {
            Cause::Requested { bypass: true } if self.people_for(Act::Bypass) != People::One => {
                Cause::Requested { bypass: false }
            }
            Cause::Approved if self.people_for(Act::Bypass) == People::Off => Cause::Requested { bypass: false },
            cause => cause,
        }
    }

    /// A refusal of a bypass says that the rule of the act is the cause.
    pub(crate) fn explained(&self, cause: Cause, refusal: ArchiveError) -> ArchiveError {
        let asked = matches!(cause, Cause::Requested { bypass: true } | Cause::Approved);
        match refusal {
            ArchiveError::Retained { bucket, key, version, mode, until, legal_hold, message } if asked => {
                let rule = match self.people_for(Act::Bypass) {
                    People::One => String::new(),
                    People::Two => "; a bypass takes two officers: `stele disposal delete` asks".to_owned(),
                    People::Off => "; the bypass of GOVERNANCE is switched off for good".to_owned(),
                };
                let message = format!("{message}{rule}");
                ArchiveError::Retained { bucket, key, version, mode, until, legal_hold, message }
            }
            other => other,
        }
    }

    /// Held while the identity is changed, noted, or stored for the last time.
    pub(crate) async fn lock_identity(self: &Arc<Store>) -> Result<KeyLock> {
        self.lock(0, "identity:").await
    }

    /// Changes the identity together with a transaction and its record, and notes it on the data
    /// volume. Two changes do not lose each other, and one that took place is known although its
    /// request went away.
    pub(crate) async fn change_identity(
        self: &Arc<Store>,
        transaction: Transaction,
        event: Event,
        change: impl FnOnce(&mut IdentityRow),
    ) -> Result<()> {
        let lock = self.lock_identity().await?;
        let before = self.identity().look(Clone::clone);
        let mut after = before.clone();
        change(&mut after);
        let (key, raw) = (bytes::Bytes::from_static(IDENTITY), encode(&after));
        let transaction = transaction.with_reserve().equals(SETTINGS, key.clone(), encode(&before)).put(
            SETTINGS,
            key.clone(),
            raw.clone(),
        );
        let proof = Proof { table: SETTINGS, key, value: Some(raw) };
        let committing = Committing::new(self, proof).lock(lock).after(move |store| {
            store.identity().step(|identity| *identity = after);
            // The request notes it, if it is still there.
            store.upkeep().identity_changed();
            None
        });
        committing.commit(self.with_record(transaction, event)).await?;
        self.note_identity().await
    }
}

impl Archive {
    /// Every act with its rule.
    pub async fn act_rules(&self, caller: &Caller) -> Result<Vec<ActRule>> {
        let store = &self.store();
        let roles = [Role::StorageAdministrator, Role::RetentionOfficer, Role::Auditor];
        store.audited(caller.require_role(&roles, Action::Read), || Event::new(caller, Action::Read)).await?;
        let rule = |act: Act| ActRule { act, people: store.people_for(act), says: act.says().into() };
        Ok(Act::ALL.map(rule).to_vec())
    }

    /// One officer asks to make the rule of an act stricter, for good. Another one has to approve.
    pub async fn request_restriction(&self, caller: &Caller, act: Act, people: People) -> Result<RequestInfo> {
        let store = &self.store();
        let now = store.people_for(act);
        let stricter = match people > now {
            true => Ok(()),
            false => Err(ArchiveError::InvalidState(format!(
                "{} takes {now} already; a rule only gets stricter, from one to two to off",
                act.says()
            ))),
        };
        let says = match people {
            People::Off => format!("{} is switched off for good: {}; there is no way back", act.says(), act.loses()),
            _ => format!("{} takes two officers from then on; there is no way back", act.says()),
        };
        self.ask(caller, Action::Administer, Asked::Restrict(act, people), says, stricter).await
    }

    /// One officer asks to accept the clock's alarm. Another one has to approve.
    pub async fn request_acceptance(&self, caller: &Caller) -> Result<RequestInfo> {
        let store = &self.store();
        let reason = store.frozen().unwrap_or_default();
        let frozen = match reason.is_empty() {
            true => Err(ArchiveError::InvalidState("there is no clock alarm to accept".into())),
            false => store.require_not_off(Act::ClockAccept),
        };
        let says = format!("the clock's alarm is accepted and what has expired may be deleted again: {reason}");
        self.ask(caller, Action::ClockAccept, Asked::AcceptClock(reason), says, frozen).await
    }

    /// One officer asks to let the master key be exported once. Another one has to approve.
    pub async fn request_export(&self, caller: &Caller) -> Result<RequestInfo> {
        let allowed = self.store().require_not_off(Act::KeyExport);
        let says = "an administrator of this machine may export the master key once until the request ends; who has it and \
                    the drives can read every record";
        self.ask(caller, Action::ExportMasterKey, Asked::ExportKey, says.into(), allowed).await
    }

    /// One officer asks to delete a version before its GOVERNANCE retention ends. Another one has
    /// to approve.
    pub async fn request_deletion(&self, caller: &Caller, name: &VersionName, reason: &str) -> Result<RequestInfo> {
        let found = match reason.trim().is_empty() || reason.len() > REASON_MAX {
            true => Err(ArchiveError::InvalidArgument(format!("a deletion has a reason of 1 to {REASON_MAX} bytes"))),
            false => self.deletable(caller, name),
        };
        // The record of a refusal names the version that was asked for.
        let id = found.as_ref().map_or(name.version, |found| Some(found.id()));
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        let kept = found.as_ref().ok().and_then(|found| found.row.retention);
        let until =
            kept.map_or_else(String::new, |kept| format!(" before {} retention ends {}", kept.mode, kept.until));
        let says = format!(
            "`{}/{}` version {id} is deleted{until}, and cannot be brought back; the reason: {reason}",
            name.bucket, name.key
        );
        let asked = Asked::Delete(name.bucket.clone(), name.key.clone(), id, kept);
        self.ask(caller, Action::DeleteObject, asked, says, found.map(drop)).await
    }

    /// The version, if two officers may delete it now.
    pub(crate) fn deletable(&self, caller: &Caller, name: &VersionName) -> Result<Found> {
        let store = &self.store();
        store.require_not_off(Act::Bypass)?;
        let bucket = store.buckets().by_name(&name.bucket)?;
        require_lock(&bucket)?;
        if bucket.row.is_share() {
            return Err(ArchiveError::InvalidRequest(format!("bucket `{}` is a share", name.bucket)));
        }
        let found = lookup::readable(&*store.snapshot()?, &bucket, &name.key, name.version)?;
        judge(&bucket, &name.key, &found, caller, Cause::Approved, store.compliance_now())?;
        Ok(found)
    }

    /// Two officers delete a version, if nothing keeps it longer than the retention that they were
    /// shown. `over` ends the request.
    pub(crate) async fn delete_approved(
        &self,
        caller: &Caller,
        row: &RequestRow,
        (name, shown): (&VersionName, Option<Retention>),
        over: Transaction,
        approved: Event,
    ) -> Result<()> {
        let store = &self.store();
        let bucket = store.buckets().by_name(&name.bucket)?;
        let lock = store.lock(bucket.number, &name.key).await?;
        let found = self.deletable(caller, name)?;
        let stands = found.row.retention.filter(|retention| retention.until > store.compliance_now());
        if let Some(retention) = stands.filter(|stands| shown.is_none_or(|shown| stands.until > shown.until)) {
            return Err(ArchiveError::InvalidState(format!(
                "its {} retention ends {} now, later than the request says: ask again",
                retention.mode, retention.until
            )));
        }
        let bypassed = stands.is_some();
        let cause = Cause::Approved;
        let (transaction, removed) = store.remove(over, caller, &bucket, &name.key, &found, cause).await?;
        let size = |row: &VersionRow| -(row.size as i64);
        let transaction = bucket.count(transaction, -1, size(&found.row));
        // The approval and the deletion take place together or not at all.
        let transaction = store.with_record(transaction, approved);
        let event = Event::new(caller, Action::DeleteObject).object(bucket.name(), &name.key).version(found.id());
        let event = event.happened("ObjectRemoved:Delete").detail(format!(
            "{}, asked by {}{}",
            found.row.content_in_words(),
            row.by,
            if bypassed { ", GOVERNANCE bypassed" } else { "" }
        ));
        store.commit_removal(transaction, event, removed, &bucket, &name.key, &found, lock).await.map(drop)
    }

    /// Two officers accept the clock's alarm, if it is still the one that they were asked about.
    pub(crate) async fn accept_approved(&self, reason: &str, over: Transaction, event: Event) -> Result<()> {
        let store = &self.store();
        let rules = store.rules();
        store.require_not_off(Act::ClockAccept)?;
        if store.frozen().as_deref() != Some(reason) {
            return Err(ArchiveError::InvalidState(
                "the clock has another alarm now, or none: ask again with what it says".into(),
            ));
        }
        store.change_clock(rules.stand(over), event, |clock| clock.accept(reason)).await
    }

    /// Two officers make a rule stricter.
    pub(crate) async fn restrict(&self, act: Act, people: People, over: Transaction, event: Event) -> Result<()> {
        let store = &self.store();
        if people <= store.people_for(act) {
            return Err(ArchiveError::InvalidState(format!("{} is as strict already", act.says())));
        }
        // Older binaries do not know the rule, and would not keep it.
        store.witnessing().raise_format(FORMAT).await?;
        store
            .change_identity(over, event, |identity| {
                identity.acts.get_or_insert_default().insert(act, people);
            })
            .await
    }

    /// The text of the master key for safekeeping. The audit record is durable before the text is
    /// handed out. Where that takes two officers, it uses up their approval.
    pub async fn export_master_key(&self, caller: &Caller) -> Result<Zeroizing<String>> {
        let store = &self.store();
        let rules = store.rules();
        let allowed = caller.require_role(&[Role::StorageAdministrator], Action::ExportMasterKey);
        let allowed = allowed.and_then(|()| store.export_approval());
        let approval = store.audited(allowed, || Event::new(caller, Action::ExportMasterKey)).await?;
        let (mut transaction, mut detail) = (Transaction::new(), "handed out for escrow".to_owned());
        if let Some(approval) = approval {
            transaction = approval.over;
            detail.push_str(&approval.says);
        }
        store
            .record(rules.stand(transaction).with_reserve(), Event::new(caller, Action::ExportMasterKey).detail(detail))
            .await?;
        Ok(store.master().to_text())
    }
}

/// An approved request that an export of the master key uses up.
struct ExportApproval {
    /// Ends the request, if both officers still are ones.
    over: Transaction,
    says: String,
}

impl Store {
    /// The approval of an export of the master key. None: it takes none.
    fn export_approval(&self) -> Result<Option<ExportApproval>> {
        if self.people_for(Act::KeyExport) == People::One {
            return Ok(None);
        }
        self.require_not_off(Act::KeyExport)?;
        let mut void = None;
        for (id, row) in self.open_requests()?.into_iter().filter(|(_, row)| row.asked == Asked::ExportKey) {
            let Some(approver) = &row.approved else { continue };
            // Each approval is judged again: either officer may be one no more.
            let over = self.end_of_request(&id, &row);
            match over.and_then(|over| self.while_valid(over, approver, Rights::approves)) {
                Ok(over) => return Ok(Some(ExportApproval { over, says: format!(", by request {id} of {}", row.by) })),
                Err(refusal) => void = Some(refusal),
            }
        }
        Err(void.unwrap_or_else(|| {
            ArchiveError::Denied(format!(
                "{} takes two officers: `stele master-key request --officer FILE` asks, and another officer approves",
                Act::KeyExport.says()
            ))
        }))
    }
}
