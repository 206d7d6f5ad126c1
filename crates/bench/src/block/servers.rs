//! The servers of one run: the release `stele` beside this program, nbdkit and qemu-nbd, all on
//! memory.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A child process that ends together with its owner.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const VOLUME: &str = "vm";

pub struct SteleBlockServer {
    // Declared before its working directory.
    _child: Guarded,
    program: PathBuf,
    dir: Scratch,
    pub process: u32,
    tcp: String,
    /// The address of the volume for initiators.
    pub iscsi: String,
}

/// A directory in memory that is removed with its owner.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl SteleBlockServer {
    /// Starts a server on 12 drives, with a volume of 1 GiB and a cache of this size.
    pub fn start(code: &str, cache: &str) -> Result<SteleBlockServer, String> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let program = own.with_file_name("stele");
        if !program.is_file() {
            return Err(format!("there is no {}; build it with `cargo build --release -p stele`", program.display()));
        }
        let dir = Scratch(PathBuf::from(format!("/dev/shm/stele-bench-{}", std::process::id())));
        let _ = fs::remove_dir_all(&dir.0);
        fs::create_dir_all(&dir.0).map_err(|error| format!("cannot make {}: {error}", dir.0.display()))?;
        let drives: Vec<String> = (0..12).map(|number| format!("d{number}.img@{}", number / 2)).collect();
        let mut create = vec!["pool", "create", "--confirm-time", "--size", "512MiB", "--data", "none"];
        drives.iter().for_each(|drive| create.extend(["--drive", drive]));
        stele(&program, &dir.0, &create)?;
        let config = dir.0.join("stele.toml");
        let text = fs::read_to_string(&config).map_err(|error| error.to_string())?;
        let text =
            text.replace("[nbd]\n", "[nbd]\nlisten = \"127.0.0.1:0\"\n").replace("127.0.0.1:9000", "127.0.0.1:0");
        let text = text.replace("[iscsi]\n", "[iscsi]\nlisten = \"127.0.0.1:0\"\n");
        let text = text.replace("blocks = \"128MiB\"", &format!("blocks = \"{cache}\""));
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
        let output = child.stdout.take();
        let (process, child) = (child.id(), Guarded(child));
        let mut line = String::new();
        BufReader::new(output.ok_or("the server has no output")?)
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        let tcp =
            said["nbd"].as_str().ok_or_else(|| format!("the server did not become ready; it said: {line}"))?.to_owned();
        let create = ["volume", "create", VOLUME, "--code", code, "--size", "1GiB", "--block", "512"];
        stele(&program, &dir.0, &create)?;
        stele(&program, &dir.0, &["volume", "export", VOLUME, "--nbd"])?;
        let said = stele(&program, &dir.0, &["volume", "export", VOLUME, "--iscsi", "--json"])?;
        let said: Value = serde_json::from_slice(&said).unwrap_or_default();
        let iscsi = said["url"].as_str().unwrap_or_default().to_owned();
        Ok(SteleBlockServer { _child: child, program, dir, process, tcp, iscsi })
    }

    pub fn dir(&self) -> &Path {
        &self.dir.0
    }

    pub fn url(&self, transport: &str) -> String {
        match transport {
            "tcp" => format!("nbd://{}/{VOLUME}", self.tcp),
            _ => format!("nbd+unix:///{VOLUME}?socket={}", self.dir.0.join("nbd.sock").display()),
        }
    }

    /// Waits until all written data is on the drives, and not only in memory and the log.
    pub fn settle(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let shown = stele(&self.program, &self.dir.0, &["volume", "show", VOLUME, "--json"])?;
            let shown: Value = serde_json::from_slice(&shown).unwrap_or_default();
            if shown["dirty_bytes"].as_u64() == Some(0) {
                return Ok(());
            }
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(format!("{} bytes are dirty after a minute", shown["dirty_bytes"]));
            }
            sleep(Duration::from_millis(50));
        }
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

