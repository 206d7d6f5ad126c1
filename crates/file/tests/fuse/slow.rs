//! A tree that answers later: every call waits once, and now and then it asks the caller to come
//! back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use stele_file::{
    Access, Attributes, Caller, Changed, Changes, Creation, Data, Entry, FileError, Files, Inode, Listing, MemoryFiles,
    Moment, Node, Removal, Result, Space, Stability,
};

/// One call in so many gets `Retry`.
const RETRY_EVERY: u64 = 997;

pub struct Slow {
    files: Arc<MemoryFiles>,
    calls: AtomicU64,
}

impl Slow {
    pub fn new(files: Arc<MemoryFiles>) -> Slow {
        Slow { files, calls: AtomicU64::new(0) }
    }

    async fn wait(&self) -> Result<()> {
        tokio::task::yield_now().await;
        match self.calls.fetch_add(1, Ordering::Relaxed) % RETRY_EVERY {
            5 => Err(FileError::Retry("the test waits for the archive".into())),
            _ => Ok(()),
        }
    }
}

impl Files for Slow {
    fn root(&self) -> Inode {
        self.files.root()
    }

    fn verifier(&self) -> [u8; 8] {
        self.files.verifier()
    }

    async fn attributes(&self, inode: Inode) -> Result<Attributes> {
        self.wait().await?;
        self.files.attributes(inode).await
    }

    async fn set_attributes(
        &self,
        caller: &Caller,
        inode: Inode,
        changes: Changes,
        guard: Option<Moment>,
    ) -> Result<Changed> {
        self.wait().await?;
        self.files.set_attributes(caller, inode, changes, guard).await
    }

    async fn lookup(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<Attributes> {
        self.wait().await?;
        self.files.lookup(caller, directory, name).await
    }

    async fn access(&self, caller: &Caller, inode: Inode, wanted: Access) -> Result<Access> {
        self.wait().await?;
        self.files.access(caller, inode, wanted).await
    }

    async fn read_link(&self, caller: &Caller, inode: Inode) -> Result<Bytes> {
        self.wait().await?;
        self.files.read_link(caller, inode).await
    }

    async fn read(&self, caller: &Caller, inode: Inode, offset: u64, length: u32) -> Result<Data> {
        self.wait().await?;
        self.files.read(caller, inode, offset, length).await
    }

    async fn write(
        &self,
        caller: &Caller,
        inode: Inode,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> Result<(Changed, Stability)> {
        self.wait().await?;
        self.files.write(caller, inode, offset, data, stability).await
    }

    async fn commit(&self, inode: Inode) -> Result<Attributes> {
        self.wait().await?;
        self.files.commit(inode).await
    }

    async fn create(&self, caller: &Caller, directory: Inode, name: &[u8], how: Creation) -> Result<Entry> {
        self.wait().await?;
        self.files.create(caller, directory, name, how).await
    }

    async fn make(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        node: Node,
        changes: Changes,
    ) -> Result<Entry> {
        self.wait().await?;
        self.files.make(caller, directory, name, node, changes).await
    }

    async fn remove(&self, caller: &Caller, directory: Inode, name: &[u8], what: Removal) -> Result<Changed> {
        self.wait().await?;
        self.files.remove(caller, directory, name, what).await
    }

    async fn rename(&self, caller: &Caller, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<(Changed, Changed)> {
        self.wait().await?;
        self.files.rename(caller, from, to).await
    }

    async fn link(&self, caller: &Caller, inode: Inode, directory: Inode, name: &[u8]) -> Result<Entry> {
        self.wait().await?;
        self.files.link(caller, inode, directory, name).await
    }

    async fn read_directory(&self, caller: &Caller, directory: Inode, cookie: u64, limit: usize) -> Result<Listing> {
        self.wait().await?;
        self.files.read_directory(caller, directory, cookie, limit).await
    }

    async fn space(&self) -> Result<Space> {
        self.wait().await?;
        self.files.space().await
    }

    async fn attribute(&self, caller: &Caller, inode: Inode, name: &[u8]) -> Result<Bytes> {
        self.wait().await?;
        self.files.attribute(caller, inode, name).await
    }

    async fn attribute_names(&self, caller: &Caller, inode: Inode) -> Result<Vec<Bytes>> {
        self.wait().await?;
        self.files.attribute_names(caller, inode).await
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        inode: Inode,
        name: &[u8],
        value: Option<Bytes>,
        must_exist: Option<bool>,
    ) -> Result<Changed> {
        self.wait().await?;
        self.files.set_attribute(caller, inode, name, value, must_exist).await
    }

    async fn opened(&self, inode: Inode, writes: bool) -> Result<()> {
        self.wait().await?;
        self.files.opened(inode, writes).await
    }

    async fn closed(&self, inode: Inode, writes: bool) {
        tokio::task::yield_now().await;
        self.files.closed(inode, writes).await;
    }
}
