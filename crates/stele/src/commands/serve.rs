//! `stele up` and `stele serve`: opens a node, serves it, and closes it when told to stop.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use stele_array::reactor::{DrivePlace, NewDrives};
use stele_ground::{Bytes, GIB, MIB};

use stele_object::{Face, Settings};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::api::archive::{KeyCreate, NewKeyView};
use crate::api::{Actor, Call};
use crate::cli::serve::{Serve, Up};
use crate::commands::print_json;
use crate::config::{Config, Site};
use crate::drives::DriveArgument;
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::node::create::{Made, make, space_of};
use crate::node::first_start::FirstStart;
use crate::node::{Node, Opening, own_uid, smart};
use crate::seat::alone;
use crate::server::messages::Messages;
use crate::server::{admin, background, block, ending, iscsi, notify, s3, snapshot, tls};

/// How long requests under way may take to finish once told to stop.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long commands under way may take after that.
const COMMAND_PATIENCE: Duration = Duration::from_secs(5);
/// Of a file drive made by `stele up` where there is room.
const DRIVE_SIZE: u64 = 4 * GIB;
const DRIVE_MIN: u64 = 256 * MIB;

/// In the data directory: the first key, where no terminal was there to show it on.
const FIRST_KEY: &str = "first-key.json";

/// Where `stele up` listens unless it is told otherwise or the configuration says so.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

/// What `--json` prints when the server is ready, on one line.
#[derive(Serialize)]
struct Ready {
    /// None where the pool has no archive, and S3 is not served.
    endpoint: Option<String>,
    region: String,
    /// Only at the first start, and on a terminal: what a service prints goes into a journal that others read.
    #[serde(skip_serializing_if = "Option::is_none")]
    access_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_key: Option<String>,
    /// Elsewhere: the file with both, which only its owner may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_file: Option<PathBuf>,
    socket: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<PathBuf>,
    /// Where `/health` and `/metrics` need no signature, if anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
    /// Where network block devices are served, over TCP and over a unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    nbd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nbd_socket: Option<PathBuf>,
    /// Where iSCSI is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    iscsi: Option<String>,
}

/// A node, and what the first start still owes its operator.
struct Start {
    node: Node,
    owed: Option<(FirstStart, NewKeyView)>,
}

pub async fn up(site: &Site, json: bool, up: Up) -> Outcome<()> {
    alone(site).await?;
    fs::create_dir_all(&site.dir).map_err(|error| io_failure("make", &site.dir, &error))?;
    let start = if site.config_path.exists() {
        let mut config = Config::read(&site.config_path)?;
        config.s3.listen = up.listen.unwrap_or(config.s3.listen);
        start(site, config, Opening::for_server()).await?
    } else {
        first_start(site, &up).await?
    };
    let listen = start.node.config.s3.listen.ip();
    let certificate = if up.tls { Some(tls::self_signed(&site.dir, listen)?) } else { None };
    run(site, json, start, certificate).await
}

pub async fn serve(site: &Site, json: bool, serve: Serve) -> Outcome<()> {
    alone(site).await?;
    let config = Config::read(&site.config_path)?;
    let opening = Opening { override_quorum: serve.override_quorum, ..Opening::for_server() };
    let start = start(site, config, opening).await?;
    run(site, json, start, None).await
}

/// Opens what was made before. Until a key has been printed, by whichever start, one is owed.
async fn start(site: &Site, config: Config, opening: Opening) -> Outcome<Start> {
    let unfinished = FirstStart::is_unfinished(site);
    let begun = if unfinished { Some(FirstStart::settle(site)?) } else { None };
    let node = Node::open(site, config, opening).await?;
    let keys = match node.archive() {
        Ok(archive) => archive.list_access_keys(&Actor { uid: own_uid() }.caller()).await.map(|keys| keys.len()),
        Err(_) => {
            begun.map(FirstStart::finish).transpose()?;
            return Ok(Start { node, owed: None });
        }
    };
    let begun = match keys {
        Ok(0) if begun.is_none() => FirstStart::settle(site).map(Some),
        Ok(_) => Ok(begun),
        Err(error) => Err(error.into()),
    };
    owe(node, begun).await
}

