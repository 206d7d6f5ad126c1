//! Transactions as values: preconditions, mutations, and outcomes.
//!
//! All preconditions are checked against the state before the transaction. The mutations then apply
//! in their order, and each sees the ones before it. Everything is deterministic: any two stores
//! that start from the same records and take the same transactions end with the same records.

mod codec;

use std::ops::Bound;

use bytes::Bytes;

use crate::{CatalogError, KeyRange};

/// The longest key, in bytes. An S3 key has 1024; a bucket, a version and escaping come on top.
pub const KEY_MAX: usize = 4096;
/// The longest value, in bytes. The part list of a multipart object of 10,000 parts is the largest
/// record.
pub const VALUE_MAX: usize = 2 << 20;
/// Largest size of one transaction in bytes: its keys, values and pieces. Below, its largest number
/// of mutations.
pub const TRANSACTION_MAX: usize = 4 << 20;
pub(crate) const STEPS_MAX: usize = 16_384;

/// Bytes of a change in the journal besides its key and value: the table and two lengths.
pub(crate) const CHANGE_BYTES: usize = 10;
/// Length of a counter's value; below, of the head of a sequence.
const COUNTER_BYTES: usize = 8;
const HEAD_BYTES: usize = 40;
/// The largest [`Transaction::size`] of a valid transaction: appends change two records each.
pub(crate) const JOURNALED_MAX: usize = TRANSACTION_MAX + STEPS_MAX * (2 * CHANGE_BYTES + HEAD_BYTES);

/// A table's number. The caller decides which record type a table holds. `u16::MAX` is reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Table(pub u16);

/// The end of a hash chain after a record: see [`link`].
pub type Link = [u8; 32];

/// A condition that must hold before anything changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Precondition {
    /// No record at the key.
    Absent { table: Table, key: Bytes },
    /// Some record at the key.
    Present { table: Table, key: Bytes },
    /// Exactly this value at the key.
    Equals { table: Table, key: Bytes, value: Bytes },
    /// A value at the key with this BLAKE3, for callers that keep no copy of the value.
    Digest { table: Table, key: Bytes, digest: [u8; 32] },
    /// A counter at the key (an absent one counts as 0) from `least` to `most`, both included.
    Within { table: Table, key: Bytes, least: i64, most: i64 },
    /// No record in the range.
    Empty { table: Table, range: KeyRange },
}

/// A change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mutation {
    Put {
        table: Table,
        key: Bytes,
        value: Bytes,
    },
    /// Deletes a record; an absent record is no error.
    Delete {
        table: Table,
        key: Bytes,
    },
    /// Adds to a counter: 8 bytes, big-endian, two's complement; an absent one counts as 0. An
    /// overflow refuses the whole transaction. See [`counter`].
    Add {
        table: Table,
        key: Bytes,
        amount: i64,
    },
    /// Takes the next number of the sequence whose [`Head`] is at `(head_table, head_key)`, fills
    /// it into both templates, and puts the result. Numbers start at 1, without gaps, in commit
    /// order. The head also carries the hash chain over the records. Concurrent transactions in one
    /// group commit can thus each append a chained record without knowing of each other.
    Append {
        head_table: Table,
        head_key: Bytes,
        table: Table,
        key: Template,
        value: Template,
    },
}

/// One part of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    Bytes(Bytes),
    /// The number, 8 bytes big-endian, so that keys sort by it.
    Number,
    /// The link of the previous record, 32 bytes; zeros in the first record.
    Previous,
}

/// Bytes with gaps that are filled when the transaction is applied.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Template(pub Vec<Piece>);

/// The end of a sequence: the number of its records, and the link of the last one. Stored as 40
/// bytes: the count, big-endian, and the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    pub count: u64,
    pub link: Link,
}

/// A transaction: all of its changes happen, or none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    pub preconditions: Vec<Precondition>,
    pub mutations: Vec<Mutation>,
    /// The part of the reserve that it may use when the volume is full. The reserve is kept for
    /// deletes and audit records.
    pub reserve: Reserve,
}

/// The part of the reserve that a transaction may use; ordinary transactions leave the reserve
/// alone.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Reserve {
    #[default]
    None,
    /// Half of it: frequent transactions of many clients leave the other half for the transactions
    /// that can stop them.
    Half,
    All,
    /// Nothing, and it leaves an eighth of the volume besides: for background work that can wait
    /// for room.
    Spare,
}

