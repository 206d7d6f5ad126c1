//! Management classes: making, comparing and activating them, and the class in force for a new
//! version.
//!
//! A version keeps a copy of the class in force when it was stored, and its retention is set from
//! that copy. A later version of the class never touches it. A class is never removed, and a
//! version of it only becomes active if it weakens nothing.

use stele_catalog::{Direction, KeyRange, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::is_canary;
use crate::model::class::{
    BINDINGS_MAX, Binding, Bindings, CLASS_VERSIONS_MAX, CLASSES_MAX, ClassInfo, ClassTerms, Comparison,
    DESCRIPTION_MAX, VersionFacts, check_class_name,
};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller, Role};
use crate::model::version::{Retention, Tags};
use crate::record::class::{ClassMark, ClassRow, ClassVersion};
use crate::record::{CLASSES, decode, encode, fetch};
use crate::retention::rules::{at_bucket_level, require_lock};
use crate::space::superblock::FORMAT;
use crate::state::buckets::Bucket;
use crate::store::{Archive, Store};

/// The tag by which a request names a class.
pub const CLASS_TAG: &str = "stele:class";

fn missing(name: &str) -> ArchiveError {
    ArchiveError::NoSuchThing(format!("there is no class `{name}`; `stele class list` names them"))
}

impl Store {
    pub(crate) fn existing_class(&self, name: &str) -> Result<ClassRow> {
        fetch(&*self.snapshot()?, CLASSES, name.as_bytes())?.ok_or_else(|| missing(name))
    }

    /// Refuses a class that no version can have yet.
    pub(crate) fn check_bindings(&self, bindings: &Bindings) -> Result<()> {
        if bindings.rules.len() > BINDINGS_MAX {
            return Err(ArchiveError::InvalidArgument(format!("a bucket has at most {BINDINGS_MAX} rules")));
        }
        let is_empty = |rule: &&Binding| rule.size_min.zip(rule.size_max).is_some_and(|(least, most)| least > most);
        if let Some(rule) = bindings.rules.iter().find(is_empty) {
            return Err(ArchiveError::InvalidArgument(format!("a rule holds for no size: {rule}")));
        }
        for name in bindings.classes() {
            self.active_class(name)?;
        }
        Ok(())
    }

    fn active_class(&self, name: &str) -> Result<(u64, ClassTerms)> {
        let row = self.existing_class(name)?;
        let inactive = || {
            ArchiveError::InvalidState(format!(
                "no version of the class `{name}` is active; `stele class activate {name}` makes one active"
            ))
        };
        row.active().map(|(number, version)| (number, version.terms.clone())).ok_or_else(inactive)
    }

    /// The class that the request names, by header or tag. Naming one takes the right to set
    /// retention.
    pub(crate) fn named_class<'a>(
        &self,
        caller: &Caller,
        bucket: &Bucket,
        key: &str,
        named: Option<&'a str>,
        tags: &'a Tags,
    ) -> Result<Option<&'a str>> {
        let tagged = tags.get(CLASS_TAG).map(String::as_str);
        let name = match (named, tagged) {
            (Some(one), Some(other)) if one != other => {
                return Err(ArchiveError::InvalidRequest(format!(
                    "the request names the class `{one}`, and its tag {CLASS_TAG} the class `{other}`"
                )));
            }
            (named, tagged) => named.or(tagged),
        };
        if let Some(name) = name {
            require_lock(bucket)?;
            if bucket.row.is_share() {
                return Err(ArchiveError::InvalidRequest("a file of a share has no class".into()));
            }
            bucket.authorize(caller, Access::Retain, key)?;
            self.active_class(name)?;
        }
        Ok(name)
    }

    /// The class in force for a new version, and its retention by that class. `asked`: the
    /// retention that the request asked for, which the class only makes longer. `retention`: what
    /// the version has without a class.
    pub(crate) fn classified(
        &self,
        caller: &Caller,
        bucket: &Bucket,
        named: Option<&str>,
        facts: VersionFacts<'_>,
        asked: Option<Retention>,
        retention: Option<Retention>,
    ) -> Result<(Option<Retention>, Option<ClassMark>)> {
        let named = self.named_class(caller, bucket, facts.key, named, facts.tags)?;
        let bound = bucket.row.classes.as_ref().and_then(|classes| classes.class(&facts));
        // The store's own canary is kept for the days that the self-test says.
        let is_canary = is_canary(&caller.actor);
        let unclassed = bucket.row.is_share() || is_canary;
        let Some(name) = named.or(bound).filter(|_| !unclassed) else { return Ok((retention, None)) };
        let (version, terms) = self.active_class(name)?;
        let mode = asked.map_or(terms.mode, |asked| asked.mode.max(terms.mode));
        let least = asked.map(|asked| asked.until);
        let mark = ClassMark { name: name.into(), version, terms, stored: self.later_now(), least, event: None };
        let retention = at_bucket_level(bucket, Retention { mode, until: mark.until() });
        Ok((Some(retention), Some(mark)))
    }

    /// Makes the transaction require that the class is in force as the mark says. A stricter
    /// version that was activated meanwhile holds for everything that is stored after its
    /// activation.
    pub(crate) fn while_in_force(&self, transaction: Transaction, mark: &ClassMark) -> Result<Transaction> {
        let changed = || ArchiveError::Conflict(format!("the class `{}` was changed meanwhile; try again", mark.name));
        let raw = self.snapshot()?.get(CLASSES, mark.name.as_bytes())?.ok_or_else(changed)?;
        let row: ClassRow = decode(CLASSES, mark.name.as_bytes(), &raw)?;
        match row.active == Some(mark.version) {
            true => Ok(transaction.equals(CLASSES, mark.name.clone(), raw)),
            false => Err(changed()),
        }
    }
}

