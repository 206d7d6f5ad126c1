use super::*;

fn filled(content: Content, at: u64, length: usize) -> Vec<u8> {
    let mut source = content.source(Dice::new(3), None);
    let mut buffer = vec![0; length];
    source.make(&mut buffer, at);
    buffer
}

#[test]
fn checked_data_is_recognised_and_every_change_of_a_byte_is_found() {
    let content = Content { verify: true, ..Content::default() };
    let good = filled(content, 8192, 1024);
    assert!(wrong(content, None, &good, 8192).is_none());
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let found = wrong(content, None, &bad, 8192);
        assert_eq!(found.sectors, 1, "a changed byte {at} was not found");
        let place = format!("offset {}:", 8192 + at / SECTOR * SECTOR);
        assert!(found.places[0].starts_with(&place), "byte {at}: {found}");
    }
}

#[test]
fn data_of_another_place_or_another_seed_is_found() {
    let content = Content { verify: true, ..Content::default() };
    let good = filled(content, 8192, 512);
    assert_eq!(wrong(content, None, &good, 8704).sectors, 1);
    assert_eq!(wrong(Content { seed: 2, ..content }, None, &good, 8192).sectors, 1);
}

/// A file of 32 MiB, written in accesses of that length in any order, some of it twice.
fn file(content: Content, length: usize) -> Vec<u8> {
    let mut file = vec![0; 32 << 20];
    let mut sources = [content.source(Dice::new(5), None), content.source(Dice::new(6), None)];
    for again in 0..2 {
        for (number, buffer) in file.chunks_mut(length).enumerate() {
            if again == 0 || number % 3 == 0 {
                sources[number % 2].make(buffer, (number * length) as u64);
            }
        }
    }
    file
}

fn lz4(file: &[u8], unit: usize) -> usize {
    file.chunks(unit).map(|chunk| lz4_flex::compress(chunk).len().min(chunk.len())).sum()
}

fn zstd(file: &[u8], unit: usize) -> usize {
    file.chunks(unit).map(|chunk| zstd::bulk::compress(chunk, 3).unwrap().len()).sum()
}

#[test]
fn what_is_written_by_default_does_not_compress_and_no_two_blocks_are_alike() {
    for length in [4096, 8192, 65_536, 1 << 20] {
        let file = file(Content::default(), length);
        for unit in [8192, 128 << 10, file.len()] {
            for size in [lz4(&file, unit), zstd(&file, unit)] {
                assert!(size as f64 > file.len() as f64 * 0.999, "accesses of {length}, {unit} at once: {size}");
            }
        }
        assert_eq!(distinct(&file), file.len() / 4096);
    }
    // Nor what another worker, another run, or the same one writes there again.
    let mut source = Content::default().source(Dice::new(5), None);
    let (mut first, mut second) = ([0; 4096], [0; 4096]);
    source.make(&mut first, 0);
    source.make(&mut second, 0);
    assert_ne!(first, second);
    Content::default().source(Dice::new(5), None).make(&mut second, 0);
    assert_ne!(first, second);
}

fn distinct(file: &[u8]) -> usize {
    file.chunks(4096).collect::<std::collections::HashSet<_>>().len()
}

#[test]
fn ratios_are_met_within_five_percent_over_whole_files() {
    for percent in [150, 200, 400, 1000] {
        for (length, verify) in [(4096, false), (65_536, false), (65_536, true), (1 << 20, false)] {
            if verify && percent > 400 {
                continue;
            }
            let file = file(Content { compress_percent: percent, verify, ..Content::default() }, length);
            let wanted = f64::from(percent) / 100.0;
            for unit in [4096, 65_536, 1 << 20] {
                for (name, size) in [("lz4", lz4(&file, unit)), ("zstd", zstd(&file, unit))] {
                    let ratio = file.len() as f64 / size as f64;
                    let said =
                        format!("{name}, {unit} at once, accesses of {length}, verify {verify}: {ratio} for {wanted}");
                    assert!((ratio / wanted - 1.0).abs() < 0.05, "{said}");
                }
            }
        }
    }
    for percent in [150, 200, 400] {
        for length in [512, 4096, 65_536] {
            let file = file(Content { dedupe_percent: percent, ..Content::default() }, length);
            let (wanted, ratio) = (f64::from(percent) / 100.0, (file.len() / 4096) as f64 / distinct(&file) as f64);
            // Accesses below a block make its parts unique one by one.
            assert!((ratio / wanted - 1.0).abs() < 0.05, "accesses of {length}: {ratio} for {wanted}");
        }
    }
}

#[test]
fn duplicates_of_a_stated_length_are_whole() {
    let length = 1 << 20;
    let content = Content { dedupe_percent: 200, ..Content::default() };
    let mut source = content.source(Dice::new(5), None).alike_in(length as u64);
    let mut file = vec![0; 256 * length];
    for (number, buffer) in file.chunks_mut(length).enumerate() {
        source.make(buffer, (number * length) as u64);
    }
    let objects: std::collections::HashSet<&[u8]> = file.chunks(length).collect();
    let ratio = 256.0 / objects.len() as f64;
    // Of 256 objects about 128 are unique, and the others are 16.
    assert!((1.6..2.1).contains(&ratio), "{ratio}");
    assert_eq!(distinct(&file), objects.len() * length / 4096, "no two blocks of an object are alike");
}
