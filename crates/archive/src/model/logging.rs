//! Where the access log of a bucket goes.

use minicbor::{Decode, Encode};

use crate::model::error::{ArchiveError, Result};

/// Bytes of the longest prefix. The name of a log follows it in a key of at most 1024 bytes.
const PREFIX_MAX: usize = 900;

/// The target of a bucket's access log.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct AccessLog {
    #[n(0)]
    pub bucket: String,
    /// Keys of logs begin with it.
    #[n(1)]
    pub prefix: String,
}

impl AccessLog {
    pub(crate) fn check(&self) -> Result<()> {
        match self.prefix.len() {
            0..=PREFIX_MAX => Ok(()),
            _ => Err(ArchiveError::InvalidArgument(format!("a target prefix has at most {PREFIX_MAX} bytes"))),
        }
    }
}
