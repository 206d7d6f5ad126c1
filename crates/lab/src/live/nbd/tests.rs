use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::live::content::Content;
use crate::live::run::{Load, Of, Setup, Timing, run, run_kept, run_until};
use crate::live::target::{Opening, Target};
use crate::workload::{AccessSpec, Alignment};

const SIZE: u64 = 1 << 20;

/// How a server misbehaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    Good,
    Refuses,
    Foreign,
    AnswersStrangers,
    HangsUp,
    Fails,
    Hangs,
    /// After some thousand answers.
    Vanishes,
    /// Never answers one request, and all others.
    Loses,
    /// Answers one request only when no others have come for a while.
    Withholds,
    /// Says that it takes accesses of so many bytes at most.
    TakesAtMost(u32),
}

/// Longer than who ends a run is waited for.
const WITHHELD: std::time::Duration = std::time::Duration::from_millis(2_300);
/// Requests that were withheld, and were answered since.
static RELEASED: AtomicU32 = AtomicU32::new(0);

/// A server of zeros at a socket that goes when it is dropped; it answers the newest of what it has
/// read first.
struct Server(std::path::PathBuf, Manner);

impl Drop for Server {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

impl Server {
    fn start(manner: Manner) -> Server {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("stele-lab-nbd-{}-{number}", std::process::id()));
        drop(std::fs::remove_file(&path));
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || drop(serve(stream, manner)));
            }
        });
        Server(path, manner)
    }

    fn address(&self) -> NbdAddress {
        format!("nbd+unix:///disk%201?socket={}", self.0.display()).parse().unwrap()
    }
}

fn serve(mut stream: UnixStream, manner: Manner) -> io::Result<()> {
    if manner == Manner::Foreign {
        return stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 and more of it\r\n");
    }
    let mut hello = GREETING.to_be_bytes().to_vec();
    hello.extend(OPTION.to_be_bytes());
    hello.extend(3u16.to_be_bytes());
    stream.write_all(&hello)?;
    let _flags: [u8; 4] = take(&mut stream)?;
    let _option: [u8; 12] = take(&mut stream)?;
    let length = u32::from_be_bytes(take(&mut stream)?);
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body)?;
    assert_eq!(&body[4..10], b"disk 1");
    let mut reply = |kind: u32, body: &[u8]| {
        let mut bytes = OPTION_REPLY.to_be_bytes().to_vec();
        bytes.extend(GO.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        stream.write_all(&bytes)
    };
    if manner == Manner::Refuses {
        return reply(0x8000_0006, b"no such export");
    }
    let mut about = ABOUT_EXPORT.to_be_bytes().to_vec();
    about.extend(SIZE.to_be_bytes());
    about.extend((1 | SEVERAL_CONNECTIONS).to_be_bytes());
    reply(INFORMATION, &about)?;
    if let Manner::TakesAtMost(most) = manner {
        let blocks = [512, 4096, most].map(u32::to_be_bytes).concat();
        reply(INFORMATION, &[&ABOUT_BLOCKS.to_be_bytes()[..], &blocks].concat())?;
    }
    reply(ACKNOWLEDGED, &[])?;
    let (mut answered, mut withheld) = (0, None::<Vec<u8>>);
    if manner == Manner::Withholds {
        stream.set_read_timeout(Some(WITHHELD))?;
    }
    loop {
        let request: [u8; 28] = match (take(&mut stream), withheld.take()) {
            (Err(_), Some(answer)) => {
                RELEASED.fetch_add(1, Ordering::Relaxed);
                stream.write_all(&answer)?;
                continue;
            }
            (taken, answer) => {
                withheld = answer;
                taken?
            }
        };
        let word = |at: usize| u32::from_be_bytes(request[at..at + 4].try_into().unwrap());
        let (kind, length) = (word(4), word(24));
        if kind == 2 {
            return Ok(());
        }
        if kind == 1 {
            stream.read_exact(&mut vec![0; length as usize])?;
        }
        answered += 1;
        if manner == Manner::Vanishes && answered > 5_000 {
            return Ok(());
        }
        if manner == Manner::Hangs && answered > 20 {
            // Until the other side gives it up.
            return stream.read_exact(&mut vec![0; 1 << 30]);
        }
        let error = u32::from(manner == Manner::Fails && answered > 20) * 5;
        let handle = if manner == Manner::AnswersStrangers && answered > 20 { 99_999 } else { word(12) };
        let mut answer = SIMPLE_REPLY.to_be_bytes().to_vec();
        answer.extend(error.to_be_bytes());
        answer.extend(0u32.to_be_bytes());
        answer.extend(handle.to_be_bytes());
        if kind == 0 && error == 0 {
            answer.extend(vec![0; length as usize]);
        }
        if answered == 20 && manner == Manner::Loses {
            continue;
        }
        if answered == 20 && manner == Manner::Withholds {
            withheld = Some(answer);
            continue;
        }
        if manner == Manner::HangsUp && answered > 20 {
            answer.truncate(9);
            return stream.write_all(&answer);
        }
        stream.write_all(&answer)?;
    }
}