impl Archive {
    /// Makes a version of a class, the first or a further one. It applies to nothing before it is
    /// activated.
    pub async fn create_class(
        &self,
        caller: &Caller,
        name: &str,
        terms: ClassTerms,
        description: &str,
    ) -> Result<Vec<ClassInfo>> {
        let store = self.store();
        let detail = format!("makes a version of the class `{name}`: {terms}");
        let result = self.try_create_class(caller, name, terms, description, &detail).await;
        store.audited(result, || Event::new(caller, store.class_action()).detail(detail)).await
    }

    async fn try_create_class(
        &self,
        caller: &Caller,
        name: &str,
        terms: ClassTerms,
        description: &str,
        detail: &str,
    ) -> Result<Vec<ClassInfo>> {
        let store = &self.store();
        caller.require_role(&[Role::RetentionOfficer], Action::Class)?;
        store.writable()?;
        check_class_name(name)?;
        terms.check()?;
        if description.len() > DESCRIPTION_MAX {
            return Err(ArchiveError::InvalidArgument(format!("a description has at most {DESCRIPTION_MAX} bytes")));
        }
        let lock = store.lock_named::<ClassRow>(name).await?;
        let snapshot = store.snapshot()?;
        let raw = snapshot.get(CLASSES, name.as_bytes())?;
        let mut row: ClassRow = match &raw {
            Some(raw) => decode(CLASSES, name.as_bytes(), raw)?,
            None if snapshot.range(CLASSES, &KeyRange::all(), CLASSES_MAX, Direction::Forward)?.len()
                == CLASSES_MAX =>
            {
                return Err(ArchiveError::InvalidState(format!(
                    "the store has {CLASSES_MAX} classes, the most it can have"
                )));
            }
            None => ClassRow::default(),
        };
        if row.versions.len() >= CLASS_VERSIONS_MAX {
            return Err(ArchiveError::InvalidState(format!(
                "the class `{name}` has {CLASS_VERSIONS_MAX} versions, the most it can have"
            )));
        }
        drop(snapshot);
        store.witnessing().raise_format(FORMAT).await?;
        let by = caller.actor.clone();
        row.versions.push(ClassVersion {
            terms,
            description: description.into(),
            created: store.wall(),
            by,
            activated: None,
        });
        let unchanged = match raw {
            Some(raw) => Transaction::new().equals(CLASSES, name.to_string(), raw),
            None => Transaction::new().absent(CLASSES, name.to_string()),
        };
        let event = Event::new(caller, Action::Class).detail(detail.into());
        let answer = store.write_named(name, row, unchanged, Some(event), lock).await?;
        store.compensated(answer).await?;
        Ok(store.existing_class(name)?.infos(name))
    }

