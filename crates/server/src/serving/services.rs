//! All services of a server, with their order of start and of stop.
//!
//! A server starts from the inside out. It binds the administration socket first, so that a second
//! server is refused before it touches anything. It admits hosts and clients last. It stops in the
//! reverse order: no new requests, then the requests under way, then commands, then the state for
//! the next start or for an operator who removes the drives.
//!
//! Failure model: all acknowledged data is durable already. A stop that is cut short at any point
//! only makes the next start replay the log.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use stele_file::nfs::server::Tls;
use stele_object::{Endpoint, Frontend, Rest, Settings};
use tokio::net::UnixListener;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::head_places::HeadPlaces;
use super::lanes::Lanes;
use super::messages::MessageQueues;
use super::renewal::{self, Renewal, Secured};
use super::tls::{self, TlsFiles};
use super::{admin, background, block, iscsi, nfs, notifications, notify, open_files, s3, smb, snapshot};
use crate::config::{Config, Site};
use crate::failure::{Failure, Outcome};
use crate::node::shares::S3View;
use crate::node::{Node, RunningInterfaces, beneath, data_directory, smart};

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A step of a stop. Drives, shares and other machines may not answer, so each has a time limit.
struct Step {
    name: &'static str,
    seconds: u32,
}

/// In their order. The pool then has [`super::ending::GRACE`] to close. OPERATIONS.md has the same
/// table.
const REQUESTS: Step = Step { name: "requests under way finish", seconds: 20 };
/// [`stele_object::Connections::close`] waits so long for what it broke off.
#[cfg(test)]
const BROKEN_OFF: Step = Step { name: "those that did not are broken off", seconds: 5 };
const ACCESS_LOGS: Step = Step { name: "access logs are stored", seconds: 5 };
const COMMANDS: Step = Step { name: "commands finish", seconds: 5 };
const MOUNTS: Step = Step { name: "shares are unmounted", seconds: 5 };
const RPCBIND: Step = Step { name: "rpcbind is told that NFS ends", seconds: 5 };
const CACHES: Step = Step { name: "the caches of shares are recorded", seconds: 5 };
const WASH: Step = Step { name: "keys destroyed since the last washing are overwritten in the log", seconds: 30 };
const DEPARTED: Step = Step { name: "drives that left go out of the configuration", seconds: 2 };
const HEADS: Step = Step { name: "the last signed head is sent", seconds: 20 };
const COUNTERS: Step = Step { name: "the counters are written", seconds: 2 };

/// The addresses of a server.
#[derive(Clone, Default, Serialize)]
pub struct ServerAddresses {
    /// `None` if the pool has no archive, since S3 is then not served.
    pub endpoint: Option<String>,
    pub socket: PathBuf,
    /// Where restic's REST protocol is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Address at which `/health` and `/metrics` need no signature, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// Addresses of NBD: over TCP, and over a Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbd_socket: Option<PathBuf>,
    /// Address of iSCSI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iscsi: Option<String>,
    /// Where NFS is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfs: Option<String>,
    /// Where SMB is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smb: Option<String>,
}

/// A server's running parts.
pub struct Services {
    site: Site,
    node: Arc<Node>,
    places: ServerAddresses,
    latest: snapshot::Latest,
    head_places: Arc<Mutex<HeadPlaces>>,
    /// Listeners and background work; a stop does not wait for them.
    unattended: JoinSet<()>,
    /// The administration socket; a stop waits for its commands.
    commands: JoinSet<()>,
    stop_commands: watch::Sender<bool>,
    frontend: Option<Arc<Frontend>>,
    rest: Option<Arc<Rest>>,
    /// The TLS of all listeners.
    renewals: Vec<Renewal>,
}

