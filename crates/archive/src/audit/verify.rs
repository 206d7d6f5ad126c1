//! Reading and verifying the audit log, and signing its head.
//!
//! The chain shows any edit and any gap before its head. The signed end and the checkpoints show a
//! log that was chained again. Only a head kept elsewhere, the anchor, shows a log that was rolled
//! back as a whole.
//!
//! A checkpoint covers a full run of records and carries the signed Merkle root over their links.
//! The root of a head is over the checkpoints' roots and the links behind them.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use stele_catalog::{Direction, Head, KeyRange, Snapshot, link};

use crate::audit::chain::{Link, RUN, checkpoint_message, last_link, link_at, merkle, number_of, roots};
use crate::audit::{AuditRecord, AuditVerdict, Event, HeadVerdict};
use crate::model::action::Action;
use crate::model::checksum::{from_hex, to_hex};
use crate::model::error::{ArchiveError, Result};
use crate::model::head::SignedHead;
use crate::model::mutation::Mutation;
use crate::model::principal::{Caller, Role};
use crate::record::audit::{AuditRow, CheckpointRow, SealedRow};
use crate::record::settings::AUDIT_HEAD;
use crate::record::{AUDIT, CHECKPOINTS, SETTINGS, decode, keys};
use crate::store::signing::Signing;
use crate::store::{Archive, Store};

const PAGE: usize = 1024;

impl Archive {
    /// Records from number `from` on, at most `limit`.
    pub async fn audit_records(&self, caller: &Caller, from: u64, limit: usize) -> Result<Vec<AuditRecord>> {
        let store = &self.store();
        let allowed = caller.require_role(&[Role::Auditor], Action::Audit);
        store.audited(allowed, || Event::new(caller, Action::Audit)).await?;
        let snapshot = store.snapshot()?;
        // The link of a record depends on all records before it. The walk can start at a
        // checkpoint.
        let from = from.max(1);
        let run = (from - 1) / RUN * RUN + 1;
        let (mut previous, mut number) = match run.checked_sub(RUN) {
            Some(before) => match snapshot.get(CHECKPOINTS, &keys::number(before))? {
                Some(bytes) => {
                    let row: CheckpointRow = decode(CHECKPOINTS, &keys::number(before), &bytes)?;
                    (row.link, run)
                }
                None => (Link::default(), 1),
            },
            None => (Link::default(), 1),
        };
        let mut records = Vec::new();
        while records.len() < limit.min(100_000) {
            let page = snapshot.range(AUDIT, &KeyRange::all().from(keys::number(number)), PAGE, Direction::Forward)?;
            if page.is_empty() {
                break;
            }
            for (key, value) in page {
                number = number_of(&key);
                previous = link(&previous, number, &value);
                if number >= from && records.len() < limit {
                    records.push(AuditRecord::of(number, &previous, decode(AUDIT, &key, &value)?));
                }
            }
            number += 1;
        }
        Ok(records)
    }

    /// Walks the whole log. Findings are the result, not an error.
    pub async fn audit_verify(&self, caller: &Caller, anchor: Option<SignedHead>) -> Result<AuditVerdict> {
        let store = &self.store();
        let allowed = caller.require_role(&[Role::Auditor, Role::RetentionOfficer], Action::Audit);
        store.audited(allowed, || Event::new(caller, Action::Audit)).await?;
        let snapshot = store.snapshot()?;
        let mut verdict = AuditVerdict::default();
        let head = Head::decode(snapshot.get(SETTINGS, AUDIT_HEAD)?.as_deref())?;
        let sealed = match super::sealing::sealed(store, &*snapshot)? {
            Ok(row) => Some(row),
            Err(finding) => {
                verdict.findings.push(finding);
                None
            }
        };
        let mut walk = Walk::begin(store);
        if let Some(anchor) = &anchor
            && let Err(finding) = check_signature(store, anchor)
        {
            verdict.findings.push(finding);
        }
        let mut expected = 1;
        loop {
            let page =
                snapshot.range(AUDIT, &KeyRange::all().from(keys::number(expected)), PAGE, Direction::Forward)?;
            if page.is_empty() {
                break;
            }
            for (key, value) in page {
                let number = number_of(&key);
                if number != expected {
                    verdict.findings.push(format!("records {expected} to {} are missing", number.saturating_sub(1)));
                }
                if let Err(error) = decode::<AuditRow>(AUDIT, &key, &value) {
                    verdict.findings.push(format!("record {number} cannot be read: {error}"));
                }
                walk.pass(number, &value);
                verdict.records += 1;
                if number.is_multiple_of(RUN) {
                    walk.close_run(&*snapshot, number, sealed.as_ref(), &mut verdict)?;
                }
                walk.compare_signed(number, sealed.as_ref(), &mut verdict);
                walk.compare_anchor(number, anchor.as_ref(), &mut verdict);
                expected = number + 1;
            }
        }
        walk.compare_end(expected - 1, &head, &mut verdict);
        for gap in store.identity().look(|identity| identity.gaps.clone()).iter().flatten() {
            let last = gap.last.map_or_else(|| "an unknown end".to_owned(), |last| last.to_string());
            verdict.findings.push(format!(
                "records {} to {last} were lost when the catalog was rebuilt at {}; the present records with these numbers are later ones",
                gap.first, gap.rebuilt
            ));
        }
        check_reach(expected - 1, sealed.as_ref(), anchor.as_ref(), &mut verdict);
        Ok(verdict)
    }

