//! `stele up` and `stele serve`: opens a node, serves it, and closes it after a signal.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use stele_array::server::{DrivePlace, NewDrives};
use stele_codes::Code;
use stele_ground::{Bytes, GIB, MIB, counted};
use stele_server::api::archive::{CreateKey, NewKeyView};
use stele_server::api::{Actor, Call};
use stele_server::config::{Config, Site};
use stele_server::connection::{alone, holder};
use stele_server::drives::DriveArgument;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::node::create::{Made, make, space_of};
use stele_server::node::first_start::{FirstStart, KEY_NAME};
use stele_server::node::surroundings::hide_memory;
use stele_server::node::{Node, Opening, own_uid};
use stele_server::said::json_line;
use stele_server::serving::services::{ServerAddresses, Services};
use stele_server::serving::tls::{self, TlsFiles};
use stele_server::serving::{address_space, ending, notify, s3};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::serve::{Serve, Up};
use crate::commands::backup::progress::{come, hangup};
use crate::output::cut_off;

/// Size of a file drive made by `stele up`, if there is space.
const DRIVE_SIZE: u64 = 4 * GIB;
const DRIVE_MIN: u64 = 256 * MIB;
/// Below it there is no room for more than labels and a log.
const DRIVE_LEAST: u64 = 16 * MIB;

/// File drives of a first start, and the code of its data volume.
const DRIVES_MADE: u32 = 12;
const DATA: &str = "8+2";

/// Folder of the file drives in the data directory.
const DRIVES: &str = "drives";

/// File in the data directory with the first key, for a first start without a terminal.
const FIRST_KEY: &str = "first-key.json";

/// What a server leaves in its data directory, and no start that was killed before it served. In a
/// directory with one of them, a configuration that is not there was lost.
const OF_A_SERVER: [&str; 4] = [FIRST_KEY, "exports.json", "heads", "history.json"];

/// The archive refuses every change, and there is no key yet.
const NO_FIRST_KEY: &str = "the archive is open for reading only, so no first key was made, and S3 clients have none; \
                            follow its alarm in `stele pool status`, and start again: that start makes the key";

/// How long a start waits for a command that holds the drives, and the pause between two tries.
const COMMAND_MAX: Duration = Duration::from_secs(5);
const COMMAND_PAUSE: Duration = Duration::from_millis(100);

/// Address of `stele up`, unless an option or the configuration names another.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

/// The line that `--json` prints when the server is ready.
#[derive(Serialize)]
struct Ready {
    #[serde(flatten)]
    places: ServerAddresses,
    region: String,
    /// Only at the first start, and on a terminal: the output of a service goes into a journal that
    /// others read.
    #[serde(skip_serializing_if = "Option::is_none")]
    access_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_key: Option<String>,
    /// Without a terminal: the file with both, which only its owner may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_file: Option<PathBuf>,
    /// For people: of the keys that are not shown here.
    #[serde(skip)]
    other_keys: &'static str,
}

impl Ready {
    fn new(places: &ServerAddresses, config: &Config) -> Ready {
        let region = config.s3.region.clone();
        let (access_key, secret_key, key_file, other_keys) = (None, None, None, keys_in_words(false, true));
        Ready { places: places.clone(), region, access_key, secret_key, key_file, other_keys }
    }
}

/// A node, and the first start that owes the operator a key. The key is made once the server
/// serves: a start that fails and is repeated would leave one behind each time.
struct Start {
    node: Node,
    owed: Option<FirstStart>,
}

pub async fn up(site: &Site, json: bool, up: Up) -> Outcome<()> {
    hide_memory();
    alone(site).await?;
    if !site.config_path.exists() {
        refuse_lost_configuration(site)?;
        check_size(up.drive_size)?;
        // A pool is made only where it can be served.
        drop(s3::listen(up.listen.unwrap_or(LISTEN), "--listen").await?);
    }
    let is_new = !site.dir.exists();
    fs::create_dir_all(&site.dir).map_err(|error| io_failure("make", &site.dir, &error))?;
    let start = if site.config_path.exists() {
        let mut config = Config::read(&site.config_path)?;
        config.s3.listen = up.listen.unwrap_or(config.s3.listen);
        let start = start(site, config, Opening::for_server()).await?;
        let pool = PoolMade::of(site, &start.node);
        unheeded(&up, &pool).iter().for_each(|warning| tracing::warn!("{warning}"));
        start
    } else {
        first_start(site, &up).await.inspect_err(|_| {
            if is_new {
                // One that holds anything stays.
                let _ = fs::remove_dir(&site.dir);
            }
        })?
    };
    let listen = start.node.config.s3.listen.ip();
    let certificate = if up.tls { Some(tls::self_signed(&site.dir, listen)?) } else { None };
    run(site, json, start, certificate).await
}

