//! Choosing the drives of a row.
