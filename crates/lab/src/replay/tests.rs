use std::sync::atomic::AtomicBool;

use stele_ground::Bytes;

use super::formats::Reader;
use super::*;
use crate::job::Job;
use crate::live::target::{Opening, Target};

fn ordered(texts: &[String]) -> Ordered<&[u8]> {
    Ordered::of(texts.iter().map(|text| Reader::new("t".into(), Format::Spc, false, text.as_bytes())).collect())
}

fn survey(text: &str) -> Survey {
    Survey::of(&mut ordered(&[text.to_owned()]), None).unwrap()
}

#[test]
fn records_of_several_files_come_in_the_order_of_their_times() {
    // Each file's records are out of order by a few; one is late by more than the window.
    let line = |at: u64| format!("0,{at},512,r,{}\n", at as f64 / 1000.0);
    let shuffled = |from: u64| (0..6000).map(|n| line(10 + from + 2 * (n / 4 * 4 + 3 - n % 4))).collect::<String>();
    let late = format!("{}{}", shuffled(1), line(1));
    let files = [shuffled(0), late];
    let mut trace = ordered(&files);
    let mut records = Vec::new();
    while let Some(record) = trace.take().unwrap() {
        records.push(record);
    }
    assert_eq!((records.len(), trace.disordered), (12_001, 1));
    assert!(records.is_sorted_by_key(|record| record.at), "in order");
    let places: Vec<u64> = records.iter().map(|record| record.offset / 512).filter(|place| *place > 1).collect();
    assert!(places.iter().copied().eq(10..12_010), "{:?}", &places[..20]);
    let late = records.iter().find(|record| record.offset == 512).unwrap();
    assert!(late.at > 1_000_000_000, "the late one has the time of those before it: {late:?}");
}

#[test]
fn a_survey_says_how_far_devices_reach_and_what_fits() {
    let found = survey("0,100,512,r,1\n1,8,8192,w,3\n0,0,1024,w,2\n");
    assert_eq!((found.reads, found.writes, found.bytes, found.longest), (1, 2, 9728, 8192));
    assert_eq!((found.seconds(), found.step), (2.0, 512));
    let reach: Vec<u64> = found.devices.iter().map(|device| device.reach).collect();
    assert_eq!(reach, [101 * 512, 8 * 512 + 8192]);
    let one = Survey::of(&mut ordered(&["0,100,512,r,1\n1,8,8192,w,3\n".into()]), Some("ASU 1")).unwrap();
    assert_eq!((one.accesses(), one.left_out[0].1), (1, 1));
}

