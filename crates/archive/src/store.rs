//! The store as a whole: what it stands on, how it is made and opened.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use stele_catalog::Catalog;
use stele_ground::Bytes;
use stele_media::Handle;
use zeroize::Zeroizing;

use crate::error::{ArchiveError, Result};
use crate::principal::Caller;
use crate::time::Surroundings;

/// Keeps what lies beneath from being removed while anything on it is retained: for a pool, the volumes' protection.
pub trait Guard: Send + Sync + 'static {
    /// `true` must be durable before it answers: the first retained version is committed after. Repeating is harmless.
    fn protect(&self, retained: bool) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
}

/// For stores whose ground has nothing to protect: tests, benchmarks.
#[derive(Clone, Copy, Debug)]
pub struct NoGuard;

impl Guard for NoGuard {
    fn protect(&self, _retained: bool) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The key that wraps every bucket key. Losing it loses every record: export it to escrow.
#[derive(Clone)]
pub struct MasterKey(pub(crate) Zeroizing<[u8; 32]>);

impl MasterKey {
    pub fn generate(surroundings: &dyn Surroundings) -> MasterKey {
        let mut key = Zeroizing::new([0; 32]);
        surroundings.entropy(key.as_mut());
        MasterKey(key)
    }

    /// Parses the text of a key file, environment variable or command: 64 hexadecimal digits, blanks around them ignored.
    pub fn parse(text: &str) -> Result<MasterKey> {
        crate::checksum::from_hex(text.trim())
            .and_then(|bytes| bytes.try_into().ok())
            .map(|key| MasterKey(Zeroizing::new(key)))
            .ok_or_else(|| ArchiveError::WrongKey("a master key is 64 hexadecimal digits".into()))
    }

    /// The text that `parse` takes. Secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(crate::checksum::to_hex(self.0.as_ref()))
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
    /// From the three headers: `AES256`, the key in base64, and the base64 of its MD5.
    pub fn parse(algorithm: &str, key: &str, md5: &str) -> Result<CustomerKey> {
        let refuse = |message: &str| Err(ArchiveError::InvalidArgument(message.into()));
        if algorithm != "AES256" {
            return refuse("the only algorithm for customer keys is AES256");
        }
        let Some(bytes) = crate::checksum::from_base64(key).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()) else {
            return refuse("a customer key is 32 bytes in base64");
        };
        let key = CustomerKey(Zeroizing::new(bytes));
        if key.md5() != md5 {
            return refuse("the MD5 of the customer key does not match the key");
        }
        Ok(key)
    }

    /// Base64, as requests and answers carry it.
    pub fn md5(&self) -> String {
        use md5::Digest;
        crate::checksum::to_base64(&md5::Md5::digest(self.0.as_ref()))
    }
}

impl fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomerKey(..)")
    }
}

/// What a store stands on.
#[derive(Clone)]
pub struct Foundation {
    pub catalog: Arc<dyn Catalog>,
    /// The data volume.
    pub data: Handle,
    pub surroundings: Arc<dyn Surroundings>,
    pub guard: Arc<dyn Guard>,
    pub master: MasterKey,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Of a new store; a power of two from 256 KiB to 1 GiB.
    pub segment: Bytes,
    /// Plain and sealed bytes of all bodies on their way to the volume.
    pub in_flight: Bytes,
    /// Opened frames kept for readers; 0 keeps none.
    pub frame_cache: Bytes,
    /// Unwrapped object keys kept; about 200 bytes each.
    pub key_cache: usize,
    /// Answers reads and refuses every change with `ReadOnly`: how a command without a server opens the store.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment: Bytes(64 << 20),
            in_flight: Bytes(96 << 20),
            frame_cache: Bytes(64 << 20),
            key_cache: 65_536,
            read_only: false,
        }
    }
}

/// An open store. Clones share it.
#[derive(Clone)]
pub struct Archive {}

impl Archive {
    /// Makes a new store on an empty catalog and volume. Refuses where one is already.
    pub async fn create(_foundation: Foundation, _options: Options) -> Result<Archive> {
        Err(crate::being_built())
    }

    pub async fn open(_foundation: Foundation, _options: Options) -> Result<Archive> {
        Err(crate::being_built())
    }

    /// Writes what is kept in memory for the next opening. Without it the next opening takes a little longer.
    pub async fn close(&self) -> Result<()> {
        Err(crate::being_built())
    }

    /// The master key's text for escrow, audited before it is handed out.
    pub async fn export_master_key(&self, _caller: &Caller) -> Result<Zeroizing<String>> {
        Err(crate::being_built())
    }

    /// Whether a key (an escrowed copy) opens this store: it unwraps every bucket key there is.
    pub async fn check_master_key(&self, _key: &MasterKey) -> Result<bool> {
        Err(crate::being_built())
    }
}
