//! `stele up` and `stele serve`: opens a node, serves it, and closes it when told to stop.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use stele_array::reactor::{DrivePlace, NewDrives};
use stele_ground::{Bytes, GIB, MIB};
use stele_media::Space;
use stele_object::{Face, Settings};
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;

use crate::api::archive::{KeyCreate, NewKeyView};
use crate::api::{Actor, Call};
use crate::cli::serve::{Serve, Up};
use crate::commands::print_json;
use crate::config::{Config, Site};
use crate::drives::DriveArgument;
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::node::create::{Made, make};
use crate::node::{Node, Opening, own_uid};
use crate::seat::alone;
use crate::server::{admin, background, s3, snapshot, tls};

/// How long requests under way may take to finish once told to stop.
const PATIENCE: Duration = Duration::from_secs(20);
/// Of a file drive made by `stele up` where there is room.
const DRIVE_SIZE: u64 = 4 * GIB;
const DRIVE_MIN: u64 = 256 * MIB;

/// What `--json` prints when the server is ready, on one line.
#[derive(Serialize)]
struct Ready {
    endpoint: String,
    region: String,
    /// Only at the first start: keys are printed once.
    #[serde(skip_serializing_if = "Option::is_none")]
    access_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_key: Option<String>,
    socket: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<PathBuf>,
}

pub async fn up(site: &Site, json: bool, up: Up) -> Outcome<()> {
    alone(site).await?;
    fs::create_dir_all(&site.dir).map_err(|error| io_failure("make", &site.dir, &error))?;
    let (node, key) = if site.config_path.exists() {
        let mut config = Config::read(&site.config_path)?;
        config.s3.listen = up.listen;
        (Node::open(site, config, Opening::for_server()).await?, None)
    } else {
        let node = first_start(site, &up).await?;
        let key = first_key(&node).await?;
        (node, Some(key))
    };
    let certificate = if up.tls { Some(tls::self_signed(&site.dir)?) } else { None };
    run(site, json, node, key, certificate).await
}

pub async fn serve(site: &Site, json: bool, serve: Serve) -> Outcome<()> {
    alone(site).await?;
    let config = Config::read(&site.config_path)?;
    let opening = Opening { override_quorum: serve.override_quorum, ..Opening::for_server() };
    let node = Node::open(site, config, opening).await?;
    // A pool that was made with `stele pool create` has no key until it is first served.
    let keys = match node.archive() {
        Ok(archive) => archive.list_access_keys(&Actor { uid: own_uid() }.caller()).await?.len(),
        Err(_) => 1,
    };
    let key = if keys == 0 { Some(first_key(&node).await?) } else { None };
    run(site, json, node, key, None).await
}

async fn first_start(site: &Site, up: &Up) -> Outcome<Node> {
    let drives = site.dir.join("drives");
    fs::create_dir_all(&drives).map_err(|error| io_failure("make", &drives, &error))?;
    let size = match up.drive_size {
        Some(size) => size,
        None => fitting_size(site, up.drives)?,
    };
    // Two drives to an enclosure, e0-0, e0-1, e1-0 ...
    let places =
        (0..up.drives).map(|number| DrivePlace::new(format!("drives/e{}-{}.img", number / 2, number % 2), number / 2));
    let mut config = Config::new(places.map(DriveArgument).collect());
    config.pool.rebuild_after = 10;
    config.s3.listen = up.listen;
    let new = NewDrives { size, space: Space::Sparse };
    let made = Made { name: "pool".to_owned(), log: None, spare: None, data: Some(up.data), new: Some(new) };
    make(site, config, made).await
}

/// The default, or as much as half of what is free allows: sparse files must not promise what the disk cannot hold.
fn fitting_size(site: &Site, drives: u32) -> Outcome<Bytes> {
    let free = stele_media::system::free_space(&site.dir)
        .map_err(|error| io_failure("ask for free space on", &site.dir, &error))?;
    let size = (free.0 / 2 / u64::from(drives.max(1))).min(DRIVE_SIZE) / MIB * MIB;
    if size < DRIVE_MIN {
        return Err(Failure::new(
            Kind::Full,
            format!(
                "{} has {free} free; {drives} drives of at least {} do not fit",
                site.dir.display(),
                Bytes(DRIVE_MIN)
            ),
        )
        .next("free some space, or name another directory with --dir"));
    }
    Ok(Bytes(size))
}

async fn first_key(node: &Node) -> Outcome<NewKeyView> {
    let create = KeyCreate {
        name: "made at the first start".to_owned(),
        role: "storage-administrator".to_owned(),
        every_role: true,
        ..KeyCreate::default()
    };
    create.perform(node, &Actor { uid: own_uid() }).await
}

