use super::*;

#[test]
fn what_is_not_known_is_an_error_that_names_its_line() {
    let begin = "time=1\n[filesystem0]\nlocation=/x\nnum_files=1\nmin_filesize=4k\nmax_filesize=4k\n";
    for (more, words) in [
        ("init_util=0.5\n[end0]", "line 7: init_util=0.5: this key is not known"),
        ("[end0]\n[threadgroup0]\nmetaop_weight=1", "line 9: metaop_weight=1: this operation is not known"),
        ("[end0]\n[threadgroup0]\nread_size=lots", "line 9: read_size=lots: say it in bytes"),
        ("[end0]\n[threadgroup0]\nnum_threads=0", "line 9: num_threads=0: a whole number above 0"),
        ("[end0]\n[threadgroup0]\nread_random=yes", "line 9: read_random=yes: it is 0 or 1"),
        ("[end0]\n[other]", "line 8: [other]: no such section"),
        ("[end0]", "no [threadgroup]"),
        ("[end0]\n[threadgroup0]\n[end0]", "no operation has a weight"),
        ("[end0]\n[threadgroup0]\nread_weight=1\n[end0]", "needs a read_size"),
        ("[end0]\n[threadgroup0]\nappend_weight=1\n[end0]", "need a write_size"),
        ("[end0]\n[threadgroup0]\nstat_weight=1\nbindfs=1\n[end0]", "bindfs names a file system"),
    ] {
        let why = parse(&format!("{begin}{more}\n")).unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn a_profile_of_several_file_systems_and_groups_is_read() {
    let text = "verbose = 0\ndirectio = 1\ntime = 30 # seconds\n[filesystem]\n\tlocation\t= /mnt/test\n\tnum_dirs = 10\n\tnum_files=64\n\
                \tsize_weight\t4k\t33\n\tsize_weight\t64k\t8\n\tagefs\t= 0\n\t[threadgroup]\n\t\tcreate_weight\t= 10\n\t[end]\n\
                \tcreate_blocksize=8k\n[end]\n[filesystem]\nlocation=/mnt/other\nmin_filesize=1m\nmax_filesize=2m\n[end]\n\
                [threadgroup]\nnum_threads=4\nread_weight=4\nread_size=64k\nread_blocksize=8k\ncreate_fsync_weight=1\nop_delay=5\n\
                [stats]\nenable_stats=1\n[end]\nstat_weight=0\nbindfs=1\n[end]\n";
    let profile = parse(text).unwrap();
    assert_eq!((profile.time, profile.direct), (Duration::from_secs(30), true));
    let [first, second] = profile.filesystems.as_slice() else { panic!("{profile:?}") };
    assert_eq!(
        (first.sizes.as_slice(), first.block, first.directories),
        (&[(4096, 33), (65536, 8)][..], Some(8192), 10)
    );
    assert_eq!((second.least, second.most), (1 << 20, 2 << 20));
    let [group] = profile.groups.as_slice() else { panic!("{profile:?}") };
    assert_eq!(group.weights, [(OperationKind::Read, 4), (OperationKind::Create { sync: true }, 1)]);
    assert_eq!(
        (group.threads, group.read_block, group.delay, group.bound),
        (4, 8192, Duration::from_millis(5), Some(1))
    );
}