impl Services {
    pub async fn start(site: &Site, node: &Arc<Node>, files: Option<TlsFiles>) -> Outcome<Services> {
        let config = &node.config;
        open_files::raise(config);
        let files = files.or_else(|| configured(site, config));
        // Report errors of the configuration before offering any service.
        let secured = files.as_ref().map(s3_tls).transpose()?;
        let head_places = HeadPlaces::of(site, config)?;
        let socket = site.admin_socket(config);
        let listener = admin::listen(&socket, "[admin] socket", !config.admin.officers.is_empty())?;
        let mut services = Services {
            site: site.clone(),
            node: Arc::clone(node),
            places: ServerAddresses { socket, ..ServerAddresses::default() },
            latest: snapshot::Latest::default(),
            head_places: Arc::new(Mutex::new(head_places)),
            unattended: JoinSet::new(),
            commands: JoinSet::new(),
            stop_commands: watch::Sender::new(false),
            frontend: None,
            rest: None,
            renewals: Vec::new(),
        };
        let secured = secured.map(|renewal| services.renewed(renewal));
        match services.serve_all(files, secured, listener).await {
            Ok(()) => Ok(services),
            Err(failure) => {
                // No server is behind them.
                admin::remove(&services.places.socket);
                services.places.nbd_socket.iter().for_each(|socket| admin::remove(socket));
                Err(failure)
            }
        }
    }

    async fn serve_all(
        &mut self,
        files: Option<TlsFiles>,
        secured: Option<Secured>,
        listener: UnixListener,
    ) -> Outcome<()> {
        let node = Arc::clone(&self.node);
        let mut look = snapshot::Look::default();
        self.latest.refresh(&node, &mut look).await;
        look.messages = MessageQueues::start(&self.site, &node.config, &mut self.unattended)?;
        notifications::start(&self.site, &node.config, node.archive().ok(), &mut self.unattended)?;
        self.serve_s3(files, secured.clone()).await?;
        self.serve_rest(secured).await?;
        self.serve_metrics().await?;
        self.serve_commands(listener);
        self.serve_nbd().await?;
        self.serve_iscsi().await?;
        self.serve_shares().await?;
        self.work_in_background(look);
        Ok(())
    }

    pub fn places(&self) -> &ServerAddresses {
        &self.places
    }

    /// Stops new requests, waits for requests and commands under way, and leaves the state in order
    /// for the next start.
    pub async fn stop(self) {
        self.stop_within(Duration::from_secs(1)).await;
    }

    /// The same without a pool that answers, in a tenth of the time: mounts and sockets go, and
    /// what needs the pool fails at once.
    pub async fn leave(self) {
        self.stop_within(Duration::from_millis(100)).await;
    }

    /// The same, with another length of a second.
    async fn stop_within(mut self, second: Duration) {
        tracing::info!("stopping: no new requests; those under way may take {} s", REQUESTS.seconds);
        self.unattended.shutdown().await;
        self.places.nbd_socket.iter().for_each(|socket| admin::remove(socket));
        self.finish_requests(second * REQUESTS.seconds).await;
        if let Some(frontend) = &self.frontend {
            ACCESS_LOGS.take(second, frontend.store_access_logs(true)).await;
        }
        self.stop_commands.send_replace(true);
        let commands = &mut self.commands;
        COMMANDS.take(second, async { while commands.join_next().await.is_some() {} }).await;
        admin::remove(&self.places.socket);
        let node = Arc::clone(&self.node);
        let unmounting = crate::node::blocking(move || {
            node.shares.unmount_all();
            Ok(())
        });
        MOUNTS.take(second, unmounting).await;
        RPCBIND.take(second, nfs::unregister(self.node.shares.address())).await;
        CACHES.take(second, nfs::save_now(&self.node)).await;
        if WASH.take(second, background::wash_now(&self.node)).await.is_none() {
            tracing::warn!("`stele pool wash` overwrites destroyed keys in the log without a server");
        }
        DEPARTED.take(second, background::forget_removed_now(&self.node)).await;
        HEADS.take(second, background::send_heads(&self.node, &self.head_places)).await;
        COUNTERS.take(second, background::keep_history(&self.node)).await;
    }

