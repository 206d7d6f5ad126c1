use super::*;
use stele_ground::Bytes;
use stele_lab::live::run::Load;

const FILE: &str = "
; a comment
[global]
ioengine=io_uring
direct=1
size=1g
runtime=30
time_based
group_reporting

[oltp]
filename=/data/target
rw=randrw
rwmixread=67
bs=8k
iodepth=16
numjobs=2

[stream]   # another
stonewall
filename=/data/target
readwrite=write
blocksize=256k
ramp_time=2s
";

#[test]
fn what_a_fio_job_says_is_what_the_job_here_does() {
    let jobs = fio(FILE, false).unwrap();
    let [oltp, stream] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert_eq!((oltp.name.as_str(), stream.name.as_str()), ("oltp", "stream"));
    let cells = oltp.job.cells().unwrap();
    let [cell] = cells.as_slice() else { panic!("{cells:?}") };
    assert_eq!(
        (cell.setup.spec.read, cell.setup.spec.random, cell.setup.spec.sizes.clone()),
        (Some(67), Some(100), vec![(8192, 100)])
    );
    assert_eq!((cell.setup.load, cell.setup.workers), (Load::Outstanding(32), 2));
    assert_eq!(cell.setup.timing.least.0, 30_000_000_000);
    assert_eq!(oltp.job.size().unwrap(), Some(Bytes(1 << 30)));
    let cell = &stream.job.cells().unwrap()[0];
    assert_eq!((cell.setup.spec.read, cell.setup.spec.random), (Some(0), Some(0)));
    assert_eq!(cell.setup.timing.warm_up.0, 2_000_000_000);
    assert!(oltp.warnings.is_empty());
}

#[test]
fn the_order_of_pattern_and_mix_does_not_matter() {
    for text in ["[a]\nrw=randrw\nrwmixread=70\n", "[a]\nrwmixread=70\nrw=randrw\n", "[a]\nrwmixwrite=30\nrw=randrw"] {
        assert_eq!(fio(text, false).unwrap()[0].job.workload.read, Some(Given::One(70)), "{text}");
    }
}

#[test]
fn what_is_not_known_is_named_or_left_out_with_a_warning() {
    for (line, words) in [
        ("fsync=1", "`stele lab fio` runs the file as it is"),
        ("bs=4k,8k", "one size"),
        ("bsrange=4k-8k", "bsrange"),
        ("ioengine=rbd", "rbd"),
        ("filename=/a:/b", "one target"),
        ("rw=trim", "no such pattern"),
        ("iodepth=0", "above 0"),
        ("rwmixread=101", "up to 100"),
        ("runtime=soon", "in seconds"),
        ("thinktime=long", "in microseconds"),
        ("thinktime_spin=5", "not known"),
        ("thinktime_blocks_type=half", "`complete` or `issue`"),
        ("rate=1m,2m", "reads and writes together"),
    ] {
        let text = format!("[a]\nrw=read\n{line}\n");
        let error = fio(&text, false).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("line 3") && error.contains("--lenient"), "{error}");
        let warnings = fio(&text, true).unwrap()[0].warnings.clone();
        assert!(warnings.len() == 1 && warnings[0].contains("line 3"), "{warnings:?}");
    }
    for (text, words) in [("rw=read", "before the first"), ("[global]\nrw=read", "no job"), ("", "no job")] {
        assert!(fio(text, true).unwrap_err().to_string().contains(words), "{text}");
    }
}

#[test]
fn sizes_with_shares_are_drawn_by_them_and_rates_are_of_all_copies() {
    let job = |text: &str| fio(text, false).map(|jobs| jobs[0].job.cells().unwrap()[0].setup.clone());
    let found = job("[a]\nfilename=/t\nrw=randread\nbssplit=4k/60:8k/10:64k").unwrap();
    assert_eq!(found.spec.sizes, vec![(4096, 60), (8192, 10), (65536, 30)]);
    let found = job("[a]\nfilename=/t\nrw=randread\nrate_iops=100\nnumjobs=4").unwrap();
    assert_eq!(found.load, Load::Rate { each_second: 400.0, random: false });
    for (line, why) in [
        ("bssplit=4k/60:8k/30", "come to 100 percent"),
        ("bssplit=4k/60,8k/40", "whole number up to 100"),
        ("bssplit=4k/90:8k/80", "more than 100 percent"),
        ("rate_iops=100,200", "reads and writes together"),
    ] {
        let error = job(&format!("[a]\nfilename=/t\nrw=randread\n{line}")).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("line 4"), "{error}");
    }
}

