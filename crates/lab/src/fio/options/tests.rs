use super::Fill;
use crate::fio::jobs;

#[test]
fn what_is_not_known_is_an_error_that_names_its_line() {
    for (line, words) in [
        ("rw=trim", "read, write, randread"),
        ("rw=read:much", "bytes to skip"),
        ("rw=randread:0", "above 0"),
        ("bs=0", "a size is needed"),
        ("bsrange=8k-4k", "smaller one first"),
        ("bssplit=4k/60:8k/30", "come to 100"),
        ("ioengine=rbd", "io_uring, libaio"),
        ("iodepth=0", "above 0"),
        ("size=much", "bytes are needed"),
        ("size=120%", "bytes are needed"),
        ("filesize=1m-2m", "no range"),
        ("directory=/a:/b", "one directory"),
        ("random_distribution=zipf:1", "theta"),
        ("file_service_type=zipf", "roundrobin, random"),
        ("thinktime=long", "a time is needed"),
        ("thinktime_blocks_type=half", "`complete` or `issue`"),
        ("rate=fast", "a whole number"),
        ("rate_process=even", "`linear` or `poisson`"),
        ("rwmixread=101", "up to 100"),
        ("verify=crc32c", "stele lab run --verify"),
        ("kb_base=1000", "not known"),
        ("zonemode=strided", "not known"),
        ("uncached=1", "not known"),
        ("ramp_size=1g", "not known"),
        ("time_based=maybe", "0 or 1"),
        ("buffer_pattern=dead", "0xdeadbeef"),
    ] {
        let why = jobs(&format!("[global]\nsize=1m\n[a]\n{line}\n")).unwrap_err().to_string();
        assert!(why.starts_with("job 'a', line 4: ") && why.contains(words), "{line}: {why}");
    }
    for (lines, words) in [
        ("ioengine=null\nsize=10%", "say size= in bytes"),
        ("time_based", "needs a runtime"),
        ("nrfiles=1000", "900 files"),
    ] {
        let why = jobs(&format!("[a]\n{lines}\n")).unwrap_err().to_string();
        assert!(why.starts_with("job 'a', line 1: ") && why.contains(words), "{lines}: {why}");
    }
}

#[test]
fn keys_mean_what_they_mean_to_fio() {
    let one = |text: &str| jobs(&format!("[a]\nsize=1m\n{text}\n")).unwrap().remove(0);
    let nothing_said = one("");
    assert!(nothing_said.reads && !nothing_said.writes && !nothing_said.random && !nothing_said.direct);
    assert_eq!(one("iodepth=32").depth, 1, "the engine is psync");
    assert_eq!(one("iodepth=32\nioengine=libaio").depth, 32);
    assert_eq!((one("rw=randread:8").run, one("rw=write:64k").skip), (8, 65536));
    let sizes = |text: &str| one(text).blocks.map(|blocks| (blocks.least, blocks.most));
    assert_eq!(sizes("bs=4k,8k"), [(4096, 4096), (8192, 8192)]);
    assert_eq!(sizes("bs=,8k"), [(4096, 4096), (8192, 8192)]);
    assert_eq!(sizes("bsrange=1k-4k,2k-8k,1k-2k"), [(1024, 4096), (2048, 8192)]);
    let fill = |text: &str| one(text).fill;
    assert_eq!((fill(""), fill("zero_buffers\nzero_buffers=0")), (Fill::Scrambled, Fill::Scrambled));
    assert_eq!((fill("refill_buffers\nrefill_buffers=0"), fill("zero_buffers=1")), (Fill::Scrambled, Fill::Zeros));
    // As of a global section and a job: a range and shares go before a size.
    assert_eq!(sizes("bsrange=1k-4k\nbs=64k"), [(1024, 4096), (1024, 4096)]);
    assert_eq!(sizes("bssplit=4k/50:8k/50,\nbs=64k"), [(4096, 8192), (65536, 65536)]);
    assert_eq!(sizes("bs=64k\nbsrange=8k-8k\nbs=4k"), [(8192, 8192), (8192, 8192)]);
    assert_eq!(one("filename=/a/b:c\\:d").names, ["/a/b", "c:d"]);
    assert_eq!(one("rate=1m,\nrate_iops=,50").rate.bytes, [1 << 20, 0]);
    let advice = |text: &str| one(text).advice();
    assert_eq!((advice(""), advice("rw=randread")), (Some(libc::POSIX_FADV_SEQUENTIAL), Some(libc::POSIX_FADV_RANDOM)));
    assert_eq!((advice("fadvise_hint=0"), advice("fadvise_hint=random")), (None, Some(libc::POSIX_FADV_RANDOM)));
    assert_eq!(advice("rw=randread\nfadvise_hint=noreuse"), Some(libc::POSIX_FADV_NOREUSE));
    // The last line of a key holds.
    let again = one("bs=4k\nbs=8k");
    assert_eq!((again.block_least(), again.said.iter().filter(|(key, _)| key == "bs").count()), (8192, 1));
    assert!(one("stonewall").stonewall && !one("stonewall=0").stonewall && one("direct=1").direct);
}
