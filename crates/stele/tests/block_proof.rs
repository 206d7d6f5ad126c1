//! Proof that hosts may trust a volume over NBD. Content is verified while drives fail, the server
//! is killed and connections drop. A file system stays intact, and malicious peers keep no other
//! client out.
//!
//! Here each proof runs for some seconds; `./x soak --block SECONDS` runs it for the given time
//! (`STELE_BLOCK_SECONDS`).

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::block::{Host, export, good, run, started};
use crate::support::nbd::{self, Nbd};
use crate::support::volatile::Drives;
use crate::support::{Place, content, filesystem, installed, wait_for, wait_until_whole};

/// Duration of a proof; each completes at least one round.
fn lasts() -> Duration {
    let seconds = std::env::var("STELE_BLOCK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// One fault after the other, while hosts work on the volume: damage below the server, and
/// connections that end. Then a kill and a start without a drive, and a kill and a start with a
/// drive that missed writes.
fn faults(host: &mut Host, round: u64) {
    let drive = |number: u64| host.place.path(&format!("d{number}.img"));
    let (damaged, missing) = (round % 5, (round + 2) % 5);
    // A lying drive: an eighth of it gets other content, without an error.
    let mut file = std::fs::OpenOptions::new().write(true).open(drive(damaged)).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(96 << 20)).unwrap();
    file.write_all(&content(round, 32 << 20)).unwrap();
    drop(file);
    host.place.json(&["pool", "scrub", "--wait"]);
    host.place.json(&["export", "remove", "vm"]);
    export(&host.place, &["vm"]);
    let (there, away) = (drive(missing), host.place.path("away.img"));
    host.kill();
    std::fs::rename(&there, &away).unwrap();
    host.restart();
    let served = good("nbdinfo", &["--size", &host.unix("vm")]);
    assert_eq!(served.trim(), "134217728");
    host.kill();
    std::fs::rename(&away, &there).unwrap();
    host.restart();
    wait_until_whole(&host.place);
}

#[test]
fn what_was_answered_is_read_while_drives_fail_connections_drop_and_the_server_is_killed() {
    if !installed(&["nbdinfo", "--version"]) {
        return;
    }
    hosts_among_faults(Host::new("proof-model", ""));
}

/// The same on a pool of two shards: hosts' sessions on both threads, each asking both.
#[test]
fn what_was_answered_by_two_shards_is_read_through_the_same_faults() {
    if !installed(&["nbdinfo", "--version"]) {
        return;
    }
    let place = Place::new("proof-shards");
    let drives: Vec<String> = (0..5).map(|number| place.path(&format!("d{number}.img"))).collect();
    let host = Host::on_shards(place, &drives, "2", |text| text);
    assert_eq!(host.place.json(&["pool", "status"])["shards"], 2);
    hosts_among_faults(host);
}

fn hosts_among_faults(mut server: Host) {
    const HOSTS: u64 = 4;
    const BLOCKS: usize = 4096;
    let socket = PathBuf::from(server.place.path("nbd.sock"));
    let ends = Arc::new(AtomicBool::new(false));
    let hosts: Vec<_> = (0..HOSTS)
        .map(|number| {
            let (socket, ends) = (socket.clone(), Arc::clone(&ends));
            std::thread::spawn(move || {
                let connect = Box::new(move || Nbd::unix(&socket, "vm"));
                // The last host works at the end of the volume.
                let first = number * ((128 << 20) - (BLOCKS as u64 * 512)) / (HOSTS - 1) / 4096 * 4096;
                let mut host = nbd::Host::new(connect, first, BLOCKS, number);
                while !ends.load(Ordering::Relaxed) {
                    host.step();
                }
                host.look_at_all();
                (host.answered, host.cut_off)
            })
        })
        .collect();
    let begun = Instant::now();
    for round in 0.. {
        faults(&mut server, round);
        if begun.elapsed() >= lasts() || hosts.iter().any(std::thread::JoinHandle::is_finished) {
            break;
        }
    }
    ends.store(true, Ordering::Relaxed);
    let (mut answered, mut cut_off) = (0, 0);
    for host in hosts {
        let (more, cut) = host.join().expect("every block is as it was answered");
        (answered, cut_off) = (answered + more, cut_off + cut);
    }
    println!("{answered} requests answered, {cut_off} cut off");
    assert!(answered > 100 && cut_off >= HOSTS, "{answered} answered, {cut_off} cut off");
    let scrubbed = server.place.stele(&["pool", "scrub", "--wait"]);
    assert!(scrubbed.status.success(), "{scrubbed:?}");
}

#[test]
fn fio_verifies_overlapping_writes_and_trims_through_kills() {
    if !installed(&["fio", "--version"]) || !installed(&["nbdkit", "--version"]) {
        return;
    }
    let mut host = Host::new("proof-fio", "");
    // fio does not reconnect; nbdkit's retry filter between them does.
    let (socket, through) = (host.place.path("nbd.sock"), host.place.path("through.sock"));
    let from = format!("socket={socket}");
    let retry = ["retries=60", "retry-delay=1", "retry-exponential=no", "retry-readonly=no"];
    let arguments = ["-f", "-U", &through, "--filter=retry", "nbd", &from, "export=vm"];
    let _between = started("nbdkit", &[&arguments[..], &retry].concat());
    wait_for("nbdkit", || support::exists(Path::new(&through)));
    let uri = format!("--uri=nbd+unix:///?socket={through}");
    let common = ["--ioengine=nbd", &uri, "--name=proof", "--size=8m", "--bs=4k", "--iodepth=8", "--verify=crc32c"];
    let more =
        ["--verify_fatal=1", "--do_verify=1", "--verify_backlog=512", "--verify_state_save=0", "--rate_iops=1500"];
    let overlapping = ["--rw=randwrite", "--norandommap", "--serialize_overlap=1", "--io_size=24m"];
    let trimming = ["--rw=randtrimwrite", "--trim_verify_zero=1", "--trim_backlog=64"];
    let begun = Instant::now();
    let mut kills = 0;
    for round in 0u64.. {
        let seed = format!("--randseed={round}");
        let load = if round % 2 == 0 { &overlapping[..] } else { &trimming[..] };
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let fio = scope.spawn(|| {
                let done = run("fio", &[&common[..], &more, load, &[&seed]].concat());
                ends.store(true, Ordering::Relaxed);
                done
            });
            for _ in 0..2 {
                let writes =
                    |host: &Host| host.place.json(&["volume", "show", "vm"])["connections"][0]["writes"].as_u64();
                // No kill before fio has its connection: nbdkit retries requests, not a handshake.
                let enough = writes(&host).unwrap_or(0) + 500;
                wait_for("some writes", || {
                    (ends.load(Ordering::Relaxed) || writes(&host) > Some(enough)).then_some(())
                });
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                host.kill();
                host.restart();
                kills += 1;
            }
            let done = fio.join().unwrap();
            let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success() && !said.contains("verify:"), "round {round}: {said}");
        });
        if round >= 1 && begun.elapsed() >= lasts() {
            break;
        }
    }
    assert!(kills >= 2, "{kills} kills, while fio was at work, are no proof");
}

