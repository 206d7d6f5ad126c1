//! A served pool: one shard or several, each with a reactor thread of its own, as one thing.
//!
//! A pool of several shards divides each drive among them ([`drives`]). Each shard is an array with
//! its own labels, log, table and cache, and its invariants are those of a pool that stands alone.
//! A volume is striped over the shards ([`striping`], [`port`]) or lies on the first one. A request
//! inside one unit costs one message to its shard, as in a pool of one shard. A longer one costs a
//! message to each shard that has a part of it, and a flush one to each shard. Nothing else passes
//! between shards while hosts work.
//!
//! What concerns all shards (volumes, snapshots, drives) a thread of its own carries out, one
//! command at a time ([`commands`]). Failure model: a command fails on all shards or, where the
//! undoing fails too, is undone at the next opening. When one shard's thread dies, the pool counts
//! as stopped, and the other shards answer for their part until it is opened again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use futures_channel::oneshot;
use stele_ground::{Bytes, DriveId, VolumeId};
use stele_media::{Access, DriveFile, Engine, Handle, ReactorSession};

use crate::model::{Alarm, ArrayError, Command, CreateOptions, OpenOptions, PoolStatus, Reply, Shard, VolumeStatus};
use crate::reactor::{self, Server};

mod commands;
mod drives;
mod gate;
mod merge;
mod port;
mod registry;
mod striping;

pub use crate::reactor::place::{DrivePlace, fresh_identity};
pub use crate::reactor::{HOST_MAX, NewDrives, ServerOptions, Source};
pub use commands::{Coordinator, Shards};
pub use registry::Registry;
pub use striping::Striping;

use port::SpreadPort;

/// A served pool. Dropping it stops its threads as a crash would; see [`PoolServer::close`].
pub struct PoolServer {
    shards: Arc<Threads>,
    registry: Arc<Registry>,
    /// Carries out commands that concern several shards. None in a pool of one.
    commands: Option<Commands>,
    /// The shard that gets the next session.
    next: AtomicUsize,
    /// Drives come to all shards in one order, so that they have one index.
    attaching: Mutex<()>,
}

type Answer = Box<dyn FnOnce(Result<Reply, ArrayError>) + Send>;

struct Commands {
    queue: Sender<(Command, Answer)>,
    thread: JoinHandle<()>,
}

/// The reactors, by shard.
struct Threads {
    servers: Vec<Server>,
    registry: Arc<Registry>,
}

impl PoolServer {
    /// Creates a pool on drives that exist or, with `new`, are created as files first.
    /// `options.drives` gets a fresh identity per drive where it is empty; `options.shard.count`
    /// says how many shards divide the drives. Files made here are removed if the pool cannot be
    /// created.
    pub fn create(
        places: &[DrivePlace],
        new: Option<NewDrives>,
        mut options: CreateOptions,
        open: OpenOptions,
        server: ServerOptions,
    ) -> Result<PoolServer, ArrayError> {
        let mut made: Vec<PathBuf> = Vec::new();
        let result = (|| {
            let sources = reactor::place::create_files(places, new, &mut made)?;
            if options.drives.is_empty() {
                options.drives = sources.iter().map(|_| fresh_identity().map(DriveId)).collect::<Result<_, _>>()?;
            }
            PoolServer::create_on(sources, options, open, server)
        })();
        if result.is_err() {
            made.iter().for_each(|path| drop(std::fs::remove_file(path)));
        }
        result
    }

    /// Opens the pool on the drives that are there. A path that does not exist, or that cannot be
    /// used, is a missing drive, not an error, as long as one is found. A drive that is in use
    /// elsewhere is an error.
    pub fn open(places: &[DrivePlace], options: OpenOptions, server: ServerOptions) -> Result<PoolServer, ArrayError> {
        let (sources, unusable) = reactor::place::open_files(places, options.read_only)?;
        PoolServer::open_on(sources, OpenOptions { unusable, ..options }, server)
    }