    /// Hosts and clients finish at the same time.
    async fn finish_requests(&self, patience: Duration) {
        let begun = Instant::now();
        let targets = self.node.exports.directory.withdraw_all();
        let hosts = async {
            while targets.iter().any(|target| target.is_used()) && begun.elapsed() < patience {
                sleep(LOOK_EVERY).await;
            }
        };
        let clients =
            [self.frontend.as_deref().map(Endpoint::connections), self.rest.as_deref().map(Endpoint::connections)];
        let [s3, rest] = clients.map(|connections| close(connections, patience));
        let ((), s3, rest) = tokio::join!(hosts, s3, rest);
        if !(s3 && rest) {
            tracing::warn!("some requests were broken off; none of them was acknowledged");
        }
    }

    async fn serve_s3(&mut self, files: Option<TlsFiles>, secured: Option<Secured>) -> Outcome<()> {
        let Ok(archive) = self.node.archive() else { return Ok(()) };
        let config = &self.node.config;
        let (listener, address) = s3::listen(config.s3.listen, "--listen or [s3] listen").await?;
        let scheme = if secured.is_some() { "https" } else { "http" };
        self.places.endpoint = Some(format!("{scheme}://{address}"));
        self.places.metrics = address.ip().is_loopback().then(|| format!("{scheme}://{address}/metrics"));
        self.places.certificate = files.map(|files| files.certificate);
        let (settings, clock) = (settings(config, address), Arc::new(SystemTime::now));
        let shares: Arc<dyn stele_archive::Shares> = Arc::new(S3View(Arc::downgrade(&self.node)));
        let frontend =
            Frontend::with_shares(archive.clone(), Some(shares), settings, clock, Some(self.latest.source()));
        let _ = self.node.running.set(RunningInterfaces::new(&frontend, &self.node, self.places.socket.clone()));
        self.unattended.spawn(s3::serve(listener, Arc::clone(&frontend) as Arc<dyn Endpoint>, secured));
        self.unattended.spawn(s3::store_access_logs(Arc::clone(&frontend)));
        self.frontend = Some(frontend);
        Ok(())
    }

    /// Serves restic's REST protocol, if the configuration names an address. Its clients send their
    /// secrets, which must not cross a network in the clear.
    async fn serve_rest(&mut self, secured: Option<Secured>) -> Outcome<()> {
        let Some(listen) = self.node.config.rest.listen else { return Ok(()) };
        let Some(frontend) = &self.frontend else { return Ok(()) };
        if secured.is_none() && !listen.ip().is_loopback() {
            let message =
                format!("[rest] listen is {listen}, and without TLS every client would send its secret there");
            return Err(Failure::usage(message)
                .next("set tls_certificate and tls_key under [s3], or let [rest] listen be a loopback address"));
        }
        let (listener, address) = s3::listen(listen, "[rest] listen").await?;
        let scheme = if secured.is_some() { "https" } else { "http" };
        self.places.rest = Some(format!("{scheme}://{address}"));
        let rest = Rest::new(Arc::clone(frontend));
        self.unattended.spawn(s3::serve(listener, Arc::clone(&rest) as Arc<dyn Endpoint>, secured));
        self.rest = Some(rest);
        Ok(())
    }

    /// Serves health and metrics at an address of their own; without an archive, at the address of
    /// S3.
    async fn serve_metrics(&mut self) -> Outcome<()> {
        let config = &self.node.config;
        let instead = (self.frontend.is_none() && config.s3.listen.ip().is_loopback()).then_some(config.s3.listen);
        let Some(address) = config.admin.metrics.or(instead) else { return Ok(()) };
        let (listener, address) = s3::listen(address, "[admin] metrics").await?;
        self.places.metrics = Some(format!("http://{address}/metrics"));
        let metrics = self.frontend.as_ref().map(|frontend| frontend.shared_metrics()).unwrap_or_default();
        self.unattended.spawn(s3::serve_metrics(listener, metrics, self.latest.source()));
        Ok(())
    }

    fn serve_commands(&mut self, listener: UnixListener) {
        self.commands.spawn(admin::serve(listener, Arc::clone(&self.node), self.stop_commands.subscribe()));
    }

