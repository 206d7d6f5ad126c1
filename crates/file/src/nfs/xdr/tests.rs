use super::*;
use stele_ground::Dice;

fn reader(bytes: &[u8]) -> Reader {
    Reader::new(Bytes::copy_from_slice(bytes))
}

#[test]
fn items_are_read_as_they_were_written() {
    let mut dice = Dice::new(1);
    for _ in 0..200 {
        let numbers: Vec<u64> = (0..dice.below(6)).map(|_| dice.roll()).collect();
        let texts: Vec<Vec<u8>> = numbers.iter().map(|number| vec![*number as u8; (*number % 40) as usize]).collect();
        let mut out = Vec::new();
        for (number, text) in numbers.iter().zip(&texts) {
            out.put_u64(*number);
            out.put_opaque(text);
            out.put_u32(*number as u32);
            out.put_bool(number % 2 == 1);
        }
        assert!(out.len().is_multiple_of(4));
        let mut reader = reader(&out);
        for (number, text) in numbers.iter().zip(&texts) {
            assert_eq!(reader.u64(), Ok(*number));
            assert_eq!(reader.opaque(40).unwrap(), text);
            assert_eq!(reader.peek(0), *number as u32);
            assert_eq!(reader.u32(), Ok(*number as u32));
            assert_eq!(reader.bool(), Ok(number % 2 == 1));
        }
        assert_eq!((reader.remaining(), reader.peek(0)), (0, 0));
    }
}

#[test]
fn a_length_on_the_wire_is_not_believed() {
    for (bytes, most) in [
        (&[0xff, 0xff, 0xff, 0xff][..], usize::MAX),
        (&[0, 0, 0, 5, 1, 2, 3, 4], usize::MAX),
        (&[0, 0, 0, 3, 1, 2, 3, 0], 2),
        (&[0, 0, 0], usize::MAX),
    ] {
        assert_eq!(reader(bytes).opaque(most), Err(Malformed), "{bytes:?}");
        assert_eq!(reader(bytes).borrowed(most), Err(Malformed), "{bytes:?}");
    }
}

#[test]
fn the_padding_of_the_last_item_may_be_missing() {
    let mut reader = reader(&[0, 0, 0, 1, 7]);
    assert_eq!(reader.opaque(9).unwrap(), [7][..]);
    assert_eq!(reader.u32(), Err(Malformed));
}

#[test]
fn a_truth_value_is_0_or_1() {
    for (word, expected) in [(0, Ok(false)), (1, Ok(true)), (2, Err(Malformed)), (u32::MAX, Err(Malformed))] {
        assert_eq!(reader(&word.to_be_bytes()).bool(), expected);
    }
}

#[test]
fn an_opaque_item_shares_its_record() {
    let record = Bytes::from(vec![0, 0, 0, 4, 1, 2, 3, 4]);
    let item = Reader::new(record.clone()).opaque(4).unwrap();
    assert_eq!(item.as_ptr(), record[4..].as_ptr());
}

#[test]
fn lengths_count_padding() {
    for (length, expected) in [(0, 4), (1, 8), (4, 8), (5, 12)] {
        let mut out = Vec::new();
        out.put_opaque(&vec![1; length]);
        assert_eq!((out.len(), opaque_length(length)), (expected, expected));
    }
}
