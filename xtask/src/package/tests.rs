use super::*;

#[test]
fn the_newest_libc_that_a_program_names_is_found() {
    let program = b"\x7fELF..GLIBC_2.9\0GLIBC_2.35\0GLIBC_2.4.1\0GLIBC_PRIVATE\0GLIBC_";
    assert_eq!(libc_of(program), Some((2, 35)));
    assert_eq!(libc_of(b"\x7fELF static"), None);
}