async fn owe(node: Node, begun: Outcome<Option<FirstStart>>) -> Outcome<Start> {
    let key = match begun {
        Ok(None) => return Ok(Start { node, owed: None }),
        Ok(Some(begun)) => first_key(&node).await.map(|key| (begun, key)),
        Err(failure) => Err(failure),
    };
    match key {
        Ok(owed) => Ok(Start { node, owed: Some(owed) }),
        Err(failure) => {
            let _ = node.close().await;
            Err(failure)
        }
    }
}

async fn first_start(site: &Site, up: &Up) -> Outcome<Start> {
    // Two drives to an enclosure, e0-0, e0-1, e1-0 ...
    let names: Vec<PathBuf> =
        (0..up.drives).map(|number| format!("drives/e{}-{}.img", number / 2, number % 2).into()).collect();
    let begun = FirstStart::begin(site, &names)?;
    let drives = site.dir.join("drives");
    // What volumes hold is not for others on this machine to read.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&drives)
        .map_err(|error| io_failure("make", &drives, &error))?;
    let size = match up.drive_size {
        Some(size) => size,
        None => fitting_size(site, up.drives)?,
    };
    let places = (0..).zip(names).map(|(number, name)| DriveArgument(DrivePlace::new(name, number / 2)));
    let mut config = Config::new(places.collect());
    config.pool.rebuild_after = 10;
    config.s3.listen = up.listen.unwrap_or(LISTEN);
    let new = NewDrives { size, space: space_of(up.written) };
    let made =
        Made { name: "pool".to_owned(), log: Some(log_of(size)), spare: None, data: Some(up.data), new: Some(new) };
    let node = make(site, config, made).await?;
    drop(begun);
    owe(node, FirstStart::settle(site).map(Some)).await
}

/// Small drives get a larger share of log than the array's default: small objects then fill whole stripes before they leave
/// it, and checkpoints are seconds apart.
fn log_of(drive: Bytes) -> Bytes {
    Bytes((drive.0 / 16).min(128 * MIB).max(drive.0 / 64).clamp(8 * MIB, 1024 * MIB))
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
        roles: vec!["storage-administrator".to_owned()],
        every_role: true,
        ..KeyCreate::default()
    };
    create.perform(node, &Actor { uid: own_uid() }).await
}

async fn run(site: &Site, json: bool, start: Start, generated: Option<(PathBuf, PathBuf)>) -> Outcome<()> {
    let Start { node, owed } = start;
    let node = Arc::new(node);
    let served = serve_node(site, json, &node, owed, generated).await;
    // Whatever went wrong, what was acknowledged is durable already; closing only makes the next start quicker.
    match ending::close(node, ending::GRACE).await {
        Err(failure) if failure.kind == Kind::Stuck => Err(failure),
        closed => served.and(closed),
    }
}