pub async fn serve(site: &Site, json: bool, serve: Serve) -> Outcome<()> {
    hide_memory();
    alone(site).await?;
    let config = Config::read(&site.config_path)?;
    let opening = Opening { override_quorum: serve.override_quorum, ..Opening::for_server() };
    let start = start(site, config, opening).await?;
    run(site, json, start, None).await
}

/// Refuses a first start where another server was: a new, empty pool would take its place, and the
/// file with its first key would be overwritten.
fn refuse_lost_configuration(site: &Site) -> Outcome<()> {
    let Some(left) = OF_A_SERVER.iter().find(|name| site.dir.join(name).exists()) else { return Ok(()) };
    let (dir, config) = (site.dir.display(), site.config_path.display());
    let message = format!("{dir} is the data directory of a server, since it has {left}, and {config} is not there");
    Err(Failure::missing(message).next(
        "restore the configuration, as with `stele config import`; for a new pool, name another directory with --dir",
    ))
}

/// Opens an existing pool. Until a start has shown the first key, every start has to show one. What
/// the archive holds decides, and not the note of a first start alone.
async fn start(site: &Site, config: Config, opening: Opening) -> Outcome<Start> {
    let begun = FirstStart::resume(site)?;
    let node = opened(site, config, opening).await?;
    let is_read_only = node.archive().is_ok_and(|archive| archive.is_read_only());
    let keys = match node.archive() {
        Ok(archive) => archive.list_access_keys(&Actor { uid: own_uid() }.caller()).await,
        Err(_) => {
            begun.map(FirstStart::finish).transpose()?;
            return Ok(Start { node, owed: None });
        }
    };
    let begun = match (keys, begun) {
        // Nothing can be made now; a note of a first start stays for the next one.
        (Ok(keys), _) if is_read_only => {
            if keys.is_empty() {
                tracing::warn!("{NO_FIRST_KEY}");
            }
            return Ok(Start { node, owed: None });
        }
        (Ok(keys), Some(begun)) if begun.owes_beside(&keys) => begun.settled().map(Some),
        (Ok(_), Some(begun)) => begun.ignore().map(|()| None),
        (Ok(keys), None) if keys.is_empty() => FirstStart::settle(site).map(Some),
        (Ok(_), None) => Ok(None),
        (Err(error), _) => Err(error.into()),
    };
    owe(node, begun).await
}