/// The receipt of a durable transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Its place in the order of all transactions of this catalog; it increases and survives
    /// restarts.
    pub commit: u64,
    /// One outcome for each mutation, in order.
    pub outcomes: Vec<Outcome>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    /// The counter after the addition.
    Counter(i64),
    Appended {
        number: u64,
        /// The key that was written.
        key: Bytes,
        /// The end of the chain after this record.
        link: Link,
    },
}

impl Receipt {
    /// The numbers given to the transaction's appends, in order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Appended { number, .. } => Some(*number),
            _ => None,
        })
    }
}

/// The link of record `number` with the stored `value`: BLAKE3 of the previous link, the number (8
/// bytes, big-endian) and the value. A verifier walks the records and must arrive at the head.
pub fn link(previous: &Link, number: u64, value: &[u8]) -> Link {
    let mut hasher = blake3::Hasher::new();
    hasher.update(previous).update(&number.to_be_bytes()).update(value);
    *hasher.finalize().as_bytes()
}

/// Decodes a stored counter; an absent record is 0.
pub fn counter(value: Option<&[u8]>) -> Result<i64, CatalogError> {
    match value {
        None => Ok(0),
        Some(bytes) => bytes.try_into().map(i64::from_be_bytes).map_err(|_| {
            CatalogError::Invalid(format!("a record of {} bytes is not a counter, which has 8", bytes.len()))
        }),
    }
}

impl Head {
    pub fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend_from_slice(&self.count.to_be_bytes());
        bytes.extend_from_slice(&self.link);
        bytes.into()
    }

    /// Decodes a stored head; an absent record is the start of a sequence.
    pub fn decode(value: Option<&[u8]>) -> Result<Head, CatalogError> {
        let Some(value) = value else { return Ok(Head::default()) };
        let parts = value.split_first_chunk::<8>().and_then(|(count, link)| Some((count, link.try_into().ok()?)));
        match parts {
            Some((count, link)) => Ok(Head { count: u64::from_be_bytes(*count), link }),
            None => Err(CatalogError::Invalid(format!(
                "a record of {} bytes is not the head of a sequence, which has 40",
                value.len()
            ))),
        }
    }
}

impl Template {
    pub fn new() -> Template {
        Template::default()
    }

    pub fn bytes(mut self, bytes: impl Into<Bytes>) -> Template {
        self.0.push(Piece::Bytes(bytes.into()));
        self
    }

    pub fn number(mut self) -> Template {
        self.0.push(Piece::Number);
        self
    }

    pub fn previous(mut self) -> Template {
        self.0.push(Piece::Previous);
        self
    }

    pub fn fill(&self, number: u64, previous: &Link) -> Bytes {
        let mut filled = Vec::with_capacity(self.length());
        for piece in &self.0 {
            match piece {
                Piece::Bytes(bytes) => filled.extend_from_slice(bytes),
                Piece::Number => filled.extend_from_slice(&number.to_be_bytes()),
                Piece::Previous => filled.extend_from_slice(previous),
            }
        }
        filled.into()
    }

    /// Its length once filled, in bytes.
    pub fn length(&self) -> usize {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Bytes(bytes) => bytes.len(),
                Piece::Number => 8,
                Piece::Previous => 32,
            })
            .sum()
    }
}

impl Transaction {
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Lets the transaction use the reserve: for deletes, and for records that are due even when
    /// the volume is full.
    pub fn with_reserve(mut self) -> Transaction {
        self.reserve = Reserve::All;
        self
    }

    /// Limits the transaction to half of the reserve, if it could use all of it.
    pub fn within_half_reserve(mut self) -> Transaction {
        if self.reserve == Reserve::All {
            self.reserve = Reserve::Half;
        }
        self
    }

    /// Leaves room for the transactions of clients.
    pub fn with_spare_room(mut self) -> Transaction {
        self.reserve = Reserve::Spare;
        self
    }

    pub fn require(mut self, precondition: Precondition) -> Transaction {
        self.preconditions.push(precondition);
        self
    }

    pub fn absent(self, table: Table, key: impl Into<Bytes>) -> Transaction {
        self.require(Precondition::Absent { table, key: key.into() })
    }

    pub fn present(self, table: Table, key: impl Into<Bytes>) -> Transaction {
        self.require(Precondition::Present { table, key: key.into() })
    }

