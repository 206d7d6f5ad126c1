use super::wire::{Ask, Cause, LineBuffer, Say, is_proof, proof};
use super::*;
use crate::histogram::Histogram;

fn run(spans: &[u64], lag: u64) -> RunRecord {
    let mut histogram = Histogram::default();
    spans.iter().for_each(|span| histogram.record(stele_ground::Duration(*span)));
    let round = RoundRecord {
        seconds: 1.0,
        rate: spans.len() as f64,
        read_bytes: 4096.0,
        written_bytes: 0.0,
        read: HistogramRecord::of(&histogram),
        write: HistogramRecord::default(),
        lag_ns: lag,
        held_back: 1,
        late: None,
        cpu_own: 0.25,
        gap_ns: 0,
        cpu_machine: 0.5,
    };
    RunRecord {
        outstanding: Some(3),
        rate_asked: None,
        profile: Vec::new(),
        replay: None,
        workers: 2,
        steady: true,
        stopped: false,
        lag_share: 0.0,
        under_way: None,
        saturation: None,
        busy: Vec::new(),
        unanswered: HistogramRecord::default(),
        rounds: vec![round; 6],
    }
}

#[test]
fn runs_of_hosts_are_merged_as_if_one_had_counted_all() {
    let (one, mut other) = (run(&[100, 2_000, 5_000_000], 30), run(&[7, 2_000], 0));
    other.rounds.pop();
    let both = merged(&[one, other]).unwrap();
    assert_eq!(both.rounds.len(), 5, "as far as both went");
    assert_eq!((both.outstanding, both.rate_asked, both.workers, both.steady), (Some(6), None, 4, true));
    let expected = run(&[100, 2_000, 5_000_000, 7, 2_000], 30);
    for round in &both.rounds {
        assert_eq!((&round.read, round.rate, round.lag_ns), (&expected.rounds[0].read, 5.0, 30));
        assert_eq!((round.cpu_own, round.held_back, round.seconds), (0.5, 2, 1.0));
    }
    assert!((both.lag_share - 30.0 / 5_004_107.0).abs() < 1e-12);
    assert_eq!(merged(&[]), None);
    let mut bad = run(&[5], 0);
    bad.rounds[0].read.counts[0].1 = 9;
    bad.rounds[0].read.longest_ns = 0;
    assert_eq!(merged(&[run(&[5], 0), bad]), None, "a histogram that contradicts itself");
}

#[test]
fn only_who_holds_the_secret_can_prove_it() {
    let text = proof(b"quite a long secret", "nonce");
    assert!(is_proof(b"quite a long secret", "nonce", &text));
    assert!(!is_proof(b"quite a long secret", "another", &text));
    assert!(!is_proof(b"another long secret", "nonce", &text));
    for bad in ["", "00", &text[1..], &text.replace(|c: char| c.is_ascii_digit(), "x"), "é"] {
        assert!(!is_proof(b"quite a long secret", "nonce", bad), "{bad}");
    }
}

#[test]
fn lines_are_read_however_they_come_and_never_beyond_their_limit() {
    let asks = [
        Ask::Stop,
        Ask::Run { cell: 7, outstanding: None },
        Ask::Run { cell: 7, outstanding: Some(3) },
        Ask::Close { keep: true },
    ];
    let text: String = asks.iter().map(|ask| serde_json::to_string(ask).unwrap() + "\n").collect();
    for step in 1..=text.len() {
        let (mut lines, mut found) = (LineBuffer::new(100), Vec::new());
        for part in text.as_bytes().chunks(step) {
            lines.feed(part);
            while let Some(ask) = lines.take::<Ask>().unwrap() {
                found.push(ask);
            }
        }
        assert_eq!(found, asks, "in pieces of {step}");
    }
    for bad in ["\n", "{}\n", "{\"ask\":\"run\"}\n", "{\"ask\":\"run\",\"cell\":-1}\n", "\u{0}\n", &"x".repeat(101)] {
        let mut lines = LineBuffer::new(100);
        lines.feed(bad.as_bytes());
        assert!(lines.take::<Ask>().is_err(), "{bad:?}");
    }
    let mut lines = LineBuffer::new(100);
    lines.feed(serde_json::to_string(&Say::Welcome).unwrap().as_bytes());
    assert!(lines.take::<Say>().unwrap().is_none(), "it has not come whole");
}

