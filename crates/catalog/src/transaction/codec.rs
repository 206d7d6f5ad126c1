//! Transactions as bytes: CBOR (RFC 8949), arrays whose first element is the kind. A store on
//! another machine takes the same transactions in this form; `FORMAT/catalog.md` has the numbers.
//!
//! The decoder trusts nothing. An accepted transaction is within the limits, and encodes to the
//! bytes it came from, or to a shorter form of the same.

use std::convert::Infallible;
use std::ops::Bound;

use bytes::Bytes;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::Encoder;

use super::{Mutation, Piece, Precondition, Reserve, STEPS_MAX, Table, Template, Transaction};
use crate::{CatalogError, KeyRange};

type Encoded = Result<(), minicbor::encode::Error<Infallible>>;
type Out<'a> = Encoder<&'a mut Vec<u8>>;

impl Transaction {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size() + 64);
        match transaction(&mut Encoder::new(&mut bytes), self) {
            Ok(()) => bytes,
            Err(error) => unreachable!("memory takes every byte: {error}"),
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<Transaction, CatalogError> {
        let mut decoder = Decoder::new(bytes);
        let read = read_transaction(&mut decoder).map_err(|error| CatalogError::Invalid(error.to_string()))?;
        if decoder.position() != bytes.len() {
            return Err(CatalogError::Invalid("bytes behind the transaction".into()));
        }
        read.validate()?;
        Ok(read)
    }
}

fn transaction(out: &mut Out<'_>, transaction: &Transaction) -> Encoded {
    out.array(3)?.u8(transaction.reserve as u8)?;
    out.array(transaction.preconditions.len() as u64)?;
    transaction.preconditions.iter().try_for_each(|each| precondition(out, each))?;
    out.array(transaction.mutations.len() as u64)?;
    transaction.mutations.iter().try_for_each(|each| mutation(out, each))
}

fn precondition(out: &mut Out<'_>, precondition: &Precondition) -> Encoded {
    match precondition {
        Precondition::Absent { table, key } => out.array(3)?.u8(0)?.u16(table.0)?.bytes(key)?,
        Precondition::Present { table, key } => out.array(3)?.u8(1)?.u16(table.0)?.bytes(key)?,
        Precondition::Equals { table, key, value } => out.array(4)?.u8(2)?.u16(table.0)?.bytes(key)?.bytes(value)?,
        Precondition::Digest { table, key, digest } => out.array(4)?.u8(3)?.u16(table.0)?.bytes(key)?.bytes(digest)?,
        Precondition::Within { table, key, least, most } => {
            out.array(5)?.u8(4)?.u16(table.0)?.bytes(key)?.i64(*least)?.i64(*most)?
        }
        Precondition::Empty { table, range } => {
            out.array(4)?.u8(5)?.u16(table.0)?;
            bound(out, &range.low)?;
            return bound(out, &range.high);
        }
    };
    Ok(())
}

fn bound(out: &mut Out<'_>, bound: &Bound<Bytes>) -> Encoded {
    match bound {
        Bound::Unbounded => out.array(1)?.u8(0)?,
        Bound::Included(key) => out.array(2)?.u8(1)?.bytes(key)?,
        Bound::Excluded(key) => out.array(2)?.u8(2)?.bytes(key)?,
    };
    Ok(())
}

fn mutation(out: &mut Out<'_>, mutation: &Mutation) -> Encoded {
    match mutation {
        Mutation::Put { table, key, value } => out.array(4)?.u8(0)?.u16(table.0)?.bytes(key)?.bytes(value)?,
        Mutation::Delete { table, key } => out.array(3)?.u8(1)?.u16(table.0)?.bytes(key)?,
        Mutation::Add { table, key, amount } => out.array(4)?.u8(2)?.u16(table.0)?.bytes(key)?.i64(*amount)?,
        Mutation::Append { head_table, head_key, table, key, value } => {
            out.array(6)?.u8(3)?.u16(head_table.0)?.bytes(head_key)?.u16(table.0)?;
            template(out, key)?;
            return template(out, value);
        }
    };
    Ok(())
}

fn template(out: &mut Out<'_>, template: &Template) -> Encoded {
    out.array(template.0.len() as u64)?;
    template.0.iter().try_for_each(|piece| {
        match piece {
            Piece::Bytes(bytes) => out.bytes(bytes)?,
            Piece::Number => out.u8(0)?,
            Piece::Previous => out.u8(1)?,
        };
        Ok(())
    })
}

