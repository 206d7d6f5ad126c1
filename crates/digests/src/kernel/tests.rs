use super::*;

#[test]
fn every_kernel_answers_what_one_stream_after_another_does() {
    let data: Vec<Vec<u8>> = (0..16usize)
        .map(|stream| (0..20 * BLOCK).map(|at| (at * 31 + stream * 97 + at / 64 * 13) as u8).collect())
        .collect();
    for kernel in Kernel::available() {
        for streams in 1..=kernel.lanes() {
            for count in [0, 1, 2, 19] {
                let borrowed: Vec<&[u8]> = data[..streams].iter().map(|data| data.as_slice()).collect();
                let begun = |stream: usize| START.map(|word| word.wrapping_mul(stream as u32 + 1));
                let mut states: Vec<State> = (0..streams).map(begun).collect();
                kernel.compress(&mut states, &borrowed, count);
                for (stream, state) in states.iter().enumerate() {
                    let mut alone = begun(stream);
                    scalar::compress(&mut alone, &data[stream][..count * BLOCK]);
                    assert_eq!(*state, alone, "{kernel:?}, stream {stream} of {streams}, {count} blocks");
                }
            }
        }
    }
}