/// Lines of these values with up to three bytes changed, lost or put in, and how many of them came
/// through and were refused.
fn damaged<T: serde::Serialize + serde::de::DeserializeOwned>(values: &[T], mut take: impl FnMut(T)) -> (usize, usize) {
    let mut dice = stele_ground::Dice::new(11);
    let good: Vec<u8> =
        values.iter().flat_map(|value| serde_json::to_vec(value).unwrap().into_iter().chain([b'\n'])).collect();
    let (mut whole, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..dice.below(4) {
            let at = dice.below(bytes.len() as u64) as usize;
            match dice.below(3) {
                0 => bytes[at] = dice.roll() as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, *dice.pick(b"\n\"{}[]9e-\0").unwrap()),
            }
        }
        let mut lines = LineBuffer::new(4096);
        for part in bytes.chunks(1 + dice.below(600) as usize) {
            lines.feed(part);
            loop {
                match lines.take::<T>() {
                    Ok(Some(value)) => {
                        whole += 1;
                        take(value);
                    }
                    Ok(None) => break,
                    Err(_) => {
                        refused += 1;
                        break;
                    }
                }
            }
        }
    }
    (whole, refused)
}

#[test]
fn what_a_host_says_is_merged_or_refused_whatever_it_is() {
    let says = [
        Say::Challenge { version: 1, nonce: "00ff".into() },
        Say::Ran { run: Box::new(run(&[5, 70_000], 1)) },
        Say::Failed { why: "why".into(), cause: Cause::Full, wrong_sectors: 3 },
    ];
    let mut sums = 0;
    let counted = damaged(&says, |say| {
        if let Say::Ran { run } = say {
            sums += usize::from(merged(&[*run.clone(), *run]).is_some());
        }
    });
    assert!(sums > 1_000 && counted.1 > 1_000, "{sums} merged, {counted:?}");
}

#[test]
fn what_a_host_is_asked_is_a_job_or_refused_whatever_it_is() {
    let job = "on = 'volume:8+2,drives=12'\nsize = '1GiB'\n[workload]\naccess = ['4KiB', '8KiB:50/1MiB:50']\noperation = '1MiB'\n";
    let asks = [
        Ask::Prove { proof: "00ff".into() },
        Ask::Open { job: Box::new(crate::job::Job::parse(job).unwrap()), destroy: false },
        Ask::Run { cell: 3, outstanding: None },
    ];
    let (mut jobs, mut targets) = (0, 0);
    let counted = damaged(&asks, |ask| {
        if let Ask::Open { job, destroy } = ask {
            let cells = job.cells().and_then(|cells| job.opening(&cells, destroy));
            jobs += usize::from(cells.is_ok());
            targets += usize::from(job.on.unwrap_or_default().parse::<crate::live::target::Target>().is_ok());
        }
    });
    assert!(jobs > 1_000 && targets > 1_000 && counted.1 > 1_000, "{jobs} jobs, {targets} targets, {counted:?}");
}

#[test]
fn sums_that_cannot_be_counted_stay_at_their_end() {
    let mut most = run(&[5], u64::MAX);
    (most.outstanding, most.workers, most.rounds[0].held_back) = (Some(u32::MAX), u32::MAX, u64::MAX);
    let both = merged(&[most.clone(), most.clone()]).unwrap();
    assert_eq!((both.outstanding, both.workers), (Some(u32::MAX), u32::MAX));
    assert_eq!((both.rounds[0].lag_ns, both.rounds[0].held_back), (u64::MAX, u64::MAX));
    most.rounds[0].read.counts[0].1 = 1 << 60;
    assert_eq!(merged(&[most]), None, "more than anybody counts");
}

const SECRET: &[u8] = b"quite a long secret";

