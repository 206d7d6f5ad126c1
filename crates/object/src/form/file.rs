//! The content of a form's file: everything up to the next boundary.

use bytes::{Buf, Bytes};

/// Finds the end of the file in pieces of any size. The content leaves as slices of the input, but
/// for the few bytes that may be the beginning of the boundary.
pub struct FileEnd {
    /// Ends the content.
    mark: Vec<u8>,
    /// Bytes at the end of the last piece that the mark may begin with.
    held: Vec<u8>,
    found: bool,
}

impl FileEnd {
    pub fn new(boundary: &str) -> FileEnd {
        FileEnd { mark: format!("\r\n--{boundary}").into_bytes(), held: Vec::new(), found: false }
    }

    /// The length of what follows the content at least: the boundary and two hyphens.
    pub fn tail(&self) -> u64 {
        self.mark.len() as u64 + 2
    }

    /// Whether the boundary was there.
    pub fn is_found(&self) -> bool {
        self.found
    }

    /// The next content in `piece`. None: another piece is needed, or the content has ended.
    pub fn next(&mut self, piece: &mut Bytes) -> Option<Bytes> {
        if self.found {
            // The form's own end, and fields behind the file, which are ignored.
            piece.clear();
            return None;
        }
        if !self.held.is_empty() {
            return self.settle(piece);
        }
        if piece.is_empty() {
            return None;
        }
        let mut from = 0;
        while let Some(at) = piece.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == b'\r')) {
            let at = from + at;
            let rest = piece.get(at..).unwrap_or_default();
            if rest.starts_with(&self.mark) {
                self.found = true;
                let content = piece.split_to(at);
                piece.clear();
                return (!content.is_empty()).then_some(content);
            }
            if self.mark.starts_with(rest) {
                self.held = rest.to_vec();
                let content = piece.split_to(at);
                piece.clear();
                return (!content.is_empty()).then_some(content);
            }
            from = at + 1;
        }
        Some(std::mem::take(piece))
    }

    /// Decides about the held bytes with the next ones.
    fn settle(&mut self, piece: &mut Bytes) -> Option<Bytes> {
        while let Some(byte) = piece.first().copied() {
            if self.mark.get(self.held.len()) != Some(&byte) {
                // Only the first byte of the mark is a carriage return, so no later beginning hides
                // in the held bytes.
                return Some(std::mem::take(&mut self.held).into());
            }
            self.held.push(byte);
            piece.advance(1);
            if self.held.len() == self.mark.len() {
                self.found = true;
                piece.clear();
                return None;
            }
        }
        None
    }
}