async fn serve_node(
    site: &Site,
    json: bool,
    node: &Arc<Node>,
    owed: Option<(FirstStart, NewKeyView)>,
    generated: Option<(PathBuf, PathBuf)>,
) -> Outcome<()> {
    let config = &node.config;
    let files = generated.or_else(|| {
        let (certificate, key) = (config.s3.tls_certificate.as_ref()?, config.s3.tls_key.as_ref()?);
        Some((site.path(certificate), site.path(key)))
    });
    let tls = files.as_ref().map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
    let socket = config.admin.socket.as_ref().map_or_else(|| site.dir.join("stele.sock"), |socket| site.path(socket));
    let admin_listener = admin::listen(&socket, "[admin] socket", !config.admin.officers.is_empty())?;
    let (latest, mut look) = (snapshot::Latest::default(), snapshot::Look::default());
    latest.refresh(node, &mut look).await;

    let (stop, stopping) = tokio::sync::watch::channel(false);
    let mut tasks = tokio::task::JoinSet::new();
    let mut background = tokio::task::JoinSet::new();
    look.messages = Messages::start(site, config, &mut background)?;
    let mut ready = Ready {
        endpoint: None,
        region: config.s3.region.clone(),
        access_key: None,
        secret_key: None,
        key_file: None,
        socket: socket.clone(),
        certificate: None,
        metrics: None,
        nbd: None,
        nbd_socket: None,
        iscsi: None,
    };
    let mut face = None;
    let mut metrics = None;
    let mut metrics_at = config.admin.metrics;
    if let Ok(archive) = node.archive() {
        let (listener, address) = s3::listen(config.s3.listen, "--listen or [s3] listen").await?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        ready.endpoint = Some(format!("{scheme}://{address}"));
        ready.metrics = address.ip().is_loopback().then(|| format!("{scheme}://{address}/metrics"));
        ready.certificate = files.map(|(certificate, _)| certificate);
        let (settings, clock) = (settings(config, address), Arc::new(SystemTime::now));
        let made = Face::new(archive.clone(), settings, clock, Some(latest.source()));
        let _ = node.s3.set(made.shared_metrics());
        metrics = Some(made.shared_metrics());
        background.spawn(s3::serve(listener, Arc::clone(&made), tls));
        face = Some(made);
    } else if config.s3.listen.ip().is_loopback() {
        // Without an archive there is no S3; health is asked for where S3 would be.
        metrics_at = metrics_at.or(Some(config.s3.listen));
    }
    if let Some(address) = metrics_at {
        let (listener, address) = s3::listen(address, "[admin] metrics").await?;
        ready.metrics = Some(format!("http://{address}/metrics"));
        background.spawn(s3::serve_metrics(listener, metrics.unwrap_or_default(), latest.source()));
    }
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
    let nbd = serve_nbd(site, node, &mut background).await?;
    ready.nbd_socket = Some(nbd.socket.clone());
    ready.nbd = nbd.address.map(|address| address.to_string());
    ready.iscsi = serve_iscsi(node, &mut background).await?.map(|address| address.to_string());
    background.spawn(latest.keep_fresh(Arc::clone(node), look));
    background::start(&mut background, site, node);
    background.spawn(notify::keep_watch(Arc::clone(node)));
    background.spawn(smart::keep_asking(Arc::clone(node)));

    let first = match owed {
        Some((first, key)) => {
            tell(site, &mut ready, key)?;
            Some(first)
        }
        None => None,
    };
    // Before anybody is told to come: whoever has been told may stop it at once.
    let signals = Signals::new()?;
    announce(json, &ready)?;
    notify::tell("READY=1");
    // Said, and therefore no longer owed.
    first.map(FirstStart::finish).transpose()?;
    signals.wait().await;
    notify::tell("STOPPING=1");
    tracing::info!("stopping: no new requests; those under way may take {} s", PATIENCE.as_secs());
    background.shutdown().await;
    let _ = fs::remove_file(&nbd.socket);
    let begun = tokio::time::Instant::now();
    let targets = node.exports.directory.withdraw_all();
    while targets.iter().any(|target| target.is_used()) && begun.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if let Some(face) = &face
        && !face.doors().close(PATIENCE).await
    {
        tracing::warn!("some requests were broken off; none of them was acknowledged");
    }
    stop.send_replace(true);
    let _ = tokio::time::timeout(COMMAND_PATIENCE, async { while tasks.join_next().await.is_some() {} }).await;
    let _ = fs::remove_file(&socket);
    background::forget_removed_now(site, node).await;
    background::send_heads(site, node).await;
    background::keep_history(node).await;
    Ok(())
}

/// Where network block devices are served.
struct NbdPlaces {
    socket: PathBuf,
    address: Option<SocketAddr>,
}