#[test]
fn think_times_and_rates_in_bytes_mean_what_they_mean_there() {
    use stele_ground::Duration;
    use stele_lab::live::run::{Pause, PauseWhen};
    let job = |text: &str| {
        fio(&format!("[a]\nfilename=/t\n{text}"), false).map(|jobs| jobs[0].job.cells().unwrap()[0].setup.clone())
    };
    let pause = |text: &str| job(&format!("rw=read\nioengine=libaio\niodepth=8\n{text}")).unwrap().pause;
    let each = Pause { each: Duration::from_micros(50), burst: 1, when: PauseWhen::Answered };
    assert_eq!(pause("thinktime=50"), Some(each), "microseconds, after each access");
    let issued = Pause { each: Duration::from_millis(2), burst: 4, when: PauseWhen::Started };
    assert_eq!(pause("thinktime_blocks=4\nthinktime_blocks_type=issue\nthinktime=2ms"), Some(issued));
    assert_eq!((pause("thinktime=0"), pause("thinktime_blocks=4")), (None, None), "no pause");
    assert_eq!(pause("rate_process=poisson"), None, "gaps of no rate");
    let rate = job("rw=randread\nrate=1m\nnumjobs=3\niodepth=4").unwrap();
    assert_eq!(rate.load, Load::Bytes { each_second: 3.0 * 1048576.0, random: false });
    for text in ["rw=randrw\nrate=1m", "rw=randrw\nrate_iops=10"] {
        let error = job(text).unwrap_err().to_string();
        assert!(error.contains("of reads and of writes each in fio"), "{error}");
    }
}

#[test]
fn where_a_file_says_nothing_it_means_what_it_means_to_fio() {
    let one =
        |text: &str| fio(&format!("[a]\nfilename=/t\nsize=1g\nrw=randread\n{text}"), false).unwrap().remove(0).job;
    let load = |text: &str| one(text).cells().unwrap()[0].setup.load;
    assert_eq!(one("").buffered, Given::One(true), "without `direct` the page cache is used");
    assert_eq!(one("direct=1").buffered, Given::One(false));
    assert_eq!(one("buffered=0").buffered, Given::One(false));
    assert_eq!(load("iodepth=32"), Load::Outstanding(1), "the engine is psync");
    assert_eq!(load("ioengine=psync\niodepth=32\nnumjobs=4"), Load::Outstanding(4));
    assert_eq!(load("ioengine=libaio\niodepth=32"), Load::Outstanding(32));
}

#[test]
fn what_would_be_another_workload_is_an_error_that_names_its_line() {
    let error = |text: &str| fio(text, false).unwrap_err().to_string();
    assert!(error("[a]\nrw=read:8").contains("line 2: rw=read:8: what stands behind the colon"));
    for mix in ["rw=rw", "rw=readwrite\nrwmixread=90", "rw=randrw\npercentage_random=80"] {
        let text = format!("[a]\nsize=1g\n{mix}\n");
        assert!(error(&text).starts_with("job 'a', line 1: reads and writes in order"), "{mix}: {}", error(&text));
        assert_eq!(fio(&text, true).unwrap()[0].warnings.len(), 1, "{mix}");
    }
    // Of one kind there is one order.
    assert!(fio("[a]\nrw=rw\nrwmixread=100\n", false).is_ok() && fio("[a]\nrw=randrw\n", false).is_ok());
    let both = "[a]\nrw=read\n\n[b]\nrw=write\n";
    assert!(error(both).contains("line 4: job 'b' runs at the same time"), "{}", error(both));
    assert!(fio(both, true).unwrap()[0].warnings[0].contains("line 4"));
    for apart in ["[a]\nrw=read\n[b]\nstonewall\nrw=write\n", "[global]\nstonewall\n[a]\nrw=read\n[b]\nrw=write\n"] {
        assert_eq!(fio(apart, false).unwrap().len(), 2);
    }
}

