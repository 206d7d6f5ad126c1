//! `./x package --check`: the package on a machine. The machine is this one, behind an overlay in
//! namespaces of its own, so that the installation does not change it. The check installs, starts
//! as the unit does, upgrades under an edited configuration, removes and purges. It takes root,
//! `unshare`, `dpkg` and `curl`, no network and less than a minute. With `--clean` the machine is a
//! minimal Debian, which debootstrap fetches once. systemd itself is not started: the check is the
//! service manager and receives the server's notifications. `systemd-analyze` judges the unit if it
//! is installed.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Built, Done, Entry, output, read, run_to_end, write};

/// Time limit for each expected notification of the server.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest allowed score of `systemd-analyze security`, where 0 is the best.
const EXPOSURE_MAX: f64 = 2.0;
const NOTIFY: &str = "/run/stele-check.notify";
const DATA: &str = "/var/lib/stele";

/// A user of the machine who is neither root nor the server's.
const OFFICER: &str = "65534";

/// Makes a newer package, and runs the rest in namespaces.
pub fn run(root: &Path, built: &Built, clean: bool) -> Done<()> {
    security(root)?;
    let base = if clean { base(root)? } else { PathBuf::from("/") };
    let newer = built.deb.with_file_name("newer.deb");
    let entries = super::entries(root, &root.join("target/package"))?;
    let entries: Vec<Entry> = entries
        .into_iter()
        .map(|mut entry| {
            if entry.path == "etc/stele/stele.toml" {
                entry.bytes.extend_from_slice(b"# A newer version says more.\n");
            }
            entry
        })
        .collect();
    write(&newer, &super::debian(root, &entries, &format!("{}+next", built.version), architecture(&built.deb), 0)?)?;
    let own = std::env::current_exe().map_err(|error| format!("cannot tell what this program is: {error}"))?;
    let mut inner = Command::new("unshare");
    inner.args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]).arg(own);
    inner.args(["package", "--inside"]).arg(&built.deb).arg(&newer).arg(base);
    run_to_end(&mut inner)?;
    println!("package: ok {} ({})", built.version, built.commit);
    Ok(())
}

/// A minimal Debian of this machine's release, without anything of this machine.
fn base(root: &Path) -> Done<PathBuf> {
    let base = root.join("target/package-base");
    if base.join("usr/bin/curl").exists() {
        return Ok(base);
    }
    let about = read(Path::new("/etc/os-release"))?;
    let release = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let release = release.ok_or("/etc/os-release names no release")?;
    let _ = fs::remove_dir_all(&base);
    println!("package: debootstrap fetches a minimal Debian into {}", base.display());
    let mut fetch = Command::new("debootstrap");
    fetch.args(["--variant=minbase", "--include=curl,procps", release]).arg(&base).stdout(Stdio::null());
    run_to_end(&mut fetch)?;
    Ok(base)
}

fn architecture(deb: &Path) -> &str {
    deb.file_stem().and_then(|name| name.to_str()).and_then(|name| name.rsplit('_').next()).unwrap_or("all")
}

/// Checks the exposure of the machine that the unit allows, alone and with the drop-ins of
/// OPERATIONS.md, and that OPERATIONS.md states these figures.
fn security(root: &Path) -> Done<()> {
    let unit = read(&root.join("contrib/package/stele.service"))?;
    let folder = root.join("target/package/unit");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let place = folder.join("stele.service");
    let with = |rights: &str| {
        let unit = unit.replace("\nCapabilityBoundingSet=\n", &format!("\nCapabilityBoundingSet={rights}\n"));
        unit.replace("\nAmbientCapabilities=\n", &format!("\nAmbientCapabilities={rights}\n"))
    };
    let told = read(&root.join("OPERATIONS.md"))?.split_whitespace().collect::<Vec<_>>().join(" ");
    for (unit, text, most) in [
        (with(""), "rates the unit {}", EXPOSURE_MAX),
        (unit.replace("\n[Install]", "ReadWritePaths=/mnt/heads\n[Install]"), "is a mount | {} |", EXPOSURE_MAX),
        (with("CAP_NET_BIND_SERVICE"), "`AmbientCapabilities=CAP_NET_BIND_SERVICE` | {} |", 10.0),
        (with("CAP_SYS_RAWIO"), "`AmbientCapabilities=CAP_SYS_RAWIO` | {} |", 10.0),
        (with("CAP_SYS_RAWIO CAP_SYS_ADMIN"), "`CAP_SYS_RAWIO CAP_SYS_ADMIN` | {} |", 10.0),
    ] {
        write(&place, unit.as_bytes())?;
        let mut judge = Command::new("systemd-analyze");
        let Ok(said) = output(judge.args(["security", "--offline=yes", "--no-pager"]).arg(&place)) else {
            println!("package: systemd-analyze is not here; the unit is not judged");
            return Ok(());
        };
        let line = said.lines().last().unwrap_or_default();
        println!("package: {line}");
        let score = line.split_whitespace().find_map(|word| word.parse::<f64>().ok()).unwrap_or(10.0);
        expect(score <= most, || format!("the unit is exposed at {score}, more than {most}"))?;
        let text = text.replace("{}", &format!("{score:.1}"));
        expect(told.contains(&text), || format!("OPERATIONS.md does not say '{text}'"))?;
    }
    Ok(())
}