    async fn serve_nbd(&mut self) -> Outcome<()> {
        let tls = self.nbd_tls()?;
        let node = &self.node;
        node.serve_exports().await?;
        let service = block::NbdService {
            directory: node.exports.directory.clone(),
            pool: Arc::clone(&node.pool),
            tls,
            tls_required: node.config.nbd.requires_tls(),
            refusals: Arc::default(),
        };
        if let Some(listen) = node.config.nbd.listen {
            let (listener, address) = s3::listen(listen, "[nbd] listen").await?;
            node.note_nbd_address(address);
            self.places.nbd = Some(address.to_string());
            self.unattended.spawn(block::serve_tcp(listener, service.clone()));
        }
        let socket = self.site.nbd_socket(&node.config);
        self.unattended.spawn(block::serve_unix(admin::listen(&socket, "[nbd] socket", false)?, service));
        self.places.nbd_socket = Some(socket);
        Ok(())
    }

    fn nbd_tls(&mut self) -> Outcome<Option<Secured>> {
        let config = &self.node.config.nbd;
        let (Some(certificate), Some(key)) = (&config.tls_certificate, &config.tls_key) else { return Ok(None) };
        let [certificate, key] = [certificate, key].map(|path| self.site.path(path));
        let authority = config.client_authority.as_ref().map(|authority| self.site.path(authority));
        let renewal = mutual_tls("[nbd] tls_certificate", certificate, key, authority, block::acceptor)?;
        Ok(Some(self.renewed(renewal)))
    }

    /// The listener's TLS, of which the files are watched from now on.
    fn renewed(&mut self, renewal: Renewal) -> Secured {
        let secured = renewal.secured();
        self.renewals.push(renewal);
        secured
    }

    async fn serve_iscsi(&mut self) -> Outcome<()> {
        let node = &self.node;
        let Some(listen) = node.config.iscsi.listen else { return Ok(()) };
        let (listener, address) = s3::listen(listen, "[iscsi] listen").await?;
        node.note_iscsi_address(address);
        let service = iscsi::IscsiService {
            node: Arc::clone(&node.exports.iscsi),
            pool: Arc::clone(&node.pool),
            refusals: Arc::default(),
        };
        self.unattended.spawn(iscsi::serve(listener, service));
        self.places.iscsi = Some(address.to_string());
        Ok(())
    }

    /// Opens the shares, and serves them over NFS and SMB where the configuration names addresses.
    async fn serve_shares(&mut self) -> Outcome<()> {
        if self.node.archive().is_err() {
            return Ok(());
        }
        let tls = self.nfs_tls()?;
        let node = &self.node;
        let archive = node.archive()?;
        if node.config.smb.listen.is_some() {
            smb::check()?;
        }
        // Where an authority signs the clients' certificates, a connection in the clear would need
        // none.
        let required = node.config.nfs.tls_required || node.config.nfs.client_authority.is_some();
        node.shares.set_tls(match (&tls, required) {
            (None, _) => Tls::Off,
            (Some(_), false) => Tls::Offered,
            (Some(_), true) => Tls::Required,
        });
        node.shares.set_data_directory(&self.site.dir);
        node.open_shares().await?;
        self.unattended.spawn(nfs::work(Arc::clone(node)));
        self.unattended.spawn(nfs::save(Arc::clone(node)));
        if let Some(listen) = node.config.nfs.listen {
            let (listener, address) = s3::listen(listen, "[nfs] listen").await?;
            node.shares.note_address(address);
            let server = node.shares.server(archive, crate::node::wall_clock() as u32, || node.random_number());
            self.unattended.spawn(nfs::serve(listener, server, tls, Lanes::start("stele-nfs")?));
            self.unattended.spawn(nfs::register(address));
            self.places.nfs = Some(address.to_string());
        }
        if let Some(listen) = node.config.smb.listen {
            let (config, stop) = (node.config.smb.clone(), self.stop_commands.subscribe());
            self.commands.spawn(smb::serve(self.site.clone(), Arc::clone(node), config, listen, stop));
            self.places.smb = Some(listen.to_string());
        }
        Ok(())
    }

