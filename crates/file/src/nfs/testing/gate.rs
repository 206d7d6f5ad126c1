//! A gateway whose reads and removals wait until the test lets them pass; writes, listings, new
//! sizes and looks at rights too, if it says so.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::{
    Access, Attributes, Caller, Changed, Changes, Creation, Data, Entry, FileError, Files, Inode, Listing, MemoryFiles,
    Moment, Node, Removal, Result, Space, Stability,
};

pub struct Gate {
    pub files: MemoryFiles,
    /// One permit for each read, and for each removal, that may pass.
    pub passes: Semaphore,
    pub writes_wait: AtomicBool,
    pub access_waits: AtomicBool,
    pub listings_wait: AtomicBool,
    pub sizes_wait: AtomicBool,
    /// Writes that began.
    pub writes: AtomicUsize,
    /// Calls that set a size fail.
    pub no_size: AtomicBool,
    /// Calls that set a mode are to come again.
    pub modes_wait: AtomicBool,
    /// No one may change a file or its attributes, as if all were committed. A share decides itself
    /// about a mode.
    pub no_change: AtomicBool,
    /// Openings less closings.
    pub users: AtomicUsize,
}

impl Gate {
    pub fn new(files: MemoryFiles) -> Gate {
        Gate {
            files,
            passes: Semaphore::new(0),
            writes_wait: AtomicBool::new(false),
            access_waits: AtomicBool::new(false),
            listings_wait: AtomicBool::new(false),
            sizes_wait: AtomicBool::new(false),
            writes: AtomicUsize::new(0),
            no_size: AtomicBool::new(false),
            modes_wait: AtomicBool::new(false),
            no_change: AtomicBool::new(false),
            users: AtomicUsize::new(0),
        }
    }

    async fn pass(&self) {
        self.passes.acquire().await.unwrap().forget();
    }
}

impl Files for Gate {
    fn root(&self) -> Inode {
        self.files.root()
    }

    fn verifier(&self) -> [u8; 8] {
        self.files.verifier()
    }

    async fn attributes(&self, inode: Inode) -> Result<Attributes> {
        self.files.attributes(inode).await
    }

    async fn set_attributes(
        &self,
        caller: &Caller,
        inode: Inode,
        changes: Changes,
        guard: Option<Moment>,
    ) -> Result<Changed> {
        if changes.size.is_some() && self.sizes_wait.load(Ordering::Relaxed) {
            self.pass().await;
        }
        if changes.size.is_some() && self.no_size.load(Ordering::Relaxed) {
            return Err(FileError::NoSpace);
        }
        if changes.mode.is_some() && self.modes_wait.load(Ordering::Relaxed) {
            return Err(FileError::Retry("the test says so".into()));
        }
        self.files.set_attributes(caller, inode, changes, guard).await
    }

    async fn lookup(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<Attributes> {
        self.files.lookup(caller, directory, name).await
    }

    async fn access(&self, caller: &Caller, inode: Inode, wanted: Access) -> Result<Access> {
        if self.access_waits.load(Ordering::Relaxed) {
            self.pass().await;
        }
        let granted = self.files.access(caller, inode, wanted).await?;
        let modify = granted.modify && !self.no_change.load(Ordering::Relaxed);
        Ok(Access { modify, ..granted })
    }

    async fn read_link(&self, caller: &Caller, inode: Inode) -> Result<Bytes> {
        self.files.read_link(caller, inode).await
    }

    async fn read(&self, caller: &Caller, inode: Inode, offset: u64, length: u32) -> Result<Data> {
        self.pass().await;
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
        self.writes.fetch_add(1, Ordering::Relaxed);
        if self.writes_wait.load(Ordering::Relaxed) {
            self.pass().await;
        }
        self.files.write(caller, inode, offset, data, stability).await
    }

    async fn commit(&self, inode: Inode) -> Result<Attributes> {
        self.files.commit(inode).await
    }

    async fn create(&self, caller: &Caller, directory: Inode, name: &[u8], how: Creation) -> Result<Entry> {
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
        self.files.make(caller, directory, name, node, changes).await
    }

    async fn remove(&self, caller: &Caller, directory: Inode, name: &[u8], what: Removal) -> Result<Changed> {
        self.pass().await;
        self.files.remove(caller, directory, name, what).await
    }

    async fn rename(&self, caller: &Caller, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<(Changed, Changed)> {
        self.files.rename(caller, from, to).await
    }

    async fn link(&self, caller: &Caller, inode: Inode, directory: Inode, name: &[u8]) -> Result<Entry> {
        self.files.link(caller, inode, directory, name).await
    }

    async fn read_directory(&self, caller: &Caller, directory: Inode, cookie: u64, limit: usize) -> Result<Listing> {
        if self.listings_wait.load(Ordering::Relaxed) {
            self.pass().await;
        }
        self.files.read_directory(caller, directory, cookie, limit).await
    }

    async fn space(&self) -> Result<Space> {
        self.files.space().await
    }

    async fn attribute(&self, caller: &Caller, inode: Inode, name: &[u8]) -> Result<Bytes> {
        self.files.attribute(caller, inode, name).await
    }

    async fn attribute_names(&self, caller: &Caller, inode: Inode) -> Result<Vec<Bytes>> {
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
        if self.no_change.load(Ordering::Relaxed) {
            return Err(FileError::ReadOnly("the test says so".into()));
        }
        self.files.set_attribute(caller, inode, name, value, must_exist).await
    }

    async fn opened(&self, inode: Inode, writes: bool) -> Result<()> {
        self.files.opened(inode, writes).await?;
        self.users.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn closed(&self, inode: Inode, writes: bool) {
        self.users.fetch_sub(1, Ordering::Relaxed);
        self.files.closed(inode, writes).await;
    }
}
