//! Keys that come from outside: access keys of callers, and copies of the master key.

pub(crate) mod access_keys;
pub(crate) mod expiry;
pub(crate) mod master_key;
mod officers;
pub(crate) mod sessions;
mod unasked;
