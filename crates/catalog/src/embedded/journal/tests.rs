use stele_ground::Dice;

use super::*;

const ID: [u8; 16] = [5; 16];

fn drawn(dice: &mut Dice) -> Changes {
    (0..dice.below(6))
        .map(|_| {
            let mut key = vec![0; dice.below(20) as usize];
            dice.fill(&mut key);
            let value = (!dice.one_in(3)).then(|| Bytes::from(vec![dice.roll() as u8; dice.below(6000) as usize]));
            ((Table(dice.below(4) as u16), Bytes::from(key)), value)
        })
        .collect()
}

#[test]
fn what_is_encoded_is_decoded_and_only_as_its_successor() {
    let mut dice = Dice::new(1);
    let mut position = Position::first(&ID);
    for commit in 0..300 {
        let changes = drawn(&mut dice);
        let (batch, digest) = encode(&ID, &position, commit, &changes);
        assert_eq!(batch.len() % BLOCK as usize, 0);
        let read = decode(&batch, &ID, Some(&position.previous)).unwrap().unwrap();
        assert_eq!(read, Read { sequence: position.sequence, commit, changes, digest, length: batch.len() as u64 });
        assert_eq!(decode(&batch, &[6; 16], None), Ok(None), "another catalog's");
        assert_eq!(decode(&batch, &ID, Some(&[9; 32])), Ok(None), "after another batch");
        position = Position { sequence: position.sequence + 1, at: 0, previous: digest };
    }
}

#[test]
fn a_batch_changed_anywhere_is_none() {
    let mut dice = Dice::new(2);
    for _ in 0..3000 {
        let position = Position::first(&ID);
        let (batch, _) = encode(&ID, &position, 1, &drawn(&mut dice));
        let used = HEADER + word(&batch, 40).unwrap() as usize;
        let mut changed = batch.clone();
        let at = dice.below(used as u64) as usize;
        changed[at] ^= 1 << dice.below(8);
        let unread = (DIGESTED + 32..HEADER).contains(&at);
        assert_eq!(decode(&changed, &ID, None).unwrap().is_some(), unread, "byte {at} of {used}");
        let cut = dice.below(used as u64) as usize;
        assert_eq!(decode(&batch[..cut], &ID, None), Ok(None), "cut at {cut} of {used}");
    }
}

#[test]
fn sealed_nonsense_is_an_error() {
    let position = Position::first(&ID);
    let changes = Changes::from([((Table(1), Bytes::from("key")), Some(Bytes::from("value")))]);
    let check = |name: &str, at: usize, byte: u8| {
        let (mut batch, _) = encode(&ID, &position, 1, &changes);
        batch[at] = byte;
        let used = HEADER + word(&batch, 40).unwrap() as usize;
        let digest = digest(&batch[..used]);
        batch[DIGESTED..DIGESTED + 32].copy_from_slice(&digest);
        assert!(matches!(decode(&batch, &ID, None), Err(CatalogError::Damaged(_))), "{name}");
    };
    check("one entry too many", 44, 2);
    check("one entry too few", 44, 0);
    check("a key longer than the batch", HEADER + 2, 200);
    check("a value longer than the batch", HEADER + 6, 200);
}
