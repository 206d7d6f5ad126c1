//! Volumes as hosts see them: fio over NBD writes, reads back and compares.
//!
//! On the volume `vm`, one part is written once and compared every day, and another is written
//! continuously. The tool fio marks its blocks with offset and round, so that an older content of
//! the same place is detected too.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::site::{Site, pause};

const COLD_MIB: u64 = 48;
const HOT_MIB: u64 = 64;

/// Writes under way.
pub struct Load {
    fio: Fio,
}

struct Fio {
    child: Child,
    report: std::path::PathBuf,
    errors: std::path::PathBuf,
}

impl Drop for Fio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Fio {
    fn start(site: &Site, name: &str, volume: &str, arguments: &[&str]) -> Fio {
        let (report, errors) = (site.place.0.join(format!("{name}.json")), site.place.0.join(format!("{name}.err")));
        let uri = format!("--uri=nbd+unix:///{volume}?socket={}", site.place.path("nbd.sock"));
        let mut fio = Command::new("fio");
        // As a thread, so that no process of the job outlives one that is killed.
        fio.args([
            &format!("--name={name}"),
            "--thread",
            "--ioengine=nbd",
            "--verify_fatal=1",
            "--output-format=json",
            &uri,
        ]);
        fio.args(arguments).arg(format!("--output={}", report.display())).current_dir(&site.place.0);
        let child = fio.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors).unwrap()).spawn();
        Fio { child: child.expect("fio"), report, errors }
    }

    /// Returns the bytes read and written, or the complaint of fio.
    fn ends(mut self) -> Result<(u64, u64), String> {
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => pause(50),
            }
        };
        let text = fs::read_to_string(&self.report).unwrap_or_default();
        if !status.success() {
            return Err(format!("fio ended with {status}: {}", fs::read_to_string(&self.errors).unwrap_or_default()));
        }
        // Notes of libnbd may precede the report.
        let report: Value = text.find('{').and_then(|at| serde_json::from_str(&text[at..]).ok()).unwrap_or_default();
        let job = &report["jobs"][0];
        Ok((job["read"]["io_bytes"].as_u64().unwrap_or(0), job["write"]["io_bytes"].as_u64().unwrap_or(0)))
    }
}

/// Makes the volume, and writes the constant part.
pub fn create(site: &mut Site, code: &str) {
    let size = format!("{}MiB", COLD_MIB + HOT_MIB);
    site.good(&["volume", "create", "vm", "--code", code, "--size", &size]);
    site.good(&["volume", "export", "vm", "--nbd"]);
    let cold = format!("--size={COLD_MIB}m");
    let arguments = ["--rw=write", "--bs=256k", "--verify=crc32c", "--do_verify=0", &cold];
    Fio::start(site, "cold", "vm", &arguments).ends().unwrap();
}

/// Reads the constant part and compares it.
#[track_caller]
pub fn compare_cold(site: &mut Site) {
    let cold = format!("--size={COLD_MIB}m");
    let compared = Fio::start(site, "compare", "vm", &["--rw=read", "--bs=256k", "--verify=crc32c", &cold]).ends();
    let (read, _) = compared.unwrap_or_else(|what| panic!("the volume: {what}; today: {:?}", site.story));
    assert!(read >= COLD_MIB << 20, "{read} bytes were compared");
    site.tally.volume_compared += read;
}

impl Load {
    /// Starts random writes for this time; each is read again and compared.
    pub fn start(site: &Site, seconds: u64, seed: u64) -> Load {
        let offset = format!("--offset={COLD_MIB}m");
        let (size, runtime) = (format!("--size={HOT_MIB}m"), format!("--runtime={seconds}"));
        let seed = format!("--randseed={seed}");
        let arguments = [
            "--rw=randwrite",
            "--bs=16k",
            "--iodepth=8",
            "--rate_iops=600",
            "--verify=crc32c",
            "--verify_backlog=256",
            "--time_based",
            &offset,
            &size,
            &runtime,
            &seed,
        ];
        Load { fio: Fio::start(site, "hot", "vm", &arguments) }
    }

    /// Whether its time is over.
    pub fn is_over(&mut self) -> bool {
        self.fio.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end of the load.
    #[track_caller]
    pub fn finish(self, site: &mut Site) {
        let done = self.fio.ends().unwrap_or_else(|what| panic!("the volume: {what}; today: {:?}", site.story));
        site.tally.volume_compared += done.0;
    }

    /// Ends a load whose server was killed: any result is allowed except a wrong byte. fio does not
    /// always notice the kill.
    #[track_caller]
    pub fn broken(mut self, site: &Site) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) && self.fio.child.try_wait().unwrap().is_none() {
            pause(100);
        }
        let _ = self.fio.child.kill();
        if let Err(what) = self.fio.ends() {
            assert!(!what.contains("verify"), "the volume: {what}; today: {:?}", site.story);
        }
    }
}

/// Fills a part of a volume with a pattern of its own.
#[track_caller]
pub fn write_pattern(site: &mut Site, volume: &str, pattern: u32, mib: u64) {
    let (pattern, size) = (format!("--verify_pattern=0x{pattern:08x}%o"), format!("--size={mib}m"));
    let arguments = ["--rw=write", "--bs=64k", "--verify=pattern", "--do_verify=0", &pattern, &size];
    Fio::start(site, "pattern", volume, &arguments).ends().unwrap_or_else(|what| panic!("{volume}: {what}"));
}

#[track_caller]
pub fn compare_pattern(site: &mut Site, volume: &str, pattern: u32, mib: u64) {
    let (pattern, size) = (format!("--verify_pattern=0x{pattern:08x}%o"), format!("--size={mib}m"));
    let arguments = ["--rw=read", "--bs=64k", "--verify=pattern", &pattern, &size];
    let compared = Fio::start(site, "pattern", volume, &arguments).ends();
    site.tally.volume_compared += compared.unwrap_or_else(|what| panic!("{volume}: {what}; {:?}", site.story)).0;
}