/// Opens the pool. A command that reads the drives without a server ends soon, and is waited for.
async fn opened(site: &Site, config: Config, opening: Opening) -> Outcome<Node> {
    address_space::check(&config);
    let until = Instant::now() + COMMAND_MAX;
    loop {
        match Node::open(site, config.clone(), opening).await {
            Err(failure) if is_held_by_command(&failure) && Instant::now() < until => {
                tokio::time::sleep(COMMAND_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// Whether a drive is in the hands of another `stele`, as the message about its lock names it.
fn is_held_by_command(failure: &Failure) -> bool {
    holder(failure).is_some()
}

async fn owe(node: Node, begun: Outcome<Option<FirstStart>>) -> Outcome<Start> {
    match begun {
        Ok(owed) => Ok(Start { node, owed }),
        Err(failure) => {
            let _ = node.close().await;
            Err(failure)
        }
    }
}

async fn first_start(site: &Site, up: &Up) -> Outcome<Start> {
    // Two drives in each enclosure: e0-0, e0-1, e1-0 ...
    let names: Vec<PathBuf> = (0..up.drives.unwrap_or(DRIVES_MADE))
        .map(|number| format!("{DRIVES}/e{}-{}.img", number / 2, number % 2).into())
        .collect();
    let begun = FirstStart::begin(site, &names)?;
    let drives = site.dir.join(DRIVES);
    let is_new = !drives.exists();
    match first_pool(site, up, names).await {
        Ok(node) => {
            drop(begun);
            owe(node, FirstStart::settle(site).map(Some)).await
        }
        Err(failure) => {
            // Nothing of it may be taken for a leftover later, when the files are others.
            begun.abandon();
            if is_new {
                // One that holds anything stays.
                let _ = fs::remove_dir(&drives);
            }
            Err(failure)
        }
    }
}

async fn first_pool(site: &Site, up: &Up, names: Vec<PathBuf>) -> Outcome<Node> {
    let drives = site.dir.join(DRIVES);
    let data = match up.data {
        Some(code) => code,
        None => DATA.parse().map_err(|error: stele_codes::code::NoSuchCode| Failure::usage(error.to_string()))?,
    };
    // Other users of this machine must not read the contents of volumes.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&drives)
        .map_err(|error| io_failure("make", &drives, &error))?;
    let size = match up.drive_size {
        Some(size) => size,
        None => fitting_size(site, names.len() as u64)?,
    };
    let places = (0..).zip(names).map(|(number, name)| DriveArgument(DrivePlace::new(name, number / 2)));
    let places: Vec<DriveArgument> = places.collect();
    if let Some(cut) = super::pool::spare::cut(&places) {
        tracing::info!("{cut}");
    }
    let mut config = Config::new(places);
    config.pool.rebuild_after = 10;
    config.s3.listen = up.listen.unwrap_or(LISTEN);
    address_space::check(&config);
    let new = NewDrives { size, space: space_of(up.preallocate) };
    let made = Made {
        name: "pool".to_owned(),
        log: Some(log_of(size)),
        spare: None,
        shards: 1,
        data: Some(data),
        new: Some(new),
    };
    make(site, config, made).await
}

fn check_size(size: Option<Bytes>) -> Outcome<()> {
    match size.filter(|size| size.0 < DRIVE_LEAST) {
        Some(size) => Err(Failure::usage(format!(
            "--drive-size {size} is too small: labels and log alone take up to {} of a drive",
            Bytes(DRIVE_LEAST)
        ))
        .next("write a larger size, such as --drive-size 256MiB")),
        None => Ok(()),
    }
}

/// What an existing pool has of what `stele up` can ask for.
struct PoolMade {
    drives: usize,
    /// Of the drives that are files and there.
    sizes: Vec<u64>,
    /// `None` without an archive.
    data: Option<Code>,
}

impl PoolMade {
    fn of(site: &Site, node: &Node) -> PoolMade {
        let drives = &node.config.pool.drives;
        let files = drives.iter().filter_map(|drive| fs::metadata(drive.placed(site).path).ok());
        PoolMade {
            drives: drives.len(),
            sizes: files.filter(fs::Metadata::is_file).map(|about| about.len()).collect(),
            data: node.data_code().map(|(code, _)| code),
        }
    }
}

/// Options of a first start that ask an existing pool for something else than it has. They are no
/// error: a service gives the same options at each start, and drives may have come since.
fn unheeded(up: &Up, pool: &PoolMade) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |option: String, is: String, next: &str| {
        warnings.push(format!("{option} counts at the first start only, and this pool {is}; {next}"));
    };
    if let Some(drives) = up.drives.filter(|drives| *drives as usize != pool.drives) {
        let is = format!("has {}", counted(pool.drives as u64, "drive"));
        warn(format!("--drives {drives}"), is, "`stele pool add` and `stele pool remove` change that");
    }
    if let Some(size) = up.drive_size
        && let Some(other) = pool.sizes.iter().find(|other| **other != size.0)
    {
        let is = format!("has drives of {}", Bytes(*other));
        warn(format!("--drive-size {size}"), is, "`stele pool replace` puts larger drives in their place");
    }
    if let Some((code, data)) = up.data.zip(pool.data).filter(|(code, data)| code != data) {
        let next = "another code needs another pool: name another directory with --dir";
        warn(format!("--data {code}"), format!("stores with {data}"), next);
    }
    warnings
}

/// Small drives get a larger share of log than the array's default. Small objects then fill whole
/// stripes before they leave the log, and checkpoints are seconds apart.
fn log_of(drive: Bytes) -> Bytes {
    Bytes((drive.0 / 16).min(128 * MIB).max(drive.0 / 64).clamp(8 * MIB, 1024 * MIB))
}

/// The default size, or less, so that all drives take at most half of the free space: sparse files
/// must not promise more.
fn fitting_size(site: &Site, drives: u64) -> Outcome<Bytes> {
    let free = stele_media::system::free_space(&site.dir)
        .map_err(|error| io_failure("ask for free space on", &site.dir, &error))?;
    let size = (free.0 / 2 / drives.max(1)).min(DRIVE_SIZE) / MIB * MIB;
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
    let create = CreateKey {
        name: KEY_NAME.to_owned(),
        roles: vec!["storage-administrator".to_owned()],
        every_role: true,
        ..CreateKey::default()
    };
    create.perform(node, &Actor { uid: own_uid() }).await
}

async fn run(site: &Site, json: bool, start: Start, generated: Option<TlsFiles>) -> Outcome<()> {
    let Start { node, owed } = start;
    let node = Arc::new(node);
    let served = serve_node(site, json, &node, owed, generated).await;
    // After any failure, acknowledged data is durable already; closing only makes the next start
    // quicker.
    match ending::close(node, ending::GRACE).await {
        Err(failure) if failure.kind == Kind::Stuck => Err(failure),
        closed => served.and(closed),
    }
}

async fn serve_node(
    site: &Site,
    json: bool,
    node: &Arc<Node>,
    owed: Option<FirstStart>,
    generated: Option<TlsFiles>,
) -> Outcome<()> {
    let services = Services::start(site, node, generated).await?;
    let mut ready = Ready::new(services.places(), &node.config);
    if let Ok(archive) = node.archive()
        && archive.is_read_only()
    {
        let keys = archive.list_access_keys(&Actor { uid: own_uid() }.caller()).await;
        ready.other_keys = keys_in_words(true, !keys.is_ok_and(|keys| keys.is_empty()));
    }
    if owed.is_some() {
        tell(site, &mut ready, first_key(node).await?)?;
    }
    // Install the handlers before the announcement: a client may stop the server as soon as it is
    // announced.
    let mut signals = Signals::new()?;
    announce(json, &ready)?;
    notify::tell("READY=1");
    // The operator has seen the key now.
    owed.map(FirstStart::finish).transpose()?;
    tokio::select! {
        () = signals.next() => notify::tell("STOPPING=1"),
        died = ending::pool_died(node) => {
            services.leave().await;
            return Err(died);
        }
    }
    tokio::select! {
        () = services.stop() => {}
        () = signals.asked() => tracing::warn!("told to stop twice: requests under way and what a stop puts in order are left"),
    }
    Ok(())
}

/// The keys that a start does not show. Unless the archive is open for reading only, a start
/// without any makes the first one and shows it.
fn keys_in_words(is_read_only: bool, any: bool) -> &'static str {
    match (is_read_only, any) {
        (false, _) => "as made before; `stele key create` makes more",
        (true, true) => "as made before; none can be made while the archive is open for reading only",
        (true, false) => "none, and none can be made while the archive is open for reading only",
    }
}

/// Shows the first key on the terminal, or writes it into a file if there is no terminal.
fn tell(site: &Site, ready: &mut Ready, key: NewKeyView) -> Outcome<()> {
    if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        ready.access_key = Some(key.access_key);
        ready.secret_key = Some(key.secret_key);
        return Ok(());
    }
    let path = site.dir.join(FIRST_KEY);
    let text = serde_json::to_string(&key).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    // A key that an earlier start left in the file is void: that start never announced it.
    stele_server::files::replace_private(&path, format!("{text}\n").as_bytes())?;
    ready.key_file = Some(path);
    Ok(())
}

/// Says on standard output that the server is ready. Where that cannot be written, as on a full
/// disk, the server serves all the same, unless the operator has to see the first key there.
fn announce(json: bool, ready: &Ready) -> Outcome<()> {
    let unwritable = |error| Failure::failed(format!("cannot write JSON: {error}"));
    let text = if json { json_line(ready).map_err(unwritable)? + "\n" } else { in_words(ready) };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if ready.secret_key.is_some() => Err(cut_off(&error)),
        Err(error) => {
            let next = "`stele pool status` shows that the server serves";
            tracing::warn!("standard output does not take the line that the server is ready: {error}; {next}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn in_words(ready: &Ready) -> String {
    let mut text = "Stele is ready.\n\n".to_owned();
    let mut line = |said: &str| text.extend([said, "\n"]);
    match &ready.places.endpoint {
        Some(endpoint) => line(&format!("  endpoint    {endpoint}\n  region      {}", ready.region)),
        None => line("  endpoint    none: this pool has no archive, and S3 is not served"),
    }
    if let (Some(access), Some(secret)) = (&ready.access_key, &ready.secret_key) {
        line(&format!("  access key  {access}\n  secret key  {secret}\n"));
        line("The secret is not shown again; `stele key create` makes more keys.");
    } else if let Some(file) = &ready.key_file {
        let file = file.display();
        line(&format!("  access key  in {file}, which only its owner may read; keep it elsewhere and remove it"));
    } else if ready.places.endpoint.is_some() {
        line(&format!("  keys        {}", ready.other_keys));
    }
    if let Some(certificate) = &ready.places.certificate {
        line(&format!("  certificate {}", certificate.display()));
    }
    let more = [
        ("metrics", &ready.places.metrics),
        ("restic", &ready.places.rest),
        ("nfs", &ready.places.nfs),
        ("smb", &ready.places.smb),
    ];
    for (name, place) in more {
        if let Some(place) = place {
            line(&format!("  {name:<11} {place}"));
        }
    }
    line("\n`stele pool status` shows how it is; Ctrl-C stops it.");
    text
}

/// The signals that ask the server to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// The terminal, or the connection to it, is gone.
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> Outcome<Signals> {
        let failed = |error: std::io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        Ok(Signals { terminate, interrupt: signal(SignalKind::interrupt()).map_err(failed)?, hangup: hangup() })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = come(&mut self.hangup) => {}
        }
    }

    /// Returns when an operator asks. Kernel and shell may both tell of one end of a terminal, and
    /// ask for no haste.
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_waits_for_a_command_and_for_no_other_holder() {
        let held = |by: &str| Failure::new(Kind::Busy, format!("/d/1.img: is in use by {by}: stop it, or name others"));
        assert!(is_held_by_command(&held("process 708 (stele)")));
        for other in ["process 708 (stele-tests)", "process 708 (fio)", "process 708", "another process"] {
            assert!(!is_held_by_command(&held(other)), "{other}");
        }
        assert!(!is_held_by_command(&Failure::usage("/d/1.img: is in use by process 708 (stele): stop it")));
    }

    #[test]
    fn a_read_only_archive_is_not_said_to_make_keys() {
        assert!(keys_in_words(false, true).contains("stele key create"));
        for (any, begins) in [(true, "as made before; none can be made"), (false, "none, and none can be made")] {
            let said = keys_in_words(true, any);
            assert!(said.starts_with(begins) && !said.contains("stele key create"), "{said}");
        }
    }

    #[test]
    fn a_drive_that_holds_only_labels_and_log_is_refused() {
        for (size, fits) in [(1 << 10, false), (DRIVE_LEAST - 1, false), (DRIVE_LEAST, true), (DRIVE_SIZE, true)] {
            let checked = check_size(Some(Bytes(size)));
            let is_named = checked.as_ref().is_err_and(|refused| refused.next.contains("256MiB"));
            assert_eq!((checked.is_ok(), is_named), (fits, !fits), "{size}: {checked:?}");
        }
        assert_eq!(check_size(None), Ok(()));
    }

    #[test]
    fn options_that_an_existing_pool_does_not_heed_are_named() {
        use clap::Parser;

        use crate::cli::{Cli, Command};

        let pool = PoolMade { drives: 12, sizes: vec![DRIVE_MIN; 12], data: "8+2".parse().ok() };
        for (options, named) in [
            (&["--drives", "4"][..], &["--drives 4 counts at the first start only, and this pool has 12 drives"][..]),
            (&[], &[]),
            (&["--drives", "12", "--drive-size", "256MiB", "--data", "8+2"], &[]),
            (&["--drive-size", "1GiB", "--data", "4+2"], &["--drive-size 1 GiB", "--data 4+2"]),
        ] {
            let parsed = Cli::try_parse_from([&["stele", "up"], options].concat()).expect("options of `stele up`");
            let Command::Up(up) = parsed.command else { panic!("{options:?}") };
            let warnings = unheeded(&up, &pool);
            assert_eq!(warnings.len(), named.len(), "{options:?}: {warnings:?}");
            for (warning, named) in warnings.iter().zip(named) {
                assert!(warning.starts_with(named), "{warning}");
            }
        }
    }

    #[test]
    fn a_first_start_takes_no_directory_of_another_server() {
        let dir = std::env::temp_dir().join(format!("stele-lost-{}", std::process::id()));
        fs::create_dir_all(dir.join("drives")).unwrap();
        let site = Site { dir: dir.clone(), config_path: dir.join("stele.toml") };
        // As a killed first start, or a creation that failed, leaves it.
        for left in ["first-start", "master.key", "unfinished-pool"] {
            fs::write(dir.join(left), "").unwrap();
        }
        assert_eq!(refuse_lost_configuration(&site), Ok(()));
        for left in OF_A_SERVER {
            fs::write(dir.join(left), "").unwrap();
            let refused = refuse_lost_configuration(&site).unwrap_err();
            assert!(refused.kind == Kind::Missing && refused.error.contains(left), "{refused}");
            fs::remove_file(dir.join(left)).unwrap();
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
