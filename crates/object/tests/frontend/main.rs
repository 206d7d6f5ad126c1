//! The frontend as its clients meet it. All tests are one program: a program for each file would
//! cost a minute of building.

mod clients;
mod forms;
mod hostile;
mod http;
mod named;
mod patience;
mod policies;
mod rest;
mod server;
mod silence;
mod stock;
mod strict;
mod unlisted;
mod wire;
