//! MD5, the S3 entity tag, of many uploads at once: each is one lane of a vector.
//!
//! MD5 cannot be split and its steps wait for each other, so one upload at a time is bound to what one chain of
//! additions does in a second. Uploads that come together are hashed side by side instead, in the time of one. There
//! are no threads here: whoever has gathered enough hashes what all others have gathered too (flat combining). What
//! is answered depends on the bytes alone, never on who hashed them or when.

mod kernel;
mod lanes;
mod stream;

pub use kernel::Kernel;
pub use lanes::Lanes;
pub use stream::Md5Stream;
