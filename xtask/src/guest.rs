//! `./x guest`: the NFS client of a Linux kernel against a real server, in a virtual machine.
//!
//! The machine has Debian's cloud kernel, busybox, and this program, which runs the checks of
//! [`inside`] there. Its network is QEMU's own: the address 10.0.2.2 in it is the loopback of this
//! machine, and nothing leaves that. The machine asks for a `kill -9` of the server by a line on
//! its console.
//!
//! Bounded by [`MACHINE_MAX`]. Processor emulation is enough; `STELE_GUEST_ACCEL=kvm` uses the
//! hardware's.

mod image;
pub mod inside;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use crate::cargo;

type Done<T> = Result<T, String>;

/// Seconds that the virtual machine may run.
const MACHINE_MAX: &str = "1200";
const MEMORY: &str = "768";
/// The package that depends on the newest kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";
pub const SHARE: &str = "records";
/// A line of the machine that asks for the server to be killed and started again.
pub const KILL: &str = "guest: kill the server";
/// Every line of the machine that is for people begins with this.
pub const SAYS: &str = "guest: ";
/// The end of the last line of a run without failures.
pub const GOOD: &str = ", 0 failed";

pub fn run(root: &Path) -> ExitCode {
    match check(root) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("x: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn check(root: &Path) -> Done<bool> {
    tools()?;
    let folder = root.join("target/guest");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let kernel = kernel(&folder)?;
    let built = cargo().args(["build", "--release", "--locked", "--package", "stele"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("stele could not be built".to_owned());
    }
    let image = folder.join("initramfs");
    image::write(&image, &kernel)?;
    let mut server = Server::new(root)?;
    server.start()?;
    let made = server.make_share().and_then(|()| machine(&kernel, &image, &mut server));
    server.kill();
    let good = made?;
    if good {
        let _ = fs::remove_dir_all(&server.dir);
    } else {
        eprintln!("x: the server's files and log are in {}", server.dir.display());
    }
    Ok(good)
}

fn tools() -> Done<()> {
    if std::env::consts::ARCH != "x86_64" {
        return Err("./x guest runs on x86-64 only".to_owned());
    }
    let needed = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("timeout", "coreutils"),
        ("ldd", "libc-bin"),
    ];
    let lacking: Vec<&str> =
        needed.into_iter().filter(|(tool, _)| find(tool).is_none()).map(|(_, package)| package).collect();
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(format!("./x guest needs: apt-get install {}", lacking.join(" "))),
    }
}

/// A program in PATH.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|file| file.is_file())
}

pub fn output(command: &mut Command) -> Done<String> {
    let program = command.get_program().display().to_string();
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run {program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program} failed: {}", output.status)),
    }
}

/// The unpacked kernel package; it is fetched from Debian once, and not installed.
fn kernel(folder: &Path) -> Done<PathBuf> {
    let unpacked = folder.join("kernel");
    if unpacked.join("boot").is_dir() {
        return Ok(unpacked);
    }
    let why = |reason| format!("no kernel for the virtual machine ({reason}); it needs Debian and apt-get update");
    let says = output(Command::new("apt-cache").args(["depends", KERNEL])).map_err(why)?;
    let package = says.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.ok_or_else(|| why(format!("{KERNEL} is unknown")))?;
    output(Command::new("apt-get").args(["download", "-q", package]).current_dir(folder)).map_err(why)?;
    let fetched = fs::read_dir(folder).map_err(|error| error.to_string())?.flatten().map(|entry| entry.path());
    let deb = fetched.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let deb = deb.ok_or_else(|| why("apt-get download left no package".to_owned()))?;
    output(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&unpacked)).map_err(why)?;
    Ok(unpacked)
}

/// Runs the machine, and says whether all its checks passed.
fn machine(kernel: &Path, image: &Path, server: &mut Server) -> Done<bool> {
    let boot = fs::read_dir(kernel.join("boot")).map_err(|error| error.to_string())?;
    let linux = boot.flatten().map(|entry| entry.path()).find(|path| path.display().to_string().contains("vmlinuz"));
    let linux = linux.ok_or("the kernel package has no kernel")?;
    let accelerator = std::env::var("STELE_GUEST_ACCEL").unwrap_or_else(|_| "tcg".to_owned());
    let processor = if accelerator == "kvm" { "host" } else { "max" };
    let mut qemu = Command::new("timeout");
    qemu.args([MACHINE_MAX, "qemu-system-x86_64", "-accel", &accelerator, "-cpu", processor, "-m", MEMORY])
        .args(["-nographic", "-no-reboot", "-kernel"])
        .arg(linux)
        .arg("-initrd")
        .arg(image)
        .args(["-append", &format!("console=ttyS0 quiet panic=-1 stele.port={}", server.port)])
        .args(["-netdev", "user,id=network,restrict=no", "-device", "virtio-net-pci,netdev=network"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut running = qemu.spawn().map_err(|error| format!("cannot start qemu-system-x86_64: {error}"))?;
    let console = running.stdout.take().ok_or("the machine has no console")?;
    let mut good = None;
    for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if !line.starts_with(SAYS) {
            continue;
        }
        println!("{line}");
        if line == KILL {
            server.kill();
            server.start()?;
        } else if line.contains(" passed, ") {
            good = Some(line.ends_with(GOOD));
        }
    }
    let ended = running.wait().map_err(|error| format!("cannot wait for the machine: {error}"))?;
    good.ok_or(format!("the machine ended without a result ({ended}); it may run {MACHINE_MAX} seconds"))
}

/// A server with a pool of its own, on loopback.
struct Server {
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Server {
    fn new(root: &Path) -> Done<Server> {
        let dir = std::env::temp_dir().join(format!("stele-guest-{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(|error| format!("no free port: {error}"))?.port();
        let mut server = Server { program: root.join("target/release/stele"), dir, port, child: None };
        // The first start makes the pool and its configuration; the second one listens for NFS.
        server.start()?;
        server.kill();
        let config = server.dir.join("stele.toml");
        let text = fs::read_to_string(&config).map_err(|error| format!("cannot read the configuration: {error}"))?;
        let text = text.replace("[nfs]\n", &format!("[nfs]\nlisten = \"127.0.0.1:{port}\"\n"));
        fs::write(&config, text).map_err(|error| format!("cannot write the configuration: {error}"))?;
        Ok(server)
    }

    /// Starts it, and waits until it serves.
    fn start(&mut self) -> Done<()> {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.join("server.log"));
        let log = log.map_err(|error| format!("cannot write the server's log: {error}"))?;
        let mut up = Command::new(&self.program);
        up.args(["up", "--json", "--listen", "127.0.0.1:0", "--drives", "12", "--drive-size", "1GiB"])
            .args(["--data", "8+2", "--dir"])
            .arg(&self.dir)
            .env_remove("STELE_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = up.spawn().map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let said = child.stdout.take().ok_or("the server has no standard output")?;
        let mut line = String::new();
        let ready = BufReader::new(said).read_line(&mut line);
        self.child = Some(child);
        match ready {
            Ok(1..) if line.contains("\"endpoint\"") => Ok(()),
            _ => Err(format!("the server did not start; see {}", self.dir.join("server.log").display())),
        }
    }

    /// As `kill -9` does.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn make_share(&self) -> Done<()> {
        let mut create = Command::new(&self.program);
        create.args(["share", "create", SHARE, "--cache", "512MiB", "--squash", "none", "--lock", "--json"]);
        output(create.env("STELE_DIR", &self.dir)).map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
