//! The store as frontends see it.

use crate::testing::{World, admin, content, get, get_with, put};
use crate::*;

mod acts;
mod basics;
mod budget;
mod cancel;
mod classes;
mod closing;
mod disposals;
mod evidence;
mod faults;
mod growth;
mod key_life;
mod leftovers;
mod lifecycle;
mod listing;
mod matters;
mod model;
mod moving;
mod notifications;
mod parts;
mod policies;
mod proofs;
mod readers;
mod rebuilding;
mod receipts;
mod refused;
mod reports;
mod rules;
mod self_test;
mod sessions;
mod turns;
mod two_people;
mod unreadable;
mod waiting;
