//! `stele lab serve`, and runs on other hosts that serve.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_ground::Shown;
use stele_lab::error::LabError;
use stele_lab::hosts::client::Hosts;
use stele_lab::hosts::server::{self, Grant};
use stele_lab::hosts::wire::SECRET_MIN;
use stele_lab::job::{Given, Job, JobCell};
use stele_lab::live::target::Target;
use stele_server::failure::{Failure, Outcome};
use stele_server::whole;

use super::progress::Progress;
use super::stop::{StopRequests, end_at_once, until_stopped};
use super::turns::draft;
use super::{Ending, admit, head_before, head_of, keep, recorder, show, stopped};
use crate::cli::lab::{TokenArgs, What};
use crate::commands::print_json;

/// What a host that ends at once may leave.
const LEFT_HERE: &str = "accesses that the target has not answered may still be carried out, and files or objects of \
                         the run may be left";

/// Reads the secret that all hosts share.
pub fn secret(token: &TokenArgs) -> Outcome<Vec<u8>> {
    let text = match &token.token_file {
        Some(path) => whole::read_text(path).map_err(|error| LabError::of(&error, "cannot be read", path))?,
        None => std::env::var("STELE_LAB_TOKEN").map_err(|_| {
            Failure::usage("hosts of the laboratory share a secret").next("give --token-file, or set STELE_LAB_TOKEN")
        })?,
    };
    let text = text.trim();
    match text.len() < SECRET_MIN {
        true => Err(Failure::usage(format!("the secret has {} characters; at least {SECRET_MIN}", text.len()))),
        false => Ok(text.as_bytes().to_vec()),
    }
}

/// Serves one connection at a time.
pub async fn serve(json: bool, listen: SocketAddr, secret: Vec<u8>, destroy: bool) -> Outcome<()> {
    let cannot = |error: std::io::Error| Failure::failed(format!("{listen}: cannot listen: {error}"));
    let listener = tokio::net::TcpListener::bind(listen).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    match json {
        true => print_json(&serde_json::json!({ "listen": address }))?,
        false => println!("serving at {address}"),
    }
    let mut requests = StopRequests::new()?;
    let end = Arc::new(AtomicBool::new(false));
    let grant = Arc::new(Grant { secret, destroy });
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    eprintln!("stele: a connection did not come about: {error}");
                    continue;
                }
            },
            _ = requests.next() => return Ok(()),
        };
        // One that lost its power says nothing, and would hold the host for good.
        stele_server::serving::block::tune(&stream);
        let stream =
            stream.into_std().and_then(|stream| stream.set_nonblocking(false).map(|()| stream)).map_err(cannot)?;
        let (grant, over) = (Arc::clone(&grant), Arc::clone(&end));
        let mut served = tokio::task::spawn_blocking(move || server::serve(stream, &grant, &over));
        let ended = tokio::select! {
            ended = &mut served => ended,
            _ = requests.next() => {
                end.store(true, Ordering::Relaxed);
                tokio::select! {
                    _ = &mut served => return Ok(()),
                    // What it waits for may never end.
                    () = requests.again() => end_at_once(LEFT_HERE),
                }
            }
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(why)) => eprintln!("stele: {peer}: {}", Shown(&why)),
            Err(error) => eprintln!("stele: {peer}: it ended unexpectedly: {error}"),
        }
    }
}

/// Runs the job on all hosts at once.
pub async fn run(json: bool, what: What, job: Job, names: Vec<String>, secret: Vec<u8>) -> Outcome<()> {
    let cells = job.cells()?;
    if !job.tenant.is_empty()
        || job.load.profile.is_some()
        || cells.iter().any(|cell| cell.goal.is_some_and(|goal| goal.of_rates))
    {
        return Err(
            Failure::usage("tenants, profiles and the search for a rate run on one host").next("leave --hosts out")
        );
    }
    if what.live.live || what.live.metrics.is_some() {
        return Err(
            Failure::usage("hosts report their figures when a cell is over").next("leave --live and --metrics out")
        );
    }
    if job.modelled.is_some() {
        return Err(Failure::usage("modelled arrays run on one host").next("leave --hosts out"));
    }
    if matches!(job.buffered, Given::Many(_)) {
        return Err(Failure::usage("hosts open their target once").next("give one value of buffered, and run it twice"));
    }
    if job.precondition.is_some() {
        return Err(Failure::usage("hosts do not end their preconditioning together")
            .next("leave precondition out, or run it on each host alone before"));
    }
    let Some(on) = &job.on else {
        return Err(Failure::usage("nothing says what to measure").next("add --on with the target's name on each host"));
    };
    let target: Target = on.parse()?;
    if what.plan {
        return show::plan(&job, &cells, json);
    }
    until_stopped(move |stop| {
        admit(what.out.as_deref(), what.resume, &head_before(&job, &target, None))?;
        let mut hosts = Hosts::open(&names, &secret, &job, what.destroy, stop)?;
        let measured = sweep(json, &what, (&job, &target, &cells), &mut hosts, stop);
        measured.and(hosts.close(what.keep).map_err(Failure::from))
    })
    .await
}

fn sweep(
    json: bool,
    what: &What,
    (job, target, cells): (&Job, &Target, &[JobCell]),
    hosts: &mut Hosts,
    stop: &AtomicBool,
) -> Outcome<()> {
    let progress = Progress::new(json, cells);
    let patience = std::time::Duration::from_nanos(job.opening(cells, what.destroy)?.patience.0);
    let head = head_of(job, target, (hosts.reached.clone(), hosts.target_bytes, hosts.environment.clone()));
    let (mut recorder, mut done) = recorder(what.out.as_deref(), what.resume, &head)?;
    progress.begin(&head, done.len());
    let mut ending = Ending::Whole;
    for (number, cell) in cells.iter().enumerate().skip(done.len()) {
        let found = match hosts.cell(number, cell, patience, stop) {
            Ok(found) => found,
            Err(error) => {
                ending = Ending::Failed(error.into());
                break;
            }
        };
        let ended = stop.load(Ordering::Relaxed);
        if let Some(mut found) = found {
            if cell.setup.content.verify && number + 1 == cells.len() && !ended {
                if let Err(error) = draft(&mut recorder, &found) {
                    done.push(found);
                    ending = Ending::Failed(error.into());
                    break;
                }
                found = hosts.read_back(found, patience, stop);
            }
            progress.cell(&found);
            let kept = keep(&mut recorder, &found, ended);
            done.push(found);
            if let Err(error) = kept {
                ending = Ending::Failed(error.into());
                break;
            }
        }
        if ended {
            ending = Ending::Stopped;
            break;
        }
    }
    let (ending, digest) = ending.finish(recorder);
    show::outcome(&done, json, what.out.as_deref(), digest.as_deref());
    match ending {
        Ending::Whole => super::verdict(&done, true),
        Ending::Stopped => Err(stopped(what.out.as_deref(), &done)),
        Ending::Failed(failure) => Err(failure),
    }
}
