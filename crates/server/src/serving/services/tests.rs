use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use stele_archive::store::NoGuard;
use stele_archive::{Archive, Foundation, MasterKey, Options};
use stele_array::{Command, Reply, VolumeSpec};
use stele_block::{Export, Protocol};
use stele_catalog::MemoryCatalog;
use stele_ground::{Bytes, MIB};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::*;
use crate::config::Nbd;
use crate::node::surroundings::System;
use crate::node::testing::{Scene, spec};
use crate::serving::ending;

/// A node with an archive on drives that give no answer while the flag is set.
pub async fn node(hangs: &Arc<AtomicBool>) -> Arc<Node> {
    let mut node = Arc::into_inner(ending::tests::node(hangs)).unwrap();
    let spec = VolumeSpec { code: "2+1".parse().unwrap(), ..spec("data", Bytes(64 * MIB)) };
    let Ok(Reply::Volume(data)) = node.pool.command(Command::CreateVolume(spec)).await else { panic!("a volume") };
    let surroundings = Arc::new(System::default());
    let foundation = Foundation {
        catalog: Arc::new(MemoryCatalog::new()),
        data: node.pool.volume_of(&data),
        master: MasterKey::generate(&*surroundings),
        surroundings,
        guard: Arc::new(NoGuard),
    };
    let options = Options { segment: Bytes(MIB), ..Options::default() };
    let archive = Archive::create(foundation, options).await.unwrap();
    node.set_archive(archive);
    Arc::new(node)
}

/// Services of a node of which none has begun.
fn services(site: Site, node: &Arc<Node>) -> Services {
    Services {
        site,
        node: Arc::clone(node),
        places: ServerAddresses::default(),
        latest: snapshot::Latest::default(),
        head_places: Arc::default(),
        unattended: JoinSet::new(),
        commands: JoinSet::new(),
        stop_commands: watch::Sender::new(false),
        frontend: None,
        rest: None,
        renewals: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_in_its_time_though_no_drive_answers() {
    let hangs = Arc::new(AtomicBool::new(false));
    let node = node(&hangs).await;
    hangs.store(true, SeqCst);
    let services = services(Site::find(Some(Path::new("/nonexistent")), None), &node);
    let stopped = timeout(Duration::from_secs(120), services.stop_within(Duration::from_millis(1))).await;
    assert!(stopped.is_ok(), "the stop waits for drives without end");
    let sent = async {
        let patient = HeadPlaces::default().send(node.archive().unwrap(), Duration::from_secs(1)).await;
        assert!(patient.is_empty());
    };
    assert!(timeout(Duration::from_secs(120), sent).await.is_ok(), "a turn of heads waits without end");
    // Otherwise the test itself would wait for them.
    hangs.store(false, SeqCst);
}

/// The manual and the unit name the times of the code.
#[test]
fn the_times_of_a_stop_are_those_of_the_manual_and_of_the_unit() {
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let manual = read("OPERATIONS.md");
    let steps = [
        REQUESTS,
        BROKEN_OFF,
        ACCESS_LOGS,
        COMMANDS,
        MOUNTS,
        RPCBIND,
        CACHES,
        WASH,
        DEPARTED,
        HEADS,
        COUNTERS,
        Step { name: "the pool closes", seconds: ending::GRACE.as_secs() as u32 },
    ];
    let rows: String = steps.iter().map(|step| format!("| {} | {} s |\n", step.name, step.seconds)).collect();
    assert!(manual.contains(&rows), "OPERATIONS.md lacks the table:\n{rows}");
    let all: u32 = steps.iter().map(|step| step.seconds).sum();
    let told = format!("within {} seconds all the same, or within {all} if", all - WASH.seconds);
    assert!(manual.replace('\n', " ").contains(&told), "OPERATIONS.md does not say: {told}");
    let unit = read("contrib/package/stele.service");
    let patience = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    assert!(patience.parse::<u32>().unwrap() >= all + 10, "the unit kills after {patience} s, a stop takes {all} s");
}

/// The answer of an NBD listener to the option LIST in the clear: the type of its first reply.
async fn listed_in_the_clear<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> u32 {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).await.unwrap();
    stream.write_all(b"\0\0\0\x01IHAVEOPT\0\0\0\x03\0\0\0\0").await.unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).await.unwrap();
    u32::from_be_bytes(reply[12..16].try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_of_nbd_clients_keeps_out_tcp_in_the_clear() {
    const ACK: u32 = 1;
    const TLS_REQUIRED: u32 = (1 << 31) + 5;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let check = async |authority: bool, required: bool, expected: u32, scheme: &str| {
        let mut scene = Scene::new(&format!("nbd-authority-{authority}-{required}"));
        let (certificate, key) = (scene.dir().join("nbd.pem"), scene.dir().join("nbd.key"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Arc::get_mut(&mut scene.node).unwrap().config.nbd = Nbd {
            socket: None,
            listen: Some(([127, 0, 0, 1], 0).into()),
            client_authority: authority.then(|| certificate.clone()),
            tls_certificate: Some(certificate),
            tls_key: Some(key),
            tls_required: required,
        };
        let mut services = services(Site::find(Some(scene.dir()), None), &scene.node);
        services.serve_nbd().await.unwrap();
        let tcp = TcpStream::connect(services.places.nbd.as_deref().unwrap()).await.unwrap();
        assert_eq!(listed_in_the_clear(tcp).await, expected, "authority {authority}, required {required}");
        let unix = UnixStream::connect(services.places.nbd_socket.as_deref().unwrap()).await.unwrap();
        assert_eq!(listed_in_the_clear(unix).await, ACK, "the unix socket stays open to its users");
        let export = Export {
            name: "vm".to_owned(),
            volume: "vm".to_owned(),
            protocol: Protocol::Nbd,
            read_only: false,
            access: Default::default(),
            iscsi: Default::default(),
        };
        let urls = scene.node.block_urls(&export);
        assert!(urls[0].starts_with(scheme), "{urls:?}");
    };
    check(false, false, ACK, "nbd://").await;
    check(false, true, TLS_REQUIRED, "nbds://").await;
    check(true, false, TLS_REQUIRED, "nbds://").await;
}
