//! The servers of one run: the release `stele` beside this program, and NFS-Ganesha, both on
//! memory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::NfsClient;

const NFS_PORT: u16 = 22_049;
const MOUNT_PORT: u16 = 22_050;
/// Tells this program that it runs in namespaces of its own.
const APART: &str = "STELE_BENCH_APART";

/// A child process that ends together with its owner.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory in memory that is removed with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Scratch, String> {
        let path = PathBuf::from(format!("/dev/shm/stele-bench-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the bench in a network and a `/run` of its own, so that the port mapper that the peer needs
/// disturbs no other.
pub fn apart() -> Result<(), String> {
    if std::env::var_os(APART).is_some() {
        return Ok(());
    }
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

pub struct SteleFileServer {
    // Declared before its directory.
    _child: Guarded,
    program: PathBuf,
    dir: Scratch,
    pub process: u32,
}

impl SteleFileServer {
    /// A server on 6 drives of 1 GiB; objects are on 2+1.
    pub fn start() -> Result<SteleFileServer, String> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let program = own.with_file_name("stele");
        if !program.is_file() {
            return Err(format!("there is no {}; build it with `cargo build --release -p stele`", program.display()));
        }
        let dir = Scratch::new("file")?;
        let drives: Vec<String> = (0..6).map(|number| format!("d{number}.img@{number}")).collect();
        let mut create = vec!["pool", "create", "--confirm-time", "--size", "1GiB", "--data", "2+1", "--spare", "1"];
        drives.iter().for_each(|drive| create.extend(["--drive", drive]));
        stele(&program, &dir.0, &create)?;
        let config = dir.0.join("stele.toml");
        let text = fs::read_to_string(&config).map_err(|error| error.to_string())?;
        let text =
            text.replace("[nfs]\n", "[nfs]\nlisten = \"127.0.0.1:0\"\n").replace("127.0.0.1:9000", "127.0.0.1:0");
        fs::write(&config, text).map_err(|error| error.to_string())?;
        let log = fs::File::create(dir.0.join("server.log")).map_err(|error| error.to_string())?;
        let mut child = Command::new(&program)
            .args(["serve", "--json", "--dir"])
            .arg(&dir.0)
            .env_remove("STELE_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        let (process, child) = (child.id(), Guarded(child));
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        if line.is_empty() {
            let log = fs::read_to_string(dir.0.join("server.log")).unwrap_or_default();
            return Err(format!("the server did not become ready: {log}"));
        }
        Ok(SteleFileServer { _child: child, program, dir, process })
    }

    pub fn run(&self, arguments: &[&str]) -> Result<Value, String> {
        let said = stele(&self.program, &self.dir.0, arguments)?;
        Ok(serde_json::from_slice(&said).unwrap_or_default())
    }

    /// Makes a share whose files are archived after `idle` seconds, and mounts it.
    pub fn share(&self, name: &str, cache: &str, idle: &str) -> Result<NfsClient, String> {
        let create = ["share", "create", name, "--cache", cache, "--squash", "none", "--mode", "0777"];
        self.run(&[&create[..], &["--archive-after", idle]].concat())?;
        let port = self.status(name)?["nfs_port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or("the server serves no NFS")?;
        NfsClient::mount(port, port, &format!("/{name}"))
    }

    pub fn status(&self, name: &str) -> Result<Value, String> {
        let said = self.run(&["share", "status", name, "--json"])?;
        Ok(said)
    }
}

fn stele(program: &Path, dir: &Path, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(program)
        .args(arguments)
        .arg("--dir")
        .arg(dir)
        .env_remove("STELE_DIR")
        .stdin(Stdio::null())
        .current_dir(dir)
        .output()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("stele {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
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
            child.map(Guarded).map_err(|error| format!("cannot start {command:?}: {error}"))
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
