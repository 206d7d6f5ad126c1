//! The store as frontends see it.

use crate::testing::{World, admin, content, get, get_with, put};
use crate::*;

mod basics;
mod budget;
mod cancel;
mod classes;
mod closing;
mod evidence;
mod faults;
mod growth;
mod leftovers;
mod key_life;
mod lifecycle;
mod listing;
mod matters;
mod model;
mod moving;
mod policies;
mod proofs;
mod readers;
mod rebuilding;
mod receipts;
mod refused;
mod rules;
mod self_test;
mod sessions;
mod turns;
mod two_people;
mod unreadable;
mod waiting;
