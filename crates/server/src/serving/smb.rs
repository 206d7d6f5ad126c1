//! SMB: Samba's smbd over FUSE mounts of the shares, written for, started and watched by the
//! server.
//!
//! Each share is mounted below `smb/mounts` of the data directory; smbd serves these directories by
//! an `smb.conf` that is written anew whenever a share comes or goes. Passwords of users are
//! Samba's own: `smbpasswd -c DIR/smb/smb.conf -a USER`.
//!
//! Failure model: an smbd that ends is started again, after a pause that grows until one has run
//! for a minute. A share that cannot be mounted is tried again each minute, and the others are
//! served meanwhile. So they are where Samba has another use for the name of a share. All three
//! stand as the alarm `smb`. A server that is killed leaves smbd and dead mounts; the next start
//! finds the one by its command line, ends it, and clears the others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use stele_file::fuse::{MountOptions, Mounted, mount_share};
use stele_file::nfs::Network;
use stele_file::samba::{DIRECTORIES, SambaConfig, SambaShare, share_name, smb_conf};
use stele_file::share::Share;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::{Site, Smb};
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::node::shares::{SMBD, networks, share_subject};
use crate::node::surroundings::program;
use crate::node::{Node, blocking, own_uid};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// An smbd that has just begun would end by the signal to read its configuration.
const SIGNALS_FROM: Duration = Duration::from_secs(2);
/// Between an end of smbd and its next start: the first pause, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long smbd may take to end before it is killed.
const END_MAX: Duration = Duration::from_secs(5);

/// A running smbd and what it serves.
struct Samba {
    node: Arc<Node>,
    directory: PathBuf,
    listen: SocketAddr,
    config: Smb,
    mounts: BTreeMap<String, Served>,
    /// The networks of all shares, as smb.conf was written with.
    networks: BTreeMap<String, Vec<Network>>,
    /// smbd has yet to be told of what is present. After a failure that is done again.
    untold: bool,
    /// Shares that could not be mounted, and when they are tried again.
    refused: BTreeMap<String, Offer>,
    again: Instant,
    /// Shares whose names Samba cannot take.
    misnamed: BTreeSet<String>,
    smbd: Option<Child>,
    starts: Starts,
}

/// The pauses between the starts of an smbd.
#[derive(Default)]
struct Starts {
    /// Since when the present one runs.
    begun: Option<Instant>,
    pause: Option<Duration>,
}

impl Starts {
    fn begin(&mut self, now: Instant) {
        self.begun = Some(now);
    }

    /// Whether the present one has run so long that it counts as sound.
    fn is_settled(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| now.saturating_duration_since(begun) >= PAUSE_MAX)
    }

    /// Whether the present one may not listen to signals yet.
    fn is_new(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| now.saturating_duration_since(begun) < SIGNALS_FROM)
    }

    /// It ended, or did not start. Returns the pause before the next start.
    fn fail(&mut self, now: Instant) -> Duration {
        let before = self.pause.filter(|_| !self.is_settled(now));
        let pause = before.map_or(PAUSE, |before| (2 * before).min(PAUSE_MAX));
        (self.begun, self.pause) = (None, Some(pause));
        pause
    }
}

/// A share as smbd serves it.
struct Served {
    mounted: Mounted,
    offer: Offer,
}

/// A share, and how it is offered. One that was removed and made anew has the name of the former
/// one and is another.
#[derive(Clone)]
struct Offer {
    share: Arc<Share>,
    read_only: bool,
}

impl Offer {
    /// Whether the other one is of the same share.
    fn is_of(&self, other: &Offer) -> bool {
        Arc::ptr_eq(&self.share, &other.share)
    }
}

impl PartialEq for Offer {
    fn eq(&self, other: &Offer) -> bool {
        self.is_of(other) && self.read_only == other.read_only
    }
}

/// Refuses what SMB cannot be served without, before anything is offered.
pub fn check() -> Outcome<()> {
    if own_uid() != 0 {
        return Err(Failure::new(Kind::Refused, "[smb] listen needs a server that runs as root: it mounts the shares"));
    }
    match program("smbd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failure::missing("[smb] listen needs Samba, and this machine has no smbd that starts")
            .next("Debian: sudo apt-get install samba samba-vfs-modules")),
    }
}