/// Runs inside the namespaces: an overlay over `base` is the new machine.
pub fn inside(root: &Path, deb: &Path, newer: &Path, base: &Path) -> Done<()> {
    let scratch = root.join("target/package/machine");
    fs::create_dir_all(&scratch).map_err(|error| format!("cannot make {}: {error}", scratch.display()))?;
    run_to_end(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&scratch))?;
    let [upper, work, machine] = ["upper", "work", "machine"].map(|name| scratch.join(name));
    for folder in [&upper, &work, &machine] {
        fs::create_dir(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    let layers = format!("lowerdir={},upperdir={},workdir={}", base.display(), upper.display(), work.display());
    run_to_end(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &layers]).arg(&machine))?;
    let put = |from: &Path, name: &str| {
        fs::copy(from, machine.join(name)).map(drop).map_err(|error| format!("cannot copy {}: {error}", from.display()))
    };
    // An overlay does not show the mounts of the machine below.
    run_to_end(Command::new("mount").args(["--bind", "/dev"]).arg(machine.join("dev")))?;
    put(deb, "old.deb")?;
    put(newer, "new.deb")?;
    std::os::unix::fs::chroot(&machine).map_err(|error| format!("cannot enter the new machine: {error}"))?;
    std::env::set_current_dir("/").map_err(|error| error.to_string())?;
    run_to_end(Command::new("mount").args(["-t", "proc", "proc", "/proc"]))?;
    run_to_end(Command::new("mount").args(["-t", "tmpfs", "none", "/run"]))?;
    run_to_end(Command::new("mount").args(["-t", "tmpfs", "none", "/tmp"]))?;
    // Remove the files that the machine below has of the package.
    let _ = Command::new("dpkg").args(["--purge", "stele"]).output();
    let _ = fs::remove_dir_all(DATA);
    let begun = Instant::now();
    installed()?;
    let server = Server::start()?;
    used(&server)?;
    println!("package: {:.1} s from dpkg to a locked object", begun.elapsed().as_secs_f64());
    server.stop()?;
    upgraded()?;
    removed()
}

