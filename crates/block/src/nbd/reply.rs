//! Replies of the transmission phase, in the three forms that clients negotiate.

use stele_media::{MediaError, MediaFault, Shared};

use super::request::{NbdCommand, Request};
use super::wire::{EXTENDED_REPLY, Errno, SIMPLE_REPLY, STRUCTURED_REPLY, chunk};

/// The form of replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Simple,
    Structured,
    Extended,
}

/// Size of the largest head: an extended one with the offset of a content chunk.
const HEAD_MAX: usize = 40;
/// Largest length of an error text; longer ones are cut.
const TEXT_MAX: usize = 512;

/// The part after a head.
pub enum Body {
    Nothing,
    Data(Vec<Shared>),
    Text(Vec<u8>),
}

impl Body {
    fn size(&self) -> usize {
        match self {
            Body::Nothing => 0,
            Body::Data(pieces) => pieces.iter().map(Shared::len).sum(),
            Body::Text(text) => text.len(),
        }
    }
}

/// One message to the client.
pub struct Chunk {
    head: [u8; HEAD_MAX],
    head_length: u8,
    body: Body,
    body_length: usize,
}

impl Chunk {
    fn head(&self) -> &[u8] {
        self.head.get(..usize::from(self.head_length)).unwrap_or_default()
    }

    /// Head and body, in sending order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (data, text): (&[Shared], &[u8]) = match &self.body {
            Body::Nothing => (&[], &[]),
            Body::Data(pieces) => (pieces, &[]),
            Body::Text(text) => (&[], text),
        };
        [self.head()].into_iter().chain(data.iter().map(|piece| &piece[..])).chain([text])
    }

    pub fn size(&self) -> usize {
        usize::from(self.head_length) + self.body_length
    }

    fn new(body: Body) -> Chunk {
        let body_length = body.size();
        Chunk { head: [0; HEAD_MAX], head_length: 0, body, body_length }
    }

    fn put(mut self, bytes: &[u8]) -> Chunk {
        let from = usize::from(self.head_length);
        if let Some(room) = self.head.get_mut(from..from + bytes.len()) {
            room.copy_from_slice(bytes);
            self.head_length += bytes.len() as u8;
        }
        self
    }

    fn simple(request: &Request, errno: u32, body: Body) -> Chunk {
        Chunk::new(body).put(&SIMPLE_REPLY.to_be_bytes()).put(&errno.to_be_bytes()).put(&request.cookie.to_be_bytes())
    }

    /// A chunk whose payload is `inner` bytes of head and the body.
    fn structured(form: Form, request: &Request, kind: u16, done: bool, inner: usize, body: Body) -> Chunk {
        let length = inner + body.size();
        let flags = if done { chunk::FLAG_DONE } else { 0 };
        let magic = if form == Form::Extended { EXTENDED_REPLY } else { STRUCTURED_REPLY };
        let chunk = Chunk::new(body)
            .put(&magic.to_be_bytes())
            .put(&flags.to_be_bytes())
            .put(&kind.to_be_bytes())
            .put(&request.cookie.to_be_bytes());
        match form {
            Form::Extended => chunk.put(&request.at.to_be_bytes()).put(&(length as u64).to_be_bytes()),
            _ => chunk.put(&(length as u32).to_be_bytes()),
        }
    }

    /// Success without data.
    pub fn done(form: Form, request: &Request) -> Chunk {
        match form {
            Form::Extended => Chunk::structured(form, request, chunk::NONE, true, 0, Body::Nothing),
            // Simple replies stay allowed without data, and are the shortest.
            _ => Chunk::simple(request, 0, Body::Nothing),
        }
    }

    /// The content for a read, in one chunk.
    pub fn content(form: Form, request: &Request, data: Vec<Shared>) -> Chunk {
        match form {
            Form::Simple => Chunk::simple(request, 0, Body::Data(data)),
            _ => Chunk::structured(form, request, chunk::OFFSET_DATA, true, 8, Body::Data(data))
                .put(&request.at.to_be_bytes()),
        }
    }

    pub fn error(form: Form, request: &Request, errno: Errno, text: &str) -> Chunk {
        if form == Form::Simple {
            return Chunk::simple(request, errno as u32, Body::Nothing);
        }
        let text = text.get(..text.floor_char_boundary(TEXT_MAX)).unwrap_or_default();
        Chunk::structured(form, request, chunk::ERROR, true, 6, Body::Text(text.as_bytes().to_vec()))
            .put(&(errno as u32).to_be_bytes())
            .put(&(text.len() as u16).to_be_bytes())
    }

    /// The states of consecutive runs, for one context.
    pub fn status(form: Form, request: &Request, context: u32, runs: &[(u64, u32)], done: bool) -> Chunk {
        let mut text = Vec::with_capacity(8 + runs.len() * 16);
        text.extend(context.to_be_bytes());
        if form == Form::Extended {
            text.extend((runs.len() as u32).to_be_bytes());
        }
        for (length, state) in runs {
            match form {
                Form::Extended => {
                    text.extend(length.to_be_bytes());
                    text.extend(u64::from(*state).to_be_bytes());
                }
                _ => {
                    text.extend((*length as u32).to_be_bytes());
                    text.extend(state.to_be_bytes());
                }
            }
        }
        let kind = if form == Form::Extended { chunk::BLOCK_STATUS_EXT } else { chunk::BLOCK_STATUS };
        Chunk::structured(form, request, kind, done, 0, Body::Text(text))
    }
}

/// The protocol's error for a drive's failure.
pub fn errno_of(error: &MediaError, command: NbdCommand) -> Errno {
    match error.fault {
        MediaFault::Full => Errno::NoSpace,
        MediaFault::Refused if command != NbdCommand::Read => Errno::Perm,
        MediaFault::Invalid => Errno::Invalid,
        MediaFault::Gone => Errno::Shutdown,
        MediaFault::Retry | MediaFault::Damaged | MediaFault::Refused => Errno::Io,
    }
}
