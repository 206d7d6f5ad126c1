//! Explains whether and why a version cannot be deleted.

use serde::{Deserialize, Serialize};
use stele_ground::counted;

use crate::audit::Event;
use crate::model::act::{Act, People};
use crate::model::action::Action;
use crate::model::bucket::{Protection, check_key};
use crate::model::error::Result;
use crate::model::principal::{Access, Caller, Role};
use crate::model::time::Timestamp;
use crate::model::version::{Retention, RetentionMode, VersionId};
use crate::record::matter::MatterRow;
use crate::record::{MATTERS, fetch};
use crate::state::buckets::Bucket;
use crate::store::Archive;
use crate::store::lookup::{self, Found};

/// The facts that protect a version from deletion, and the time when they end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Why {
    pub bucket: String,
    pub key: String,
    pub version: String,
    /// It is a delete marker, not content.
    #[serde(default)]
    pub delete_marker: bool,
    /// Whether a delete by version would be refused now.
    pub protected: bool,
    pub mode: Option<String>,
    /// RFC 3339, on the compliance clock.
    pub retained_until: Option<String>,
    pub legal_hold: bool,
    /// The matters it is under, by name; `s3` is the legal hold.
    #[serde(default)]
    pub matters: Vec<String>,
    /// Its management class, and the version of that.
    #[serde(default)]
    pub class: Option<String>,
    #[serde(default)]
    pub class_version: Option<u64>,
    /// What the compliance clock shows now.
    pub compliance_time: String,
    /// The earliest deletion; none while a legal hold or a matter stands.
    pub deletable_from: Option<String>,
    /// One sentence for each rule that applies, with its origin.
    pub reasons: Vec<String>,
}

impl Archive {
    pub async fn why(&self, caller: &Caller, bucket: &str, key: &str, version: Option<VersionId>) -> Result<Why> {
        let store = &self.store();
        check_key(key)?;
        let bucket = store.buckets().by_name(bucket)?;
        let allowed = if caller.has(Role::Auditor) { Ok(()) } else { bucket.authorize(caller, Access::Read, key) };
        store.audited(allowed, || Event::new(caller, Action::Read).object(bucket.name(), key)).await?;
        let snapshot = store.snapshot()?;
        let found = lookup::existing(&*snapshot, &bucket, key, version)?;
        let mut why = explain(&bucket, key, &found, store.people_for(Act::Bypass), store.compliance_now());
        for (place, name) in found.row.matters.iter().flatten().enumerate() {
            let row: Option<MatterRow> = fetch(&*snapshot, MATTERS, name.as_bytes())?;
            why.reasons.insert(place, matter_in_words(name, row.as_ref()));
        }
        if let Err(reason) = store.check_doubt(&bucket) {
            (why.protected, why.deletable_from) = (true, None);
            why.reasons.insert(0, reason);
        }
        Ok(why)
    }
}

fn matter_in_words(name: &str, row: Option<&MatterRow>) -> String {
    let about = match row {
        Some(row) => {
            let closing = if row.closing.is_some() { "; it is being closed" } else { "" };
            format!("opened by {} {}: {}{closing}", row.by, row.opened, row.reason)
        }
        None => "of which the catalog has no record".into(),
    };
    format!(
        "it is under the matter `{name}`, {about}; a matter has no end, and only a retention officer or an administrator of this machine releases a version from it"
    )
}

/// A delete marker has no content and is never retained. The explanation names the versions that it
/// hides.
fn explain_marker(bucket: &Bucket, key: &str, found: &Found, now: Timestamp) -> Why {
    let mut reasons = vec![
        "it is a delete marker: it holds no content, and has no retention and no hold".to_owned(),
        "it deletes nothing: it hides the versions below it, and each of those is kept by its own retention and hold"
            .to_owned(),
    ];
    if found.latest {
        reasons.push("deleting the marker by its version id shows the version below it again".to_owned());
    }
    reasons.push("ask about a version below it by its id: BUCKET/KEY@VERSION".to_owned());
    Why {
        bucket: bucket.name().into(),
        key: key.into(),
        version: found.id().to_string(),
        delete_marker: true,
        protected: false,
        mode: None,
        retained_until: None,
        legal_hold: false,
        matters: Vec::new(),
        class: None,
        class_version: None,
        compliance_time: now.to_string(),
        deletable_from: Some(now.to_string()),
        reasons,
    }
}