async fn run(
    site: &Site,
    json: bool,
    node: Node,
    key: Option<NewKeyView>,
    generated: Option<(PathBuf, PathBuf)>,
) -> Outcome<()> {
    let node = Arc::new(node);
    let served = serve_node(site, json, &node, key, generated).await;
    // Whatever went wrong, what was acknowledged is durable already; closing only makes the next start quicker.
    let closed = match Arc::try_unwrap(node) {
        Ok(node) => node.close().await,
        Err(node) => {
            tracing::warn!("some request did not end in time; the next start replays the log");
            drop(node);
            Ok(())
        }
    };
    served.and(closed)
}

async fn serve_node(
    site: &Site,
    json: bool,
    node: &Arc<Node>,
    key: Option<NewKeyView>,
    generated: Option<(PathBuf, PathBuf)>,
) -> Outcome<()> {
    let config = &node.config;
    let files = generated.or_else(|| {
        let (certificate, key) = (config.s3.tls_certificate.as_ref()?, config.s3.tls_key.as_ref()?);
        Some((site.path(certificate), site.path(key)))
    });
    let tls = files.as_ref().map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
    let socket = config.admin.socket.as_ref().map_or_else(|| site.dir.join("stele.sock"), |socket| site.path(socket));
    let admin_listener = admin::listen(&socket)?;
    let listener = s3::listen(config.s3.listen).await?;
    let address =
        listener.local_addr().map_err(|error| Failure::failed(format!("the S3 endpoint has no address: {error}")))?;
    let metrics_listener = match config.admin.metrics {
        Some(address) => Some(s3::listen(address).await?),
        None => None,
    };
    let latest = snapshot::Latest::default();
    let face = match node.archive() {
        Ok(archive) => Some(Face::new(
            archive.clone(),
            settings(config, address),
            Arc::new(SystemTime::now),
            Some(latest.source()),
        )),
        Err(_) => None,
    };

    let (stop, stopping) = tokio::sync::watch::channel(false);
    let mut tasks = tokio::task::JoinSet::new();
    let mut waiting = stopping.clone();
    let admin_node = Arc::clone(node);
    tasks.spawn(async move {
        let stop = async move {
            let _ = waiting.wait_for(|stop| *stop).await;
        };
        if let Err(error) = admin::serve(admin_listener, admin_node, stop).await {
            tracing::error!("the administration socket failed: {error}");
        }
    });
    let mut background = tokio::task::JoinSet::new();
    background.spawn(latest.keep_fresh(Arc::clone(node)));
    background::start(&mut background, site, node);
    if let Some(face) = &face {
        background.spawn(s3::serve(listener, Arc::clone(face), tls.clone()));
        if let Some(listener) = metrics_listener {
            background.spawn(s3::serve_metrics(listener, Arc::clone(face)));
        }
    }

    announce(json, config, address, &tls, key, socket.clone(), files.map(|(certificate, _)| certificate))?;
    wait_for_signal().await?;
    tracing::info!("stopping: no new requests; those under way may take {} s", PATIENCE.as_secs());
    background.shutdown().await;
    if let Some(face) = &face
        && !face.doors().close(PATIENCE).await
    {
        tracing::warn!("some requests were broken off");
    }
    stop.send_replace(true);
    let _ = tokio::time::timeout(PATIENCE, async { while tasks.join_next().await.is_some() {} }).await;
    let _ = fs::remove_file(&socket);
    Ok(())
}

fn settings(config: &Config, address: SocketAddr) -> Settings {
    Settings {
        region: config.s3.region.clone(),
        domains: config.s3.domain.iter().cloned().collect(),
        connections_max: config.s3.connections_max as usize,
        // Everybody who reaches a loopback address is on this machine.
        open_metrics: address.ip().is_loopback(),
        ..Settings::default()
    }
}

fn announce(
    json: bool,
    config: &Config,
    address: SocketAddr,
    tls: &Option<TlsAcceptor>,
    key: Option<NewKeyView>,
    socket: PathBuf,
    certificate: Option<PathBuf>,
) -> Outcome<()> {
    let endpoint = format!("{}://{address}", if tls.is_some() { "https" } else { "http" });
    let (access_key, secret_key) = key.map(|key| (key.access_key, key.secret_key)).unzip();
    let ready = Ready { endpoint, region: config.s3.region.clone(), access_key, secret_key, socket, certificate };
    if json {
        return print_json(&ready);
    }
    println!("Stele is ready.\n\n  endpoint    {}\n  region      {}", ready.endpoint, ready.region);
    if let (Some(access), Some(secret)) = (&ready.access_key, &ready.secret_key) {
        println!(
            "  access key  {access}\n  secret key  {secret}\n\nThe secret is not shown again; `stele key create` makes more keys."
        );
    } else {
        println!("  keys        as made before; `stele key create` makes more");
    }
    if let Some(certificate) = &ready.certificate {
        println!("  certificate {}", certificate.display());
    }
    println!("\n`stele pool status` shows how it is; Ctrl-C stops it.");
    Ok(())
}

async fn wait_for_signal() -> Outcome<()> {
    let failed = |error: std::io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
