use super::*;

fn key() -> HandleKey {
    HandleKey::new([5; 32])
}

const HANDLE: Handle = Handle { share: 0x0102_0304, inode: Inode(0x1112_1314_1516_1718) };

#[test]
fn a_handle_is_what_it_was_in_the_first_version() {
    let bytes = key().encode(HANDLE);
    assert_eq!(bytes[..16], [0, 0, 0, 1, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    let code = blake3::keyed_hash(&[5; 32], &bytes[..16]);
    assert_eq!(bytes[16..], code.as_bytes()[..8]);
}

#[test]
fn only_what_the_key_made_is_a_handle() {
    let bytes = key().encode(HANDLE);
    assert_eq!(key().decode(&bytes), Some(HANDLE));
    assert_eq!(HandleKey::new([6; 32]).decode(&bytes), None);
    for bit in 0..LENGTH * 8 {
        let mut forged = bytes;
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(key().decode(&forged), None, "bit {bit}");
    }
    for length in [0, 1, LENGTH - 1] {
        assert_eq!(key().decode(&bytes[..length]), None, "{length} bytes");
    }
    assert_eq!(key().decode(&[&bytes[..], &[0]].concat()), None);
}

#[test]
fn a_genuine_handle_of_another_version_is_unknown() {
    let mut bytes = key().encode(HANDLE);
    bytes[3] = 2;
    let code = key().code(&bytes[..SIGNED]);
    bytes[SIGNED..].copy_from_slice(&code);
    assert_eq!(key().decode(&bytes), None);
}
