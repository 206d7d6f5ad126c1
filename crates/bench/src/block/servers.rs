//! The servers of one run: the release `stele` beside this program, nbdkit and qemu-nbd, all on
//! memory.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::served::{Guarded, Node};

const VOLUME: &str = "vm";

pub struct SteleBlockServer {
    node: Node,
    pub process: u32,
    tcp: String,
    /// The address of the volume for initiators.
    pub iscsi: String,
}

impl SteleBlockServer {
    /// Starts a server on 12 drives, with a volume of 1 GiB and a cache of this size.
    pub fn start(code: &str, cache: &str) -> Result<SteleBlockServer, String> {
        let drives: Vec<String> = (0..12).map(|number| format!("d{number}.img@{}", number / 2)).collect();
        let mut create = vec!["--size", "512MiB", "--data", "none"];
        drives.iter().for_each(|drive| create.extend(["--drive", drive]));
        let blocks = format!("[memory]\nblocks = \"{cache}\"\n");
        let changes = [
            ("[nbd]\n", "[nbd]\nlisten = \"127.0.0.1:0\"\n"),
            ("[iscsi]\n", "[iscsi]\nlisten = \"127.0.0.1:0\"\n"),
            ("[memory]\n", &blocks),
        ];
        let mut node = Node::create("block", &create, &changes)?;
        let said = node.serve()?;
        let tcp = said["nbd"].as_str().ok_or_else(|| format!("the server serves no NBD; it said: {said}"))?.to_owned();
        node.run(&["volume", "create", VOLUME, "--code", code, "--size", "1GiB", "--block", "512"])?;
        node.run(&["volume", "export", VOLUME, "--nbd"])?;
        let said = node.ask(&["volume", "export", VOLUME, "--iscsi"])?;
        let iscsi = said["url"].as_str().unwrap_or_default().to_owned();
        Ok(SteleBlockServer { process: node.process(), node, tcp, iscsi })
    }

    pub fn dir(&self) -> &Path {
        self.node.dir()
    }

    pub fn url(&self, transport: &str) -> String {
        match transport {
            "tcp" => format!("nbd://{}/{VOLUME}", self.tcp),
            _ => format!("nbd+unix:///{VOLUME}?socket={}", self.dir().join("nbd.sock").display()),
        }
    }

    /// Waits until all written data is on the drives, and not only in memory and the log.
    pub fn settle(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let shown = self.node.ask(&["volume", "show", VOLUME])?;
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
    let child = Guarded::new(child.map_err(|error| format!("cannot start {command:?}: {error}"))?);
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