/// A host that serves one connection as it should; its name.
fn serving(
    end: &std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> (String, std::thread::JoinHandle<Result<(), String>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    let end = std::sync::Arc::clone(end);
    let grant = super::server::Grant { secret: SECRET.to_vec(), destroy: false };
    let serve = move || super::server::serve(listener.accept().unwrap().0, &grant, &end);
    (name, std::thread::spawn(serve))
}

/// A host that answers the first cell so.
fn saying(answer: Say) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut link = super::wire::Link::new(listener.accept().unwrap().0, super::wire::LINE_MAX).unwrap();
        let long = || std::time::Instant::now() + std::time::Duration::from_secs(60);
        link.say(&Say::Challenge { version: super::wire::VERSION, nonce: "00".into() }).unwrap();
        let ready = Say::Ready { reached: "there".into(), target_bytes: 1, environment: Vec::new() };
        for say in [Say::Welcome, ready, Say::Busy] {
            drop(link.hear::<Ask>(long()).unwrap());
            link.say(&say).unwrap();
        }
        link.say(&answer).unwrap();
        drop(link.hear::<Ask>(long()));
    });
    name
}

const JOB: &str = "on = 'null'\n[time]\nround = '10ms'\nwarm-up = '10ms'\nleast = '100ms'\nmost = '100ms'\n";

fn asked(names: &[String], job: &str) -> Result<Option<crate::record::CellRecord>, crate::error::LabError> {
    let job = crate::job::Job::parse(job).unwrap();
    let cells = job.cells().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut hosts = super::client::Hosts::open(names, SECRET, &job, false, &stop).unwrap();
    hosts.cell(0, &cells[0], std::time::Duration::from_secs(30), &stop)
}

#[test]
fn wrong_data_on_one_of_several_hosts_is_damage_and_not_a_host_that_is_lost() {
    let failed = Say::Failed { why: "3 sectors are not as written".into(), cause: Cause::Damaged, wrong_sectors: 3 };
    let good = saying(Say::Ran { run: Box::new(run(&[5, 7], 0)) });
    let found = asked(&[good, saying(failed.clone())], JOB).unwrap().unwrap();
    assert!(found.is_damaged() && found.wrong_sectors == 3, "{found:?}");
    assert_eq!(found.hosts[1].wrong_sectors, 3);
    assert!(crate::report::remark(&found).contains("damaged: host"), "{}", crate::report::remark(&found));
    let error = asked(&[saying(failed)], JOB).unwrap_err();
    assert!(matches!(error, crate::error::LabError::Damaged(_)), "{error:?}");
    let gone = || saying(Say::failed(&LabError::Failed("gone".into())));
    let error = asked(&[gone()], JOB).unwrap_err();
    assert!(matches!(error, LabError::Failed(_)), "{error:?}");
    // A cause that all have is that of the cell.
    let full = || saying(Say::failed(&LabError::Full("no room".into())));
    let error = asked(&[full(), full()], JOB).unwrap_err();
    assert!(matches!(&error, LabError::Full(text) if text.contains("no room; host ")), "{error:?}");
    let error = asked(&[full(), gone()], JOB).unwrap_err();
    assert!(matches!(error, LabError::Failed(_)), "{error:?}");
}

#[test]
fn a_host_that_refuses_says_why_and_of_which_kind() {
    let opened = |name: &str, secret: &[u8], job: &str| {
        let job = crate::job::Job::parse(job).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        super::client::Hosts::open(&[name.to_owned()], secret, &job, false, &stop).map(drop).unwrap_err()
    };
    let refused = |secret: &[u8], job: &str| {
        let (name, served) = serving(&Default::default());
        let error = opened(&name, secret, job);
        drop(served.join().unwrap());
        assert!(error.to_string().starts_with(&format!("host {name}: ")), "{error}");
        error
    };
    let error = refused(b"another secret of hosts", JOB);
    assert!(matches!(&error, LabError::Refused(text) if text.contains("secret is another one")), "{error:?}");
    let error = refused(SECRET, &JOB.replace("null", "/nowhere/target"));
    assert!(matches!(&error, LabError::Missing(text) if text.contains("--size")), "{error:?}");
    // A cell that the target cannot take is refused before the first one is measured.
    let error = refused(SECRET, &JOB.replace("[time]", "[workload]\naccess = ['4KiB', '1000']\n[time]"));
    assert!(matches!(&error, LabError::Usage(text) if text.contains("multiples of 512")), "{error:?}");
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = opened(&gone, SECRET, JOB);
    assert!(matches!(error, LabError::Unreachable(_)), "{error:?}");
}

