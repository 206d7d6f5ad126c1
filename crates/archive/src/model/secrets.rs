//! Keys that come from outside: the master key, and the keys of customers.

use std::fmt;

use zeroize::Zeroizing;

use crate::model::error::{ArchiveError, Result};
use crate::model::time::Surroundings;

/// The key that wraps every bucket key. Its loss is the loss of every record: export it to a safe
/// place.
#[derive(Clone)]
pub struct MasterKey(pub(crate) Zeroizing<[u8; 32]>);

impl MasterKey {
    pub fn generate(surroundings: &dyn Surroundings) -> MasterKey {
        let mut key = Zeroizing::new([0; 32]);
        surroundings.entropy(key.as_mut());
        MasterKey(key)
    }

    /// Parses 64 hexadecimal digits from a key file, environment variable or command. Surrounding
    /// blanks are ignored.
    pub fn parse(text: &str) -> Result<MasterKey> {
        crate::model::checksum::from_hex(text.trim())
            .and_then(|bytes| bytes.try_into().ok())
            .map(|key| MasterKey(Zeroizing::new(key)))
            .ok_or_else(|| ArchiveError::WrongKey("a master key is 64 hexadecimal digits".into()))
    }

    /// The text that `parse` reads. Secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(crate::model::checksum::to_hex(self.0.as_ref()))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// A key that the customer keeps and sends with each request (SSE-C).
#[derive(Clone)]
pub struct CustomerKey(pub(crate) Zeroizing<[u8; 32]>);

impl CustomerKey {
    /// Parses the three headers: `AES256`, the key in base64, and the base64 of its MD5.
    pub fn parse(algorithm: &str, key: &str, md5: &str) -> Result<CustomerKey> {
        let refuse = |message: &str| Err(ArchiveError::InvalidArgument(message.into()));
        if algorithm != "AES256" {
            return refuse("the only algorithm for customer keys is AES256");
        }
        let Some(bytes) = crate::model::checksum::from_base64(key).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
        else {
            return refuse("a customer key is 32 bytes in base64");
        };
        let key = CustomerKey(Zeroizing::new(bytes));
        if key.md5() != md5 {
            return refuse("the MD5 of the customer key does not match the key");
        }
        Ok(key)
    }

    /// The MD5 of the key in base64, as in requests and answers.
    pub fn md5(&self) -> String {
        use md5::Digest;
        crate::model::checksum::to_base64(&md5::Md5::digest(self.0.as_ref()))
    }
}

impl fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomerKey(..)")
    }
}
