use super::*;

/// Two registrations as the first version keeps them; the second one holds a reservation of type 5.
const KEPT: &str = "\
    5354454c455052310000000705000001000211223344556677880001002669716e2e323032362d30312e6578616d706c653a\
    612c692c3078343030303031333730303030000000000000aabb0001002669716e2e323032362d30312e6578616d706c653a\
    622c692c3078343030303031333730303030532e171a\
";

fn kept() -> Vec<u8> {
    let digits = KEPT.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
    digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
}

#[test]
fn reservations_of_the_first_version_are_read() {
    let port = |name: &str| Port { initiator: format!("iqn.2026-01.example:{name},i,0x400001370000"), target: 1 };
    let is = Registrations {
        generation: 7,
        list: vec![
            Registration { port: port("a"), key: 0x1122_3344_5566_7788 },
            Registration { port: port("b"), key: 0xaabb },
        ],
        holder: Some(Holder { port: port("b"), kind: 5 }),
        persists: true,
    };
    assert_eq!(Registrations::decode(&kept()), Some(is.clone()));
    assert_eq!(is.encode(), kept());
}

#[test]
fn reservations_of_a_later_version_are_told_from_damaged_ones() {
    let mut later = kept();
    later[7] = b'2';
    assert_eq!((Registrations::decode(&later), Registrations::later(&later)), (None, None), "damaged");
    let end = later.len() - 4;
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &later[..end]) as u32;
    later[end..].copy_from_slice(&sum.to_be_bytes());
    assert_eq!((Registrations::decode(&later), Registrations::later(&later)), (None, Some('2')));
    assert_eq!(Registrations::later(&kept()), None);
    assert_eq!(Registrations::later(b"STELEPR"), None);
}
