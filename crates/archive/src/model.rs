//! The types of the interface: ids, settings, rights, errors, alarms, and time as the caller gives
//! it.

pub mod act;
pub mod action;
pub mod alarm;
pub mod bucket;
pub mod checksum;
pub mod class;
pub mod cors;
pub mod error;
pub mod head;
pub mod inventory;
pub mod lifecycle;
pub mod logging;
pub mod matter;
pub mod merkle;
pub mod mutation;
pub mod notification;
pub mod pairing;
pub mod policy;
pub mod principal;
pub mod secrets;
pub mod time;
pub mod version;
