use super::*;

#[test]
fn sizes_are_read_and_shown_as_people_write_them() {
    let check = |text: &str, want: Option<u64>| assert_eq!(Bytes::parse(text), want.map(Bytes), "{text}");
    check("0", Some(0));
    check("512", Some(512));
    check("64K", Some(64 << 10));
    check("64 KiB", Some(64 << 10));
    check("1.5G", Some(3 << 29));
    check("20t", Some(20 << 40));
    check("12TB", Some(12_000_000_000_000));
    check("1.5 gb", Some(1_500_000_000));
    check("12TiB", Some(12 << 40));
    check("2PiB", Some(2 << 50));
    check("1.5p", Some(3 << 49));
    check("3PB", Some(3_000_000_000_000_000));
    check("20000PiB", None);
    check("-1", None);
    check("lots", None);
    check("1Q", None);
    check("99999999999999999999", None);
    check("18446744073709551615", Some(u64::MAX));
    check("18446744073709551616", None);

    let show = |bytes: u64, want: &str| assert_eq!(Bytes(bytes).to_string(), want);
    show(512, "512 B");
    show(64 << 10, "64 KiB");
    show(3 << 29, "1.5 GiB");
}
