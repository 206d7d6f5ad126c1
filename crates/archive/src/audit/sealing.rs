//! Signs the end of the log and its checkpoints. The signature shows a log that was changed and
//! chained again.
//!
//! The chain itself needs no secret: a program that can write the catalog can change a record and
//! chain all later ones again. Background work therefore signs the end of the log whenever it has
//! grown, after walking from the last signed end to the new one. Everything before a signed end is
//! fixed. A log with another link there, or without its checkpoint, fails every verification and is
//! not signed again. A log that was set back together with its signed end is found only by a head
//! that was kept elsewhere.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use stele_catalog::{Catalog, Direction, Head, KeyRange, Snapshot, Transaction, link};

use crate::audit::chain::{Link, RUN, checkpoint_message, last_link, merkle, number_of, roots};
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::error::{ArchiveError, Result};
use crate::record::audit::{AuditNote, CheckpointRow, SealedRow};
use crate::record::settings::{AUDIT_HEAD, AUDIT_NOTED, AUDIT_SEALED, ReservedRow};
use crate::record::{AUDIT, CHECKPOINTS, SETTINGS, encode, fetch, keys};
use crate::space::header::Kind;
use crate::store::Store;
use crate::store::signing::Signing;

const PAGE: usize = 1024;
/// Records walked towards a new signed end in one pass.
const WALK_MAX: u64 = 16_384;
/// Bytes of records in one note.
const NOTE_MAX: usize = 48 << 10;

impl SealedRow {
    /// The signed end of an empty log.
    pub fn first(signing: &Signing, store: &[u8; 16]) -> SealedRow {
        SealedRow::new(signing, store, Head::default(), 0)
    }

    fn new(signing: &Signing, store: &[u8; 16], head: Head, covered: u64) -> SealedRow {
        let mut row = SealedRow { records: head.count, link: head.link, covered, signature: Vec::new() };
        row.signature = signing.sign(&row.message(store));
        row
    }

    fn message(&self, store: &[u8; 16]) -> Vec<u8> {
        let (records, covered) = (self.records.to_be_bytes(), self.covered.to_be_bytes());
        [b"stele audit end 1".as_slice(), store, &records, &covered, &self.link].concat()
    }

    pub fn is_signed(&self, signing: &Signing, store: &[u8; 16]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, signing.public());
        key.verify(&self.message(store), &self.signature).is_ok()
    }
}

/// The stored signed end, if it is genuine. Err: the finding.
pub(crate) fn sealed(store: &Store, snapshot: &dyn Snapshot) -> Result<Result<SealedRow, String>> {
    let head = Head::decode(snapshot.get(SETTINGS, AUDIT_HEAD)?.as_deref())?;
    Ok(match fetch::<SealedRow>(snapshot, SETTINGS, AUDIT_SEALED)? {
        Some(row) if row.is_signed(store.signing(), store.id()) => Ok(row),
        Some(_) => Err("the signed end of the log was changed: this store did not sign it".into()),
        None if head.count == 0 => Ok(SealedRow::first(store.signing(), store.id())),
        None => Err("the signed end of the log is missing: it was removed".into()),
    })
}

impl Store {
    /// Signs the end of the audit log. Returns the number of checkpoints written, and an alarm for
    /// the first refusal to sign.
    pub(crate) async fn seal_step(&self) -> Result<(u64, Option<Alarm>)> {
        match self.seal_audit().await? {
            Ok(checkpoints) => {
                self.audit_end().clear_finding();
                Ok((checkpoints as u64, None))
            }
            Err(finding) => {
                let message = format!("audit log: {finding}; the log is not signed any more, run `stele audit verify`");
                let news = self.audit_end().note_finding(&message);
                Ok((0, news.then(|| Alarm::new(AlarmKind::Audit, message))))
            }
        }
    }

