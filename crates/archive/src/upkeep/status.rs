//! The standing alarms and the use of space, for operators.

use serde::{Deserialize, Serialize};

use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::error::Result;
use crate::model::pairing::Paired;
use crate::store::Archive;

/// The use of space, for operators.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpaceStatus {
    pub segment_bytes: u64,
    pub segments: u32,
    pub free: u32,
    pub sealed: u32,
    pub key_segments: u32,
    /// Bytes in segments that are still needed, approximately.
    pub live: u64,
    /// Segments with unreadable places, which stay as they are.
    pub unmovable: Vec<u32>,
}

impl Archive {
    /// The alarms that stand until their cause is removed.
    pub fn standing_alarms(&self) -> Vec<Alarm> {
        let store = &self.store();
        let mut alarms = Vec::new();
        store.compliance_now();
        if let Some(reason) = store.frozen() {
            alarms.push(Alarm::new(AlarmKind::Clock, format!("{reason}; {}", store.frozen_until())));
        }
        alarms.extend(store.pause_alarm());
        alarms.extend(store.audit_end().finding().map(|finding| Alarm::new(AlarmKind::Audit, finding)));
        alarms.extend(store.disposal_alarm());
        alarms.extend(store.officer_alarms());
        alarms.extend(store.refusal_alarm());
        alarms.extend(store.upkeep().self_test_finding().map(|finding| Alarm::new(AlarmKind::SelfTest, finding)));
        alarms.extend(self.notification_alarm());
        alarms.extend(self.inventory_alarm());
        if let Paired::CatalogOlder(why) | Paired::No(why) = &store.paired() {
            alarms.push(Alarm::new(AlarmKind::Pairing, why));
        }
        if let Some(doubt) = store.doubt() {
            let places = doubt.places.join("; ");
            let message = format!(
                "the catalog was rebuilt at {} while something could not be read ({places}); all that existed is held under \
                 the matter `rebuild`, its access keys are suspended, and nothing is reclaimed",
                doubt.since
            );
            alarms.push(Alarm::new(AlarmKind::Rebuild, message));
        }
        let unmovable = store.upkeep().unmovable();
        if !unmovable.is_empty() {
            let numbers: Vec<String> = unmovable.iter().map(ToString::to_string).collect();
            let numbers = numbers.join(", ");
            let message =
                format!("segments {numbers} have places that cannot be read; they stay as they are, scrub the pool");
            alarms.push(Alarm::new(AlarmKind::Damage, message));
        }
        let bad = store.keys().bad_blocks();
        if bad > 0 {
            let message = format!("{bad} blocks of the key table cannot be read or written; new keys go elsewhere");
            alarms.push(Alarm::new(AlarmKind::Damage, message));
        }
        alarms
    }

    pub fn is_read_only(&self) -> bool {
        self.store().is_read_only()
    }

    /// Refuses where the store was opened for reading only.
    pub fn writable(&self) -> Result<()> {
        self.store().writable()
    }

    /// How many keys were destroyed since the archive was opened.
    pub fn keys_destroyed(&self) -> u64 {
        self.store().keys().destroyed()
    }

    pub fn space(&self) -> SpaceStatus {
        use crate::record::segment::SegmentUse;
        let store = self.store();
        let segments = store.segments();
        let rows = segments.rows();
        let count = |wanted: fn(&SegmentUse) -> bool| rows.values().filter(|row| wanted(&row.usage)).count() as u32;
        SpaceStatus {
            segment_bytes: segments.size.into(),
            segments: segments.count(),
            free: segments.free() as u32,
            sealed: count(|usage| *usage == SegmentUse::Sealed),
            key_segments: count(|usage| matches!(usage, SegmentUse::Keys(_))) + 1,
            live: rows.values().map(|row| u64::try_from(row.live).unwrap_or(0)).sum(),
            unmovable: self.store().upkeep().unmovable().into_iter().collect(),
        }
    }
}
