//! Classes in a rebuild: their notes, and what versions of objects prove about them.
//!
//! Where places cannot be read, the newest note of a class may be lost, and an older one would make
//! a weaker version of the class active again. Each version of an object has a copy of the class
//! that was active when it was stored. A class therefore becomes no weaker than the strongest copy.
//! Notes of deleted versions count too: an activation had no way back.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::write::Filling;
use crate::model::action::Action;
use crate::model::class::{CLASS_VERSIONS_MAX, ClassTerms};
use crate::model::error::Result;
use crate::model::principal::Actor;
use crate::model::time::Timestamp;
use crate::record::audit::AuditRow;
use crate::record::class::{ClassRow, ClassVersion};
use crate::record::{AUDIT, CLASSES, decode, encode};

/// The terms of a class version in copies, and when the first version of an object with them was
/// stored.
struct Proven {
    terms: ClassTerms,
    stored: Timestamp,
}

/// The versions of one class that were active at some time.
type Copies = BTreeMap<u64, Proven>;

fn is_weaker(terms: &ClassTerms, than: &ClassTerms) -> bool {
    terms.compare(Some(than)).iter().any(|line| line.weaker)
}

impl Filling<'_> {
    pub(super) async fn put_classes(&mut self) -> Result<()> {
        let mut copies = self.copied_classes();
        let mut rows: BTreeMap<String, ClassRow> = BTreeMap::new();
        for (name, (_, row, place)) in &self.survey.classes {
            self.live.push(*place);
            rows.insert(name.clone(), ClassRow { note: *place, ..row.clone() });
        }
        for name in copies.keys() {
            rows.entry(name.clone()).or_default();
        }
        for (name, row) in &mut rows {
            let found = restore(row, copies.remove(name).unwrap_or_default());
            self.survey.findings.extend(found.into_iter().map(|found| format!("class `{name}`: {found}")));
        }
        self.find_lost_activations(&rows);
        for (name, row) in rows {
            self.out.put(CLASSES, Bytes::copy_from_slice(name.as_bytes()), encode(&row)).await?;
        }
        Ok(())
    }

    fn copied_classes(&self) -> BTreeMap<String, Copies> {
        let mut classes: BTreeMap<String, Copies> = BTreeMap::new();
        for mark in self.survey.versions.values().filter_map(|(_, note, _)| note.row.class.as_ref()) {
            // No store has a class with more.
            if mark.version == 0 || mark.version > CLASS_VERSIONS_MAX as u64 {
                continue;
            }
            if !classes.contains_key(&mark.name) {
                classes.insert(mark.name.clone(), Copies::new());
            }
            let Some(copies) = classes.get_mut(&mark.name) else { continue };
            match copies.get_mut(&mark.version) {
                None => {
                    let proven = Proven { terms: mark.terms.clone(), stored: mark.stored };
                    copies.insert(mark.version, proven);
                }
                Some(known) => {
                    known.stored = known.stored.min(mark.stored);
                    // Only after an earlier rebuild with losses has a version two terms.
                    if known.terms != mark.terms && !is_weaker(&mark.terms, &known.terms) {
                        known.terms = mark.terms.clone();
                    }
                }
            }
        }
        classes
    }

    /// An activation may be in the audit log alone: no version of an object was stored since, or
    /// none can be read.
    fn find_lost_activations(&mut self, rows: &BTreeMap<String, ClassRow>) {
        if self.survey.losses.is_empty() {
            return;
        }
        let mut last: BTreeMap<String, String> = BTreeMap::new();
        for (_, value) in self.survey.audit.values() {
            // A record that this version cannot read is none of an activation.
            let Ok(row) = decode::<AuditRow>(AUDIT, &[], value) else { continue };
            let activated = row.detail.as_deref().filter(|_| row.action == Action::Class && row.refused.is_none());
            let activated = activated.and_then(|detail| detail.strip_prefix("activates version "));
            if let Some((name, terms)) =
                activated.and_then(|rest| rest.split_once(" of the class `")?.1.split_once("`: "))
            {
                last.insert(name.into(), terms.into());
            }
        }
        for (name, terms) in last {
            let active = rows.get(&name).and_then(ClassRow::active).map(|(_, version)| version.terms.to_string());
            if active.as_ref() != Some(&terms) {
                let active = active.unwrap_or_else(|| "nothing".into());
                self.survey.findings.push(format!(
                    "class `{name}`: the audit log says that its last activation was of: {terms}. Active now: {active}. If \
                     that is weaker, make and activate the class again: `stele class create`, `stele class activate`"
                ));
            }
        }
    }
}

/// Makes a class no weaker than its copies. Returns what was found.
fn restore(row: &mut ClassRow, copies: Copies) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, proven) in &copies {
        while (row.versions.len() as u64) < *number {
            let missing = row.versions.len() as u64 + 1;
            let of = copies.get(&missing).unwrap_or(proven);
            let description = match copies.contains_key(&missing) {
                true => "a rebuild of the catalog found it in versions of objects, and no record of it".into(),
                false => {
                    format!("a rebuild of the catalog found no record of it; its terms are those of version {number}")
                }
            };
            row.versions.push(found_by_rebuild(of, description));
        }
    }
    for (number, proven) in copies {
        let active = row.active().map(|(_, version)| version.terms.clone());
        match &active {
            Some(active) if !is_weaker(active, &proven.terms) => continue,
            Some(active) if is_weaker(&proven.terms, active) => {
                findings.push(format!(
                    "versions of objects were stored with: {}. The active version is neither stronger nor weaker: {active}",
                    proven.terms
                ));
                continue;
            }
            _ => {}
        }
        let is_it = row.version(number).is_some_and(|version| version.terms == proven.terms);
        let number = if is_it { number } else { row.versions.len() as u64 + 1 };
        if !is_it {
            let description = "a rebuild of the catalog found its terms in versions of objects".into();
            row.versions.push(found_by_rebuild(&proven, description));
        }
        let place = usize::try_from(number - 1).ok();
        if let Some(version) = place.and_then(|place| row.versions.get_mut(place)) {
            version.activated.get_or_insert(proven.stored);
        }
        row.active = Some(number);
        findings.push(format!(
            "its newest note is missing; version {number} is active, since versions of objects were stored with: {}",
            proven.terms
        ));
    }
    findings
}

fn found_by_rebuild(proven: &Proven, description: String) -> ClassVersion {
    ClassVersion {
        terms: proven.terms.clone(),
        description,
        created: proven.stored,
        by: Actor::System("rebuild".into()),
        activated: None,
    }
}