    /// As `seal_step`, at an opening or a close: a full volume hinders neither.
    pub(crate) async fn seal_if_there_is_room(&self) -> Result<Option<Alarm>> {
        match self.seal_step().await {
            // The catalog has the records. They are noted once there is room.
            Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                tracing::warn!("the audit log could not be noted on the data volume: {error}");
                Ok(None)
            }
            sealed => sealed.map(|(_, alarm)| alarm),
        }
    }

    /// Signs the end of the log if it has grown, and writes the checkpoints that are due. Returns
    /// their number. The inner error says why the log is not the one that was signed.
    pub async fn seal_audit(&self) -> Result<Result<usize, String>> {
        let mut written = 0;
        loop {
            let snapshot = self.snapshot()?;
            let head = Head::decode(snapshot.get(SETTINGS, AUDIT_HEAD)?.as_deref())?;
            let row = match sealed(self, &*snapshot)? {
                Ok(row) => row,
                Err(finding) => return Ok(Err(finding)),
            };
            // The end that this session signed counts even if the catalog was set back while the
            // store was open.
            let known = self.audit_end().signed().filter(|known| known.records > row.records);
            if let Some(known) = known {
                return Ok(Err(format!(
                    "the log was signed up to record {}, the catalog says {}: it was set back",
                    known.records, row.records
                )));
            }
            let end = match self.walk_on(&*snapshot, &row, &head)? {
                Ok(end) => end,
                Err(finding) => return Ok(Err(finding)),
            };
            let (checkpoints, covered) = roots(&*snapshot)?;
            if covered != row.covered || checkpoints.len() as u64 * RUN != covered {
                return Ok(Err(format!(
                    "checkpoints were signed up to record {}, but the catalog has {} and they end at {covered}",
                    row.covered,
                    checkpoints.len()
                )));
            }
            let due = end.count >= covered + RUN;
            if !due && end.count == row.records {
                self.audit_end().note_signed(row);
                return Ok(Ok(written));
            }
            let mut transaction = Transaction::new().with_reserve();
            let mut covers = covered;
            if due {
                let page = snapshot.range(
                    AUDIT,
                    &KeyRange::all().after(keys::number(covered)),
                    RUN as usize,
                    Direction::Forward,
                )?;
                let checkpoint = match run_checkpoint(self.signing(), self.id(), &*snapshot, covered, &page)? {
                    Ok(checkpoint) => checkpoint,
                    Err(finding) => return Ok(Err(finding)),
                };
                transaction = self.note_audit(transaction, checkpoint.last).await?;
                covers = checkpoint.last;
                transaction = transaction.put(CHECKPOINTS, keys::number(covered + 1), encode(&checkpoint));
                written += 1;
            }
            let sealed = SealedRow::new(self.signing(), self.id(), end, covers);
            transaction = transaction.put(SETTINGS, AUDIT_SEALED, encode(&sealed));
            self.catalog().commit(transaction).await?;
            self.audit_end().note_signed(sealed);
        }
    }

    /// The end of the chain, at most `WALK_MAX` records behind the signed end, if it follows from
    /// that end.
    fn walk_on(&self, snapshot: &dyn Snapshot, row: &SealedRow, head: &Head) -> Result<Result<Head, String>> {
        let mut end = Head { count: row.records, link: row.link };
        while end.count < head.count && end.count < row.records + WALK_MAX {
            let page =
                snapshot.range(AUDIT, &KeyRange::all().after(keys::number(end.count)), PAGE, Direction::Forward)?;
            for (key, value) in &page {
                let number = number_of(key);
                if number != end.count + 1 {
                    break;
                }
                end = Head { count: number, link: link(&end.link, number, value) };
            }
            if page.is_empty() || page.last().is_some_and(|(key, _)| number_of(key) != end.count) {
                return Ok(Err(format!("record {} of the log is missing", end.count + 1)));
            }
        }
        let reached = end.count >= head.count;
        Ok(match reached && end != *head {
            true => Err(format!(
                "the log up to record {} does not follow from its signed end at record {}: it was changed",
                head.count, row.records
            )),
            false => Ok(end),
        })
    }

    /// Notes records up to `last` on the data volume where they are not noted yet, so that a
    /// rebuilt catalog has them. A crash before the commit makes the next pass note them again,
    /// which is harmless.
    async fn note_audit(&self, transaction: Transaction, last: u64) -> Result<Transaction> {
        let snapshot = self.snapshot()?;
        let below = fetch::<ReservedRow>(&*snapshot, SETTINGS, AUDIT_NOTED)?.map(|row| row.below);
        // A log without this row was begun by an older version, which noted full runs only.
        let mut noted = below.map_or_else(|| roots(&*snapshot).map(|(_, covered)| covered), |below| Ok(below - 1))?;
        while noted < last {
            let limit = usize::try_from(last - noted).unwrap_or(PAGE).min(PAGE);
            let page = snapshot.range(AUDIT, &KeyRange::all().after(keys::number(noted)), limit, Direction::Forward)?;
            let Some((end, _)) = page.last() else { break };
            let mut note = AuditNote { first: noted + 1, values: Vec::new() };
            let mut length = 0;
            for (key, value) in &page {
                if length + value.len() > NOTE_MAX && !note.values.is_empty() {
                    let place = self.note(Kind::Audit, None, 0, &note).await?;
                    self.segments().add_kept(place);
                    (note, length) = (AuditNote { first: number_of(key), values: Vec::new() }, 0);
                }
                length += value.len();
                note.values.push(value.to_vec().into());
            }
            let place = self.note(Kind::Audit, None, 0, &note).await?;
            self.segments().add_kept(place);
            noted = number_of(end);
        }
        Ok(transaction.put(SETTINGS, AUDIT_NOTED, encode(&ReservedRow { below: noted + 1 })))
    }

    /// Notes the records behind the last full run, so that a rebuild after an orderly close finds
    /// the whole log.
    pub async fn note_audit_end(&self) -> Result<()> {
        let Some(sealed) = self.audit_end().signed() else { return Ok(()) };
        match self.note_audit(Transaction::new().with_reserve(), sealed.records).await {
            Ok(transaction) => Ok(self.catalog().commit(transaction).await.map(drop)?),
            // The catalog has these records. Only a rebuild needs them here.
            Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                tracing::warn!("the end of the audit log could not be noted on the data volume: {error}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The checkpoint over the run behind `covered`.
fn run_checkpoint(
    signing: &Signing,
    store: &[u8; 16],
    snapshot: &dyn Snapshot,
    covered: u64,
    page: &[stele_catalog::Record],
) -> Result<Result<CheckpointRow, String>> {
    let mut previous = last_link(snapshot, covered)?;
    let links: Vec<Link> = page
        .iter()
        .map(|(key, value)| {
            previous = link(&previous, number_of(key), value);
            previous
        })
        .collect();
    let (last, root) = (covered + RUN, merkle(&links));
    if links.len() as u64 != RUN || page.last().is_none_or(|(key, _)| number_of(key) != last) {
        return Ok(Err(format!("records of the log are missing between {} and {last}", covered + 1)));
    }
    let signature = signing.sign(&checkpoint_message(store, last, &previous, &root));
    Ok(Ok(CheckpointRow { last, link: previous, root, signature }))
}

/// Signs a log that a rebuild has just filled. Its records come from notes that are sealed under
/// the master key.
pub(crate) async fn sign_rebuilt(catalog: &dyn Catalog, signing: &Signing, store: &[u8; 16]) -> Result<()> {
    let mut covered = 0;
    loop {
        let snapshot = catalog.snapshot()?;
        let page =
            snapshot.range(AUDIT, &KeyRange::all().after(keys::number(covered)), RUN as usize, Direction::Forward)?;
        if page.len() as u64 == RUN {
            let checkpoint = run_checkpoint(signing, store, &*snapshot, covered, &page)?
                .map_err(|finding| ArchiveError::damaged("the audit log", finding))?;
            let key = keys::number(covered + 1);
            covered = checkpoint.last;
            catalog.commit(Transaction::new().with_reserve().put(CHECKPOINTS, key, encode(&checkpoint))).await?;
            continue;
        }
        let head = Head::decode(snapshot.get(SETTINGS, AUDIT_HEAD)?.as_deref())?;
        let sealed = encode(&SealedRow::new(signing, store, head, covered));
        let noted = encode(&ReservedRow { below: head.count + 1 });
        let transaction = Transaction::new().with_reserve().put(SETTINGS, AUDIT_SEALED, sealed);
        catalog.commit(transaction.put(SETTINGS, AUDIT_NOTED, noted)).await?;
        return Ok(());
    }
}
