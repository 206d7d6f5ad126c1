//! Runs `stele witness`: opens its directory, serves, and ends after a signal.

use std::path::Path;

use aws_lc_rs::encoding::AsBigEndian;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use stele_server::evidence::public_key;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::files;
use stele_server::serving::s3::listen;
use stele_server::whole;
use stele_server::witness::service::{WitnessService, serve};
use stele_server::witness::{hex, is_store, unhex};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cli::witness::Witness;
use crate::commands::print_json;

pub async fn run(json: bool, given: Witness) -> Outcome<()> {
    let home = &given.home;
    std::fs::create_dir_all(home).map_err(|error| io_failure("make", home, &error))?;
    let _held = hold(home)?;
    let stores = given.stores.iter().map(|path| public_key(path)).collect::<Outcome<Vec<_>>>()?;
    let key = key_in(home)?;
    let public = hex(key.public_key().as_ref());
    files::replace(&home.join("witness.pub"), format!("{public}\n").as_bytes())?;
    let mut witness = WitnessService::new(home, key, stores);
    witness.open_all(signed_before(home)?)?;
    let (listener, listen) = listen(given.listen, "--listen").await?;
    let failed = |error: std::io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    match json {
        true => print_json(&serde_json::json!({ "listen": listen, "public_key": public }))?,
        false => println!("The witness with the key {public} listens on {listen}."),
    }
    let stop = watch::Sender::new(false);
    let serving = tokio::spawn(serve(listener, witness, stop.subscribe()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.send_replace(true);
    serving.await.map_err(|error| Failure::failed(format!("the witness broke off: {error}; this is a defect of Stele")))
}

/// Two processes on one directory could sign two lines of heads.
fn hold(home: &Path) -> Outcome<std::fs::File> {
    let path = home.join("lock");
    let file = std::fs::File::create(&path).map_err(|error| io_failure("open", &path, &error))?;
    file.try_lock().map_err(|_| {
        Failure::new(Kind::Busy, format!("another witness uses {}", home.display()))
            .next("stop it, or name another directory")
    })?;
    Ok(file)
}

/// The key of the witness; a new directory gets a new one.
fn key_in(home: &Path) -> Outcome<Ed25519KeyPair> {
    let path = home.join("witness.key");
    let next = "bring it back from a copy, or begin with a new directory";
    let wrong = || Failure::new(Kind::Damaged, format!("{} holds no key", path.display())).next(next);
    match whole::read_text(&path) {
        Ok(text) => {
            let seed = unhex(text.trim()).ok_or_else(wrong)?;
            Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| wrong())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if !signed_before(home)?.is_empty() {
                return Err(Failure::new(Kind::Damaged, format!("{} is missing", path.display())).next(next));
            }
            let made = Ed25519KeyPair::generate().map_err(|_| Failure::failed("cannot make a key"))?;
            let seed = made.seed().and_then(|seed| seed.as_be_bytes().map(|bytes| hex(bytes.as_ref())));
            let seed = seed.map_err(|_| Failure::failed("cannot make a key"))?;
            files::create_private(&path, format!("{seed}\n").as_bytes())?;
            Ok(made)
        }
        Err(error) => Err(io_failure("read", &path, &error)),
    }
}

/// The stores with heads in the directory.
fn signed_before(home: &Path) -> Outcome<Vec<String>> {
    let failed = |error: std::io::Error| io_failure("read", home, &error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(home).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if path.extension().is_some_and(|ending| ending == "heads") && is_store(name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
