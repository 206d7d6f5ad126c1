//! A machine made of files, and the findings of the doctor on it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use stele_ground::Bytes;

use super::*;

/// The whole machine on one file system that can be written to.
const MOUNTED: &str = "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n";

/// A machine and a data directory under one folder.
struct Patient(PathBuf);

impl Patient {
    fn new(name: &str) -> Patient {
        let dir = std::env::temp_dir().join(format!("stele-doctor-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let patient = Patient(dir);
        patient.write("proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\n");
        patient.write(
            "proc/self/limits",
            "Max open files            1048576  1048576  files\nMax locked memory  unlimited unlimited bytes\n",
        );
        patient.write("proc/self/mountinfo", MOUNTED);
        patient.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
        patient.write("data/stele.toml", "[pool]\ndrives = [\"a.img@0\", \"b.img@1\"]\n");
        patient.write("data/a.img", "a");
        patient.write("data/b.img", "b");
        patient.write("data/master.key", &"0123456789abcdef".repeat(4));
        patient.chmod("data/master.key", 0o600);
        patient
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.0.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn findings(&self) -> Vec<Finding> {
        self.findings_beside(None)
    }

    /// The same while this process is a server.
    fn findings_beside(&self, server: Option<i32>) -> Vec<Finding> {
        let machine = Machine { proc: self.0.join("proc"), sys: self.0.join("sys") };
        examine(&Site::find(Some(&self.0.join("data")), None), &machine, server)
    }

    /// The worst finding of one check.
    #[track_caller]
    fn check(&self, check: &str, verdict: Verdict, word: &str) {
        let findings = self.findings();
        let found = findings.iter().filter(|finding| finding.check == check).max_by_key(|finding| finding.verdict);
        let found = found.unwrap_or_else(|| panic!("{check}: {findings:?}"));
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.message.contains(word), "{word}: {found:?}");
        assert_eq!(found.next.is_empty(), found.verdict == Verdict::Good, "each has a next step: {found:?}");
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_healthy_machine_is_called_so() {
    let patient = Patient::new("healthy");
    for check in [
        "configuration",
        "memory",
        "clock-source",
        "open-files",
        "memlock",
        "drives",
        "permissions",
        "master-key",
        "room",
        "drive-room",
    ] {
        patient.check(check, Verdict::Good, "");
    }
}

#[test]
fn a_socket_that_is_closed_to_this_user_is_not_called_unserved() {
    for (kind, says) in [
        (std::io::ErrorKind::PermissionDenied, "this user may not ask the server"),
        (std::io::ErrorKind::ConnectionRefused, "no server answers"),
    ] {
        let found = files::unanswered(Path::new("data/stele.sock"), &kind.into());
        assert!(found.verdict == Verdict::Note && found.message.contains(says) && !found.next.is_empty(), "{found:?}");
    }
}

#[test]
fn whatever_will_hurt_is_found() {
    let patient = Patient::new("ill");
    // Two files of one file system.
    patient.check("shared-device", Verdict::Warning, "one device");
    patient.write("proc/meminfo", "MemTotal:  1000000 kB\n");
    patient.check("memory", Verdict::Warning, "976.6 MiB".split('.').next().unwrap());
    patient.write("proc/meminfo", "MemTotal:  500000 kB\n");
    patient.check("memory", Verdict::Wrong, "of memory");
    patient.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
    patient.check("clock-source", Verdict::Warning, "hpet");
    // The server raises its limit as far as it may.
    patient.write("proc/self/limits", "Max open files            1024  1048576  files\n");
    patient.check("open-files", Verdict::Good, "1048576 files");
    patient.write("proc/self/limits", "Max open files            1024  1024  files\n");
    patient.check("open-files", Verdict::Warning, "1024 files");
    patient.check("memlock", Verdict::Unknown, "");
    patient.chmod("data/master.key", 0o640);
    patient.check("permissions", Verdict::Wrong, "master.key has mode 0640");
    patient.chmod("data/master.key", 0o600);
    patient.chmod("data", 0o777);
    patient.check("permissions", Verdict::Wrong, "mode 0777");
    patient.chmod("data", 0o755);
    patient.write("data/stele.sock", "not a socket");
    patient.check("socket", Verdict::Wrong, "stele.sock");
    patient.write("data/b.img", "");
    patient.check("drives", Verdict::Wrong, "b.img");
    fs::remove_file(patient.0.join("data/b.img")).unwrap();
    patient.check("drives", Verdict::Wrong, "b.img");
    fs::create_dir(patient.0.join("data/b.img")).unwrap();
    patient.check("drives", Verdict::Wrong, "1 of 2 drives");
    fs::remove_dir(patient.0.join("data/b.img")).unwrap();
    patient.write("data/stele.toml", "[pool]\ndrives = [\"a.img@0\"]\n[archive]\nheads_also = [\"/nowhere/heads\"]\n");
    patient.check("heads", Verdict::Warning, "/nowhere/heads");
    patient.write("data/stele.toml", "[pool]\ndrives = [\"a.img@0\"]\n[archive]\nheads = \"/nowhere/first\"\n");
    patient.check("heads", Verdict::Warning, "/nowhere/first");
    patient.write("data/stele.toml", "[pool]\ndrives = [\"a.img@0\"]\n");
    patient.check("heads", Verdict::Note, "on this machine only");
    // A witness knows how far the log has come.
    let witness = "heads_witness = \"http://192.0.2.7:9120/witness\"\nheads_witness_key = \"witness.pub\"\n";
    patient.write("data/stele.toml", &format!("[pool]\ndrives = [\"a.img@0\"]\n[archive]\n{witness}"));
    assert!(patient.findings().iter().all(|finding| finding.check != "heads"));
    patient.write("data/stele.toml", "[pool]\ndrives = []\nspeed = 11\n");
    patient.check("configuration", Verdict::Wrong, "line 3: unknown field `speed`");
}

/// A shell may have more than the service, and less.
#[test]
fn the_limits_of_a_server_that_runs_count_and_not_those_of_the_shell() {
    let patient = Patient::new("server");
    let of = |check: &str| {
        let findings = patient.findings_beside(Some(77));
        let found = findings.into_iter().find(|finding| finding.check == check);
        found.map(|finding| (finding.verdict, finding.message)).unwrap_or_else(|| panic!("{check}"))
    };
    assert_eq!((of("open-files").0, of("memlock").0), (Verdict::Unknown, Verdict::Unknown));
    patient
        .write("proc/77/limits", "Max open files   1024   1048576   files\nMax locked memory  8388608 8388608 bytes\n");
    let (verdict, message) = of("open-files");
    assert_eq!(verdict, Verdict::Warning, "it has raised its limit as far as it may: {message}");
    assert!(message.starts_with("1024 files may be open in the server (process 77), and"), "{message}");
    assert!(of("memlock").1.starts_with("8 MiB of memory may be locked in the server (process 77)"));
    patient.check("open-files", Verdict::Good, "1048576 files");
    // Its control group may have less memory than the machine.
    patient.write("proc/77/cgroup", "0::/stele.service\n");
    patient.write("sys/fs/cgroup/stele.service/memory.max", "536870912\n");
    assert_eq!(of("memory").0, Verdict::Wrong);
    patient.check("memory", Verdict::Good, "");
}

/// As `--dir` names it, from the directory of the caller.
#[test]
fn a_relative_path_is_as_reachable_as_the_whole_one() {
    for path in ["src", "src/lib.rs", "stele.sock"] {
        let whole = std::path::absolute(path).unwrap();
        assert_eq!(files::is_reachable(Path::new(path)), files::is_reachable(&whole), "{path}");
    }
    let patient = Patient::new("closed");
    let dir = fs::canonicalize(&patient.0).unwrap().join("data");
    patient.chmod("data", 0o700);
    assert!(!files::is_reachable(&dir.join("stele.sock")));
}

/// The next start would fail, and a server that runs still has the key.
#[test]
fn a_damaged_master_key_is_found_before_the_next_start() {
    let patient = Patient::new("master-key");
    let next = |server: Option<i32>| {
        let findings = patient.findings_beside(server);
        let found = findings.into_iter().find(|finding| finding.check == "master-key").expect("it is looked at");
        assert!(found.verdict == Verdict::Wrong && found.message.contains("master.key"), "{found:?}");
        found.next
    };
    patient.write("data/master.key", "0123\n");
    assert!(next(None).starts_with("restore the exported copy"));
    assert!(next(Some(std::process::id() as i32)).contains("`stele master-key export --to FILE`"));
    fs::remove_file(patient.0.join("data/master.key")).unwrap();
    assert!(patient.findings().iter().all(|finding| finding.check != "master-key"), "`permissions` tells it");
    let text = "[pool]\ndrives = [\"a.img@0\"]\n[archive]\nmaster_key = \"command:false\"\n";
    patient.write("data/stele.toml", text);
    assert!(patient.findings().iter().all(|finding| finding.check != "master-key"), "no command is run");
}

#[test]
fn open_secrets_and_missing_files_are_found() {
    let patient = Patient::new("secrets");
    let open = |file: &str| {
        patient.check("permissions", Verdict::Good, "");
        patient.write(&format!("data/{file}"), "secret");
        patient.check("permissions", Verdict::Wrong, &format!("{file} has mode 0644"));
        patient.chmod(&format!("data/{file}"), 0o600);
    };
    open("exports.json");
    open("tls/key.pem");
    let writable = |file: &str, mode: u32| {
        patient.check("permissions", Verdict::Good, "");
        patient.chmod(&format!("data/{file}"), mode);
        patient.check("permissions", Verdict::Wrong, file);
        fs::remove_dir_all(patient.0.join("data").join(file)).unwrap();
    };
    patient.write("data/heads/1.head", "");
    writable("heads", 0o777);
    // What the configuration names has to be there, and a secret is for its owner.
    for (section, key) in [
        ("s3", "tls_key"),
        ("nbd", "tls_key"),
        ("nfs", "tls_key"),
        ("archive", "heads_bucket_key"),
        ("messages", "mail_password"),
    ] {
        let beside = if key == "tls_key" { "tls_certificate = \"public.pem\"\n" } else { "" };
        let text = "[pool]\ndrives = [\"a.img@0\"]\n";
        patient.write("data/public.pem", "");
        patient.write("data/stele.toml", &format!("{text}[{section}]\n{key} = \"named.secret\"\n{beside}"));
        patient.check("permissions", Verdict::Wrong, "named.secret cannot be looked at");
        patient.write("data/named.secret", "");
        patient.check("permissions", Verdict::Wrong, "named.secret has mode 0644");
        patient.chmod("data/named.secret", 0o600);
        patient.check("permissions", Verdict::Good, "");
        fs::remove_file(patient.0.join("data/named.secret")).unwrap();
    }
}

#[test]
fn places_that_are_mounted_read_only_are_found() {
    let patient = Patient::new("read only");
    let dir = fs::canonicalize(&patient.0).unwrap();
    let at = |below: &str| dir.join(below).display().to_string().replace(' ', "\\040");
    let mounts = |lines: &[String]| patient.write("proc/self/mountinfo", &[MOUNTED, &lines.concat()].concat());
    patient.check("room", Verdict::Good, "");
    patient.check("drives", Verdict::Good, "2 drives");
    mounts(&[format!("2 1 8:2 / {} ro,relatime - ext4 /dev/sdb1 rw\n", at("data"))]);
    patient.check("room", Verdict::Wrong, "mounted read-only");
    patient.check("drives", Verdict::Wrong, "2 of 2 drives lie on");
    // The file system itself is read-only, as after an error.
    mounts(&[format!("2 1 8:2 / {} rw,relatime - ext4 /dev/sdb1 ro,errors=remount-ro\n", at("data"))]);
    patient.check("room", Verdict::Wrong, "mounted read-only");
    // A later mount at the same place hides the former one.
    let line = |options: &str| format!("2 1 8:2 / {} {options} - ext4 /dev/sdb1 rw\n", at("data"));
    mounts(&[line("ro"), line("rw")]);
    patient.check("room", Verdict::Good, "");
    // A name that begins alike is another directory.
    mounts(&[format!("2 1 8:2 / {} ro - ext4 /dev/sdb1 rw\n", at("dat"))]);
    patient.check("room", Verdict::Good, "");
    fs::create_dir(patient.0.join("heads")).unwrap();
    let text = format!("[pool]\ndrives = [\"a.img@0\"]\n[archive]\nheads_also = [\"{}/heads\"]\n", dir.display());
    patient.write("data/stele.toml", &text);
    patient.check("heads", Verdict::Good, "");
    mounts(&[format!("2 1 8:2 / {} ro - ext4 /dev/sdb1 rw\n", at("heads"))]);
    patient.check("heads", Verdict::Warning, "mounted read-only");
    fs::remove_file(patient.0.join("proc/self/mountinfo")).unwrap();
    patient.check("room", Verdict::Unknown, "mounted read-only");
}

/// A machine whose drives are devices, described by the kernel under /sys.
#[test]
fn drives_behind_one_controller_and_volatile_caches_are_found() {
    let patient = Patient::new("paths");
    let about = fs::metadata(patient.0.join("data/a.img")).unwrap();
    let number = std::os::unix::fs::MetadataExt::dev(&about);
    let (major, minor) = (stele_media::system::major(number), stele_media::system::minor(number));
    let disk = "sys/devices/pci0000:00/0000:00:1f.2/block/sda";
    patient.write(&format!("{disk}/queue/write_cache"), "write back\n");
    let links = patient.0.join("sys/dev/block");
    fs::create_dir_all(&links).unwrap();
    std::os::unix::fs::symlink(patient.0.join(disk), links.join(format!("{major}:{minor}"))).unwrap();
    patient.check("write-cache", Verdict::Note, "2 of 2 drives");
    patient.write(&format!("{disk}/queue/write_cache"), "write through\n");
    patient.check("write-cache", Verdict::Good, "");
    assert_eq!(
        machine::controller_of(Path::new("/sys/devices/pci0000:00/0000:00:1f.2/ata1/block/sda")).as_deref(),
        Some("0000:00:1f.2")
    );
    assert_eq!(machine::controller_of(Path::new("/sys/devices/virtual/block/loop0")), None);
}

/// A sparse file that is larger than the room beneath it.
#[test]
fn drives_that_need_more_than_their_file_system_has_are_found() {
    let patient = Patient::new("beneath");
    patient.check("drive-room", Verdict::Good, "");
    let free = stele_media::system::free_space(&patient.0).unwrap().0;
    let drive = fs::OpenOptions::new().write(true).open(patient.0.join("data/b.img")).unwrap();
    drive.set_len(2 * free + (1 << 30)).unwrap();
    patient.check("drive-room", Verdict::Warning, "and 1 more has");
    let full = stele_server::node::beneath::FileSystem {
        drives: vec!["/srv/b.img".into()],
        size: Bytes(1000),
        needed: Bytes(900),
        free: Bytes(9),
    };
    let found = files::short(&full);
    assert!(found.verdict == Verdict::Wrong && found.message.contains("may still need 900 B"), "{found:?}");
}