    /// Every version of every class.
    pub async fn classes(&self, caller: &Caller) -> Result<Vec<ClassInfo>> {
        let store = &self.store();
        self.may_see_classes(caller).await?;
        let mut all = Vec::new();
        for (key, raw) in store.snapshot()?.range(CLASSES, &KeyRange::all(), CLASSES_MAX, Direction::Forward)? {
            let row: ClassRow = decode(CLASSES, &key, &raw)?;
            all.extend(row.infos(&String::from_utf8_lossy(&key)));
        }
        Ok(all)
    }

    pub async fn class(&self, caller: &Caller, name: &str) -> Result<Vec<ClassInfo>> {
        self.may_see_classes(caller).await?;
        Ok(self.store().existing_class(name)?.infos(name))
    }

    async fn may_see_classes(&self, caller: &Caller) -> Result<()> {
        let roles = [Role::StorageAdministrator, Role::RetentionOfficer, Role::Auditor];
        let allowed = caller.require_role(&roles, Action::Read);
        self.store().audited(allowed, || Event::new(caller, Action::Read)).await
    }

    /// Compares a version of a class with the active one, and changes nothing. None: the latest
    /// version.
    pub async fn compare_class(
        &self,
        caller: &Caller,
        name: &str,
        version: Option<u64>,
    ) -> Result<(u64, Vec<Comparison>)> {
        self.may_see_classes(caller).await?;
        compared(&self.store().existing_class(name)?, name, version)
    }

    /// Makes a version of a class the active one, if it weakens nothing. Stored versions keep the
    /// class that they have.
    pub async fn activate_class(
        &self,
        caller: &Caller,
        name: &str,
        version: Option<u64>,
    ) -> Result<(u64, Vec<Comparison>)> {
        let store = self.store();
        let result = self.try_activate_class(caller, name, version).await;
        let event = || Event::new(caller, store.class_action()).detail(format!("activates the class `{name}`"));
        store.audited(result, event).await
    }

    async fn try_activate_class(
        &self,
        caller: &Caller,
        name: &str,
        version: Option<u64>,
    ) -> Result<(u64, Vec<Comparison>)> {
        let store = &self.store();
        caller.require_role(&[Role::RetentionOfficer], Action::Class)?;
        store.writable()?;
        let lock = store.lock_named::<ClassRow>(name).await?;
        let mut row = store.existing_class(name)?;
        let unchanged = Transaction::new().equals(CLASSES, name.to_string(), encode(&row));
        let (number, lines) = compared(&row, name, version)?;
        if let Some(weaker) = lines.iter().find(|line| line.weaker) {
            return Err(ArchiveError::Weaker(format!(
                "version {number} of the class `{name}` is weaker than the active one: {} goes from {} to {}; nothing was \
                 changed",
                weaker.rule,
                weaker.before.as_deref().unwrap_or("none"),
                weaker.after
            )));
        }
        if row.active == Some(number) {
            return Ok((number, lines));
        }
        let activated = store.wall();
        if let Some(version) = usize::try_from(number - 1).ok().and_then(|place| row.versions.get_mut(place)) {
            version.activated = Some(activated);
        }
        row.active = Some(number);
        let terms = row.active().map_or(String::new(), |(_, version)| version.terms.to_string());
        let detail = format!("activates version {number} of the class `{name}`: {terms}");
        let event = Event::new(caller, Action::Class).detail(detail);
        // What was judged by the version so far is stored first.
        let alone = store.settings_locks.alone_in_all().await;
        let answer = store.write_named(name, row, unchanged, Some(event), lock).await;
        // A compensating note takes locks whose holders may wait for this.
        drop(alone);
        store.compensated(answer?).await?;
        Ok((number, lines))
    }
}

fn compared(row: &ClassRow, name: &str, version: Option<u64>) -> Result<(u64, Vec<Comparison>)> {
    let number = version.unwrap_or(row.versions.len() as u64);
    let found = row.version(number).ok_or_else(|| {
        ArchiveError::NoSuchThing(format!("the class `{name}` has no version {number}; `stele class show` lists them"))
    })?;
    Ok((number, found.terms.compare(row.active().map(|(_, active)| &active.terms))))
}