#[test]
fn accesses_go_behind_one_another_s_devices_or_where_the_caller_says() {
    let found = survey("0,0,4096,r,0\n0,2040,4096,r,0\n1,0,4096,r,0\n1,2040,4096,w,0\n");
    let mib = |size: u64| Bytes(size << 20);
    let places = |size, map| {
        let mapping = Mapping::new(&found, size, Bytes(512), map, Fit::Refuse).unwrap();
        let place = |(device, sector): (u16, u64)| {
            let record = Record { at: 0, device, offset: sector * 512, length: 4096, write: false };
            mapping.place(&record).unwrap().at >> 10
        };
        [(0, 0), (0, 2040), (1, 0), (1, 2040)].map(place)
    };
    assert_eq!(places(mib(2), Map::Refuse), [0, 1020, 1024, 2044]);
    assert_eq!(places(mib(1), Map::Wrap), [0, 1020, 0, 1020]);
    assert_eq!(places(mib(1), Map::Scale), [0, 510, 512, 1020]);
    // One that would cross the end is moved before it.
    let mapping = Mapping::new(&found, mib(1), Bytes(512), Map::Wrap, Fit::Refuse).unwrap();
    let crosses = Record { at: 0, device: 0, offset: 2047 * 512, length: 4096, write: false };
    assert_eq!(mapping.place(&crosses).map(|access| access.at), Some((1 << 20) - 4096));
    assert_eq!(places(mib(4), Map::Scale), [0, 1020, 1024, 2044], "what fits stays");
    for (size, block, map, words) in
        [(mib(1), 512, Map::Refuse, "reaches to"), (Bytes(4096), 512, Map::Wrap, "the trace has accesses of")]
    {
        let error = Mapping::new(&found, size, Bytes(block), map, Fit::Refuse).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn accesses_that_are_no_whole_blocks_are_refused_or_made_longer() {
    let found = survey("0,1,512,r,0\n0,7,1024,w,0\n");
    let error = Mapping::new(&found, Bytes(1 << 20), Bytes(4096), Map::Refuse, Fit::Refuse).unwrap_err().to_string();
    assert!(error.contains("multiples of 512 bytes") && error.contains("--fit round"), "{error}");
    let mapping = Mapping::new(&found, Bytes(1 << 20), Bytes(4096), Map::Refuse, Fit::Round).unwrap();
    let place = |offset, length| {
        let record = Record { at: 0, device: 0, offset, length, write: false };
        (mapping.place(&record).map(|access| (access.at, access.length)), mapping.moves(&record))
    };
    assert_eq!(place(512, 512), (Some((0, 4096)), true));
    assert_eq!(place(7 * 512, 1024), (Some((0, 8192)), true), "over two blocks");
    assert_eq!(place(4096, 4096), (Some((4096, 4096)), false));
    assert_eq!(place(1 << 20, 512).0, None, "beyond the end");
}

/// A file with a trace, for as long as a test needs it.
struct TraceFile(PathBuf);

impl std::ops::Deref for TraceFile {
    type Target = std::path::Path;
    fn deref(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn trace_file(name: &str, text: &str) -> TraceFile {
    let path = std::env::temp_dir().join(format!("stele-replay-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    TraceFile(path)
}

fn replayed(path: &std::path::Path, more: &str) -> Result<crate::record::CellRecord, LabError> {
    let text = format!("[replay]\ntrace = ['{}']\n{more}", path.display());
    let job = Job::parse(&text).unwrap();
    let planned = planned(&job)?;
    let opening = Opening { size: Some(Bytes(1 << 20)), ..planned.opening(&job, false)? };
    let ready = Target::Null.open(opening, &mut |_, _| true)?;
    Ok(ran(&job, &planned, &ready, &AtomicBool::new(false), &mut |_| true)?.unwrap())
}

#[test]
fn a_trace_is_carried_out_whole_by_its_own_clock_or_faster() {
    let text: String = (0..200).map(|n| format!("0,{n},512,{},{}\n", ["r", "w"][n % 2], n as f64 / 1000.0)).collect();
    let path = trace_file("clock", &text);
    for (more, least, most) in [("", 190, 5_000), ("speed = 4.0", 40, 5_000), ("speed = 0.0", 0, 5_000)] {
        let cell = replayed(&path, more).unwrap();
        let run = &cell.runs[0];
        let total = run.total();
        assert_eq!((total.read.count(), total.write.count()), (100, 100), "{more}: {cell:?}");
        let millis: f64 = run.rounds.iter().map(|round| round.seconds * 1e3).sum();
        assert!(millis >= f64::from(least) && millis <= f64::from(most), "{more}: {millis}");
        let timed: u64 = run.rounds.iter().filter_map(|round| Some(round.late.as_ref()?.histogram()?.count())).sum();
        assert_eq!(timed, if more == "speed = 0.0" { 0 } else { 200 }, "{more}");
        let replay = run.replay.as_ref().unwrap();
        assert_eq!((replay.accesses, replay.moved, replay.seconds), (200, 0, 0.199));
        let remark = crate::report::remark(&cell);
        assert!(remark.contains("the trace's clock") && !remark.contains("were answered"), "{remark}");
        let kept = serde_json::to_string(&cell).unwrap();
        assert_eq!(serde_json::from_str::<crate::record::CellRecord>(&kept).unwrap(), cell);
    }
    let beyond = replayed(&trace_file("beyond", "0,5000,512,r,0\n"), "").unwrap_err().to_string();
    assert!(beyond.contains("--map wrap"), "{beyond}");
    let cell = replayed(&trace_file("beyond", "0,5000,512,r,0\n"), "map = 'wrap'").unwrap();
    assert_eq!(cell.runs[0].replay.as_ref().unwrap().moved, 1);
    let remark = crate::report::remark(&cell);
    assert!(remark.contains("; 1 access was carried out elsewhere or longer"), "{remark}");
}

#[test]
fn what_a_replay_cannot_mean_is_an_error_that_says_so() {
    let path = trace_file("usage", "0,0,512,r,0\n");
    for (more, words) in [
        ("speed = -1.0", "replay.speed = -1"),
        ("device = 'ASU 9'", "its devices are ASU 0"),
        ("[load]\nrate = 5", "a trace says when"),
        ("[load]\noutstanding = 5", "where replay.speed is not 0"),
        ("[workload]\nread = 5", "a trace says what"),
        ("[content]\nverify = true", "content.verify"),
        ("[search]", "a replay is one run"),
    ] {
        let error = replayed(&path, more).unwrap_err().to_string();
        assert!(error.contains(words), "{more}: {error}");
    }
    let error = replayed(std::path::Path::new("/dev/zero"), "").unwrap_err().to_string();
    assert!(error.contains("is no file"), "{error}");
    let error = replayed(&trace_file("other", "a page\n"), "").unwrap_err().to_string();
    assert!(error.contains("looks like no trace"), "{error}");
    let job = Job::parse(&format!("[replay]\ntrace = ['{}']", path.display())).unwrap();
    assert!(job.cells().unwrap_err().to_string().contains("no cells but its trace"));
}

#[test]
fn any_bytes_are_records_that_have_a_place_or_an_error() {
    use super::formats::tests::blk;
    let lines = "fio version 3 iolog\n160 /a read 61440 4096\n391 /b write 0 512\n";
    let (spc, msr) =
        ("0,8,512,r,0.5\n1,99,8192,W,0.25\n", "128166372003061629,hm,1,Read,4096,512,1\n9,h,0,Write,0,4096,2\n");
    let binary = [blk(9, 8, 4096, 1, 1, b"xyz", false), blk(5, 99, 512, 1, 2, b"", true)].concat();
    let seeds = [
        (Format::Blktrace, binary.as_slice()),
        (Format::Fio, lines.as_bytes()),
        (Format::Spc, spc.as_bytes()),
        (Format::Msr, msr.as_bytes()),
    ];
    let mut dice = stele_ground::Dice::new(11);
    let (mut whole, mut wrong) = (0, 0);
    for turn in 0..20_000 {
        let (format, seed) = seeds[turn % seeds.len()];
        let mut bytes = seed.to_vec();
        for _ in 0..dice.below(4) {
            let at = dice.below(bytes.len() as u64) as usize;
            match dice.below(3) {
                0 => bytes[at] = dice.below(256) as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, b"0123456789,\n x"[dice.below(14) as usize]),
            }
        }
        let open = || Ordered::of(vec![Reader::new("t".into(), format, turn % 8 > 3, bytes.as_slice())]);
        let Ok(survey) = Survey::of(&mut open(), None) else {
            wrong += 1;
            continue;
        };
        whole += 1;
        for map in [Map::Refuse, Map::Wrap, Map::Scale] {
            let Ok(mapping) = Mapping::new(&survey, Bytes(1 << 30), Bytes(4096), map, Fit::Round) else { continue };
            let (mut again, mut last) = (open(), 0);
            while let Some(record) = again.take().unwrap() {
                let access = mapping.place(&record).unwrap_or_else(|| panic!("{record:?} has no place: {mapping:?}"));
                assert!(access.at + access.length <= 1 << 30 && access.length >= record.length && record.at >= last);
                last = record.at;
            }
        }
    }
    assert!(whole > 5_000 && wrong > 2_000, "{whole} and {wrong}");
}
