//! Tests of the program as its users meet it: the built `stele` in a directory of its own, with
//! real clients. One program holds them all, since each would link the same libraries again.
//! `./x test` runs every module in a process of its own.

mod support;

mod backup;
mod backup_commands;
mod backup_damage;
mod backup_two;
mod backup_volume;
mod block;
mod block_proof;
mod catalog;
mod change;
mod clients;
mod command;
mod days;
mod disposal;
mod documents;
mod drill;
mod everyday;
mod evidence;
mod files_proof;
mod formats;
mod full;
mod growth;
mod guard;
mod heads;
mod hostile;
mod iscsi;
mod json;
mod lab;
mod lab_backup;
mod lab_loads;
mod lab_recipes;
mod lab_targets;
mod lab_virtual;
mod losses;
mod matters;
mod memory;
mod messages;
mod metrics;
mod objects_proof;
mod owners;
mod pool;
mod ransomware;
mod replace;
mod rest;
mod rights;
mod service;
mod shards;
mod share;
mod share_s3;
mod standing;
mod start;
mod tls;
mod volumes;