fn installed() -> Done<()> {
    run_to_end(Command::new("dpkg").args(["--install", "/old.deb"]).stdout(Stdio::null()))?;
    let user = output(Command::new("id").args(["-un", "stele"]))?;
    expect(user == "stele", || format!("there is no user stele but '{user}'"))?;
    for (path, mode) in [
        ("/etc/stele/stele.toml", 0o640),
        ("/etc/stele", 0o750),
        (DATA, 0o750),
        ("/run/stele", 0o755),
        ("/usr/bin/stele", 0o755),
        ("/usr/share/man/man1/stele.1.gz", 0o644),
        ("/usr/share/man/man1/stele-pool-status.1.gz", 0o644),
        ("/usr/share/bash-completion/completions/stele", 0o644),
        ("/usr/lib/systemd/system/stele.service", 0o644),
        ("/usr/share/stele/prometheus/stele.yml", 0o644),
        ("/usr/share/stele/grafana/stele.json", 0o644),
        ("/usr/share/stele/verify-proof.py", 0o644),
        ("/usr/share/stele/read-backup.py", 0o644),
        ("/usr/share/stele/read-pool.py", 0o644),
        ("/usr/share/stele/read_pool_volumes.py", 0o644),
        ("/usr/share/doc/stele/docs/runbooks/replace-a-drive.md", 0o644),
    ] {
        let about = fs::metadata(path).map_err(|error| format!("{path} is not installed: {error}"))?;
        let found = about.permissions().mode() & 0o7777;
        expect(found == mode, || format!("{path} has mode {found:o}, not {mode:o}"))?;
    }
    let owner = fs::metadata("/etc/stele/stele.toml").map_or(0, |about| about.uid());
    expect(owner != 0, || "the configuration is not the server's".to_owned())?;
    // Without a pool there is nothing to serve, and the message names the next step.
    let refused = failed(Command::new("runuser").args(["-u", "stele", "--", "stele", "serve"]))?;
    expect(refused.contains("stele pool create"), || format!("without a pool: {refused}"))?;
    // The server could not read files made by root.
    let drives: Vec<String> = (0..3).map(|number| format!("{DATA}/d{number}.img@{number}")).collect();
    let mut create =
        vec!["stele", "pool", "create", "--confirm-time", "--size", "256MiB", "--data", "2+1", "--spare", "1"];
    drives.iter().for_each(|drive| create.extend(["--drive", drive]));
    let refused = failed(Command::new("stele").args(&create[1..]))?;
    expect(refused.contains("runuser -u stele"), || format!("as root: {refused}"))?;
    run_to_end(Command::new("runuser").args(["-u", "stele", "--"]).args(&create).stdout(Stdio::null()))?;
    let config = read(Path::new("/etc/stele/stele.toml"))?;
    expect(config.contains("d2.img@2"), || "the configuration does not name the drives".to_owned())?;
    let with_officer = config.replace("\n[admin]\n", &format!("\n[admin]\nofficers = [{OFFICER}]\n"));
    write(Path::new("/etc/stele/stele.toml"), with_officer.as_bytes())?;
    expect(config.contains("# Losing it loses every record"), || "the comments are gone".to_owned())
}

/// The server as the unit starts it, and its notifications to the manager.
struct Server {
    child: Child,
    manager: UnixDatagram,
}