fn drive(server: &Server, load: Load) -> Result<(u64, u64), LabError> {
    let content = Content::default();
    // Short, since one server is waited for in vain; long enough for a busy machine.
    let patience = if server.1 == Manner::Hangs { Duration::from_millis(300) } else { Duration::from_secs(60) };
    let opening = Opening { writes: true, destroy: true, content, patience, ..Opening::default() };
    let ready = Target::Nbd(server.address()).open(opening, &mut |_, _| true)?;
    assert_eq!(ready.size.0, SIZE);
    let span = Duration::from_secs(20);
    let setup = Setup {
        spec: AccessSpec { name: "t".into(), random: Some(100), read: Some(50), sizes: vec![(4096, 50), (65536, 50)] },
        alignment: Alignment::Request,
        load,
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 2,
        timing: Timing { warm_up: Duration(0), round: Duration::from_millis(10), least: span, most: span },
        content,
        of: Of::Data,
        seed: 1,
    };
    let (mut reads, mut writes) = (0, 0);
    run(&ready, &setup, &mut |_, round| {
        reads += round.read.count();
        writes += round.write.count();
        reads < 200 || writes < 200
    })?;
    Ok((reads, writes))
}

#[test]
fn many_requests_are_under_way_at_once_and_all_are_answered() {
    let server = Server::start(Manner::Good);
    for load in [Load::Outstanding(1), Load::Outstanding(40), Load::Rate { each_second: 5000.0, random: true }] {
        let (reads, writes) = drive(&server, load).unwrap();
        assert!(reads >= 200 && writes >= 200, "{load}");
    }
}

#[test]
fn a_server_that_misbehaves_ends_the_run_with_what_it_did() {
    for (manner, words) in [
        (Manner::Refuses, "no such export"),
        (Manner::Foreign, "no server of network block devices"),
        (Manner::AnswersStrangers, "not under way"),
        (Manner::HangsUp, "ended the connection"),
        (Manner::Fails, "os error 5"),
        (Manner::Hangs, "has answered nothing"),
    ] {
        let server = Server::start(manner);
        for load in [Load::Outstanding(8), Load::Rate { each_second: 5000.0, random: false }] {
            let error = drive(&server, load).unwrap_err().to_string();
            assert!(error.contains(words), "{manner:?}, {load}: {error}");
        }
    }
    let nobody: NbdAddress = "nbd+unix:///x?socket=/nonexistent/socket".parse().unwrap();
    assert!(matches!(ask(&nobody), Err(LabError::Missing(_))));
}

#[test]
fn a_run_on_a_server_that_hangs_ends_when_it_is_told_and_keeps_its_rounds() {
    let server = Server::start(Manner::Hangs);
    let ready = Target::Nbd(server.address()).open(Opening::default(), &mut |_, _| true).unwrap();
    let span = Duration::from_secs(1000);
    let setup = Setup {
        spec: AccessSpec { name: "t".into(), random: Some(100), read: Some(100), sizes: vec![(4096, 100)] },
        alignment: Alignment::Request,
        load: Load::Outstanding(2),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: Timing { warm_up: Duration(0), round: Duration::from_millis(1), least: span, most: span },
        content: Content::default(),
        of: Of::Data,
        seed: 1,
    };
    let end = std::sync::atomic::AtomicBool::new(false);
    let mut rounds = 0;
    let found = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            run_until(&ready, &setup, &end, &mut |_, _| {
                rounds += 1;
                true
            })
        });
        std::thread::park_timeout(std::time::Duration::from_millis(100));
        end.store(true, Ordering::Relaxed);
        run.join().unwrap().unwrap()
    });
    assert!(found.stopped && found.rounds.len() == rounds, "{found:?}");
}

#[test]
fn an_export_is_written_over_only_when_told() {
    let server = Server::start(Manner::Good);
    let opening = Opening { writes: true, ..Opening::default() };
    let target = Target::Nbd(server.address());
    assert!(matches!(target.open(opening, &mut |_, _| true), Err(LabError::Refused(_))));
    assert!(target.open(Opening { writes: false, ..opening }, &mut |_, _| true).is_ok());
}

#[test]
fn addresses_are_read_as_other_clients_read_them() {
    let tcp = |host: &str, export: &str| NbdAddress { place: Place::Tcp(host.into()), export: export.into() };
    for (text, address) in [
        ("nbd://host", tcp("host:10809", "")),
        ("nbd://host/vm", tcp("host:10809", "vm")),
        ("nbd://127.0.0.1:5/a%20b", tcp("127.0.0.1:5", "a b")),
        ("nbd://[::1]/vm", tcp("[::1]:10809", "vm")),
    ] {
        assert_eq!(text.parse::<NbdAddress>().unwrap(), address, "{text}");
    }
    let unix = NbdAddress { place: Place::Unix(Path::new("/run/s").into()), export: "vm".into() };
    assert_eq!("nbd+unix:///vm?socket=/run/s".parse::<NbdAddress>().unwrap(), unix);
    for text in
        ["nbd://", "nbd:///x", "nbd+unix:///vm", "nbd+unix:///vm?socket=", "nbd://h/x?y=1", "nbd://h/%zz", "nbds://h/x"]
    {
        assert!(text.parse::<NbdAddress>().is_err(), "{text}");
    }
}