/// A port that was free a moment ago.
fn free_port() -> Result<u16, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// A peer with its address.
struct Listening {
    child: Guarded,
    url: String,
}

fn listening(mut command: Command, transport: &str, socket: &Path, port: u16) -> Result<Listening, String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = Guarded(child.map_err(|error| format!("cannot start {command:?}: {error}"))?);
    let url = match transport {
        "tcp" => format!("nbd://127.0.0.1:{port}/"),
        _ => format!("nbd+unix:///?socket={}", socket.display()),
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let there = match transport {
            "tcp" => std::net::TcpStream::connect(("127.0.0.1", port)).is_ok(),
            _ => socket.exists(),
        };
        if there {
            return Ok(Listening { child, url });
        }
        sleep(Duration::from_millis(20));
    }
    Err(format!("{command:?} does not listen"))
}

pub struct Nbdkit {
    _child: Guarded,
    pub process: u32,
    pub url: String,
}

impl Nbdkit {
    pub fn start(dir: &Path, transport: &str) -> Result<Nbdkit, String> {
        let (socket, port) = (dir.join("nbdkit.sock"), free_port()?);
        let _ = fs::remove_file(&socket);
        let mut command = Command::new("nbdkit");
        command.arg("-f");
        match transport {
            "tcp" => command.args(["-i", "127.0.0.1", "-p", &port.to_string()]),
            _ => command.arg("-U").arg(&socket),
        };
        command.args(["memory", "1G"]);
        let Listening { child, url } = listening(command, transport, &socket, port)?;
        Ok(Nbdkit { process: child.0.id(), _child: child, url })
    }
}

pub struct QemuNbd {
    _child: Guarded,
    pub process: u32,
    pub url: String,
}

impl QemuNbd {
    pub fn start(dir: &Path, transport: &str) -> Result<QemuNbd, String> {
        let (socket, port, image) = (dir.join("qemu.sock"), free_port()?, dir.join("qemu.img"));
        let _ = fs::remove_file(&socket);
        let file = fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(1 << 30).map_err(|error| error.to_string())?;
        let mut command = Command::new("qemu-nbd");
        command.args(["-f", "raw", "-t", "-e", "16"]);
        match transport {
            "tcp" => command.args(["-b", "127.0.0.1", "-p", &port.to_string()]),
            _ => command.arg("-k").arg(&socket),
        };
        command.arg(&image);
        let Listening { child, url } = listening(command, transport, &socket, port)?;
        Ok(QemuNbd { process: child.0.id(), _child: child, url })
    }
}

/// tgt, with a file in memory as its unit.
pub struct Tgt {
    _child: Guarded,
    pub process: u32,
    pub url: String,
}

impl Tgt {
    pub fn start(dir: &Path) -> Result<Tgt, String> {
        const NAME: &str = "iqn.2024-01.example:tgt";
        let (port, control, image) = (free_port()?, "77", dir.join("tgt.img"));
        let content: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
        let mut file = fs::File::create(&image).map_err(|error| error.to_string())?;
        for _ in 0..1024 {
            file.write_all(&content).map_err(|error| error.to_string())?;
        }
        let mut command = Command::new("tgtd");
        command.args(["-f", "-C", control, "--iscsi", &format!("portal=127.0.0.1:{port}")]);
        let Listening { child, .. } = listening(command, "tcp", &image, port)?;
        let image = image.display().to_string();
        for more in [
            &["--mode", "target", "--op", "new", "--tid", "1", "-T", NAME][..],
            &["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", &image],
            &["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"],
        ] {
            let output = Command::new("tgtadm").args(["-C", control, "--lld", "iscsi"]).args(more).output();
            let output = output.map_err(|error| format!("cannot run tgtadm: {error}"))?;
            if !output.status.success() {
                return Err(format!("tgtadm {more:?}: {}", String::from_utf8_lossy(&output.stderr)));
            }
        }
        Ok(Tgt { process: child.0.id(), _child: child, url: format!("iscsi://127.0.0.1:{port}/{NAME}/1") })
    }
}
