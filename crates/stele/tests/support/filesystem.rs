//! A file system on a volume: the kernel's ext4, on a loop device, on nbdfuse.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::block::{Guarded, Host, good, run, started};
use super::{Place, content, installed, wait_for};

pub fn has_tools() -> bool {
    [["mke2fs", "-V"], ["nbdfuse", "--version"], ["nbdcopy", "--version"]].iter().all(|tool| installed(tool))
}

/// A volume as a file that holds the kernel's ext4. It leaves nothing mounted.
struct Mounted {
    file: String,
    disk: String,
    tree: String,
    _fuse: Guarded,
}

impl Mounted {
    fn new(place: &Place, url: &str) -> Option<Mounted> {
        let [disk, tree, file] = ["disk", "tree", "disk/nbd"].map(|name| place.path(name));
        std::fs::create_dir_all(&disk).unwrap();
        std::fs::create_dir_all(&tree).unwrap();
        let fuse = started("nbdfuse", &[&disk, url]);
        let begun = Instant::now();
        while !Path::new(&file).exists() {
            if begun.elapsed() > Duration::from_secs(10) {
                return None;
            }
            std::thread::yield_now();
        }
        Some(Mounted { file, disk, tree, _fuse: fuse })
    }

    /// Mounts it; returns false if this machine does not allow that.
    fn mount(&self) -> bool {
        run("mount", &["-o", "loop", &self.file, &self.tree]).status.success()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[&self.tree]);
        run("umount", &["-l", &self.disk]);
    }
}

/// Whatever `strike` does during the writes, the file system is clean afterwards, and every synced
/// file is there. It runs at least two rounds, and for the given time.
pub fn survives(
    host: &mut Host,
    lasts: Duration,
    strike: &mut dyn FnMut(&mut Host),
    revive: &mut dyn FnMut(&mut Host),
) {
    let begun = Instant::now();
    let mut synced: Vec<u64> = Vec::new();
    for round in 0u64.. {
        {
            let Some(mounted) = Mounted::new(&host.place, &host.unix("vm")) else {
                println!("left out: this machine has no FUSE");
                return;
            };
            if round == 0 {
                good("mke2fs", &["-q", "-t", "ext4", "-b", "4096", &mounted.file, "96M"]);
            }
            if !mounted.mount() {
                println!("left out: this machine mounts no loop device on FUSE");
                return;
            }
            let tree = PathBuf::from(host.place.path("tree"));
            let ends = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut done = Vec::new();
                    // Files are made, removed, renamed and put into directories; then they are
                    // synced one by one.
                    for number in 0u64.. {
                        let number = round * 1_000_000 + number;
                        let file = |name: &str| -> std::io::Result<()> {
                            let dir = tree.join(format!("{}", number % 7));
                            std::fs::create_dir_all(&dir)?;
                            let mut file = std::fs::File::create(dir.join("new"))?;
                            file.write_all(&content(number, 1 + (number * 7919 % 200_000) as usize))?;
                            file.sync_all()?;
                            std::fs::rename(dir.join("new"), tree.join(name))?;
                            std::fs::File::open(&tree)?.sync_all()
                        };
                        if number % 5 == 4 {
                            let _ = std::fs::remove_file(tree.join(format!("f{}", number - 2)));
                            done.retain(|kept| *kept != number - 2);
                        }
                        if ends.load(Ordering::Relaxed) || file(&format!("f{number}")).is_err() {
                            return done;
                        }
                        done.push(number);
                        if done.len() > 60 {
                            return done;
                        }
                    }
                    done
                });
                wait_for("some files", || tree.join(format!("f{}", round * 1_000_000 + 8)).exists().then_some(()));
                strike(host);
                ends.store(true, Ordering::Relaxed);
                synced.extend(writer.join().unwrap());
            });
        }
        revive(host);
        let image = host.place.path("image");
        good("nbdcopy", &[&host.unix("vm"), &image]);
        // The check may only have to replay the journal.
        good("e2fsck", &["-y", "-E", "journal_only", &image]);
        good("e2fsck", &["-f", "-n", &image]);
        for number in &synced {
            let back = host.place.path("back");
            good("debugfs", &["-R", &format!("dump /f{number} {back}"), &image]);
            let expected = content(*number, 1 + (number * 7919 % 200_000) as usize);
            assert!(std::fs::read(&back).unwrap() == expected, "f{number} was synced and is not what it was");
        }
        assert!(!synced.is_empty());
        println!("{} synced files are there", synced.len());
        // The next round begins with a clean tree, so that the volume does not fill up.
        good("nbdcopy", &["--flush", &image, &host.unix("vm")]);
        synced.retain(|number| number % 16 == 0);
        let keep = synced.clone();
        if let Some(mounted) = Mounted::new(&host.place, &host.unix("vm")).filter(Mounted::mount) {
            for entry in std::fs::read_dir(host.place.path("tree")).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap();
                if let Some(number) = name.strip_prefix('f').and_then(|number| number.parse::<u64>().ok())
                    && !keep.contains(&number)
                {
                    std::fs::remove_file(entry.path()).unwrap();
                }
            }
            drop(mounted);
        }
        if round >= 1 && begun.elapsed() >= lasts {
            return;
        }
    }
}