/// Which callers a GOVERNANCE retention yields to, by the rule of the act.
fn bypass_in_words(people: People, in_share: bool) -> &'static str {
    match (people, in_share) {
        (People::One, _) => "a caller with the permission may bypass it on explicit request",
        (People::Two, false) => "a bypass takes two officers: `stele disposal delete` asks",
        // Officers delete no version of a share.
        (People::Two, true) => "no single caller bypasses it: officers decided so",
        (People::Off, _) => "the bypass of GOVERNANCE is switched off for good",
    }
}

fn explain(bucket: &Bucket, key: &str, found: &Found, bypass: People, now: Timestamp) -> Why {
    let active = found.row.retention.filter(|retention| retention.until > now);
    let mut reasons = Vec::new();
    if found.row.marker {
        return explain_marker(bucket, key, found, now);
    }
    if found.row.hold {
        reasons.push(
            "a legal hold is on it; a hold has no end, and only a caller with the right to retain releases it".into(),
        );
    }
    if let Some(mark) = &found.row.class {
        reasons.push(format!("its class is `{}`, version {}: {}", mark.name, mark.version, mark.terms));
        match &mark.event {
            Some(event) => reasons.push(format!("its event was {}, told {} by {}", event.at, event.told, event.by)),
            None if mark.awaits_event() => {
                reasons.push("it waits for the event from which its retention counts, and is kept until then".into());
            }
            None => {}
        }
    }
    match (found.row.retention, active) {
        (_, Some(Retention { mode: RetentionMode::Compliance, until })) => reasons.push(format!(
            "COMPLIANCE retention ends {until} on the compliance clock, which shows {now}; no caller can shorten it, it can only be extended"
        )),
        (_, Some(Retention { mode: RetentionMode::Governance, until })) => reasons.push(match bucket.row.protection {
            Protection::Compliance => format!(
                "GOVERNANCE retention ends {until} on the compliance clock, which shows {now}; the bucket's protection level allows no bypass"
            ),
            _ => format!(
                "GOVERNANCE retention ends {until} on the compliance clock, which shows {now}; {}",
                bypass_in_words(bypass, bucket.row.is_share())
            ),
        }),
        (Some(past), None) => reasons.push(format!("its {} retention ended {} and no longer protects it", past.mode, past.until)),
        (None, None) => reasons.push("it has no retention".into()),
    }
    if let Some(default) = bucket.row.lock.and_then(|lock| lock.default).filter(|_| !bucket.row.is_share()) {
        reasons.push(format!(
            "the bucket's default is {} for {}; it applies to a version that names no retention and no class when it is stored, and a change of it does not touch stored versions",
            default.mode,
            counted(default.period.days(), "day")
        ));
    }
    if found.latest && bucket.versioned() && !found.row.marker {
        reasons.push(match bucket.row.is_share() {
            false => "a delete without a version id only adds a delete marker, which is always allowed".into(),
            true => "in a share no delete adds a delete marker: one without a version id removes the name of the file, by the rules of the tree, and is refused while a retention, a hold or a matter keeps the file".into(),
        });
    }
    let held = found.row.is_held();
    let kept = held || found.row.awaits_event();
    let protected = kept || active.is_some();
    Why {
        bucket: bucket.name().into(),
        key: key.into(),
        version: found.id().to_string(),
        delete_marker: false,
        protected,
        mode: active.map(|retention| retention.mode.to_string()),
        retained_until: found.row.retention.map(|retention| retention.until.to_string()),
        legal_hold: found.row.hold,
        matters: found.row.matters().map(str::to_string).collect(),
        class: found.row.class.as_ref().map(|mark| mark.name.clone()),
        class_version: found.row.class.as_ref().map(|mark| mark.version),
        compliance_time: now.to_string(),
        deletable_from: (!kept).then(|| active.map_or(now, |retention| retention.until).to_string()),
        reasons,
    }
}