    /// Creates a pool on any drives. Only files and devices can be divided among shards.
    pub fn create_on(
        sources: Vec<Source>,
        options: CreateOptions,
        open: OpenOptions,
        server: ServerOptions,
    ) -> Result<PoolServer, ArrayError> {
        let count = options.shard.count;
        if !(1..=Shard::MAX).contains(&count) {
            return Err(ArrayError::Invalid(format!("a pool has 1 to {} shards, not {count}", Shard::MAX)));
        }
        if count > 1 {
            sources.iter().try_for_each(|source| drives::clear_inner_labels(source, count))?;
        }
        let mut servers = Vec::new();
        // The first shard's labels come last: without them there is no pool.
        let parts = divided(sources, count)?.into_iter().zip(options_of(count, &open, server));
        for (index, (sources, (open, server))) in (0..count).zip(parts).collect::<Vec<_>>().into_iter().rev() {
            let options = CreateOptions { shard: Shard { index, count }, ..options.clone() };
            servers.push(Server::create_on(sources, options, open, server)?);
        }
        servers.reverse();
        PoolServer::of(servers)
    }

    /// Opens the pool on any drives.
    pub fn open_on(
        sources: Vec<Source>,
        options: OpenOptions,
        server: ServerOptions,
    ) -> Result<PoolServer, ArrayError> {
        let count = drives::shards_on(&sources);
        let parts = divided(sources, count)?.into_iter().zip(options_of(count, &options, server));
        // Each replays its log, so all at once.
        let servers = std::thread::scope(|scope| {
            let open = |(sources, (open, server))| scope.spawn(move || Server::open_on(sources, open, server));
            let opening: Vec<_> = parts.map(open).collect();
            let opened = opening.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(ArrayError::Stopped("opening a shard failed; its log says why".into())))
            });
            opened.collect::<Result<Vec<_>, _>>()
        })?;
        let pool = PoolServer::of(servers)?;
        if count > 1 {
            Coordinator::new(&*pool.shards, &pool.registry).reconcile(!options.read_only)?;
        }
        Ok(pool)
    }

    fn of(servers: Vec<Server>) -> Result<PoolServer, ArrayError> {
        let registry = Arc::new(Registry::default());
        let shards = Arc::new(Threads { servers, registry: Arc::clone(&registry) });
        let commands = match shards.servers.len() {
            1 => None,
            _ => Some(Commands::start(&shards, &registry)?),
        };
        Ok(PoolServer { shards, registry, commands, next: AtomicUsize::new(0), attaching: Mutex::default() })
    }

    /// A volume as a drive for other threads. It stays valid until the server stops; then it
    /// answers `Gone`.
    pub fn volume(&self, name: &str) -> Result<Handle, ArrayError> {
        let Reply::Volumes(volumes) = self.command_blocking(Command::ListVolumes)? else {
            return Err(ArrayError::Stopped("the pool answered a listing with something else".to_owned()));
        };
        match volumes.into_iter().find(|volume| volume.spec.name == name) {
            Some(status) => Ok(self.volume_of(&status)),
            None => Err(ArrayError::Missing(format!("there is no volume '{name}'; `stele volume list` shows all"))),
        }
    }

    /// As `volume`, for a status at hand.
    pub fn volume_of(&self, status: &VolumeStatus) -> Handle {
        let servers = &self.shards.servers;
        if servers.len() == 1 || !status.spec.spread {
            return servers[0].volume_of(status);
        }
        let parts = self.registry.parts(status.id).unwrap_or_default();
        let sizes = Striping::of(&status.spec, servers.len()).parts(status.spec.size);
        let part = |shard: usize| {
            let mut part = status.clone();
            // A number that no volume has answers every request with an error.
            part.id = parts.get(shard).copied().filter(|_| parts.len() == servers.len()).unwrap_or(registry::NONE);
            part.spec.size = sizes[shard];
            servers[shard].volume_of(&part)
        };
        let gate = self.registry.gate(status.id).unwrap_or_default();
        let parts: Vec<Handle> = (0..servers.len()).map(part).collect();
        let striping = Striping::of(&status.spec, servers.len());
        Handle::new(SpreadPort::new(parts, striping, status.spec.block, gate, Arc::clone(&self.registry)))
    }

    pub async fn command(&self, command: Command) -> Result<Reply, ArrayError> {
        let (sender, receiver) = oneshot::channel();
        self.post(command, Box::new(move |reply| drop(sender.send(reply))));
        receiver.await.unwrap_or_else(|_| Err(self.stopped()))
    }

    pub fn command_blocking(&self, command: Command) -> Result<Reply, ArrayError> {
        let (sender, receiver) = channel();
        self.post(command, Box::new(move |reply| drop(sender.send(reply))));
        receiver.recv().unwrap_or_else(|_| Err(self.stopped()))
    }

    /// What only looks does not wait for commands that change something.
    fn post(&self, command: Command, answer: Answer) {
        let Some(commands) = &self.commands else { return self.shards.servers[0].ask(command, answer) };
        match command {
            Command::Status | Command::ListVolumes => gather(&self.shards, command, answer),
            // A closed queue drops the command, and with it the answer: the asker is told.
            command => drop(commands.queue.send((command, answer))),
        }
    }

    fn stopped(&self) -> ArrayError {
        let dead = self.shards.servers.iter().find(|server| server.is_stopped());
        dead.unwrap_or(&self.shards.servers[0]).stopped()
    }

    /// Puts one more drive at the pool's disposal and returns its index, for
    /// `Command::ReplaceDrive` or the return of a drive that was missing.
    pub fn attach(&self, place: &DrivePlace) -> Result<u32, ArrayError> {
        let file = DriveFile::open(&place.path, Access::Exclusive).map_err(reactor::place::refusal)?;
        self.attach_on(Source::file(file, place.enclosure.unwrap_or(0)))
    }

    pub fn attach_on(&self, source: Source) -> Result<u32, ArrayError> {
        let servers = &self.shards.servers;
        if let [server] = servers.as_slice() {
            return server.attach_on(source);
        }
        let parts = drives::divide(source, servers.len() as u16)?;
        let _turn = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        let mut indexes = Vec::new();
        for (server, part) in servers.iter().zip(parts) {
            indexes.push(server.attach_on(part)?);
        }
        assert!(indexes.iter().all(|index| *index == indexes[0]), "a drive has one index on all shards: {indexes:?}");
        Ok(indexes[0])
    }

    /// Takes a drive away, as if its cable had been pulled. Its operations under way are still
    /// finished.
    pub fn detach(&self, index: u32) {
        self.shards.servers.iter().for_each(|server| server.detach(index));
    }

    /// Runs a frontend's session on a thread of the pool, where its operations wake no other
    /// thread. Sessions go to the shards in turn. Each is dropped when the server stops.
    pub fn serve(&self, session: Box<dyn ReactorSession>) {
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % self.shards.servers.len();
        self.shards.servers[shard].serve(session);
    }

    /// Whether a thread has ended: closed, or stopped by a failed assertion.
    pub fn is_stopped(&self) -> bool {
        let commands = self.commands.as_ref().is_some_and(|commands| commands.thread.is_finished());
        commands || self.shards.servers.iter().any(Server::is_stopped)
    }

    /// What the files of this pool are driven by, where the kernel allows it.
    pub fn engine(&self) -> Engine {
        self.shards.servers[0].engine()
    }

    /// Destages, checkpoints, marks the labels clean and ends the threads. After an error the pool
    /// is as after a crash.
    pub fn close(self) -> Result<(), ArrayError> {
        let reply = self.command_blocking(Command::Close);
        drop(self);
        reply.map(drop)
    }
}