#[test]
fn a_file_system_is_clean_and_has_every_synced_file_whenever_its_server_is_killed() {
    if !filesystem::has_tools() {
        return;
    }
    let mut host = Host::new("proof-ext4", "");
    filesystem::survives(&mut host, lasts(), &mut |host| host.kill(), &mut |host| host.restart());
}

#[test]
fn a_file_system_is_clean_and_has_every_synced_file_whenever_the_power_goes() {
    if !filesystem::has_tools() {
        return;
    }
    let place = Place::new("proof-power");
    let Some(drives) = Drives::new(&place, 5, 256 << 20, 1) else {
        println!("left out: this machine has no FUSE");
        return;
    };
    let mut host = Host::of(place, &drives.files, |text| text);
    let drives = RefCell::new(drives);
    let mut cached_ever = 0;
    let mut cut = |host: &mut Host| {
        let (cached, lost) = drives.borrow().cut();
        host.kill();
        println!("the power goes: {cached} sectors were in caches, {lost} are lost");
        cached_ever += cached;
    };
    let mut revive = |host: &mut Host| {
        drives.borrow_mut().power_on();
        host.restart();
    };
    filesystem::survives(&mut host, lasts(), &mut cut, &mut revive);
    assert!(cached_ever > 0, "it was no proof: nothing could be lost");
    host.kill();
}

#[test]
fn peers_that_are_silent_lying_or_oversized_keep_nobody_out_and_hold_no_more_than_their_part() {
    let mut host =
        Host::with("proof-peers", |text| text.replace("\"256MiB\"", "\"32MiB\"").replace("\"64MiB\"", "\"32MiB\""));
    let server = host.server.as_ref().unwrap();
    let socket = PathBuf::from(host.place.path("nbd.sock"));
    let tcp = host.url.trim_start_matches("nbd://").split('/').next().unwrap().to_owned();
    let data = content(1, 1 << 20);
    let good = |address: &str| {
        let mut link = Nbd::tcp(address, "vm").unwrap();
        for at in 0..16 {
            link.ask(nbd::WRITE, at << 20, 1 << 20, &data).unwrap();
            assert!(link.ask(nbd::READ, at << 20, 1 << 20, &[]).unwrap() == data);
        }
    };
    good(&tcp);
    let before = server.memory("VmRSS");

    // Silent peers: more handshakes than there is room for, on both listeners.
    let silent: Vec<UnixStream> = (0..300).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let silent_tcp: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(&tcp).unwrap()).collect();
    good(&tcp);
    assert!(Nbd::unix(&socket, "vm").unwrap().ask(nbd::READ, 0, 512, &[]).is_ok(), "and nobody is kept out locally");

    // Oversized and lying requests: announced payloads that do not come, lengths beyond every
    // limit, reads whose replies the client does not take, and bytes that are no request.
    let mut links = Vec::new();
    for number in 0u64..48 {
        let mut link = Nbd::unix(&socket, "vm").unwrap();
        let sent = match number % 4 {
            0 => link.send(&[nbd::head(nbd::WRITE, 1, 0, 32 << 20), vec![1; 1000]].concat()),
            1 => link.send(&nbd::head(nbd::WRITE, 1, u64::MAX - 511, u32::MAX)),
            2 => (0..64).try_for_each(|cookie| link.send(&nbd::head(nbd::READ, cookie, 0, 16 << 20))),
            _ => link.send(&content(number, 5000)),
        };
        drop(sent);
        links.push(link);
    }
    good(&tcp);
    let grown = server.memory("VmRSS").saturating_sub(before) >> 10;
    println!("{grown} MiB more for 648 peers that mean ill");
    assert!(grown < 32 + 64, "the server grew by {grown} MiB");
    drop((silent, silent_tcp, links));
    // A client that dies in the middle of its replies.
    let mut link = UnixStream::connect(&socket).unwrap();
    link.read_exact(&mut [0; 18]).unwrap();
    drop(link);
    good(&tcp);
    // The end of the server writes the rest of its log.
    host.server.take().unwrap().stop();
    let log = host.place.log();
    assert!(!log.contains("panicked"), "{log}");
}