async fn serve_nbd(site: &Site, node: &Arc<Node>, tasks: &mut tokio::task::JoinSet<()>) -> Outcome<NbdPlaces> {
    let config = &node.config.nbd;
    node.serve_exports().await?;
    let tls = match (&config.tls_certificate, &config.tls_key) {
        (Some(certificate), Some(key)) => {
            let authority = config.client_authority.as_ref().map(|authority| site.path(authority));
            Some(block::acceptor(&site.path(certificate), &site.path(key), authority.as_deref())?)
        }
        _ => None,
    };
    let door = block::Door {
        directory: node.exports.directory.clone(),
        pool: Arc::clone(&node.pool),
        tls,
        tls_required: config.tls_required,
    };
    let mut address = None;
    if let Some(listen) = config.listen {
        let (listener, listening) = s3::listen(listen, "[nbd] listen").await?;
        node.note_nbd_address(listening);
        address = Some(listening);
        tasks.spawn(block::serve_tcp(listener, door.clone()));
    }
    let socket = site.nbd_socket(&node.config);
    tasks.spawn(block::serve_unix(admin::listen(&socket, "[nbd] socket", false)?, door));
    Ok(NbdPlaces { socket, address })
}

async fn serve_iscsi(node: &Arc<Node>, tasks: &mut tokio::task::JoinSet<()>) -> Outcome<Option<SocketAddr>> {
    let Some(listen) = node.config.iscsi.listen else { return Ok(None) };
    let (listener, address) = s3::listen(listen, "[iscsi] listen").await?;
    node.note_iscsi_address(address);
    let door =
        iscsi::Door { node: Arc::clone(&node.exports.iscsi), pool: Arc::clone(&node.pool), refusals: Arc::default() };
    tasks.spawn(iscsi::serve(listener, door));
    Ok(Some(address))
}

fn settings(config: &Config, address: SocketAddr) -> Settings {
    Settings {
        region: config.s3.region.clone(),
        domains: config.s3.domain.iter().cloned().collect(),
        connections_max: config.s3.connections_max as usize,
        connections_per_peer: config.s3.connections_per_peer as usize,
        // Everybody who reaches a loopback address is on this machine.
        open_metrics: address.ip().is_loopback(),
        ..Settings::default()
    }
}

/// Tells the first key to whoever sits at the terminal; without one it goes into a file.
fn tell(site: &Site, ready: &mut Ready, key: NewKeyView) -> Outcome<()> {
    if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        ready.access_key = Some(key.access_key);
        ready.secret_key = Some(key.secret_key);
        return Ok(());
    }
    let path = site.dir.join(FIRST_KEY);
    let text = serde_json::to_string(&key).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    // What an earlier start wrote there and could not say is void: nobody read it.
    crate::files::replace_private(&path, format!("{text}\n").as_bytes())?;
    ready.key_file = Some(path);
    Ok(())
}

fn announce(json: bool, ready: &Ready) -> Outcome<()> {
    if json {
        return print_json(ready);
    }
    println!("Stele is ready.\n");
    match &ready.endpoint {
        Some(endpoint) => println!("  endpoint    {endpoint}\n  region      {}", ready.region),
        None => println!("  endpoint    none: this pool has no archive, and S3 is not served"),
    }
    if let (Some(access), Some(secret)) = (&ready.access_key, &ready.secret_key) {
        println!(
            "  access key  {access}\n  secret key  {secret}\n\nThe secret is not shown again; `stele key create` makes more keys."
        );
    } else if let Some(file) = &ready.key_file {
        println!("  access key  in {}, which only its owner may read; keep it elsewhere and remove it", file.display());
    } else if ready.endpoint.is_some() {
        println!("  keys        as made before; `stele key create` makes more");
    }
    if let Some(certificate) = &ready.certificate {
        println!("  certificate {}", certificate.display());
    }
    if let Some(metrics) = &ready.metrics {
        println!("  metrics     {metrics}");
    }
    println!("\n`stele pool status` shows how it is; Ctrl-C stops it.");
    Ok(())
}

/// What asks the server to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Outcome<Signals> {
        let failed = |error: std::io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        Ok(Signals { terminate, interrupt: signal(SignalKind::interrupt()).map_err(failed)? })
    }

    async fn wait(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