/// Serves until `stop` says so; then smbd ends, and the shares are unmounted.
pub async fn serve(site: Site, node: Arc<Node>, config: Smb, listen: SocketAddr, mut stop: watch::Receiver<bool>) {
    let directory = std::path::absolute(site.dir.join("smb")).unwrap_or_else(|_| site.dir.join("smb"));
    let offering = Arc::clone(&node);
    let mut samba = Samba {
        node,
        directory,
        listen,
        config,
        mounts: BTreeMap::new(),
        networks: BTreeMap::new(),
        untold: false,
        refused: BTreeMap::new(),
        again: Instant::now(),
        misnamed: BTreeSet::new(),
        smbd: None,
        starts: Starts::default(),
    };
    loop {
        // Mounting, unmounting and starting smbd wait for the kernel and for processes.
        let kept = blocking(move || {
            let kept = samba.keep();
            Ok((samba, kept))
        });
        let Ok((returned, kept)) = kept.await else { return };
        samba = returned;
        match kept {
            Ok(()) if samba.starts.is_settled(Instant::now()) => samba.node.shares.smb.end(SMBD),
            Ok(()) => {}
            Err(failure) => {
                samba.note(SMBD, &format!("SMB is not served: {}", failure.error));
                let pause = samba.starts.fail(Instant::now());
                if samba.smbd.is_some() {
                    // Something else failed. It counts as sound a minute after that.
                    samba.starts.begin(Instant::now());
                }
                tokio::select! {
                    () = sleep(pause) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            }
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = offering.shares.changed_for_smb() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    // Ending smbd and unmounting wait for processes.
    let ended = blocking(move || {
        samba.end();
        Ok(())
    });
    let _ = ended.await;
}

impl Samba {
    /// Notes what is not served, with an alarm where that is news.
    fn note(&self, subject: &str, why: &str) {
        if self.node.shares.smb.note(subject, why) {
            self.node.note_alarm("smb", why);
        }
    }

    /// Brings mounts, configuration and smbd to the present shares.
    fn keep(&mut self) -> Outcome<()> {
        let rows = self.node.registry()?.list().map_err(crate::node::shares::failed)?;
        let own = self.node.own_addresses();
        let named = rows.iter().map(|(name, row)| networks(row, &own).map(|networks| (name.clone(), networks)));
        let networks: BTreeMap<String, Vec<Network>> = named.collect::<Outcome<_>>()?;
        let mut present: BTreeMap<String, Offer> = rows
            .into_iter()
            .filter_map(|(name, row)| {
                let share = self.node.shares.get(&name)?;
                Some((name, Offer { share, read_only: row.read_only }))
            })
            .collect();
        let mounted: BTreeMap<String, Offer> =
            self.mounts.iter().map(|(name, served)| (name.clone(), served.offer.clone())).collect();
        let ended = match self.smbd.as_mut().map(Child::try_wait) {
            None => true,
            Some(Ok(None)) => false,
            Some(_) => {
                self.smbd = None;
                return Err(Failure::failed("smbd has ended; it is started again"));
            }
        };
        self.leave_out_misnamed(&mut present);
        self.leave_out_refused(&mut present);
        if present == mounted && !ended && networks == self.networks && !self.untold {
            return Ok(());
        }
        self.untold = true;
        if self.smbd.is_none() {
            self.end_former();
        }
        self.leave_out_gone(&present);
        for (name, offer) in present {
            match self.mounts.get_mut(&name) {
                // The same mount, so that it binds files too that clients have open.
                Some(served) => {
                    served.mounted.set_read_only(offer.read_only);
                    served.offer = offer;
                }
                None => self.take_in(name, offer),
            }
        }
        self.write(&networks)?;
        self.networks = networks;
        match &self.smbd {
            Some(_) if self.starts.is_new(Instant::now()) => return Ok(()),
            Some(smbd) => signal(smbd, Signal::HUP),
            None => {
                self.smbd = Some(self.start()?);
                self.starts.begin(Instant::now());
            }
        }
        self.untold = false;
        Ok(())
    }

    /// Unmounts the shares that are gone, and takes their directories away.
    fn leave_out_gone(&mut self, present: &BTreeMap<String, Offer>) {
        let is_there =
            |name: &String, served: &Served| present.get(name).is_some_and(|offer| offer.is_of(&served.offer));
        let gone: Vec<String> =
            self.mounts.iter().filter(|(name, served)| !is_there(name, served)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.mounts.remove(&name);
            self.remove_place(&name);
        }
    }

    /// Takes the directory of a share away that is not mounted there. A client that stays connected
    /// would store files in it: smbd goes to it again by its path.
    fn remove_place(&self, name: &str) {
        let _ = fs::remove_dir(self.directory.join("mounts").join(name));
    }

    /// Leaves out the shares whose names Samba cannot take: it would get no configuration at all.
    fn leave_out_misnamed(&mut self, present: &mut BTreeMap<String, Offer>) {
        let misnamed = misnamed(present.keys());
        for name in self.misnamed.iter().filter(|name| !misnamed.contains_key(*name)) {
            self.node.shares.smb.end(&share_subject(name));
        }
        for (name, why) in &misnamed {
            self.note(&share_subject(name), &format!("SMB does not serve the share '{name}': {why}"));
        }
        present.retain(|name, _| !misnamed.contains_key(name));
        self.misnamed = misnamed.into_keys().collect();
    }

    /// Leaves out the shares that could not be mounted, until they are tried again.
    fn leave_out_refused(&mut self, present: &mut BTreeMap<String, Offer>) {
        let (mut refused, is_due) = (std::mem::take(&mut self.refused), Instant::now() >= self.again);
        refused.retain(|name, offer| {
            let stays = present.get(name) == Some(&*offer);
            if !stays {
                self.node.shares.smb.end(&share_subject(name));
            }
            stays && !is_due
        });
        present.retain(|name, _| !refused.contains_key(name));
        self.refused = refused;
    }

    /// Mounts a share. The others are served where that fails.
    fn take_in(&mut self, name: String, offer: Offer) {
        match self.mount(&name, &offer) {
            Ok(mounted) => {
                self.node.shares.smb.end(&share_subject(&name));
                self.mounts.insert(name, Served { mounted, offer });
            }
            Err(failure) => {
                let why = format!("SMB does not serve the share '{name}': {}", failure.error);
                self.note(&share_subject(&name), &why);
                self.again = Instant::now() + PAUSE_MAX;
                self.remove_place(&name);
                self.refused.insert(name, offer);
            }
        }
    }

    fn mount(&self, name: &str, offer: &Offer) -> Outcome<Mounted> {
        let mounts = self.directory.join("mounts");
        fs::create_dir_all(&mounts).map_err(|error| io_failure("make", &mounts, &error))?;
        let directory = mounts.join(name);
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            // Also where a killed server has left a dead mount: mounting clears it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(|error| io_failure("make", &directory, &error))?,
        }
        let options = MountOptions { name: name.to_owned(), dos_attributes: true, ..MountOptions::default() };
        let (share, locks) = (Arc::clone(&offer.share), self.node.shares.lock_table(&offer.share));
        let mounted = mount_share(share, &directory, &options, locks, tokio::runtime::Handle::current());
        let mounted = mounted.map_err(|error| Failure::failed(error.to_string()))?;
        mounted.set_read_only(offer.read_only);
        Ok(mounted)
    }

    fn write(&self, networks: &BTreeMap<String, Vec<Network>>) -> Outcome<()> {
        for below in DIRECTORIES {
            private(&self.directory.join(below))?;
        }
        let shares = self.mounts.iter().map(|(name, served)| SambaShare {
            name: name.clone(),
            path: served.mounted.directory().to_owned(),
            read_only: served.offer.read_only,
            networks: networks.get(name).cloned().unwrap_or_default(),
            valid_users: Vec::new(),
        });
        let everywhere = self.listen.ip().is_unspecified();
        let config = SambaConfig {
            directory: self.directory.clone(),
            interfaces: if everywhere { Vec::new() } else { vec![self.listen.ip().to_string()] },
            port: self.listen.port(),
            workgroup: self.config.workgroup.clone(),
            include: self.config.include.clone(),
            shares: shares.collect(),
        };
        let text = smb_conf(&config).map_err(|error| Failure::usage(error.to_string()))?;
        let path = self.directory.join("smb.conf");
        let new = self.directory.join("smb.conf.new");
        fs::write(&new, text).map_err(|error| io_failure("write", &new, &error))?;
        fs::rename(&new, &path).map_err(|error| io_failure("write", &path, &error))
    }

    fn start(&self) -> Outcome<Child> {
        let mut command = program("smbd");
        command.args(["--foreground", "--no-process-group"]).arg(configured_by(&self.directory));
        // At its end smbd signals its process group: it has one of its own.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(|error| Failure::failed(format!("smbd does not start: {error}")))
    }

    /// Ends an smbd that a killed server has left, with its processes. Its file of the process
    /// may be gone.
    fn end_former(&self) {
        for pid in former(Path::new("/proc"), &self.directory) {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = fs::remove_file(self.directory.join("pid").join("smbd.pid"));
    }

    fn end(&mut self) {
        if let Some(mut smbd) = self.smbd.take() {
            signal(&smbd, Signal::TERM);
            let begun = Instant::now();
            while matches!(smbd.try_wait(), Ok(None)) {
                if begun.elapsed() > END_MAX {
                    signal(&smbd, Signal::KILL);
                    let _ = smbd.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        self.mounts.clear();
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        self.end();
    }
}

/// The option by which smbd, and each of its processes, names the configuration of this server.
fn configured_by(directory: &Path) -> OsString {
    let mut option = OsString::from("--configfile=");
    option.push(directory.join("smb.conf"));
    option
}

/// The processes of an smbd that serves this directory. `proc` is the machine's `/proc`.
fn former(proc: &Path, directory: &Path) -> Vec<Pid> {
    let option = configured_by(directory);
    let is_ours = |pid: &i32| {
        let command = fs::read(proc.join(pid.to_string()).join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
        // A script has its name behind that of its shell.
        words.iter().take(2).any(|word| word.ends_with(b"smbd")) && words.contains(&option.as_bytes())
    };
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(is_ours).filter_map(Pid::from_raw).collect()
}

/// The names that Samba cannot take, and why.
fn misnamed<'n>(names: impl Iterator<Item = &'n String>) -> BTreeMap<String, String> {
    names.filter_map(|name| share_name(name).err().map(|why| (name.clone(), why.to_string()))).collect()
}

fn signal(smbd: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(smbd.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

/// A directory that only its owner may enter.
fn private(directory: &Path) -> Outcome<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(directory)
        .and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o700)))
        .map_err(|error| io_failure("make", directory, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_samba_reserves_keeps_no_other_share_out() {
        let names = ["global", "homes", "printers", "records", "scans"].map(String::from);
        let misnamed = misnamed(names.iter());
        assert_eq!(misnamed.keys().collect::<Vec<_>>(), ["global", "homes", "printers"]);
        assert!(misnamed["homes"].contains("'homes'") && misnamed["homes"].contains("uses it for itself"));
        let share = |name: &String| SambaShare {
            name: name.clone(),
            path: "/records".into(),
            read_only: false,
            networks: Vec::new(),
            valid_users: Vec::new(),
        };
        let config = SambaConfig {
            directory: "/smb".into(),
            interfaces: Vec::new(),
            port: 445,
            workgroup: "WORKGROUP".into(),
            include: None,
            shares: names.iter().filter(|name| !misnamed.contains_key(*name)).map(share).collect(),
        };
        smb_conf(&config).expect("the others are served");
    }

    #[test]
    fn an_smbd_that_was_left_is_found_without_its_file() {
        let proc = std::env::temp_dir().join(format!("stele-smbd-left-{}", std::process::id()));
        let _ = fs::remove_dir_all(&proc);
        let ours = "--configfile=/srv/stele/smb/smb.conf";
        for (name, command) in [
            ("11", &["smbd", "--foreground", ours][..]),
            ("12", &["/usr/sbin/smbd", "--foreground", ours]),
            ("13", &["smbd", "--foreground", "--configfile=/srv/stele/smb/smb.conf.d/smb.conf"]),
            ("14", &["smbd", "--foreground", "--configfile=/etc/samba/smb.conf"]),
            ("15", &["smbpasswd", ours]),
            ("16", &[]),
            ("18", &["/bin/sh", "/opt/bin/smbd", ours]),
            ("self", &["smbd", ours]),
        ] {
            fs::create_dir_all(proc.join(name)).unwrap();
            let command: String = command.iter().map(|word| format!("{word}\0")).collect();
            fs::write(proc.join(name).join("cmdline"), command).unwrap();
        }
        fs::create_dir_all(proc.join("17")).unwrap();
        let mut found: Vec<i32> =
            former(&proc, Path::new("/srv/stele/smb")).into_iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        found.sort_unstable();
        assert_eq!(found, [11, 12, 18]);
        assert!(former(&proc.join("gone"), Path::new("/srv/stele/smb")).is_empty());
        fs::remove_dir_all(proc).unwrap();
    }

    #[test]
    fn the_pauses_grow_until_an_smbd_has_run_for_a_minute() {
        let (mut starts, mut now) = (Starts::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            starts.begin(now);
            // It ends within a second, as where another smbd has the port.
            now += Duration::from_secs(1);
            let pause = starts.fail(now);
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        starts.begin(now);
        assert!(!starts.is_settled(now + PAUSE_MAX / 2) && starts.is_settled(now + PAUSE_MAX));
        assert_eq!(starts.fail(now + PAUSE_MAX), PAUSE);
        // One that does not even start counts as one that ends at once.
        assert_eq!(starts.fail(now + PAUSE_MAX), 2 * PAUSE);
    }
}