/// Also with `--lenient`, which leaves lines out: each of these is known.
#[test]
fn keys_that_together_make_no_job_are_an_error_of_the_import() {
    for (lines, words) in [
        ("thinktime=100\nrate_iops=50", "load.pause"),
        ("rate_iops=100\nrate=1m", "give one of them"),
        ("rate_iops=inf", "load.rate = inf"),
        ("rate_iops=-5", "load.rate = -5"),
        ("numjobs=1000", "from 1 to 512"),
        ("verify=crc32c\ndedupe_percentage=50", "verify or dedupe"),
    ] {
        for lenient in [false, true] {
            let error = fio(&format!("\n[a]\nrw=randread\n{lines}\n"), lenient).unwrap_err().to_string();
            assert!(error.starts_with("job 'a', line 2: ") && error.contains(words), "{lines}: {error}");
        }
    }
}

#[test]
fn sizes_are_in_units_of_fio() {
    let access = |text: &str| fio(&format!("[a]\nrw=read\nbs={text}"), false).unwrap()[0].job.workload.access.clone();
    assert_eq!((access("4kb"), access("4k")), (Some(Given::One("4096".into())), Some(Given::One("4096".into()))));
}

#[test]
fn a_global_section_holds_for_the_jobs_behind_it() {
    let jobs = fio("[a]\nrw=read\nsize=1m\n[global]\nbs=8k\n[b]\nstonewall\nrw=read\nsize=1m\n", false).unwrap();
    let access = |at: usize| jobs[at].job.workload.access.clone();
    assert_eq!((access(0), access(1)), (None, Some(Given::One("8192".into()))));
}

/// A job changes what the global section says, and a mix or a share of random places is of patterns
/// that have them.
#[test]
fn a_later_pattern_takes_the_place_of_an_earlier_one() {
    let workload = |global: &str, own: &str| {
        let found = fio(&format!("[global]\n{global}\n[a]\n{own}\n"), false).unwrap().remove(0).job.workload;
        let one = |given: Option<Given<u8>>| given.unwrap().values()[0];
        (one(found.read), one(found.random))
    };
    for (global, own, wanted) in [
        ("rw=randread", "rw=read", (100, 0)),
        ("rw=randread", "rw=randrw", (50, 100)),
        ("rw=randrw\nrwmixread=10", "rw=randwrite", (0, 100)),
        ("rw=read", "rwmixread=70", (100, 0)),
        ("rw=read\npercentage_random=50", "", (100, 0)),
        ("rw=randread\npercentage_random=50", "", (100, 50)),
        ("", "bs=8k", (100, 0)),
    ] {
        assert_eq!(workload(global, own), wanted, "{global} and then {own}");
    }
    let job = |text: &str| fio(&format!("[global]\n{text}\n"), false).unwrap().remove(0).job;
    let split = job("bssplit=4k/50:8k/50\n[a]\nrw=read\nbs=64k");
    assert_eq!(split.workload.access, Some(Given::One("4096:50/8192:50".into())));
    let null = job("ioengine=null\n[a]\nrw=read\nfilename=/data/target");
    assert_eq!((null.on.as_deref(), null.buffered), (Some("null"), Given::One(false)));
    let file = job("ioengine=null\n[a]\nrw=read\nioengine=libaio\nfilename=/data/target");
    assert_eq!(file.on.as_deref(), Some("/data/target"));
    let free = job("runtime=30\nrate=1m\n[a]\nrw=read\nruntime=0\nrate=0");
    assert_eq!((free.time.least, free.load.rate_bytes), (None, None));
}
