use super::*;

/// Journaled data and encryption on ext4: the flag is accepted, and the alignment is 0.
#[test]
fn an_alignment_of_zero_means_the_page_cache() {
    // SAFETY: every bit pattern, zeros included, is a valid statx.
    let mut found = unsafe { MaybeUninit::<libc::statx>::zeroed().assume_init() };
    assert_eq!(direct_of(false, &found), Direct::Unknown);
    assert_eq!(direct_of(true, &found), Direct::Buffered);
    (found.stx_dio_mem_align, found.stx_dio_offset_align) = (4, 512);
    assert_eq!(direct_of(true, &found), Direct::Aligned(4, 512));
    assert_eq!(direct_of(false, &found), Direct::Unknown);
}
