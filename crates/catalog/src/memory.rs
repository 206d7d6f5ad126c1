//! The simple twin: one ordered map, one lock, every mutation done in place and undone on refusal.
//!
//! It keeps nothing over a restart. A snapshot shares the map, and the next commit copies the map
//! if a snapshot is still held. Its simplicity makes it evidently right, so every other catalog is
//! compared with it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::transaction::counter;
use crate::{
    Catalog, CatalogError, Direction, Failure, Head, KeyRange, Mutation, Outcome, Pending, Precondition, Receipt,
    Record, Snapshot, Table, Transaction, link,
};

type Map = BTreeMap<(Table, Bytes), Bytes>;

/// A catalog in memory, for tests and as the oracle.
#[derive(Default)]
pub struct MemoryCatalog {
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    map: Arc<Map>,
    commit: u64,
}

/// The value of a key before a mutation changed it.
type Undo = ((Table, Bytes), Option<Bytes>);

impl MemoryCatalog {
    pub fn new() -> MemoryCatalog {
        MemoryCatalog::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Catalog for MemoryCatalog {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        Pending::ready(self.state().commit(&transaction))
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        Ok(Box::new(self.state().clone()))
    }
}

impl State {
    fn commit(&mut self, transaction: &Transaction) -> Result<Receipt, CatalogError> {
        transaction.validate()?;
        for (at, precondition) in transaction.preconditions.iter().enumerate() {
            let (holds, found) = self.judge(precondition)?;
            if !holds {
                return Err(CatalogError::Failed(Failure { precondition: at, found }));
            }
        }
        let map = Arc::make_mut(&mut self.map);
        let mut undo = Vec::new();
        let outcomes: Result<Vec<Outcome>, CatalogError> =
            transaction.mutations.iter().map(|mutation| apply(map, mutation, &mut undo)).collect();
        if outcomes.is_err() {
            for (place, before) in undo.into_iter().rev() {
                match before {
                    Some(value) => map.insert(place, value),
                    None => map.remove(&place),
                };
            }
        } else if !transaction.mutations.is_empty() {
            self.commit += 1;
        }
        Ok(Receipt { commit: self.commit, outcomes: outcomes? })
    }

    fn judge(&self, precondition: &Precondition) -> Result<(bool, Option<Record>), CatalogError> {
        let record =
            |table: &Table, key: &Bytes| self.map.get(&(*table, key.clone())).map(|value| (key.clone(), value.clone()));
        Ok(match precondition {
            Precondition::Absent { table, key } => {
                let found = record(table, key);
                (found.is_none(), found)
            }
            Precondition::Present { table, key } => {
                let found = record(table, key);
                (found.is_some(), found)
            }
            Precondition::Equals { table, key, value } => {
                let found = record(table, key);
                (found.as_ref().is_some_and(|(_, there)| there == value), found)
            }
            Precondition::Digest { table, key, digest } => {
                let found = record(table, key);
                (found.as_ref().is_some_and(|(_, there)| blake3::hash(there).as_bytes() == digest), found)
            }
            Precondition::Within { table, key, least, most } => {
                let found = record(table, key);
                let value = counter(found.as_ref().map(|(_, there)| there.as_ref()))?;
                ((*least..=*most).contains(&value), found)
            }
            Precondition::Empty { table, range } => {
                let found = self.range(*table, range, 1, Direction::Forward)?.pop();
                (found.is_none(), found)
            }
        })
    }
}

fn apply(map: &mut Map, mutation: &Mutation, undo: &mut Vec<Undo>) -> Result<Outcome, CatalogError> {
    let mut set = |map: &mut Map, table: Table, key: &Bytes, value: Option<Bytes>| {
        let place = (table, key.clone());
        let before = match value {
            Some(value) => map.insert(place.clone(), value),
            None => map.remove(&place),
        };
        undo.push((place, before));
    };
    Ok(match mutation {
        Mutation::Put { table, key, value } => {
            set(map, *table, key, Some(value.clone()));
            Outcome::Done
        }
        Mutation::Delete { table, key } => {
            set(map, *table, key, None);
            Outcome::Done
        }
        Mutation::Add { table, key, amount } => {
            let before = counter(map.get(&(*table, key.clone())).map(AsRef::as_ref))?;
            let after = before.checked_add(*amount).ok_or_else(|| {
                CatalogError::Invalid(format!("a counter at {before} would overflow by adding {amount}"))
            })?;
            set(map, *table, key, Some(Bytes::copy_from_slice(&after.to_be_bytes())));
            Outcome::Counter(after)
        }
        Mutation::Append { head_table, head_key, table, key, value } => {
            let head = Head::decode(map.get(&(*head_table, head_key.clone())).map(AsRef::as_ref))?;
            let number = head
                .count
                .checked_add(1)
                .ok_or_else(|| CatalogError::Invalid("the sequence has given out every number".into()))?;
            let (key, value) = (key.fill(number, &head.link), value.fill(number, &head.link));
            let link = link(&head.link, number, &value);
            set(map, *head_table, head_key, Some(Head { count: number, link }.encode()));
            set(map, *table, &key, Some(value));
            Outcome::Appended { number, key, link }
        }
    })
}

impl Snapshot for State {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, CatalogError> {
        Ok(self.map.get(&(table, Bytes::copy_from_slice(key))).cloned())
    }

    fn range(
        &self,
        table: Table,
        range: &KeyRange,
        limit: usize,
        direction: Direction,
    ) -> Result<Vec<Record>, CatalogError> {
        if range.is_void() {
            return Ok(Vec::new());
        }
        let place = |bound: &Bound<Bytes>, open: Bound<(Table, Bytes)>| match bound {
            Bound::Included(key) => Bound::Included((table, key.clone())),
            Bound::Excluded(key) => Bound::Excluded((table, key.clone())),
            Bound::Unbounded => open,
        };
        let low = place(&range.low, Bound::Included((table, Bytes::new())));
        let above =
            table.0.checked_add(1).map_or(Bound::Unbounded, |next| Bound::Excluded((Table(next), Bytes::new())));
        let records = self.map.range((low, place(&range.high, above)));
        let record = |((_, key), value): (&(Table, Bytes), &Bytes)| (key.clone(), value.clone());
        Ok(match direction {
            Direction::Forward => records.take(limit).map(record).collect(),
            Direction::Backward => records.rev().take(limit).map(record).collect(),
        })
    }

    fn commit_number(&self) -> u64 {
        self.commit
    }
}

#[cfg(test)]
mod tests;
