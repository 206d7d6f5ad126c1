//! The laboratory's readers of untrusted bytes: jobs, the files of other tools, traces, results
//! with everything made of them, and an NBD server's greeting and replies. Accepted input must be
//! usable, and refused input must not end the process.
#![no_main]

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use libfuzzer_sys::fuzz_target;
use stele_ground::{Bytes, Duration};
use stele_lab::job::Job;
use stele_lab::live::engine::Engine;
use stele_lab::live::nbd::{self, Nbd};
use stele_lab::replay::formats::Reader;
use stele_lab::replay::{Fit, Format, Map, Mapping, Ordered, Survey};
use stele_lab::workload::Access;
use stele_lab::{ab_test, record, report};
use stele_papers::import::{self, Origin};
use stele_papers::{export, pdf};

/// Sends the given bytes, and discards its input.
struct Server<'a>(&'a [u8]);

impl Read for Server<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Server<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        Ok(from.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An accepted job can be written out and read again.
fn job(job: &Job) {
    if let Ok(cells) = job.cells() {
        for cell in cells.iter().take(100) {
            assert!(!cell.name().is_empty());
            assert_eq!(cell.setup.spec.sizes.iter().map(|(_, share)| u32::from(*share)).sum::<u32>(), 100);
        }
        let text = toml::to_string(job).expect("a job that was read can be written");
        assert_eq!(Job::parse(&text).expect("and read again"), *job);
    }
}

fn results(bytes: &[u8]) {
    let Ok(recorded) = record::read_from(bytes) else { return };
    let _ = report::html(&recorded, None);
    let _ = pdf::file(&report::report(&recorded, None));
    for (_, kind, _) in report::charts::KINDS {
        kind.of(&recorded).characters(80, 20);
    }
    let fio: Result<serde_json::Value, _> = serde_json::from_str(&export::fio(&recorded));
    fio.expect("JSON is exported");
    (export::iometer(&recorded), export::csv(&recorded), ab_test::of(&recorded));
}

/// A trace of one file or of two is read to its end or to an error, in the order of its times. Each
/// access has a place if all must have one.
fn trace(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let formats = [Format::Blktrace, Format::Fio, Format::Spc, Format::Msr];
    let format = formats[usize::from(choice % 4)];
    let files = if choice & 4 == 0 { vec![bytes] } else { bytes.chunks(bytes.len().div_ceil(2).max(1)).collect() };
    let open = || {
        let parts = files.iter().copied();
        Ordered::of(parts.map(|part| Reader::new("trace".into(), format, choice & 8 != 0, part)).collect())
    };
    let Ok(survey) = Survey::of(&mut open(), None) else { return };
    if survey.accesses() == 0 {
        return;
    }
    for map in [Map::Refuse, Map::Wrap, Map::Scale] {
        let Ok(mapping) = Mapping::new(&survey, Bytes(1 << 30), Bytes(4096), map, Fit::Round) else { continue };
        let (mut again, mut last) = (open(), 0);
        while let Some(record) = again.take().expect("it was read before") {
            let access = mapping.place(&record).expect("all have a place");
            assert!(access.at + access.length <= 1 << 30 && access.length >= record.length && record.at >= last);
            last = record.at;
        }
    }
}

fn replies(bytes: &[u8]) {
    let Ok((client, mut server)) = UnixStream::pair() else { return };
    // More bytes than a socket takes at once would wait for a reader.
    let bytes = &bytes[..bytes.len().min(4096)];
    if server.write_all(bytes).is_err() || server.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let Ok(mut engine) = Nbd::agreed(client, 3, 512) else { return };
    for slot in 0..3 {
        engine.start(slot, &Access { target: 0, at: 0, length: 512, write: slot == 1 });
    }
    let mut answers = Vec::new();
    engine.reap(3, Some(Duration::from_millis(50)), &mut answers);
    let mut slots: Vec<u32> = answers.iter().map(|answer| answer.0).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2], "each access is answered once, if only by the end of the connection");
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    match choice % 8 {
        0 => {
            if let Ok(found) = Job::parse(&text) {
                job(&found);
            }
        }
        kind @ 1..=3 => {
            let origin = [Origin::Fio, Origin::Iometer, Origin::Ffsb][usize::from(kind) - 1];
            let strict = import::jobs(&text, origin, false);
            let lenient = import::jobs(&text, origin, true);
            assert!(strict.is_err() || lenient.is_ok(), "leniency takes what strictness takes");
            for imported in lenient.iter().flatten() {
                job(&imported.job);
            }
        }
        4 => results(bytes),
        5 => drop(nbd::negotiate(&mut Server(bytes), "vm")),
        6 => trace(bytes),
        _ => replies(bytes),
    }
});
