//! Applies transactions one after another to a view, and gathers their changes in one set.
//!
//! A refused transaction leaves nothing in the batch. The changes are absolute (this key has this
//! value now), so that a repeated replay of a batch is harmless.

use bytes::Bytes;

use super::memtable::{Change, Changes, places};
use super::view::View;
use crate::catalog::Record;
use crate::transaction::counter;
use crate::{
    CatalogError, Direction, Failure, Head, KEY_MAX, KeyRange, Mutation, Outcome, Precondition, Receipt, Snapshot,
    Table, Transaction, VALUE_MAX, link,
};

/// Transactions that become durable together.
pub(crate) struct Batch<'v> {
    view: &'v View,
    pub changes: Changes,
    /// The number of the last transaction in the batch.
    pub commit: u64,
}

impl<'v> Batch<'v> {
    pub fn new(view: &'v View) -> Batch<'v> {
        Batch { view, changes: Changes::new(), commit: view.commit }
    }

    /// Applies all changes of the transaction, or none.
    pub fn apply(&mut self, transaction: &Transaction) -> Result<Receipt, CatalogError> {
        transaction.validate()?;
        for (at, precondition) in transaction.preconditions.iter().enumerate() {
            if let Err(found) = self.judge(precondition)? {
                return Err(CatalogError::Failed(Failure { precondition: at, found }));
            }
        }
        let mut step = Step { batch: self, changes: Changes::new() };
        let outcomes = transaction.mutations.iter().map(|mutation| step.mutate(mutation)).collect::<Result<_, _>>()?;
        let changes = step.changes;
        self.changes.extend(changes);
        if !transaction.mutations.is_empty() {
            self.commit += 1;
        }
        Ok(Receipt { commit: self.commit, outcomes })
    }

    fn find(&self, place: &(Table, Bytes)) -> Result<Option<Bytes>, CatalogError> {
        match self.changes.get(place) {
            Some(change) => Ok(change.clone()),
            None => self.view.find(place),
        }
    }

    /// Whether the precondition holds; if not, the record that was found.
    fn judge(&self, precondition: &Precondition) -> Result<Result<(), Option<Record>>, CatalogError> {
        let (holds, key, value) = match precondition {
            Precondition::Absent { table, key } => {
                let value = self.find(&(*table, key.clone()))?;
                (value.is_none(), key, value)
            }
            Precondition::Present { table, key } => {
                let value = self.find(&(*table, key.clone()))?;
                (value.is_some(), key, value)
            }
            Precondition::Equals { table, key, value: wanted } => {
                let value = self.find(&(*table, key.clone()))?;
                (value.as_ref() == Some(wanted), key, value)
            }
            Precondition::Digest { table, key, digest } => {
                let value = self.find(&(*table, key.clone()))?;
                (value.as_deref().is_some_and(|value| blake3::hash(value).as_bytes() == digest), key, value)
            }
            Precondition::Within { table, key, least, most } => {
                let value = self.find(&(*table, key.clone()))?;
                let count = counter(value.as_deref())?;
                (*least <= count && count <= *most, key, value)
            }
            Precondition::Empty { table, range } => {
                return Ok(match self.first(*table, range)? {
                    None => Ok(()),
                    found => Err(found),
                });
            }
        };
        Ok(if holds { Ok(()) } else { Err(value.map(|value| (key.clone(), value))) })
    }

    /// The first record in the range, the batch's own changes included.
    fn first(&self, table: Table, range: &KeyRange) -> Result<Option<Record>, CatalogError> {
        if range.is_void() {
            return Ok(None);
        }
        let own = self
            .changes
            .range(places(table, range.as_slices()))
            .find_map(|((_, key), change)| Some((key.clone(), change.clone()?)));
        let mut rest = range.clone();
        loop {
            let page = self.view.range(table, &rest, 16, Direction::Forward)?;
            let Some(last) = page.last().map(|(key, _)| key.clone()) else { return Ok(own) };
            // For keys that the batch changed, only the batch counts.
            let untouched = page.into_iter().find(|(key, _)| !self.changes.contains_key(&(table, key.clone())));
            match (untouched, own.as_ref()) {
                (Some(found), Some(own)) if own.0 < found.0 => return Ok(Some(own.clone())),
                (Some(found), _) => return Ok(Some(found)),
                (None, Some(own)) if own.0 <= last => return Ok(Some(own.clone())),
                (None, _) => rest = rest.after(last),
            }
        }
    }
}

/// One transaction while it is applied to the batch.
struct Step<'b, 'v> {
    batch: &'b Batch<'v>,
    changes: Changes,
}

impl Step<'_, '_> {
    fn find(&self, place: &(Table, Bytes)) -> Result<Change, CatalogError> {
        match self.changes.get(place) {
            Some(change) => Ok(change.clone()),
            None => self.batch.find(place),
        }
    }

    fn mutate(&mut self, mutation: &Mutation) -> Result<Outcome, CatalogError> {
        match mutation {
            Mutation::Put { table, key, value } => {
                self.changes.insert((*table, key.clone()), Some(value.clone()));
                Ok(Outcome::Done)
            }
            Mutation::Delete { table, key } => {
                self.changes.insert((*table, key.clone()), None);
                Ok(Outcome::Done)
            }
            Mutation::Add { table, key, amount } => {
                let place = (*table, key.clone());
                let before = counter(self.find(&place)?.as_deref())?;
                let Some(after) = before.checked_add(*amount) else {
                    let message = format!("a counter at {before} would overflow by adding {amount}");
                    return Err(CatalogError::Invalid(message));
                };
                self.changes.insert(place, Some(Bytes::copy_from_slice(&after.to_be_bytes())));
                Ok(Outcome::Counter(after))
            }
            Mutation::Append { head_table, head_key, table, key, value } => {
                let head_place = (*head_table, head_key.clone());
                let head = Head::decode(self.find(&head_place)?.as_deref())?;
                let Some(number) = head.count.checked_add(1) else {
                    return Err(CatalogError::Invalid("the sequence has given out every number".into()));
                };
                let (key, value) = (key.fill(number, &head.link), value.fill(number, &head.link));
                assert!(key.len() <= KEY_MAX && value.len() <= VALUE_MAX, "validated by the length of the templates");
                let link = link(&head.link, number, &value);
                self.changes.insert(head_place, Some(Head { count: number, link }.encode()));
                self.changes.insert((*table, key.clone()), Some(value));
                Ok(Outcome::Appended { number, key, link })
            }
        }
    }
}