    /// Compares the log with an earlier signed head that was kept elsewhere.
    pub fn compare_head(&self, head: &SignedHead) -> Result<HeadVerdict> {
        let store = &self.store();
        if let Err(finding) = check_signature(store, head) {
            return Ok(HeadVerdict::Foreign(finding));
        }
        if store.without().has(Mutation::Heads) {
            return Ok(HeadVerdict::Contained);
        }
        let snapshot = store.snapshot()?;
        let ours = Head::decode(snapshot.get(SETTINGS, AUDIT_HEAD)?.as_deref())?.count;
        let here = if head.records > ours { None } else { link_at(&*snapshot, head.records)? };
        if head.records == 0 || here.map(|link| to_hex(&link)).as_ref() == Some(&head.link) {
            return Ok(HeadVerdict::Contained);
        }
        if store.identity().look(|identity| identity.gaps.iter().flatten().any(|gap| gap.explains(head))) {
            return Ok(HeadVerdict::Lost);
        }
        Ok(match head.records > ours {
            true => HeadVerdict::Newer { theirs: head.records, ours },
            false => HeadVerdict::Other { records: head.records },
        })
    }

    /// The signed head, to be sent elsewhere. The data volume's witness is written first: where a
    /// later head counts more records than the witness, the volume was set back.
    pub async fn audit_head_to_send(&self) -> Result<SignedHead> {
        let head = self.audit_head().await?;
        if !self.store().is_read_only() {
            // Every record that the head counts is durable before the head leaves.
            self.store().barrier().await?;
        }
        let link: Option<Link> = from_hex(&head.link).and_then(|link| link.try_into().ok());
        let pairing = self.store().witnessing().superblock().witness.unwrap_or_default().pairing();
        if let Some(link) = link.filter(|_| !self.store().is_read_only()) {
            self.store().witnessing().write(pairing, head.records, link).await?;
        }
        Ok(head)
    }

    /// The signed head of the log as it is now.
    pub async fn audit_head(&self) -> Result<SignedHead> {
        let store = &self.store();
        let snapshot = store.snapshot()?;
        let head = Head::decode(snapshot.get(SETTINGS, AUDIT_HEAD)?.as_deref())?;
        let refuse = |finding: String| {
            ArchiveError::damaged("the audit log", format!("{finding}; nothing was signed, run `stele audit verify`"))
        };
        let sealed = super::sealing::sealed(store, &*snapshot)?.map_err(refuse)?;
        let (roots, covered) = roots(&*snapshot)?;
        if covered != sealed.covered {
            return Err(refuse(format!("checkpoints end at record {covered}, not at {}", sealed.covered)));
        }
        let mut walk = Walk { store, previous: last_link(&*snapshot, covered)?, run: Vec::new(), roots };
        let mut number = covered;
        while number < head.count {
            let page = snapshot.range(AUDIT, &KeyRange::all().after(keys::number(number)), PAGE, Direction::Forward)?;
            if page.is_empty() {
                return Err(ArchiveError::damaged("the audit log", format!("record {} is missing", number + 1)));
            }
            for (key, value) in page {
                number = number_of(&key);
                walk.previous = link(&walk.previous, number, &value);
                walk.run.push(walk.previous);
                if number == sealed.records && walk.previous != sealed.link {
                    return Err(refuse(format!("it is not the one whose end was signed at record {number}")));
                }
                if number.is_multiple_of(RUN) {
                    let run = std::mem::take(&mut walk.run);
                    walk.roots.push(merkle(&run));
                }
            }
        }
        if walk.previous != head.link || number != head.count {
            return Err(refuse(format!("it does not end at record {} as its head says", head.count)));
        }
        let mut signed = SignedHead {
            store: to_hex(store.id()),
            records: head.count,
            link: to_hex(&head.link),
            root: to_hex(&walk.root()),
            time: store.wall().to_string(),
            public_key: to_hex(store.signing().public()),
            signature: String::new(),
        };
        signed.signature = to_hex(&store.signing().sign(&signed.message()));
        Ok(signed)
    }
}

/// A walk in progress: the last link, the links of the current run, the roots of full runs.
struct Walk<'a> {
    store: &'a Store,
    previous: Link,
    run: Vec<Link>,
    roots: Vec<Link>,
}

