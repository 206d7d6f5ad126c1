//! One list declares all records: it gives the enum, the bytes in both directions, the names, and
//! the layout that FORMAT describes.
//!
//! Fields stand in the order in which they are stored, in the form of their type
//! ([`super::field::Field`]), or:
//!
//! - `as u32`, `as u64`: a small value in so many bits
//! - `as list`: the items, one after the other; `as bytes`: data, which nothing follows
//! - `[count FIELD]`, `[length FIELD]`: the number of items of a later list, or of bytes of later
//!   data, in 32 bits
//! - `[zero N]`: N bytes that are zero
//! - `; spare N`, behind the last field: N bytes that are zero, and that a reader does without

macro_rules! records {
    ($(
        $(#[$about:meta])*
        $kind:literal $name:literal $record:ident $({
            $($([$($before:tt)+])* $field:ident: $type:ty $(as $form:ident)?,)*
            $(; spare $spare:literal)?
        })?
    )*) => {
        /// One change of the pool's state, or one write of a host.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Record {
            $($(#[$about])* $record $({ $($field: $type),* })?),*
        }

        impl Record {
            fn kind(&self) -> u8 {
                match self {
                    $(Record::$record { .. } => $kind,)*
                }
            }

            /// The name in FORMAT/log.md and in listings of a log.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Record::$record { .. } => $name,)*
                }
            }

            fn body_size(&self) -> usize {
                match self {
                    $(Record::$record { $($($field),*)? } => {
                        0 $($($(+ before_size!($($before)+))* + field_size!($field $($form)?))* $(+ $spare)?)?
                    })*
                }
            }

            fn encode_body(&self, w: &mut Writer<'_>) {
                match self {
                    $(Record::$record { $($($field),*)? } => {
                        $($($(put_before!(w, $($before)+);)* put_field!(w, $field $($form)?);)* $(w.put(&[0; $spare]);)?)?
                    })*
                }
            }

            fn decode_body(kind: u8, r: &mut Reader) -> Option<Record> {
                match kind {
                    $($kind => {
                        $($($(take_before!(r, $($before)+);)* take_field!(r, $field: $type $(, $form)?);)*)?
                        Some(Record::$record $({ $($field),* })?)
                    })*
                    _ => None,
                }
            }

            /// Kind and name of each record, and the sizes of the fields before the first whose
            /// size varies.
            #[cfg(test)]
            const LAYOUTS: &'static [(u8, &'static str, &'static [&'static [usize]])] = &[
                $(($kind, $name, &[$($($(before_sizes!($($before)+),)* field_sizes!($type $(, $form)?),)*)?])),*
            ];
        }
    };
}

macro_rules! before_size {
    (zero $bytes:literal) => {
        $bytes
    };
    ($count:ident $field:ident) => {
        4
    };
}

macro_rules! put_before {
    ($w:ident, zero $bytes:literal) => {
        $w.put(&[0; $bytes])
    };
    ($w:ident, count $field:ident) => {
        $w.u32($field.len() as u32)
    };
    ($w:ident, length $field:ident) => {
        $w.u32($field.iter().map(|piece| piece.len() as u32).sum())
    };
}

macro_rules! take_before {
    ($r:ident, zero $bytes:literal) => {
        $r.take($bytes)?
    };
    ($r:ident, $count:ident $field:ident) => {
        let $field = $r.u32()? as usize;
    };
}

macro_rules! field_size {
    ($field:ident u32) => {
        size_of_val(&$field.number())
    };
    ($field:ident u64) => {
        size_of_val(&u64::from($field.number()))
    };
    ($field:ident list) => {
        $field.iter().map(Field::size).sum::<usize>()
    };
    ($field:ident bytes) => {
        $field.iter().map(|piece| piece.len()).sum::<usize>()
    };
    ($field:ident) => {
        $field.size()
    };
}

macro_rules! put_field {
    ($w:ident, $field:ident u32) => {
        $w.u32($field.number())
    };
    ($w:ident, $field:ident u64) => {
        $w.u64(u64::from($field.number()))
    };
    ($w:ident, $field:ident list) => {
        $field.iter().for_each(|item| item.encode($w))
    };
    ($w:ident, $field:ident bytes) => {
        $field.iter().for_each(|piece| $w.put(piece))
    };
    ($w:ident, $field:ident) => {
        $field.encode($w)
    };
}

macro_rules! take_field {
    ($r:ident, $field:ident: $type:ty, u32) => {
        let $field = <$type as Wide>::of($r.u32()?.into())?;
    };
    ($r:ident, $field:ident: $type:ty, u64) => {
        let $field = <$type as Wide>::of($r.u64()?)?;
    };
    ($r:ident, $field:ident: $type:ty, list) => {
        let $field = list($r, $field)?;
    };
    ($r:ident, $field:ident: $type:ty, bytes) => {
        let $field = vec![$r.take($field)?];
    };
    ($r:ident, $field:ident: $type:ty) => {
        let $field = <$type as Field>::decode($r)?;
    };
}

#[cfg(test)]
macro_rules! before_sizes {
    (zero $bytes:literal) => {
        &[$bytes]
    };
    ($count:ident $field:ident) => {
        &[4]
    };
}

#[cfg(test)]
macro_rules! field_sizes {
    ($type:ty, u32) => {
        &[4]
    };
    ($type:ty, u64) => {
        &[8]
    };
    ($type:ty, $varies:ident) => {
        &[]
    };
    ($type:ty) => {
        <$type as Field>::SIZES
    };
}
