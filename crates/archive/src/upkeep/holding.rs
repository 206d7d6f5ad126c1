//! Jobs of matters: a selection is put under its matter or released from it, page by page.
//!
//! Each version's change is a transaction of its own, and the cursor follows once a page is done.
//! After a crash the page is repeated, which changes nothing twice. Memory: one page of rows.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use stele_catalog::{Direction, KeyRange, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Caller;
use crate::record::matter::{Counts, Job, JobKind, MatterRow, ProgressRow};
use crate::record::version::{VersionRef, VersionRow};
use crate::record::{MATTER_HOLDS, MATTER_PROGRESS, MATTERS, VERSIONS, decode, encode, fetch, keys};
use crate::retention::holding::{HOLDING, Held, OnBehalf, selects};
use crate::store::Store;
use crate::upkeep::background::StepReport;

/// Versions that one step of a job looks at.
const JOB_PAGE: usize = 1000;

impl Store {
    /// Processes a page of each job.
    pub(crate) async fn hold_step(self: &Arc<Store>, report: &mut StepReport) -> Result<()> {
        if !self.upkeep().take_holds_due() {
            return Ok(());
        }
        let rows = self.snapshot()?.range(MATTERS, &KeyRange::all(), usize::MAX, Direction::Forward)?;
        for (key, raw) in rows {
            let row: MatterRow = decode(MATTERS, &key, &raw)?;
            if row.running().is_none() {
                continue;
            }
            // Also where this fails: a later step continues.
            self.upkeep().holds_are_due();
            let name = String::from_utf8_lossy(&key).into_owned();
            match self.hold_page(&name, row, report).await {
                Err(ArchiveError::NoSpace(message)) => {
                    report.alarms.push(Alarm::new(AlarmKind::Space, format!("the matter `{name}`: {message}")));
                }
                done => done?,
            }
        }
        Ok(())
    }

    async fn hold_page(self: &Arc<Store>, name: &str, row: MatterRow, report: &mut StepReport) -> Result<()> {
        let Some(job) = row.running().cloned() else { return Ok(()) };
        let on = job.kind == JobKind::Put;
        // While the matter `rebuild` stands, nothing is released.
        if !on && self.doubt().is_some() {
            return Ok(());
        }
        let progress: Option<ProgressRow> = fetch(&*self.snapshot()?, MATTER_PROGRESS, name.as_bytes())?;
        let progress = progress.filter(|progress| progress.job == job.number);
        let (cursor, mut counts) = progress.map_or((None, Counts::default()), |progress| {
            (progress.cursor.map(|cursor| Bytes::from(Vec::from(cursor))), progress.counts)
        });
        if job.kind == JobKind::Release
            && let Err(error) = self.while_officer(Transaction::new(), &job.by)
        {
            counts.failure.get_or_insert(error.to_string());
            return self.end_job(name, row, counts).await;
        }
        let (versions, next, seen) = match job.kind {
            JobKind::Close => self.held_page(name, cursor.clone())?,
            _ => self.selected_page(&job, cursor.clone())?,
        };
        let caller = Caller::system("matters");
        let asked = format!(", asked for by {}", job.by);
        let officer = Some(&job.by).filter(|_| job.kind == JobKind::Release);
        let began = Some(job.number).filter(|_| job.kind == JobKind::Release);
        let changes = versions.into_iter().map(|at| {
            let (caller, behalf) = (&caller, OnBehalf { officer, says: &asked, began });
            async move {
                let Some(bucket) = self.buckets().by_number(at.bucket) else { return Ok(Held::Gone) };
                self.hold_version(caller, &bucket, name, &at, on, behalf).await
            }
        });
        let mut changes = futures_util::stream::iter(changes).buffer_unordered(HOLDING);
        let (mut again, mut since) = (false, 0);
        while let Some(changed) = changes.next().await {
            match changed {
                Ok(Held::Changed) => {
                    counts.changed += 1;
                    report.held += 1;
                }
                Ok(Held::Unchanged | Held::Gone) => {}
                Ok(Held::Since) => since += 1,
                Err(error @ (ArchiveError::Stopped(_) | ArchiveError::NoSpace(_))) => return Err(error),
                // Others change much just now. A version that is left out would not be held.
                Err(ArchiveError::Busy(_) | ArchiveError::Conflict(_)) => again = true,
                Err(error) => {
                    counts.failed += 1;
                    counts.failure.get_or_insert(error.to_string());
                }
            }
        }
        drop(changes);
        if again {
            // The next step tries the page once more, without haste. What has changed already is
            // not counted twice.
            return self.store_progress(name, job.number, cursor, counts).await;
        }
        counts.seen += seen;
        // Counted with the page: a page that is tried again finds them again.
        if since > 0 {
            *counts.held_since.get_or_insert(0) += since;
        }
        let left = KeyRange::prefix(keys::all_under(name));
        if next.is_none() {
            let held = || {
                Ok::<_, ArchiveError>(!self.snapshot()?.range(MATTER_HOLDS, &left, 1, Direction::Forward)?.is_empty())
            };
            if job.kind != JobKind::Close || !held()? {
                report.more = true;
                return self.end_job(name, row, counts).await;
            }
            // Some version could not be released yet. The next step begins anew, without haste.
        } else {
            report.more = true;
        }
        self.store_progress(name, job.number, next, counts).await
    }

