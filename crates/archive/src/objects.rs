//! Operations on objects: put, get, copy, list, delete, tag, and multipart upload.

pub(crate) mod body;
pub mod copy;
pub mod deletion;
pub mod get;
pub(crate) mod install;
pub mod list;
pub mod multipart;
pub mod put;
mod reports;
pub(crate) mod tags;