impl Server {
    fn start() -> Done<Server> {
        let unit = read(Path::new("/usr/lib/systemd/system/stele.service"))?;
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).ok_or("the unit starts nothing")?;
        let _ = fs::remove_file(NOTIFY);
        let manager = UnixDatagram::bind(NOTIFY).map_err(|error| format!("cannot listen at {NOTIFY}: {error}"))?;
        fs::set_permissions(NOTIFY, fs::Permissions::from_mode(0o666)).map_err(|error| error.to_string())?;
        manager.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        let said = fs::File::create("/run/journal").map_err(|error| error.to_string())?;
        let errors = said.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "stele",
            "--regid",
            "stele",
            "--init-groups",
            "--no-new-privs",
            "--inh-caps=-all",
            "--",
        ]);
        command.args(line.split_whitespace()).stdin(Stdio::null()).stdout(said).stderr(errors);
        command.env("NOTIFY_SOCKET", NOTIFY).env("WATCHDOG_USEC", "500000").process_group(0);
        let child = command.spawn().map_err(|error| format!("cannot start setpriv: {error}"))?;
        let server = Server { child, manager };
        server.hears("READY=1")?;
        server.hears("WATCHDOG=1")?;
        Ok(server)
    }

    fn hears(&self, wanted: &str) -> Done<()> {
        let mut bytes = [0; 256];
        loop {
            let length = self.manager.recv(&mut bytes).map_err(|error| {
                let journal = fs::read_to_string("/run/journal").unwrap_or_default();
                format!("the server does not say {wanted}: {error}\n{journal}")
            })?;
            if bytes[..length].split(|&byte| byte == b'\n').any(|line| line == wanted.as_bytes()) {
                return Ok(());
            }
        }
    }

    fn stop(mut self) -> Done<()> {
        run_to_end(Command::new("kill").arg(self.child.id().to_string()))?;
        self.hears("STOPPING=1")?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        expect(status.success(), || format!("the server ended with {status}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks the use of the server from the first key to a locked object.
fn used(_: &Server) -> Done<()> {
    let file = PathBuf::from(DATA).join("first-key.json");
    let about = fs::metadata(&file).map_err(|error| format!("the first key is not in {}: {error}", file.display()))?;
    expect(about.permissions().mode() & 0o777 == 0o600, || "others may read the first key".to_owned())?;
    let text = read(&file)?;
    let field = |name: &str| -> Done<String> {
        let rest = text.split_once(&format!("\"{name}\":\"")).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split('"').next()).map(str::to_owned).ok_or(format!("no {name} in the first key"))
    };
    let (access, secret) = (field("access_key")?, field("secret_key")?);
    let journal = read(Path::new("/run/journal"))?;
    expect(!journal.contains(&secret), || "the first secret is in the journal".to_owned())?;
    let stele = |arguments: &[&str]| output(Command::new("stele").args(arguments));
    // Run as root, without any path: the package's configuration is found.
    stele(&["bucket", "create", "records", "--lock", "--retention", "compliance:7y"])?;
    write(Path::new("/run/ledger"), b"a record")?;
    let (user, url) = (format!("{access}:{secret}"), "http://127.0.0.1:9000/records/ledger");
    let mut put = Command::new("curl");
    put.args(["--silent", "--show-error", "--fail", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &user]);
    // curl before 8 leaves the header out, which S3 requires.
    put.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
    output(put.args(["--upload-file", "/run/ledger", url]))?;
    let why = stele(&["why", "records/ledger"])?;
    expect(why.contains("cannot be deleted now"), || format!("the object is not locked: {why}"))?;
    // An officer is another user, who may not read the configuration, and finds the socket without
    // any path.
    let key = stele(&["key", "create", "--name", "anna", "--role", "retention-officer", "--json"])?;
    write(Path::new("/run/anna.json"), key.as_bytes())?;
    let mut officer = Command::new("setpriv");
    officer.args(["--reuid", OFFICER, "--regid", OFFICER, "--clear-groups", "--", "stele", "approve", "--officer"]);
    output(officer.arg("/run/anna.json")).map(drop)
}

/// Installs a newer package over an edited configuration: the configuration and the stored data are
/// kept.
fn upgraded() -> Done<()> {
    let edited = format!("{}# Edited here.\n", read(Path::new("/etc/stele/stele.toml"))?);
    write(Path::new("/etc/stele/stele.toml"), edited.as_bytes())?;
    // Folders that a site gave to root, for a server that runs as root, stay root's.
    let folders = ["/etc/stele", DATA];
    let give = |user: &str, mode: &str| -> Done<()> {
        run_to_end(Command::new("chown").arg(user).args(folders))?;
        run_to_end(Command::new("chmod").arg(mode).args(folders))
    };
    give("root:root", "0700")?;
    run_to_end(Command::new("dpkg").args(["--force-confold", "--install", "/new.deb"]).stdout(Stdio::null()))?;
    for folder in folders {
        let about = fs::metadata(folder).map_err(|error| format!("{folder}: {error}"))?;
        let found = (about.uid(), about.permissions().mode() & 0o7777);
        expect(found == (0, 0o700), || format!("an upgrade gave {folder} to user {}, mode {:o}", found.0, found.1))?;
    }
    give("stele:stele", "0750")?;
    let kept = read(Path::new("/etc/stele/stele.toml"))?;
    expect(kept == edited, || "an upgrade changed the configuration".to_owned())?;
    let owner = fs::metadata("/etc/stele/stele.toml").map_or(0, |about| about.uid());
    expect(owner != 0, || "after an upgrade the configuration is root's".to_owned())?;
    let server = Server::start()?;
    let why = output(Command::new("stele").args(["why", "records/ledger"]))?;
    expect(why.contains("cannot be deleted now"), || format!("after the upgrade: {why}"))?;
    server.stop()
}

/// Stored data survives every action on the package.
fn removed() -> Done<()> {
    run_to_end(Command::new("dpkg").args(["--remove", "stele"]).stdout(Stdio::null()))?;
    expect(!Path::new("/usr/bin/stele").exists(), || "the binary is still there".to_owned())?;
    expect(Path::new("/etc/stele/stele.toml").exists(), || "removing took the configuration".to_owned())?;
    run_to_end(Command::new("dpkg").args(["--purge", "stele"]).stdout(Stdio::null()))?;
    expect(!Path::new("/etc/stele/stele.toml").exists(), || "purging left the configuration".to_owned())?;
    let key = PathBuf::from(DATA).join("master.key");
    expect(key.exists(), || "purging took the master key".to_owned())?;
    let left = output(Command::new("dpkg").args(["--listfiles", "stele"])).unwrap_or_default();
    expect(left.is_empty(), || format!("left behind: {left}"))
}

/// The output of a command that must fail.
fn failed(command: &mut Command) -> Done<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    let mut said = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = stderr.read_to_string(&mut said);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    expect(!status.success(), || format!("{command:?} was not refused"))?;
    Ok(said)
}

fn expect(good: bool, what: impl FnOnce() -> String) -> Done<()> {
    if good { Ok(()) } else { Err(what()) }
}