    async fn store_progress(&self, name: &str, job: u64, cursor: Option<Bytes>, counts: Counts) -> Result<()> {
        let progress = ProgressRow { job, cursor: cursor.map(|key| key.to_vec().into()), counts };
        let transaction = Transaction::new().with_reserve().put(MATTER_PROGRESS, name.to_string(), encode(&progress));
        self.catalog().commit(transaction).await?;
        Ok(())
    }

    /// The versions of a page that a job's selection has, and where the next page begins.
    fn selected_page(&self, job: &Job, after: Option<Bytes>) -> Result<(Vec<VersionRef>, Option<Bytes>, u64)> {
        let (rows, next) = self.version_page(job.bucket, &job.selection.prefix, after, JOB_PAGE)?;
        let mut selected = Vec::new();
        for (record_key, value) in &rows {
            let row: VersionRow = decode(VERSIONS, record_key, value)?;
            let (bucket, key, inverted) = keys::split(record_key)?;
            if !inverted < job.below && selects(&job.selection, &row) {
                selected.push(VersionRef { bucket, key, number: !inverted });
            }
        }
        Ok((selected, next, rows.len() as u64))
    }

    fn held_page(&self, name: &str, after: Option<Bytes>) -> Result<(Vec<VersionRef>, Option<Bytes>, u64)> {
        let range = KeyRange::prefix(keys::all_under(name));
        let range = match after {
            Some(after) => range.after(after),
            None => range,
        };
        let rows = self.snapshot()?.range(MATTER_HOLDS, &range, JOB_PAGE, Direction::Forward)?;
        let next = rows.last().filter(|_| rows.len() == JOB_PAGE).map(|(key, _)| key.clone());
        let held: Result<Vec<VersionRef>> = rows.iter().map(|(key, value)| decode(MATTER_HOLDS, key, value)).collect();
        Ok((held?, next, rows.len() as u64))
    }

    async fn end_job(self: &Arc<Store>, name: &str, before: MatterRow, counts: Counts) -> Result<()> {
        let lock = self.lock_named::<MatterRow>(name).await?;
        let Some(raw) = self.snapshot()?.get(MATTERS, name.as_bytes())? else { return Ok(()) };
        let mut row: MatterRow = decode(MATTERS, name.as_bytes(), &raw)?;
        let is_it = |job: &Job| before.job.as_ref().is_some_and(|ended| ended.number == job.number);
        let mut transaction =
            Transaction::new().equals(MATTERS, name.to_string(), raw).delete(MATTER_PROGRESS, name.to_string());
        let Some(job) = row.job.as_mut().filter(|job| job.ended.is_none() && is_it(job)) else { return Ok(()) };
        let failure =
            counts.failure.as_ref().map_or(String::new(), |failure| format!("; the first failure: {failure}"));
        let since = counts.held_since.map_or(String::new(), |count| format!(", {count} held anew since it began"));
        let done = format!(
            "the {} of the matter `{name}` has ended, asked for by {}: {} versions seen, {} changed, {} failed{since}{failure}",
            job.kind.word(),
            job.by,
            counts.seen,
            counts.changed,
            counts.failed
        );
        (job.ended, job.counts) = (Some(self.wall()), counts);
        if job.kind == JobKind::Close {
            row.closed = Some(self.wall());
            transaction = transaction.empty(MATTER_HOLDS, KeyRange::prefix(keys::all_under(name)));
        }
        let event = Event::new(&Caller::system("matters"), Action::Matter).detail(done);
        let answer = self.write_named(name, row, transaction.with_reserve(), Some(event), lock).await?;
        self.compensated(answer).await
    }
}