#[test]
fn what_was_counted_before_a_server_vanished_is_kept_beside_the_reason() {
    let server = Server::start(Manner::Vanishes);
    let ready = Target::Nbd(server.address()).open(Opening::default(), &mut |_, _| true).unwrap();
    let span = Duration::from_secs(1000);
    let setup = Setup {
        spec: AccessSpec { name: "t".into(), random: Some(100), read: Some(100), sizes: vec![(4096, 100)] },
        alignment: Alignment::Request,
        load: Load::Outstanding(2),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: Timing { warm_up: Duration(0), round: Duration(100_000), least: span, most: span },
        content: Content::default(),
        of: Of::Data,
        seed: 1,
    };
    let end = std::sync::atomic::AtomicBool::new(false);
    let (found, failed) = run_kept(&ready, &setup, &end, &mut |_| true).unwrap();
    let failed = failed.map(|error| error.to_string()).unwrap_or_default();
    assert!(failed.contains("ended the connection"), "{failed}");
    assert!(failed.starts_with(&format!("{}: ", server.address())), "of several targets, which? {failed}");
    assert!(found.stopped && found.total().read.count() > 0, "{} rounds", found.rounds.len());
    let error = run(&ready, &setup, &mut |_, _| true).unwrap_err().to_string();
    assert!(error.contains("ended the connection"), "{error}");
}

/// Eight reads under way for a tenth of a second, from one worker.
fn reads(patience: Duration) -> (Opening, Setup) {
    let span = Duration::from_millis(100);
    let opening = Opening { patience, ..Opening::default() };
    let setup = Setup {
        spec: AccessSpec { name: "t".into(), random: Some(100), read: Some(100), sizes: vec![(4096, 100)] },
        alignment: Alignment::Request,
        load: Load::Outstanding(8),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: Timing { warm_up: Duration(0), round: Duration::from_millis(10), least: span, most: span },
        content: Content::default(),
        of: Of::Data,
        seed: 1,
    };
    (opening, setup)
}

#[test]
fn an_access_that_is_never_answered_fails_the_target_and_what_was_counted_is_kept() {
    let server = Server::start(Manner::Loses);
    let (opening, setup) = reads(Duration::from_millis(1_500));
    let ready = Target::Nbd(server.address()).open(opening, &mut |_, _| true).unwrap();
    let end = std::sync::atomic::AtomicBool::new(false);
    let (found, failed) = run_kept(&ready, &setup, &end, &mut |_| true).unwrap();
    let failed = failed.map(|error| error.to_string()).unwrap_or_default();
    assert!(failed.contains("an access was never answered"), "{failed}");
    assert!(found.left_behind && found.total().read.count() > 0);
}

#[test]
fn a_run_is_over_only_when_nothing_of_it_is_under_way() {
    let server = Server::start(Manner::Withholds);
    let (opening, setup) = reads(Duration::from_secs(60));
    let ready = Target::Nbd(server.address()).open(opening, &mut |_, _| true).unwrap();
    let before = RELEASED.load(Ordering::Relaxed);
    let found = run(&ready, &setup, &mut |_, _| true).unwrap();
    assert_eq!(RELEASED.load(Ordering::Relaxed), before + 1, "it was answered before the run was over");
    assert!(!found.left_behind);
}

#[test]
fn an_access_longer_than_the_server_takes_is_refused_at_first() {
    let server = Server::start(Manner::TakesAtMost(64 << 10));
    let opened = |longest: u64| {
        let opening = Opening { writes: true, destroy: true, longest, ..Opening::default() };
        Target::Nbd(server.address()).open(opening, &mut |_, _| true)
    };
    assert!(opened(64 << 10).is_ok());
    let error = opened(1 << 20).unwrap_err();
    assert!(matches!(&error, LabError::Usage(text) if text.contains("at most 64 KiB, and the longest")), "{error:?}");
}

#[test]
fn a_server_that_says_it_takes_nothing_is_filled_in_blocks() {
    let server = Server::start(Manner::TakesAtMost(0));
    let content = Content { verify: true, ..Content::default() };
    let opened = |length: u64| {
        let opening =
            Opening { writes: true, destroy: true, content, longest: length, step: length, ..Opening::default() };
        Target::Nbd(server.address()).open(opening, &mut |_, _| true).map(|ready| ready.size.0)
    };
    assert_eq!(opened(512), Ok(SIZE));
    assert!(matches!(opened(4096), Err(LabError::Usage(_))));
}
