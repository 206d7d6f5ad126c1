//! The rules of retention: which versions may be deleted, and which changes weaken their
//! protection.
//!
//! Every refusal of a deletion or of a weaker retention is decided here.

use crate::model::act::People;
use crate::model::bucket::Protection;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::model::time::Timestamp;
use crate::model::version::{Retention, RetentionMode};
use crate::state::buckets::Bucket;
use crate::store::Store;
use crate::store::lookup::Found;

/// The cause of a removal. It decides which rules apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A client asked to delete this version. `bypass`: and to bypass GOVERNANCE.
    Requested { bypass: bool },
    /// Two retention officers decided to delete this version in spite of GOVERNANCE.
    Approved,
    /// A new null version replaces it.
    Replaced,
    /// Its retention has passed, and its bucket deletes expired versions.
    Expired,
    /// A lifecycle rule of its bucket ends it by its age.
    Aged,
}

/// Refuses to remove the version if retention or a hold forbids that now. No other code decides
/// this.
pub(crate) fn judge(
    bucket: &Bucket,
    key: &str,
    found: &Found,
    caller: &Caller,
    cause: Cause,
    now: Timestamp,
) -> Result<()> {
    let refuse = |message: String| Err(retained(bucket, key, found, message));
    let what = format!("`{}/{key}` version {}", bucket.name(), found.id());
    if let Some(holds) = holds_in_words(found) {
        return refuse(format!("{what} is under {holds}; it can be deleted only after that is released"));
    }
    if let Some(mark) = found.row.class.as_ref().filter(|mark| mark.awaits_event()) {
        return refuse(format!(
            "{what} waits for the event from which the retention of its class `{}` counts; no caller can delete it before",
            mark.name
        ));
    }
    let Some(retention) = found.row.retention.filter(|retention| retention.until > now) else { return Ok(()) };
    let message = format!("{what} is retained in {} mode until {}", retention.mode, retention.until);
    match (retention.mode, cause) {
        (RetentionMode::Compliance, _) => {
            refuse(format!("{message} on the compliance clock, which shows {now}; no caller can delete it before"))
        }
        (RetentionMode::Governance, _) if bucket.row.protection == Protection::Compliance => {
            refuse(format!("{message}; the bucket's protection level allows no deletion before"))
        }
        (RetentionMode::Governance, Cause::Approved) => Ok(()),
        (RetentionMode::Governance, Cause::Requested { bypass: true }) if caller.rights.bypass_governance => Ok(()),
        (RetentionMode::Governance, Cause::Requested { bypass: true }) => {
            refuse(format!("{message}, and {} has no permission to bypass it", caller.actor))
        }
        (RetentionMode::Governance, _) => {
            refuse(format!("{message}; bypassing it takes an explicit request and the permission"))
        }
    }
}

/// The holds of a version in words: S3's legal hold and named matters. None: there are none.
pub(crate) fn holds_in_words(found: &Found) -> Option<String> {
    let named: Vec<String> = found.row.matters.iter().flatten().map(|name| format!("`{name}`")).collect();
    let named = match named.len() {
        0 => None,
        1 => Some(format!("the matter {}", named.join(""))),
        _ => Some(format!("the matters {}", named.join(", "))),
    };
    match (found.row.hold, named) {
        (false, named) => named,
        (true, None) => Some("legal hold".into()),
        (true, Some(named)) => Some(format!("legal hold and {named}")),
    }
}

/// The refusal of a change that the version's retention, its hold or the matter `rebuild` forbids.
pub(crate) fn retained(bucket: &Bucket, key: &str, found: &Found, message: String) -> ArchiveError {
    ArchiveError::Retained {
        bucket: bucket.name().into(),
        key: key.into(),
        version: found.id(),
        mode: found.row.retention.map(|retention| retention.mode),
        until: found.row.retention.map(|retention| retention.until),
        legal_hold: found.row.is_held(),
        message,
    }
}

/// The retention and hold of a new version: those of the request, or the bucket's default.
pub(crate) fn initial_retention(
    store: &Store,
    caller: &Caller,
    bucket: &Bucket,
    key: &str,
    retention: Option<Retention>,
    hold: bool,
) -> Result<(Option<Retention>, bool)> {
    let granted = granted_retention(store, caller, bucket, key, retention, hold)?;
    if let Some(retention) = retention {
        // What is appended to a committed file is under the file's own retention, which ends by the
        // compliance clock.
        let by_commit = is_by_commit(caller, bucket);
        check_future(retention, if by_commit { store.compliance_now() } else { store.later_now() })?;
    }
    Ok(granted)
}

/// The same for an upload that is complete now, and the date that it asked for, where that binds.
/// The date was judged when the upload began. One that the compliance clock has passed since binds
/// nothing any more. One that only the wall clock has passed binds: setting that clock takes no
/// retention away.
pub(crate) fn completed_retention(
    store: &Store,
    caller: &Caller,
    bucket: &Bucket,
    key: &str,
    (asked, hold): (Option<Retention>, bool),
) -> Result<(Option<Retention>, Option<Retention>, bool)> {
    let asked = asked.filter(|retention| retention.until > store.compliance_now());
    let (retention, hold) = granted_retention(store, caller, bucket, key, asked, hold)?;
    Ok((asked, retention, hold))
}

