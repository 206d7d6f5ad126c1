use super::*;

/// The accesses of a trace, what is left out of it, and its devices.
type Whole = (Vec<Record>, Vec<&'static str>, Vec<String>);

/// All that a trace holds, or the first thing that is wrong with it.
fn read(format: Format, bytes: &[u8]) -> Result<Whole, String> {
    let (mut devices, mut records, mut left) = (Devices::default(), Vec::new(), Vec::new());
    let mut reader = Reader::new("t".into(), format, false, bytes);
    loop {
        match reader.next(&mut devices).map_err(|error| error.to_string())? {
            TraceItem::Access(record) => records.push(record),
            TraceItem::LeftOut(what) => left.push(what),
            TraceItem::End => return Ok((records, left, devices.names().to_vec())),
        }
    }
}

fn record(at: u64, device: u16, offset: u64, length: u64, write: bool) -> Record {
    Record { at, device, offset, length, write }
}

#[test]
fn lines_of_the_spc_have_units_blocks_and_seconds() {
    let text = "# a comment\n0,20941264,8192,W,0.551706\n1,3072,512,r,1.5\r\n\n0,0,0,r,2\n";
    let (records, left, devices) = read(Format::Spc, text.as_bytes()).unwrap();
    let first = record(551_706_000, 0, 20_941_264 * 512, 8192, true);
    assert_eq!(records, [first, record(1_500_000_000, 1, 3072 * 512, 512, false)]);
    assert_eq!((devices, left), (vec!["ASU 0".to_owned(), "ASU 1".to_owned()], vec!["no bytes"]));
}

#[test]
fn lines_of_msr_have_ticks_hosts_and_disks() {
    let text = "128166372003061629,hm,1,Read,383496192,32768,41286\n128166372003061639,hm,0,Write,0,512,1\n";
    let (records, _, devices) = read(Format::Msr, text.as_bytes()).unwrap();
    assert_eq!(records[0], record(12_816_637_200_306_162_900, 0, 383_496_192, 32_768, false));
    assert_eq!(records[1].at - records[0].at, 1000);
    assert_eq!(devices, ["hm.1", "hm.0"]);
}

#[test]
fn fios_logs_have_times_or_waits() {
    let two = "fio version 2 iolog\n/a add\n/a open\n/a read 4096 512\n/a wait 1500 0\n/b write 0 1024\n/a sync 0 0\n/a close\n";
    let (records, left, devices) = read(Format::Fio, two.as_bytes()).unwrap();
    assert_eq!(records, [record(0, 0, 4096, 512, false), record(1_500_000, 1, 0, 1024, true)]);
    assert_eq!(devices, ["/a", "/b"]);
    assert_eq!(left.iter().filter(|what| **what == "file opened or closed").count(), 3);
    let three = "fio version 3 iolog\n24 /a add\n155 /a open\n160 /a read 61440 4096\n391 /a write 0 4096\n400 /a trim 0 4096\n";
    let (records, left, _) = read(Format::Fio, three.as_bytes()).unwrap();
    assert_eq!(records, [record(160_000, 0, 61_440, 4096, false), record(391_000, 0, 0, 4096, true)]);
    assert_eq!(left, ["file opened or closed", "file opened or closed", "trim"]);
}

/// A record of blktrace.
pub fn blk(at: u64, sector: u64, bytes: u32, action: u32, kind: u32, behind: &[u8], is_big: bool) -> Vec<u8> {
    let mut all = Vec::new();
    let mut put = |value: &[u8]| {
        let value: Vec<u8> = if is_big { value.iter().rev().copied().collect() } else { value.to_vec() };
        all.extend(value);
    };
    put(&0x6561_7407u32.to_le_bytes());
    put(&1u32.to_le_bytes());
    put(&at.to_le_bytes());
    put(&sector.to_le_bytes());
    put(&bytes.to_le_bytes());
    put(&(kind << 16 | action).to_le_bytes());
    put(&77u32.to_le_bytes());
    put(&(8u32 << 20 | 16).to_le_bytes());
    put(&0u32.to_le_bytes());
    put(&0u16.to_le_bytes());
    put(&(behind.len() as u16).to_le_bytes());
    all.extend(behind);
    all
}

const READ: u32 = 1;
const WRITE: u32 = 2;

#[test]
fn records_of_blktrace_are_read_in_either_order_of_bytes() {
    for is_big in [false, true] {
        let record_of =
            |at, sector, bytes, action, kind, behind: &[u8]| blk(at, sector, bytes, action, kind, behind, is_big);
        let trace = [
            record_of(5, 0, 0, 0, 1 << 10, b"a process"),
            record_of(1000, 8, 4096, 1, READ, b""),
            record_of(1100, 8, 4096, 7, READ, b""),
            record_of(2000, 16, 512, 1, WRITE, b"behind"),
            record_of(2100, 0, 0, 1, WRITE | 1 << 2, b""),
            record_of(2200, 0, 4096, 1, WRITE | 1 << 13, b""),
        ]
        .concat();
        assert_eq!(Format::of(&trace), Some(Format::Blktrace));
        let (records, left, devices) = read(Format::Blktrace, &trace).unwrap();
        assert_eq!(records, [record(1000, 0, 4096, 4096, false), record(2000, 0, 8192, 512, true)]);
        assert_eq!(left, ["note", "event that begins no access", "flush", "discard"]);
        assert_eq!(devices, ["8:16"]);
        let mut issued = Reader::new("t".into(), Format::Blktrace, true, trace.as_slice());
        let steps: Vec<TraceItem> = (0..6).map(|_| issued.next(&mut Devices::default()).unwrap()).collect();
        assert_eq!(steps[2], TraceItem::Access(record(1100, 0, 4096, 4096, false)));
        for cut in [1, 20, 47, 48 + 4] {
            let error = read(Format::Blktrace, &trace[..cut]).unwrap_err();
            assert!(error.contains("t: record 1: is cut off"), "{cut}: {error}");
        }
    }
}

#[test]
fn what_is_no_trace_is_an_error_that_names_the_line() {
    let long = "1".repeat(5000);
    let spc = |line: &str| (Format::Spc, format!("0,0,512,r,0\n{line}\n"));
    let msr = |line: &str| (Format::Msr, format!("1,h,0,Read,0,512,1\n{line}\n"));
    let fio = |line: &str| (Format::Fio, format!("fio version 3 iolog\n{line}\n"));
    for ((format, text), words) in [
        (spc("0,0,512,x,0"), "line 2: 'x' is neither a read nor a write"),
        (spc("0,0,512,r,-1"), "line 2: '-1' is no time"),
        (spc("0,0,512,r,NaN"), "no time"),
        (spc("0,0,512,r"), "line 2: '' is no time"),
        (
            spc("0,18446744073709551615,512,r,1"),
            "line 2: an access of 512 bytes at offset 18446744073709551615 is none",
        ),
        (spc("0,0,999999999,r,1"), "line 2: an access of 999999999 bytes"),
        (spc(&long), "line 2: is longer than 4096 bytes"),
        (msr("18446744073709551615,h,0,Read,0,512,1"), "more ticks than there were"),
        (msr("1,h,0,Flush,0,512,1"), "neither a read"),
        (msr("1,h,0,Read,x,512,1"), "'x' is no offset"),
        (fio("1 /a erase 0 4096"), "line 2: 'erase' is no action"),
        (fio("1 /a wait 5"), "'wait' is no action"),
        (fio("x /a read 0 4096"), "'x' is no number of microseconds"),
        ((Format::Fio, "fio version 9 iolog\n".into()), "line 1: 'fio version 2 iolog' or 3 was to be there"),
        ((Format::Blktrace, "some text, not a trace, longer than a record is".repeat(2)), "record 1: does not begin"),
    ] {
        let error = read(format, text.as_bytes()).unwrap_err();
        assert!(error.contains(words), "{format:?}: {error}, not {words}");
    }
    let many: String = (0..2000).map(|unit| format!("{unit},0,512,r,0\n")).collect();
    assert!(read(Format::Spc, many.as_bytes()).unwrap_err().contains("line 1025: has more than 1024 devices"));
    assert!(read(Format::Spc, b"\xff\xff\n").unwrap_err().contains("is no text"));
}

#[test]
fn a_format_is_told_from_a_files_beginning() {
    for (text, format) in [
        ("fio version 2 iolog\n", Some(Format::Fio)),
        ("0,20941264,8192,W,0.55\n", Some(Format::Spc)),
        ("0,20941264,8192,W,0.55,extra,more,yet\n", Some(Format::Spc)),
        ("128166372003061629,hm,1,Read,383496192,32768,41286\n", Some(Format::Msr)),
        ("a page of text\n", None),
        ("", None),
    ] {
        assert_eq!(Format::of(text.as_bytes()), format, "{text}");
    }
}
