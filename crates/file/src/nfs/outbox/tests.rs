use super::*;
use std::task::Waker;
use stele_ground::Dice;

/// Takes a few bytes at a time, and at times none.
struct Narrow {
    taken: Vec<u8>,
    dice: Dice,
}

impl AsyncWrite for Narrow {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = self.dice.below(bytes.len() as u64) as usize + 1;
        self.taken.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.dice.one_in(5) {
            return Poll::Pending;
        }
        assert!(slices.len() <= PIECES_MAX);
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let count = self.dice.below(all.len() as u64) as usize + 1;
        self.taken.extend_from_slice(&all[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn answers_leave_whole_and_in_order() {
    let mut dice = Dice::new(4);
    let mut stream = Narrow { taken: Vec::new(), dice: Dice::new(5) };
    let (mut outbox, mut expected) = (Outbox::default(), Vec::new());
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..2000 {
        for _ in 0..dice.below(4) {
            let mut head = vec![0; 1 + dice.below(300) as usize];
            dice.fill(&mut head);
            let mut content = Vec::new();
            for _ in 0..dice.below(3) {
                let mut piece = vec![0; dice.below(3000) as usize];
                dice.fill(&mut piece);
                content.push(Bytes::from(piece));
            }
            expected.extend_from_slice(&head);
            expected.extend(content.concat());
            outbox.push(Reply { head, content });
        }
        while outbox.waiting() > 0 && !dice.one_in(6) {
            let _ = outbox.poll_write(&mut stream, &mut context);
        }
        assert_eq!(outbox.waiting(), expected.len() - stream.taken.len());
    }
    while outbox.waiting() > 0 {
        let _ = outbox.poll_write(&mut stream, &mut context);
    }
    assert!(stream.taken == expected);
    assert!(outbox.pieces.is_empty());
}

#[test]
fn content_is_sent_from_where_it_lies() {
    let content = Bytes::from(vec![1; 4096]);
    let mut outbox = Outbox::default();
    outbox.push(Reply { head: vec![0; 100], content: vec![content.clone()] });
    assert!(outbox.pieces.iter().any(|piece| piece.bytes().as_ptr() == content.as_ptr()));
}

#[test]
fn a_small_piece_does_not_keep_what_it_was_cut_from() {
    for (length, kept) in [(1, false), (COPIED_BELOW - 1, false), (COPIED_BELOW, true)] {
        let whole = Bytes::from(vec![7; 1 << 20]);
        let mut outbox = Outbox::default();
        outbox
            .push(Reply { head: vec![0; 100], content: vec![whole.slice(5..5 + length), Bytes::from_static(&[0; 3])] });
        assert_eq!(!whole.is_unique(), kept, "{length} bytes");
        assert_eq!(outbox.waiting(), 100 + length + 3);
        let sent: Vec<u8> = outbox.pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
        assert_eq!(sent, [vec![0; 100], vec![7; length], vec![0; 3]].concat());
    }
}