impl Drop for PoolServer {
    fn drop(&mut self) {
        let Some(Commands { queue, thread }) = self.commands.take() else { return };
        // What the command under way waits for then comes as an error.
        self.shards.servers.iter().for_each(Server::stop);
        drop(queue);
        // An answer may hold the server: the thread cannot wait for itself, and ends right after.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

impl Commands {
    fn start(shards: &Arc<Threads>, registry: &Arc<Registry>) -> Result<Commands, ArrayError> {
        let (queue, taken): (_, Receiver<(Command, Answer)>) = channel();
        let (shards, registry) = (Arc::clone(shards), Arc::clone(registry));
        let work = move || {
            let coordinator = Coordinator::new(&*shards, &registry);
            taken.iter().for_each(|(command, answer)| answer(coordinator.obey(command)));
        };
        let thread = std::thread::Builder::new().name("stele-shards".to_owned()).spawn(work);
        let thread = thread.map_err(|error| {
            ArrayError::Stopped(format!("no thread could be started for the pool's commands: {error}"))
        })?;
        Ok(Commands { queue, thread })
    }
}

impl Shards for Threads {
    fn count(&self) -> usize {
        self.servers.len()
    }

    fn ask(&self, shard: usize, command: Command) -> Result<Reply, ArrayError> {
        self.servers[shard].command_blocking(command)
    }

    fn ask_all(&self, command: &Command) -> Vec<Result<Reply, ArrayError>> {
        let ask = |server: &Server| {
            let (sender, receiver) = channel();
            server.ask(command.clone(), Box::new(move |reply| drop(sender.send(reply))));
            receiver
        };
        let asked: Vec<_> = self.servers.iter().map(ask).collect();
        let answers = self.servers.iter().zip(asked);
        answers.map(|(server, answer)| answer.recv().unwrap_or_else(|_| Err(server.stopped()))).collect()
    }

    fn without_writes(&self, volume: VolumeId, work: &mut dyn FnMut()) {
        let gate = self.registry.gate(volume).unwrap_or_default();
        let _closed = gate.close();
        work();
    }
}

/// Asks all shards; the one that answers last puts the answers together.
fn gather(shards: &Arc<Threads>, command: Command, answer: Answer) {
    struct Gathered {
        replies: Vec<Result<Reply, ArrayError>>,
        left: usize,
        answer: Option<Answer>,
    }
    let count = shards.servers.len();
    let replies = (0..count).map(|_| Err(ArrayError::Stopped("no answer".into()))).collect();
    let gathered = Arc::new(Mutex::new(Gathered { replies, left: count, answer: Some(answer) }));
    for (shard, server) in shards.servers.iter().enumerate() {
        let (gathered, registry) = (Arc::clone(&gathered), Arc::clone(&shards.registry));
        let take = move |reply| {
            let mut here = gathered.lock().unwrap_or_else(PoisonError::into_inner);
            here.replies[shard] = reply;
            here.left -= 1;
            if here.left > 0 {
                return;
            }
            let (replies, answer) = (std::mem::take(&mut here.replies), here.answer.take());
            drop(here);
            if let Some(answer) = answer {
                answer(together(replies, &registry));
            }
        };
        server.ask(command.clone(), Box::new(take));
    }
}

fn together(replies: Vec<Result<Reply, ArrayError>>, registry: &Registry) -> Result<Reply, ArrayError> {
    let (mut statuses, mut lists): (Vec<PoolStatus>, Vec<Vec<VolumeStatus>>) = Default::default();
    for reply in replies {
        match reply? {
            Reply::Status(status) => statuses.push(*status),
            Reply::Volumes(list) => lists.push(list),
            other => return Err(ArrayError::Stopped(format!("a shard answered a question with {other:?}"))),
        }
    }
    Ok(match statuses.is_empty() {
        true => Reply::Volumes(commands::volumes(&lists, registry)),
        false => Reply::Status(Box::new(merge::statuses(statuses, registry))),
    })
}

/// The drives of each shard.
fn divided(sources: Vec<Source>, shards: u16) -> Result<Vec<Vec<Source>>, ArrayError> {
    if shards == 1 {
        return Ok(vec![sources]);
    }
    let mut divided: Vec<Vec<Source>> = (0..shards).map(|_| Vec::new()).collect();
    for source in sources {
        let parts = drives::divide(source, shards)?;
        divided.iter_mut().zip(parts).for_each(|(shard, part)| shard.push(part));
    }
    Ok(divided)
}

/// What each shard is opened with: its share of the memory and of the rate, and the alarms of all
/// in one place.
fn options_of(shards: u16, open: &OpenOptions, server: ServerOptions) -> Vec<(OpenOptions, ServerOptions)> {
    if shards == 1 {
        return vec![(open.clone(), server)];
    }
    let count = u64::from(shards);
    let part = |whole: Bytes| Bytes(whole.0 / count);
    let heard = server.alarms.map(|alarms| Arc::new(Mutex::new(alarms)));
    let of = |shard: u16| {
        let open = OpenOptions {
            table_cache: part(open.table_cache),
            block_cache: part(open.block_cache),
            dirty_limit: part(open.dirty_limit),
            background_memory: part(open.background_memory),
            background_rate: open.background_rate.map(part),
            seed: open.seed.wrapping_add(u64::from(shard)),
            ..open.clone()
        };
        let alarms = heard.clone().map(|heard| -> Box<dyn FnMut(Alarm) + Send> {
            Box::new(move |mut alarm: Alarm| {
                alarm.message = format!("shard {shard}: {}", alarm.message);
                heard.lock().unwrap_or_else(PoisonError::into_inner)(alarm);
            })
        });
        let name = format!("{}-{shard}", server.name);
        (open, ServerOptions { name, mailbox: server.mailbox, spin: server.spin, engine: server.engine, alarms })
    };
    (0..shards).map(of).collect()
}

#[cfg(test)]
mod tests;