impl Walk<'_> {
    /// A walk from the first record on.
    fn begin(store: &Store) -> Walk<'_> {
        Walk { store, previous: Link::default(), run: Vec::new(), roots: Vec::new() }
    }

    /// Goes past a record.
    fn pass(&mut self, number: u64, value: &[u8]) {
        self.previous = link(&self.previous, number, value);
        self.run.push(self.previous);
    }

    /// Checks the chain's link at the record with which the end was signed.
    fn compare_signed(&self, number: u64, sealed: Option<&SealedRow>, verdict: &mut AuditVerdict) {
        if let Some(sealed) = sealed.filter(|sealed| sealed.records == number)
            && sealed.link != self.previous
        {
            verdict.findings.push(format!(
                "the log up to record {number} is not the one whose end was signed: it was changed and chained again"
            ));
        }
    }

    /// Checks the chain's link and the tree's root at the record with which the anchor was taken.
    fn compare_anchor(&self, number: u64, anchor: Option<&SignedHead>, verdict: &mut AuditVerdict) {
        let Some(anchor) = anchor.filter(|anchor| anchor.records == number) else { return };
        if anchor.link == to_hex(&self.previous) && anchor.root == to_hex(&self.root()) {
            verdict.anchored = Some(number);
        } else {
            verdict.findings.push(format!("the log up to record {number} is not the one that was anchored"));
        }
    }

    /// Checks that the log ends where its head says.
    fn compare_end(&self, last: u64, head: &Head, verdict: &mut AuditVerdict) {
        if last != head.count || self.previous != head.link {
            verdict.findings.push(format!(
                "the log ends with record {last} and link {}, its head says {} and {}",
                to_hex(&self.previous),
                head.count,
                to_hex(&head.link)
            ));
        }
    }

    /// The Merkle root over all records so far.
    fn root(&self) -> Link {
        let mut leaves = self.roots.clone();
        if !self.run.is_empty() {
            leaves.push(merkle(&self.run));
        }
        merkle(&leaves)
    }

    /// Ends a full run, and compares it with its checkpoint. A checkpoint is due as soon as a later
    /// end is signed.
    fn close_run(
        &mut self,
        snapshot: &dyn Snapshot,
        last: u64,
        sealed: Option<&SealedRow>,
        verdict: &mut AuditVerdict,
    ) -> Result<()> {
        let root = merkle(&std::mem::take(&mut self.run));
        self.roots.push(root);
        let key = keys::number(last - RUN + 1);
        let Some(bytes) = snapshot.get(CHECKPOINTS, &key)? else {
            if sealed.is_none_or(|sealed| sealed.covered >= last || sealed.records >= last + RUN) {
                verdict.findings.push(format!("the checkpoint over records {} to {last} is missing", last - RUN + 1));
            }
            return Ok(());
        };
        let row: CheckpointRow = decode(CHECKPOINTS, &key, &bytes)?;
        let signed = UnparsedPublicKey::new(&ED25519, self.store.signing().public())
            .verify(&checkpoint_message(self.store.id(), last, &row.link, &row.root), &row.signature)
            .is_ok();
        if !signed || row.last != last || row.link != self.previous || row.root != root {
            verdict.findings.push(format!("records {} to {last} are not those of their checkpoint", last - RUN + 1));
        } else {
            verdict.checkpoints += 1;
        }
        Ok(())
    }
}

/// Checks that the log reaches as far as when its end was signed, and as when the anchor was taken.
fn check_reach(last: u64, sealed: Option<&SealedRow>, anchor: Option<&SignedHead>, verdict: &mut AuditVerdict) {
    if let Some(sealed) = sealed.filter(|sealed| sealed.records > last) {
        let signed = sealed.records;
        let finding = format!("the log was signed up to record {signed}, it ends at {last}: its end was cut");
        verdict.findings.push(finding);
    }
    if let Some(anchor) = anchor.filter(|anchor| anchor.records > last) {
        verdict.findings.push(format!(
            "the anchor was taken at record {}, the log ends at {last}: its end was cut, or the store set back",
            anchor.records
        ));
    }
}

fn check_signature(store: &Store, head: &SignedHead) -> Result<(), String> {
    check_head(store.id(), store.signing(), head)
}

/// Whether this store signed the head.
pub(crate) fn check_head(store: &[u8; 16], signing: &Signing, head: &SignedHead) -> Result<(), String> {
    if head.store != to_hex(store) {
        return Err(format!("the anchor is of store {}, this is {}", head.store, to_hex(store)));
    }
    if head.public_key != to_hex(signing.public()) {
        return Err("another key than this store's signed the anchor".into());
    }
    match head.is_signed_by(signing.public()) {
        true => Ok(()),
        false => Err("the anchor's signature is not valid: it was changed".into()),
    }
}