fn read_transaction(from: &mut Decoder<'_>) -> Result<Transaction, Error> {
    exactly(from, 3)?;
    let reserve = match from.u8()? {
        0 => Reserve::None,
        1 => Reserve::Half,
        2 => Reserve::All,
        3 => Reserve::Spare,
        other => return Err(Error::message(format!("{other} is no share of the reserve"))),
    };
    let mut transaction = Transaction { reserve, ..Transaction::default() };
    for _ in 0..count(from)? {
        transaction.preconditions.push(read_precondition(from)?);
    }
    for _ in 0..count(from)? {
        transaction.mutations.push(read_mutation(from)?);
    }
    Ok(transaction)
}

/// The length of an array, which must be present and within the limits: a claimed length reserves
/// no memory.
fn count(from: &mut Decoder<'_>) -> Result<u64, Error> {
    match from.array()? {
        Some(length) if length <= STEPS_MAX as u64 => Ok(length),
        Some(length) => Err(Error::message(format!("an array of {length}, at most {STEPS_MAX}"))),
        None => Err(Error::message("an array without a length")),
    }
}

fn exactly(from: &mut Decoder<'_>, wanted: u64) -> Result<(), Error> {
    let length = count(from)?;
    if length == wanted { Ok(()) } else { Err(Error::message(format!("{length} fields, not {wanted}"))) }
}

fn bytes(from: &mut Decoder<'_>) -> Result<Bytes, Error> {
    from.bytes().map(Bytes::copy_from_slice)
}

fn table(from: &mut Decoder<'_>) -> Result<Table, Error> {
    from.u16().map(Table)
}

fn unknown(what: &str, kind: u8) -> Error {
    Error::message(format!("{what} of an unknown kind {kind}"))
}

/// The kind of a step, after a comparison of its field count with that of the kind.
fn kind(from: &mut Decoder<'_>, what: &str, fields: &[u64]) -> Result<u8, Error> {
    let length = count(from)?;
    let kind = from.u8()?;
    match fields.get(usize::from(kind)) {
        Some(wanted) if *wanted == length => Ok(kind),
        Some(wanted) => Err(Error::message(format!("{what} of kind {kind} with {length} fields, not {wanted}"))),
        None => Err(unknown(what, kind)),
    }
}

fn read_precondition(from: &mut Decoder<'_>) -> Result<Precondition, Error> {
    let kind = kind(from, "a precondition", &[3, 3, 4, 4, 5, 4])?;
    let table = table(from)?;
    Ok(match kind {
        0 => Precondition::Absent { table, key: bytes(from)? },
        1 => Precondition::Present { table, key: bytes(from)? },
        2 => Precondition::Equals { table, key: bytes(from)?, value: bytes(from)? },
        3 => {
            let (key, digest) = (bytes(from)?, from.bytes()?);
            let digest = digest.try_into().map_err(|_| Error::message("a digest has 32 bytes"))?;
            Precondition::Digest { table, key, digest }
        }
        4 => Precondition::Within { table, key: bytes(from)?, least: from.i64()?, most: from.i64()? },
        _ => Precondition::Empty { table, range: KeyRange { low: read_bound(from)?, high: read_bound(from)? } },
    })
}

fn read_bound(from: &mut Decoder<'_>) -> Result<Bound<Bytes>, Error> {
    Ok(match kind(from, "a bound", &[1, 2, 2])? {
        0 => Bound::Unbounded,
        1 => Bound::Included(bytes(from)?),
        _ => Bound::Excluded(bytes(from)?),
    })
}

fn read_mutation(from: &mut Decoder<'_>) -> Result<Mutation, Error> {
    let kind = kind(from, "a mutation", &[4, 3, 4, 6])?;
    let first = table(from)?;
    let key = bytes(from)?;
    Ok(match kind {
        0 => Mutation::Put { table: first, key, value: bytes(from)? },
        1 => Mutation::Delete { table: first, key },
        2 => Mutation::Add { table: first, key, amount: from.i64()? },
        _ => Mutation::Append {
            head_table: first,
            head_key: key,
            table: table(from)?,
            key: read_template(from)?,
            value: read_template(from)?,
        },
    })
}

fn read_template(from: &mut Decoder<'_>) -> Result<Template, Error> {
    let mut template = Template::new();
    for _ in 0..count(from)? {
        template.0.push(match from.datatype()? {
            minicbor::data::Type::Bytes => Piece::Bytes(bytes(from)?),
            _ => match from.u8()? {
                0 => Piece::Number,
                1 => Piece::Previous,
                other => return Err(unknown("a piece", other)),
            },
        });
    }
    Ok(template)
}

#[cfg(test)]
mod tests;