    fn nfs_tls(&mut self) -> Outcome<Option<Secured>> {
        let config = &self.node.config.nfs;
        match (&config.tls_certificate, &config.tls_key) {
            (Some(certificate), Some(key)) => {
                let authority = config.client_authority.as_ref().map(|authority| self.site.path(authority));
                let [certificate, key] = [certificate, key].map(|path| self.site.path(path));
                let renewal = mutual_tls("[nfs] tls_certificate", certificate, key, authority, nfs::acceptor)?;
                Ok(Some(self.renewed(renewal)))
            }
            (None, None) if !config.tls_required && config.client_authority.is_none() => Ok(None),
            _ => Err(Failure::usage(
                "[nfs] tls_certificate and tls_key belong together; tls_required or client_authority needs both",
            )),
        }
    }

    fn work_in_background(&mut self, look: snapshot::Look) {
        let renewals = std::mem::take(&mut self.renewals);
        let node = &self.node;
        self.unattended.spawn(renewal::keep_looking(renewals, Arc::clone(node)));
        self.unattended.spawn(self.latest.clone().keep_fresh(Arc::clone(node), look));
        background::start(&mut self.unattended, &self.site, node, Arc::clone(&self.head_places));
        self.unattended.spawn(notify::keep_watch(Arc::clone(node)));
        self.unattended.spawn(smart::keep_asking(Arc::clone(node)));
        self.unattended.spawn(beneath::keep_looking(Arc::clone(node)));
        self.unattended.spawn(data_directory::keep_looking(Arc::clone(node)));
    }
}

fn s3_tls(files: &TlsFiles) -> Outcome<Renewal> {
    let files = files.clone();
    let paths = vec![files.certificate.clone(), files.key.clone()];
    Renewal::new("[s3] tls_certificate", paths, Box::new(move || tls::acceptor(&files)))
}

type Acceptor = fn(&Path, &Path, Option<&Path>) -> Outcome<tokio_rustls::TlsAcceptor>;

/// TLS that may ask clients for certificates, too.
fn mutual_tls(
    setting: &'static str,
    certificate: PathBuf,
    key: PathBuf,
    authority: Option<PathBuf>,
    acceptor: Acceptor,
) -> Outcome<Renewal> {
    let paths = [&certificate, &key].into_iter().chain(&authority).cloned().collect();
    Renewal::new(setting, paths, Box::new(move || acceptor(&certificate, &key, authority.as_deref())))
}

impl Step {
    /// Works until it is done, or the time of the step is over.
    async fn take<T>(&self, second: Duration, work: impl Future<Output = T>) -> Option<T> {
        let done = timeout(second * self.seconds, work).await.ok();
        if done.is_none() {
            tracing::warn!("the stop goes on without this, which took longer than {} s: {}", self.seconds, self.name);
        }
        done
    }
}

/// Whether all requests of an endpoint ended by themselves.
async fn close(connections: Option<&stele_object::Connections>, patience: Duration) -> bool {
    match connections {
        Some(connections) => connections.close(patience).await,
        None => true,
    }
}

fn configured(site: &Site, config: &Config) -> Option<TlsFiles> {
    let (certificate, key) = (config.s3.tls_certificate.as_ref()?, config.s3.tls_key.as_ref()?);
    Some(TlsFiles { certificate: site.path(certificate), key: site.path(key) })
}

fn settings(config: &Config, address: SocketAddr) -> Settings {
    Settings {
        region: config.s3.region.clone(),
        region_strict: config.s3.region_strict,
        domains: config.s3.domain.iter().cloned().collect(),
        connections_max: config.s3.connections_max as usize,
        connections_per_peer: config.s3.connections_per_peer as usize,
        // Every client of a loopback address is on this machine.
        open_metrics: address.ip().is_loopback(),
        access_log_every: Duration::from_secs(config.s3.access_log_every.max(1)),
        notification_targets: config
            .notifications
            .iter()
            .map(|(name, target)| (name.clone(), notifications::form_of(target)))
            .collect(),
        ..Settings::default()
    }
}

#[cfg(test)]
pub mod tests;
