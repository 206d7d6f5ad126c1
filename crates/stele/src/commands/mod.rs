//! The commands: each sends calls over its connection, and prints for people or as JSON.

pub mod act;
pub mod affected;
pub mod approve;
pub mod archive;
pub mod backup;
pub mod class;
pub mod config;
pub mod disposal;
pub mod doctor;
pub mod drive;
pub mod dump;
pub mod evidence;
pub mod export;
pub mod find;
pub mod lab;
pub mod manual;
pub mod master_key;
pub mod matter;
pub mod names;
pub mod notifications;
pub mod pool;
pub mod rebuild;
pub mod self_test;
pub mod serve;
pub mod share;
pub mod top;
pub mod upgrade;
pub mod volume;
pub mod witness;

use std::io::{BufRead, IsTerminal, Write};

use serde::Serialize;
use stele_ground::Shown;
use stele_server::config::Site;
use stele_server::failure::{Failure, Outcome};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::show::Drive;
use crate::cli::upgrade::Upgrade;
use crate::cli::{Cli, Command};

pub async fn run(cli: Cli) -> Outcome<()> {
    let site = Site::find(cli.place.dir.as_deref(), cli.place.config.as_deref());
    let json = cli.place.json;
    match cli.command {
        Command::Up(up) => serve::up(&site, json, up).await,
        Command::Serve(serve) => serve::serve(&site, json, serve).await,
        Command::Pool(command) => pool::run(&site, json, command).await,
        Command::Volume(command) => volume::run(&site, json, command).await,
        Command::Export(command) => export::run(&site, json, command).await,
        Command::Share(command) => share::run(&site, json, command).await,
        Command::Backup(command) => backup::run(&site, json, command).await,
        Command::Bucket(command) => archive::bucket(&site, json, command).await,
        Command::Notifications(command) => notifications::run(&site, json, command).await,
        Command::Key(command) => archive::key(&site, json, command).await,
        Command::MasterKey(command) => master_key::run(&site, json, command).await,
        Command::Why { object } => archive::why(&site, json, &object).await,
        Command::SelfTest { bucket } => self_test::run(&site, json, bucket).await,
        Command::Matter(command) => matter::run(&site, json, command).await,
        Command::Find(find) => find::run(&site, json, find).await,
        Command::Class(command) => class::class(&site, json, command).await,
        Command::Event(command) => class::event(&site, json, command).await,
        Command::Audit(command) => archive::audit(&site, json, command).await,
        Command::Receipt(command) => evidence::receipt(&site, json, command).await,
        Command::Disposal(command) => disposal::run(&site, json, command).await,
        Command::Witness(given) => witness::run(json, given).await,
        Command::Proof(command) => evidence::proof(&site, json, command).await,
        Command::Clock(command) => archive::clock(&site, json, command).await,
        Command::Approve(command) => approve::run(&site, json, command).await,
        Command::Act(command) => act::run(&site, json, command).await,
        Command::Catalog(command) => rebuild::run(&site, json, command).await,
        Command::Drive(Drive::Dump { path }) => dump::run(json, &path),
        Command::Drive(Drive::Clear { drive }) => drive::clear(&site, json, drive).await,
        Command::Drive(Drive::Online { drive, path }) => drive::online(&site, json, drive, path).await,
        Command::Drive(Drive::Wipe { path, pool, yes }) => drive::wipe(&site, json, path, pool, yes).await,
        Command::Drive(Drive::Locate { drive, off }) => drive::locate(&site, json, drive, !off).await,
        Command::Affected(affected) => affected::run(&site, json, affected.all).await,
        Command::Drive(Drive::Set { drive, enclosure }) => pool::set_drive(&site, json, drive, enclosure).await,
        Command::Lab(command) => lab::run(json, *command).await,
        Command::Config(command) => config::run(&site, json, command).await,
        Command::Top { once } => top::run(&site, json, once).await,
        Command::Upgrade(Upgrade::Check) => upgrade::check(&site, json).await,
        Command::Doctor => doctor::run(&site, json).await,
        Command::Manual { into } => manual::write(&into),
    }
}

/// Prints a JSON value on one line of standard output.
pub fn print_json(value: &impl Serialize) -> Outcome<()> {
    let text =
        stele_server::said::json_line(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    println!("{text}");
    Ok(())
}

/// Works until the work is done, or until Ctrl-C or SIGTERM ends it: also while a server gives no
/// answer.
pub async fn until_told(work: impl Future<Output = Outcome<()>>) -> Outcome<()> {
    let failed = |error: std::io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

/// Asks on a terminal for confirmation. Without a terminal, the flag must be given.
pub fn confirm(question: &str, flag: &str) -> Outcome<()> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{question} This needs a yes.")).next(format!("add {flag}")));
    }
    eprint!("{} [y/N] ", Shown(question));
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    let _ = std::io::stdin().lock().read_line(&mut line);
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::failed("not confirmed; nothing was done")),
    }
}
