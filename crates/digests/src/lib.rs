//! MD5, the S3 entity tag, of many concurrent uploads: each is one lane of a vector.
//!
//! MD5 cannot be split, and its steps wait for each other. A single upload is therefore limited by
//! the speed of one chain of additions. Concurrent uploads are hashed in parallel, in the time of
//! one. There are no threads here: the upload that has gathered enough hashes the data of all
//! others too (flat combining). The result depends on the bytes alone, never on the thread or the
//! time of hashing.

mod kernel;
mod lanes;
mod stream;

pub use kernel::Kernel;
pub use lanes::Lanes;
pub use stream::Md5Stream;
