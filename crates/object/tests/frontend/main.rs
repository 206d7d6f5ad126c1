//! The frontend as its clients meet it. One program: building the frontend into another one for each file took a minute.

mod clients;
mod hostile;
mod http;
mod patience;
mod server;
mod silence;
mod stock;
mod wire;
