use super::*;
use crate::import::Origin;
use stele_ground::Bytes;
use stele_lab::live::run::{Load, Of};
use stele_lab::workload::Operation;

/// The published runs: 100 files of 40 MB for five minutes.
fn profile(more: &str) -> String {
    format!(
        "directio=0\ntime=300\n\n[filesystem0]\n  location=/mnt/gateway\n  num_files=100\n  min_filesize=40m\n  max_filesize=40m\n\
         [end0]\n\n[threadgroup0]\n  num_threads=16\n{more}\n[end0]\n"
    )
}

#[test]
fn a_published_run_becomes_the_accesses_that_it_made() {
    let text = profile("read_weight=1\nread_size=40m\nread_blocksize=8k\nread_random=1");
    assert_eq!(Origin::of(&text), Origin::Ffsb);
    let found = ffsb(&text, false).unwrap();
    let [only] = found.as_slice() else { panic!("{found:?}") };
    let setup = &only.job.cells().unwrap()[0].setup;
    assert_eq!((setup.spec.read, setup.spec.random, &setup.spec.sizes), (Some(100), Some(100), &vec![(8192, 100)]));
    assert_eq!((setup.load, setup.workers, setup.timing.most.0), (Load::Outstanding(16), 16, 300_000_000_000));
    assert_eq!(only.job.size().unwrap(), Some(Bytes(4000 << 20)));
    assert_eq!(setup.of, Of::Operations(Operation { read: 40 << 20, write: 40 << 20 }));
    assert!(
        only.job.buffered == Given::One(true)
            && only.job.on.as_deref() == Some("dir:/mnt/gateway")
            && only.job.files == Some(100)
    );
}

#[test]
fn weights_are_of_whole_operations() {
    let workload = |more: &str| {
        let part = ffsb(&profile(more), false).unwrap().remove(0).job.workload;
        (part.read, part.random, part.operation)
    };
    let blocks = "read_blocksize=8k\nwrite_blocksize=8k\nread_random=1\nwrite_random=1";
    let parts =
        |read, random, operation: &str| (Some(Given::One(read)), Some(Given::One(random)), Some(operation.to_owned()));
    let given = format!("read_weight=1\nread_size=40m\nwrite_weight=3\nwrite_size=8k\n{blocks}");
    assert_eq!(workload(&given), parts(25, 100, "41943040/8192"));
    let given = format!("writeall_weight=1\nwrite_size=8k\n{blocks}");
    assert_eq!(workload(&given), parts(0, 0, "41943040"), "all of a file, from its beginning");
    let given = format!("readall_weight=2\nwriteall_weight=2\n{blocks}");
    assert_eq!(workload(&given), parts(50, 0, "41943040/41943040"));
}

#[test]
fn more_files_than_stay_open_are_named() {
    let text = profile("read_weight=1\nread_size=40m\nread_blocksize=8k").replace("num_files=100", "num_files=1000");
    let error = ffsb(&text, false).unwrap_err().to_string();
    assert!(error.contains("1000 files are more than the 900"), "{error}");
    assert_eq!(ffsb(&text, true).unwrap()[0].job.files, Some(900));
}

#[test]
fn what_has_no_counterpart_is_named_with_its_line() {
    let reads = "read_weight=1\nread_size=40m\nread_blocksize=8k";
    for (more, why) in [
        (format!("{reads}\ncreate_weight=2"), "line 16: create_weight=2"),
        (format!("{reads}\nwrite_weight=1\nwrite_size=40m\nwrite_blocksize=4k"), "different sizes"),
        (format!("{reads}\nread_size=much"), "line 16: read_size=much"),
        (String::new(), "neither reads nor writes"),
    ] {
        let error = ffsb(&profile(&more), false).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let found = ffsb(&profile(&format!("{reads}\ncreate_weight=2")), true).unwrap();
    assert_eq!(found[0].warnings.len(), 1);
}
