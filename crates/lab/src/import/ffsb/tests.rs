use super::*;
use crate::import::Origin;
use crate::live::run::Load;
use stele_ground::Bytes;

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
    assert!(only.job.buffered && only.job.on.as_deref() == Some("/mnt/gateway/stele-lab-ffsb"));
}

#[test]
fn weights_are_of_whole_operations() {
    // One read of 40 MB in 8 KiB blocks for each three writes of 8 KiB: almost all accesses read.
    let text =
        profile("read_weight=1\nread_size=40m\nread_blocksize=8k\nwrite_weight=3\nwrite_size=8k\nwrite_blocksize=8k");
    assert_eq!(ffsb(&text, false).unwrap()[0].job.workload.read, Some(Given::One(100)));
    let text =
        profile("read_weight=1\nread_size=16k\nread_blocksize=8k\nwrite_weight=3\nwrite_size=16k\nwrite_blocksize=8k");
    assert_eq!(ffsb(&text, false).unwrap()[0].job.workload.read, Some(Given::One(25)));
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
