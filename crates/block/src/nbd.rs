//! NBD: the handshake that names an export, and the session that serves it.
//!
//! The handshake is a state machine over bytes ([`Handshake`]). The server that accepted the
//! connection moves the bytes, limits the time, and starts TLS on request. The result
//! ([`Negotiated`]) begins a [`NbdSession`] on the volume's reactor. `SEMANTICS/block.md` states
//! the promises; the protocol is that of the NBD project's `proto.md`.

pub mod context;
pub mod handshake;
pub mod option;
pub mod reply;
pub mod request;
pub mod session;
pub mod wire;

mod mapping;
mod outgoing;
mod pacing;
mod pending;

pub use context::Context;
pub use handshake::{Handshake, HandshakeStep, Negotiated, Tls};
pub use session::NbdSession;

/// The port assigned by IANA.
pub const PORT: u16 = 10809;
/// Largest payload of one request, as announced.
pub const PAYLOAD_MAX: u32 = 32 << 20;

#[cfg(test)]
mod tests;
