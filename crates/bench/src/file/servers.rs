//! The servers of one run: the release `stele` beside this program, and NFS-Ganesha, both on
//! memory.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::NfsClient;
use super::client41::Nfs41Client;
use crate::served::{Guarded, Node, Scratch, installed};

const NFS_PORT: u16 = 22_049;
const MOUNT_PORT: u16 = 22_050;
/// The programs of the peer, with the packages of Debian that hold them.
const PEER: [(&str, &str); 2] = [("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs"), ("rpcbind", "rpcbind")];
/// Tells this program that it runs in namespaces of its own.
const APART: &str = "STELE_BENCH_APART";

/// Runs the bench in a network and a `/run` of its own, so that the port mapper that the peer needs
/// disturbs no other.
pub fn apart() -> Result<(), String> {
    if std::env::var_os(APART).is_some() {
        return Ok(());
    }
    installed(&[("unshare", "util-linux"), ("ip", "iproute2")])?;
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let prepare = "ip link set lo up && mount -t tmpfs tmpfs /run && mkdir /run/ganesha && exec \"$0\" \"$@\"";
    let error = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", prepare])
        .arg(own)
        .args(std::env::args_os().skip(1))
        .env(APART, "1")
        .exec();
    Err(format!("cannot run `unshare`, which needs root: {error}"))
}

pub struct SteleFileServer(Node);

impl SteleFileServer {
    /// A server on 6 drives of this size; objects are on 2+1.
    pub fn start(size: &str) -> Result<SteleFileServer, String> {
        let mut node = SteleFileServer::prepare(size, &[("[nfs]\n", "[nfs]\nlisten = \"127.0.0.1:0\"\n")])?;
        node.serve()?;
        Ok(SteleFileServer(node))
    }

    /// The data directory of such a server, with these changes in its configuration.
    pub fn prepare(size: &str, changes: &[(&str, &str)]) -> Result<Node, String> {
        let drives: Vec<String> = (0..6).map(|number| format!("d{number}.img@{number}")).collect();
        let mut create = vec!["--size", size, "--data", "2+1", "--spare", "1"];
        drives.iter().for_each(|drive| create.extend(["--drive", drive]));
        Node::create(&format!("file-{size}"), &create, changes)
    }

    pub fn process(&self) -> u32 {
        self.0.process()
    }

    pub fn serve(&mut self) -> Result<(), String> {
        self.0.serve().map(drop)
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }

    pub fn run(&self, arguments: &[&str]) -> Result<(), String> {
        self.0.run(arguments).map(drop)
    }

    /// Makes a share whose files are archived after `idle` seconds, and mounts it.
    pub fn share(&self, name: &str, cache: &str, idle: &str) -> Result<NfsClient, String> {
        self.coded_share(name, cache, "mirror-2", idle)
    }

    /// As [`SteleFileServer::share`], with a code of the cache volume.
    pub fn coded_share(&self, name: &str, cache: &str, code: &str, idle: &str) -> Result<NfsClient, String> {
        self.run(&create_share(name, cache, code, idle))?;
        self.mount(name)
    }

    pub fn mount(&self, name: &str) -> Result<NfsClient, String> {
        let port = self.port(name)?;
        NfsClient::mount(port, port, &format!("/{name}"))
    }

    /// Mounts a share with version 4.1.
    pub fn mount41(&self, name: &str) -> Result<Nfs41Client, String> {
        Nfs41Client::mount(self.port(name)?, name)
    }

    fn port(&self, name: &str) -> Result<u16, String> {
        let port = self.status(name)?["nfs_port"].as_u64().and_then(|port| u16::try_from(port).ok());
        port.ok_or_else(|| "the server serves no NFS".to_owned())
    }

    pub fn status(&self, name: &str) -> Result<Value, String> {
        self.0.ask(&["share", "status", name])
    }
}

/// The command that makes a share whose files are archived after `idle` seconds.
pub fn create_share<'a>(name: &'a str, cache: &'a str, code: &'a str, idle: &'a str) -> Vec<&'a str> {
    let volume = ["--cache", cache, "--cache-code", code, "--archive-after", idle];
    [&["share", "create", name, "--squash", "none", "--mode", "0777"][..], &volume].concat()
}

/// NFS-Ganesha, with a directory in memory through its VFS module.
pub struct Ganesha {
    _child: Guarded,
    _mapper: Guarded,
    _dir: Scratch,
    pub process: u32,
}

impl Ganesha {
    pub fn start() -> Result<Ganesha, String> {
        installed(&PEER)?;
        let dir = Scratch::new("ganesha")?;
        let export = dir.0.join("export");
        fs::create_dir(&export).map_err(|error| error.to_string())?;
        let path = export.display();
        let config = format!(
            "NFS_CORE_PARAM {{ NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; Protocols = 3; Enable_NLM = false;
               Enable_RQUOTA = false; mount_path_pseudo = true; }}
             EXPORT {{ Export_Id = 1; Path = {path}; Pseudo = /vfs; Access_Type = RW; Squash = No_Root_Squash;
               SecType = sys; Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}
             NFS_KRB5 {{ Active_krb5 = false; }}
             LOG {{ Default_Log_Level = WARN; }}\n"
        );
        let file = dir.0.join("ganesha.conf");
        fs::write(&file, config).map_err(|error| error.to_string())?;
        let silent = |command: &mut Command| -> Result<Guarded, String> {
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            child.map(Guarded::new).map_err(|error| format!("cannot start {command:?}: {error}"))
        };
        let mapper = silent(Command::new("rpcbind").args(["-f", "-w"]))?;
        wait_for(111, "rpcbind")?;
        let log = dir.0.join("log");
        let mut command = Command::new("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(&file).arg("-p").arg(dir.0.join("pid")).arg("-L").arg(&log);
        let child = silent(&mut command)?;
        if let Err(error) = wait_for(NFS_PORT, "ganesha.nfsd") {
            return Err(format!("{error}: {}", fs::read_to_string(&log).unwrap_or_default()));
        }
        Ok(Ganesha { process: child.0.id(), _child: child, _mapper: mapper, _dir: dir })
    }

    pub fn mount(&self) -> Result<NfsClient, String> {
        let begun = Instant::now();
        loop {
            match NfsClient::mount(NFS_PORT, MOUNT_PORT, "/vfs") {
                Err(_) if begun.elapsed() < Duration::from_secs(10) => std::thread::sleep(Duration::from_millis(100)),
                other => return other,
            }
        }
    }
}

fn wait_for(port: u16, what: &str) -> Result<(), String> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("{what} does not listen on port {port}"))
}