#[test]
fn a_host_says_what_it_read_wrong() {
    // What answers at once without touching a byte gives back nothing that was written.
    let (name, served) = serving(&Default::default());
    let error = asked(&[name], &format!("{JOB}[content]\nverify = true\n")).unwrap_err();
    assert!(matches!(error, crate::error::LabError::Damaged(_)), "{error:?}");
    assert!(served.join().unwrap().is_err(), "the other side left without a word");
}

#[test]
fn a_target_whose_reads_are_checked_is_read_back_on_each_host() {
    let path = std::path::Path::new("/dev/shm").join(format!("stele-lab-hosts-back-{}", std::process::id()));
    // Writes alone: what they left is seen by the reading behind them, or never.
    let more = "size = '1MiB'\n[workload]\nread = 0\n[content]\nverify = true\n[time]";
    let job = JOB.replace("null", &path.display().to_string()).replace("[time]", more);
    let job = crate::job::Job::parse(&job).unwrap();
    let cells = job.cells().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let patience = std::time::Duration::from_secs(30);
    let (name, served) = serving(&Default::default());
    let mut hosts = super::client::Hosts::open(std::slice::from_ref(&name), SECRET, &job, false, &stop).unwrap();
    let cell = hosts.cell(0, &cells[0], patience, &stop).unwrap().unwrap();
    let good = hosts.read_back(cell.clone(), patience, &stop);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[700_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let bad = hosts.read_back(cell.clone(), patience, &stop);
    hosts.close(false).unwrap();
    drop(std::fs::remove_file(&path));
    assert_eq!(served.join().unwrap(), Ok(()));
    let found = good.read_back.clone().unwrap();
    assert_eq!((found.bytes, found.wrong.sectors, good.is_damaged(), &good.hosts), (1 << 20, 0, false, &cell.hosts));
    let found = bad.read_back.clone().unwrap();
    assert_eq!((found.bytes, found.wrong.sectors, bad.is_damaged()), (1 << 20, 1, true));
    assert!(found.wrong.places[0].starts_with(&format!("host {name}: offset 699904: ")), "{found:?}");
    // One that cannot read it back is named, and the figures of the cell stay.
    let (ran, gone) = (Say::Ran { run: Box::new(run(&[5, 7], 0)) }, std::time::Duration::ZERO);
    let mut hosts = super::client::Hosts::open(&[saying(ran)], SECRET, &job, false, &stop).unwrap();
    let cell = hosts.cell(0, &cells[0], patience, &stop).unwrap().unwrap();
    let lost = hosts.read_back(cell.clone(), gone, &stop);
    assert!(lost.hosts[0].failed.as_ref().is_some_and(|why| why.contains("reading it back")), "{lost:?}");
    assert_eq!((lost.runs, lost.read_back), (cell.runs, None));
}

#[test]
fn a_host_that_was_lost_before_is_said_to_be_not_read_back() {
    let job = crate::job::Job::parse(&format!("{JOB}[content]\nverify = true\n")).unwrap();
    let cells = job.cells().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let gone = Say::failed(&LabError::Failed("gone".into()));
    let names = [saying(Say::Ran { run: Box::new(run(&[5, 7], 0)) }), saying(gone)];
    let mut hosts = super::client::Hosts::open(&names, SECRET, &job, false, &stop).unwrap();
    let cell = hosts.cell(0, &cells[0], std::time::Duration::from_secs(30), &stop).unwrap().unwrap();
    assert_eq!((cell.hosts.len(), cell.hosts[1].failed.as_deref()), (2, Some("gone")));
    let found = hosts.read_back(cell, std::time::Duration::ZERO, &stop);
    assert_eq!(found.hosts[1].failed.as_deref(), Some("gone; its target was not read back"));
    assert!(found.hosts[0].failed.as_ref().is_some_and(|why| why.starts_with("reading it back")), "{found:?}");
}

#[test]
fn a_host_that_is_told_to_end_does_not_fill_its_target_first() {
    let path = std::env::temp_dir().join(format!("stele-lab-hosts-{}", std::process::id()));
    let end = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (name, served) = serving(&end);
    let stream = std::net::TcpStream::connect(name).unwrap();
    let mut link = super::wire::Link::new(stream, super::wire::LINE_MAX).unwrap();
    let long = || std::time::Instant::now() + std::time::Duration::from_secs(60);
    let Say::Challenge { nonce, .. } = link.hear(long()).unwrap() else { panic!("no challenge") };
    link.say(&Ask::Prove { proof: proof(SECRET, &nonce) }).unwrap();
    assert_eq!(link.hear::<Say>(long()).unwrap(), Say::Welcome);
    let job = format!("{}\nsize = '256MiB'\n{}", JOB.lines().next().unwrap(), &JOB[JOB.find("[time]").unwrap()..]);
    let job = job.replace("null", &path.display().to_string());
    link.say(&Ask::Open { job: Box::new(crate::job::Job::parse(&job).unwrap()), destroy: false }).unwrap();
    while !path.exists() {
        std::thread::yield_now();
    }
    end.store(true, std::sync::atomic::Ordering::Relaxed);
    let said = served.join().unwrap();
    let filled = std::fs::metadata(&path).map_or(0, |found| found.len());
    drop(std::fs::remove_file(&path));
    assert_eq!(said, Err("it was told to end".to_owned()));
    assert!(filled < 256 << 20, "{filled}");
}

#[test]
fn a_host_that_is_named_twice_is_refused_and_a_silent_one_ends_with_the_stop() {
    let job = crate::job::Job::parse(JOB).unwrap();
    // It lets itself be connected to, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let name = silent.local_addr().unwrap().to_string();
    let opened = |names: &[String], is_stopped: bool| {
        let stop = std::sync::atomic::AtomicBool::new(is_stopped);
        super::client::Hosts::open(names, SECRET, &job, false, &stop).map(drop).unwrap_err()
    };
    let error = opened(&[name.clone(), name.clone()], false);
    assert!(matches!(&error, crate::error::LabError::Usage(text) if text.contains("named twice")), "{error:?}");
    let error = opened(&[name], true).to_string();
    assert!(error.contains("stopped before it answered"), "{error}");
}

#[test]
fn what_becomes_of_each_of_several_targets_is_kept() {
    use crate::error::LabError;
    use crate::record::CellRecord;
    let names = ["a".to_owned(), "b".to_owned()];
    let cell = || CellRecord { runs: vec![run(&[5, 7], 0)], ..crate::report::tests::cell(3, 1, 1.0, 9) };
    let both = of_targets(&names, vec![Ok(Some(cell())), Ok(Some(cell()))]).unwrap().unwrap();
    assert_eq!((both.runs[0].rounds[0].rate, both.number, &both.failed), (4.0, 3, &None));
    let failed = CellRecord { failed: Some("gone".into()), left_behind: true, ..cell() };
    for order in [[cell(), failed.clone()], [failed.clone(), cell()]] {
        let found = of_targets(&names, order.clone().map(Some).map(Ok).into()).unwrap().unwrap();
        let which = if order[0].failed.is_some() { 0 } else { 1 };
        assert_eq!(found.failed, Some(format!("{}: gone", names[which])));
        assert_eq!(found.hosts[which].failed.as_deref(), Some("gone"));
        assert_eq!(found.hosts[1 - which].failed, None);
        assert_eq!(found.runs[0].rounds[0].rate, 2.0, "of the other one alone");
        assert!(found.left_behind);
    }
    let wrong = CellRecord { failed: Some("wrong".into()), wrong_sectors: 3, ..cell() };
    let found = of_targets(&names, vec![Ok(Some(failed)), Ok(Some(wrong))]).unwrap().unwrap();
    assert_eq!((found.wrong_sectors, found.failed.as_deref()), (3, Some("b: wrong")));
    assert!(found.is_damaged() && found.runs.len() == 1);
    // One that failed before its first round takes nothing of the other's along.
    let gone = || Err(LabError::Failed("refused".into()));
    let found = of_targets(&names, vec![Ok(Some(cell())), gone()]).unwrap().unwrap();
    assert_eq!(found.failed.as_deref(), Some("b: refused"));
    assert!(of_targets(&names, vec![gone(), gone()]).is_err());
    assert!(of_targets(&names, vec![Ok(None), gone()]).is_err());
    assert_eq!(of_targets(&names, vec![Ok(None), Ok(Some(cell()))]), Ok(None));
}