/// Storing the content of a file of a share gives it no retention: it is under one from its commit
/// on, which names the date. An S3 client has no other way to commit: the default is for what it
/// stores, as in any bucket.
fn is_by_commit(caller: &Caller, bucket: &Bucket) -> bool {
    bucket.row.is_share() && caller.path.is_none()
}

fn granted_retention(
    store: &Store,
    caller: &Caller,
    bucket: &Bucket,
    key: &str,
    asked: Option<Retention>,
    hold: bool,
) -> Result<(Option<Retention>, bool)> {
    if asked.is_some() || hold {
        require_lock(bucket)?;
        bucket.authorize(caller, Access::Retain, key)?;
    }
    // By the later clock. A retention that counted from the lagging one would end too early.
    let now = store.later_now();
    let default = bucket.row.lock.and_then(|lock| lock.default).filter(|_| !is_by_commit(caller, bucket));
    let default = default.map(|default| {
        let until = now.plus_days(default.period.days()).min(Timestamp::LATEST);
        Retention { mode: default.mode, until }
    });
    let retention = match (asked, default) {
        // Of a date that the wall clock has passed, and the default, the stronger part of each.
        (Some(asked), Some(default)) if asked.until <= now => {
            Some(Retention { mode: asked.mode.max(default.mode), until: asked.until.max(default.until) })
        }
        (asked, default) => asked.or(default),
    };
    Ok((retention.map(|retention| at_bucket_level(bucket, retention)), hold))
}

/// In a bucket of level `compliance` every retention is COMPLIANCE.
pub(crate) fn at_bucket_level(bucket: &Bucket, retention: Retention) -> Retention {
    match bucket.row.protection {
        Protection::Compliance => Retention { mode: RetentionMode::Compliance, ..retention },
        _ => retention,
    }
}

/// Whether a request keeps the version for longer than now. Level `compliance` makes COMPLIANCE of
/// GOVERNANCE, so that a date extends a retention whatever mode it comes with. A request that asks
/// for a bypass and extends nothing is judged by the mode that it names: it asks for a weaker one,
/// and no answer may say that it was done.
pub(crate) fn is_later(found: &Found, asked: Option<Retention>) -> bool {
    match (found.row.retention, asked) {
        (Some(before), Some(asked)) => asked.until > before.until,
        (None, _) => true,
        (Some(_), None) => false,
    }
}

pub(crate) fn require_lock(bucket: &Bucket) -> Result<()> {
    match bucket.row.lock {
        Some(_) => Ok(()),
        None => {
            Err(ArchiveError::InvalidRequest(format!("bucket `{}` has no Object Lock; enable it first", bucket.name())))
        }
    }
}

pub(crate) fn check_future(retention: Retention, now: Timestamp) -> Result<()> {
    if retention.until > Timestamp::LATEST {
        return Err(ArchiveError::InvalidArgument(format!(
            "the retention's end is after {}, the latest date that can be stated; use a legal hold, which has no end",
            Timestamp::LATEST
        )));
    }
    if retention.until <= now {
        return Err(ArchiveError::InvalidArgument(format!(
            "the retention's end {} has passed: it is {now}",
            retention.until
        )));
    }
    Ok(())
}

/// The rules for changing the retention of a stored version. A stronger one is always allowed; a
/// weaker one is the exception. `people`: how many a bypass takes. Level `basic` lets a caller
/// shorten GOVERNANCE without asking for a bypass, which is one all the same: it counts only while
/// a bypass takes one person.
pub(crate) fn judge_change(
    bucket: &Bucket,
    caller: &Caller,
    found: &Found,
    after: Option<Retention>,
    (bypass, people): (bool, People),
    now: Timestamp,
) -> Result<(), String> {
    let Some(before) = found.row.retention.filter(|retention| retention.until > now) else { return Ok(()) };
    let longer = after.is_some_and(|after| after.mode == before.mode && after.until >= before.until);
    if longer {
        return Ok(());
    }
    if found.row.awaits_event() {
        return Err("its class keeps it until an event is told; no caller can shorten or lift that".into());
    }
    let stronger = after.is_some_and(|after| after.mode == RetentionMode::Compliance && after.until >= before.until);
    let one = people == People::One;
    match before.mode {
        RetentionMode::Compliance => Err(format!(
            "it is retained in COMPLIANCE mode until {}; no caller can shorten or lift that, or change the mode",
            before.until
        )),
        RetentionMode::Governance if bucket.row.protection == Protection::Compliance => match stronger {
            true => Ok(()),
            false => Err(format!(
                "it is retained until {}, and the bucket's protection level allows no weaker retention",
                before.until
            )),
        },
        RetentionMode::Governance if bucket.row.protection == Protection::Basic && (one || stronger) => Ok(()),
        // With two officers or none, the bypass of a client does not count.
        RetentionMode::Governance if !one => Err(format!(
            "it is retained in GOVERNANCE mode until {}, and no single caller bypasses that any more: officers decided so",
            before.until
        )),
        RetentionMode::Governance if bypass && caller.rights.bypass_governance => Ok(()),
        RetentionMode::Governance if bypass => Err(format!(
            "it is retained in GOVERNANCE mode until {}, and {} may not bypass that",
            before.until, caller.actor
        )),
        RetentionMode::Governance => Err(format!(
            "it is retained in GOVERNANCE mode until {}; changing that takes an explicit bypass and the permission",
            before.until
        )),
    }
}
