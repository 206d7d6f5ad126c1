//! fio over NBD: writes that are read back and compared while they go on, and content that is
//! written once and compared again and again.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::site::{Guarded, Site, Stop, pause, trouble};

/// The part of the volume that is written continuously; the part after it is written once.
const HOT: &str = "600m";
const COLD: &str = "500m";

pub struct Load {
    child: Guarded,
    report: PathBuf,
}

impl Load {
    /// Starts random writes for this time; each is read again and compared.
    pub fn start(site: &Site, span: Duration) -> Result<Load, Stop> {
        let runtime = format!("--runtime={}", span.as_secs());
        let size = format!("--size={HOT}");
        let random = ["--rw=randwrite", "--bs=16k", "--iodepth=16", "--verify_backlog=512", "--time_based"];
        Load::spawn(site, &[&random[..], &[size.as_str(), runtime.as_str()]].concat())
    }

    fn spawn(site: &Site, arguments: &[&str]) -> Result<Load, Stop> {
        let report = site.dir.join("fio.json");
        let complaints = fs::File::create(site.dir.join("fio.err")).map_err(|error| trouble("fio.err", error))?;
        let uri = format!("--uri=nbd+unix:///v?socket={}", site.dir.join("nbd.sock").display());
        let mut fio = Command::new("fio");
        fio.args(["--name=drives", "--ioengine=nbd", "--verify=crc32c", "--verify_fatal=1", "--output-format=json"]);
        fio.arg(uri).args(arguments).arg(format!("--output={}", report.display()));
        fio.current_dir(&site.dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints).process_group(0);
        let child = Guarded(fio.spawn().map_err(|error| trouble("fio", error))?);
        Ok(Load { child, report })
    }

    /// Bytes written, when it has ended; a fault if content was wrong or a request failed.
    pub fn finish(mut self, site: &Site) -> Result<u64, Stop> {
        let status = loop {
            match self.child.0.try_wait().map_err(|error| trouble("fio", error))? {
                Some(status) => break status,
                None => pause(Duration::from_millis(200))?,
            }
        };
        let text = fs::read_to_string(&self.report).unwrap_or_default();
        if !status.success() {
            let complaints = fs::read_to_string(site.dir.join("fio.err")).unwrap_or_default();
            return Err(site.fault(&format!("fio ended with {status}: {}", complaints.trim())));
        }
        // Notes of libnbd may precede the report.
        let report: Value = text.find('{').and_then(|at| serde_json::from_str(&text[at..]).ok()).unwrap_or_default();
        Ok(report["jobs"][0]["write"]["io_bytes"].as_u64().unwrap_or(0))
    }
}

/// Writes the constant part.
pub fn write_cold(site: &Site) -> Result<u64, Stop> {
    let (offset, size) = (format!("--offset={HOT}"), format!("--size={COLD}"));
    Load::spawn(site, &["--rw=write", "--bs=256k", "--do_verify=0", &offset, &size])?.finish(site)
}

/// Reads the constant part, and compares it.
pub fn verify_cold(site: &Site) -> Result<(), Stop> {
    let (offset, size) = (format!("--offset={HOT}"), format!("--size={COLD}"));
    Load::spawn(site, &["--rw=read", "--bs=256k", &offset, &size])?.finish(site).map(drop)
}

/// Names the package to install if fio is missing, or lacks NBD.
pub fn check_fio() -> Result<(), Stop> {
    let engines = Command::new("fio").arg("--enghelp").stdin(Stdio::null()).output();
    match engines {
        Ok(output) if String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == "nbd") => Ok(()),
        Ok(_) => Err(Stop::Trouble("this fio has no nbd engine; install one built with libnbd".into())),
        Err(error) => Err(Stop::Trouble(format!("fio cannot be started ({error}); install fio with its nbd engine"))),
    }
}
