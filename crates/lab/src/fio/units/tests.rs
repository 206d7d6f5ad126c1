use super::*;

#[test]
fn sizes_and_times_are_read_as_fio_reads_them() {
    let sizes = ["512", "4k", "4K", "4kb", "4ki", "4kib", "1m", "2G", "0x2000", "1.5k", "k", "", "4x", "4kx"];
    let read: Vec<Option<u64>> = sizes.iter().map(|text| bytes(text)).collect();
    let known = [512, 4096, 4096, 4096, 4096, 4000, 1 << 20, 2 << 30, 0x2000].map(Some);
    assert_eq!((&read[..9], &read[9..]), (&known[..], &[None; 5][..]));
    assert_eq!((time("30", "s"), time("30", "us"), time("5ms", "s")), (Ok(30_000_000_000), Ok(30_000), Ok(5_000_000)));
    assert!(time("soon", "s").is_err() && time("", "s").is_err());
    assert_eq!((amount("20%"), amount("1k")), (Ok(Amount::Percent(20)), Ok(Amount::Bytes(1024))));
    assert!(amount("101%").is_err() && amount("much").is_err());
}

#[test]
fn a_pair_has_one_value_for_both_or_leaves_one_as_it_was() {
    assert_eq!(both("4", [1, 1], count_of), Ok([4, 4]));
    assert_eq!(both("4,8", [1, 1], count_of), Ok([4, 8]));
    assert_eq!(both(",8", [1, 1], count_of), Ok([1, 8]));
    assert_eq!(both("4,", [1, 2], count_of), Ok([4, 2]));
}

fn count_of(text: &str) -> Result<u64, String> {
    count(text)
}