    pub fn equals(self, table: Table, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Transaction {
        self.require(Precondition::Equals { table, key: key.into(), value: value.into() })
    }

    pub fn digest(self, table: Table, key: impl Into<Bytes>, digest: [u8; 32]) -> Transaction {
        self.require(Precondition::Digest { table, key: key.into(), digest })
    }

    pub fn within(self, table: Table, key: impl Into<Bytes>, least: i64, most: i64) -> Transaction {
        self.require(Precondition::Within { table, key: key.into(), least, most })
    }

    pub fn empty(self, table: Table, range: KeyRange) -> Transaction {
        self.require(Precondition::Empty { table, range })
    }

    pub fn change(mut self, mutation: Mutation) -> Transaction {
        self.mutations.push(mutation);
        self
    }

    pub fn put(self, table: Table, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Transaction {
        self.change(Mutation::Put { table, key: key.into(), value: value.into() })
    }

    pub fn delete(self, table: Table, key: impl Into<Bytes>) -> Transaction {
        self.change(Mutation::Delete { table, key: key.into() })
    }

    pub fn add(self, table: Table, key: impl Into<Bytes>, amount: i64) -> Transaction {
        self.change(Mutation::Add { table, key: key.into(), amount })
    }

    pub fn append(self, head: (Table, impl Into<Bytes>), table: Table, key: Template, value: Template) -> Transaction {
        self.change(Mutation::Append { head_table: head.0, head_key: head.1.into(), table, key, value })
    }

    /// Bytes of keys, values and pieces, and what the journal adds to them; limits of queues and
    /// batches count them. The changes of a transaction never take more bytes in the journal.
    pub fn size(&self) -> usize {
        let preconditions = self.preconditions.iter().map(|precondition| match precondition {
            Precondition::Equals { key, value, .. } => key.len() + value.len(),
            Precondition::Absent { key, .. }
            | Precondition::Present { key, .. }
            | Precondition::Within { key, .. }
            | Precondition::Digest { key, .. } => key.len(),
            Precondition::Empty { range, .. } => bounds(range).iter().sum(),
        });
        let mutations = self.mutations.iter().map(|mutation| match mutation {
            Mutation::Put { key, value, .. } => CHANGE_BYTES + key.len() + value.len(),
            Mutation::Delete { key, .. } => CHANGE_BYTES + key.len(),
            Mutation::Add { key, .. } => CHANGE_BYTES + key.len() + COUNTER_BYTES,
            Mutation::Append { head_key, key, value, .. } => {
                2 * CHANGE_BYTES + head_key.len() + HEAD_BYTES + key.length() + value.length()
            }
        });
        preconditions.chain(mutations).sum()
    }

    /// Checks the limits before any other use of the transaction.
    pub fn validate(&self) -> Result<(), CatalogError> {
        let steps = self.preconditions.len() + self.mutations.len();
        if steps > STEPS_MAX {
            return Err(CatalogError::Invalid(format!("{steps} steps, at most {STEPS_MAX}; split it")));
        }
        let mut total = 0;
        for precondition in &self.preconditions {
            let (table, key, value) = match precondition {
                Precondition::Empty { table, range } => {
                    let [low, high] = bounds(range);
                    total += measure(*table, low, 0)?;
                    (table, high, 0)
                }
                Precondition::Absent { table, key }
                | Precondition::Present { table, key }
                | Precondition::Within { table, key, .. }
                | Precondition::Digest { table, key, .. } => (table, key.len(), 0),
                Precondition::Equals { table, key, value } => (table, key.len(), value.len()),
            };
            total += measure(*table, key, value)?;
        }
        for mutation in &self.mutations {
            total += match mutation {
                Mutation::Put { table, key, value } => measure(*table, key.len(), value.len())?,
                Mutation::Delete { table, key } | Mutation::Add { table, key, .. } => measure(*table, key.len(), 0)?,
                Mutation::Append { head_table, head_key, table, key, value } => {
                    measure(*head_table, head_key.len(), 0)? + measure(*table, key.length(), value.length())?
                }
            };
        }
        if total > TRANSACTION_MAX {
            return Err(CatalogError::Invalid(format!("{total} bytes, at most {TRANSACTION_MAX}; split it")));
        }
        Ok(())
    }
}

/// The lengths of a range's bounds.
fn bounds(range: &KeyRange) -> [usize; 2] {
    [&range.low, &range.high].map(|bound| match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.len(),
        Bound::Unbounded => 0,
    })
}

fn measure(table: Table, key: usize, value: usize) -> Result<usize, CatalogError> {
    if table.0 == u16::MAX {
        return Err(CatalogError::Invalid("table 65535 is the catalog's own".into()));
    }
    if key > KEY_MAX {
        return Err(CatalogError::Invalid(format!("a key of {key} bytes, at most {KEY_MAX}")));
    }
    if value > VALUE_MAX {
        return Err(CatalogError::Invalid(format!("a value of {value} bytes, at most {VALUE_MAX}")));
    }
    Ok(key + value)
}
