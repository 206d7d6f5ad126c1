//! Random operations on two trees, whose results, attributes, listings and contents must agree.
//!
//! Names, callers and offsets come from small sets, so that operations meet each other often.
//! Times, inode numbers, change counters and stored bytes may differ; a file keeps its number on
//! each side.

use std::collections::BTreeMap;

use bytes::Bytes;
use stele_ground::Dice;

use super::{callers, mode};
use crate::{
    Access, Attributes, Caller, Changes, Creation, FileError, Files, Inode, Kind, Node, Removal, Result, SetTime,
    Stability,
};

const NAMES: &[&str] = &["a", "b", "c", "d", "e", "f.g", "\u{fc}", "..", ".", "with a longer name"];
const MODES: &[u32] = &[0o777, 0o777, 0o755, 0o700, 0o644, 0o600, 0o1777, 0o2775, 0o4755, 0o6777, 0o000, 0o444];
/// Places where pages, and blocks of several pages, begin and end.
const EDGES: &[u64] = &[0, 1, 511, 4095, 4096, 4097, 8192, 65_535, 65_536, 131_072, 1 << 20];
/// The longest write, in bytes.
const WRITE_MAX: u64 = 20_000;
/// How many files are remembered as operands; a new one then takes the place of an old one.
const OPERANDS_MAX: usize = 120;
/// Everything is compared after this many operations.
const SWEEP_EVERY: usize = 500;
/// Files up to this size are compared as a whole, longer ones at the edges.
const WHOLE_MAX: u64 = 4 << 20;

/// How a comparison went, so that a caller can tell that it tried enough.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Comparison {
    pub operations: usize,
    pub succeeded: usize,
    pub failed: usize,
}

/// One operation. Files are places in the list of operands.
#[derive(Clone, Debug)]
enum Operation {
    Create { directory: usize, name: &'static str, how: Creation },
    Make { directory: usize, name: &'static str, node: Node, changes: Changes },
    Remove { directory: usize, name: &'static str, what: Removal },
    Rename { from: (usize, &'static str), to: (usize, &'static str) },
    Link { file: usize, directory: usize, name: &'static str },
    Lookup { directory: usize, name: &'static str },
    Set { file: usize, changes: Changes },
    Write { file: usize, offset: u64, data: Vec<Bytes>, stability: Stability },
    Read { file: usize, offset: u64, length: u32 },
    Commit { file: usize },
    List { directory: usize, limit: usize },
    Extend { file: usize, name: &'static str, value: Option<Bytes>, must_exist: Option<bool> },
    Extended { file: usize },
    Access { file: usize },
    ReadLink { file: usize },
    Open { file: usize, writes: bool },
    Close { file: usize, writes: bool },
}

/// What both sides must agree on.
#[derive(PartialEq, Debug)]
enum Seen {
    Nothing,
    File(View),
    Content(Vec<u8>, bool),
    Names(BTreeMap<Bytes, View>),
    Values(BTreeMap<Bytes, Bytes>),
    Access(Access),
}

#[derive(PartialEq, Debug)]
struct View {
    kind: Kind,
    mode: u32,
    links: u32,
    owner: (u32, u32),
    size: u64,
}

/// What is known of a place in the list of operands.
struct Operand {
    is_directory: bool,
    /// By readers and writers.
    openings: [u32; 2],
}

struct Side<'f, F> {
    files: &'f F,
    /// The operands; the same place is the same file on both sides.
    inodes: Vec<Inode>,
}

/// Draws `operations` from the dice of `seed`, applies them to both trees and compares. Both must
/// be alike, for instance empty. Panics with the seed and the operation at the first difference.
pub async fn compare<A: Files, B: Files>(a: &A, b: &B, seed: u64, operations: usize) -> Comparison {
    let mut dice = Dice::new(seed);
    let mut left = Side { files: a, inodes: vec![a.root()] };
    let mut right = Side { files: b, inodes: vec![b.root()] };
    // Everyone may work at the top.
    let open = Operation::Set { file: 0, changes: mode(0o777) };
    let (x, y) = (left.apply(&Caller::ROOT, &open).await, right.apply(&Caller::ROOT, &open).await);
    assert!(x.is_ok() && y.is_ok(), "the root takes a mode: {x:?} and {y:?}");
    let mut operands = vec![Operand { is_directory: true, openings: [0, 0] }];
    let mut outcome = Comparison::default();
    for number in 0..operations {
        let operation = draw(&mut dice, &operands);
        let caller = if dice.one_in(2) { Caller::ROOT } else { callers()[dice.below(4) as usize].1.clone() };
        if let Operation::Close { file, writes } = operation {
            // Only what is open is closed.
            let count = &mut operands[file].openings[usize::from(writes)];
            if *count == 0 {
                continue;
            }
            *count -= 1;
        }
        let at = || format!("seed {seed}, operation {number} by {}: {operation:?}", caller.uid);
        let (x, y) = (left.apply(&caller, &operation).await, right.apply(&caller, &operation).await);
        outcome.operations += 1;
        match (x, y) {
            (Ok((seen, found)), Ok((other, other_found))) => {
                outcome.succeeded += 1;
                assert!(seen == other, "{}: {seen:?} and {other:?}", at());
                if let Operation::Open { file, writes } = operation {
                    operands[file].openings[usize::from(writes)] += 1;
                }
                if let (Some(found), Some(other)) = (found, other_found) {
                    let place = left.inodes.iter().position(|inode| *inode == found);
                    let same = right.inodes.iter().position(|inode| *inode == other);
                    assert!(place == same, "{}: operands {place:?} and {same:?}", at());
                    if place.is_none() {
                        let place = room(&mut dice, &mut operands);
                        let is_directory = matches!(&seen, Seen::File(view) if view.kind == Kind::Directory);
                        operands[place] = Operand { is_directory, openings: [0, 0] };
                        for (inodes, inode) in [(&mut left.inodes, found), (&mut right.inodes, other)] {
                            inodes.resize(operands.len(), inode);
                            inodes[place] = inode;
                        }
                    }
                }
            }
            (Err(error), Err(other)) => {
                outcome.failed += 1;
                let same = std::mem::discriminant(&error) == std::mem::discriminant(&other);
                assert!(same, "{}: {error:?} and {other:?}", at());
            }
            (x, y) => panic!("{}: {x:?} and {y:?}", at()),
        }
        if number % SWEEP_EVERY == SWEEP_EVERY - 1 {
            sweep(&left, &right, &at()).await;
        }
    }
    sweep(&left, &right, &format!("seed {seed}, at the end")).await;
    outcome
}

/// The place for a new operand: an old one's that is not open if there are many.
fn room(dice: &mut Dice, operands: &mut Vec<Operand>) -> usize {
    if operands.len() >= OPERANDS_MAX {
        let places: Vec<usize> = (1..operands.len()).filter(|place| operands[*place].openings == [0, 0]).collect();
        if let Some(place) = dice.pick(&places) {
            return *place;
        }
    }
    operands.push(Operand { is_directory: false, openings: [0, 0] });
    operands.len() - 1
}

/// A place of the wanted kind, or now and then any.
fn operand(dice: &mut Dice, operands: &[Operand], directory: bool) -> usize {
    let any = dice.below(operands.len() as u64) as usize;
    if dice.one_in(8) {
        return any;
    }
    let fits = |place: &usize| operands[*place].is_directory == directory;
    let places: Vec<usize> = (0..operands.len()).filter(fits).collect();
    dice.pick(&places).copied().unwrap_or(any)
}

fn draw(dice: &mut Dice, operands: &[Operand]) -> Operation {
    let directory = operand(dice, operands, true);
    let file = operand(dice, operands, false);
    let one = if dice.one_in(3) { directory } else { file };
    let other = operand(dice, operands, true);
    let name = |dice: &mut Dice| dice.pick(NAMES).copied().unwrap_or("a");
    match dice.below(30) {
        0..=2 => Operation::Create { directory, name: name(dice), how: creation(dice) },
        3..=5 => Operation::Make { directory, name: name(dice), node: node(dice), changes: changes(dice) },
        6..=7 => {
            let what = if dice.one_in(2) { Removal::File } else { Removal::Directory };
            Operation::Remove { directory, name: name(dice), what }
        }
        8..=10 => Operation::Rename { from: (directory, name(dice)), to: (other, name(dice)) },
        11..=12 => Operation::Link { file: one, directory: other, name: name(dice) },
        13..=14 => Operation::Lookup { directory, name: name(dice) },
        15..=17 => Operation::Set { file: one, changes: changes(dice) },
        18..=21 => {
            let stability = [Stability::Unstable, Stability::Data, Stability::File][dice.below(3) as usize];
            Operation::Write { file, offset: offset(dice), data: data(dice), stability }
        }
        22..=23 => Operation::Read { file, offset: offset(dice), length: dice.below(100_000) as u32 },
        24 => Operation::Commit { file },
        25 => Operation::List { directory, limit: 1 + dice.below(20) as usize },
        26 => {
            let value = (!dice.one_in(3)).then(|| Bytes::from(vec![7; dice.below(3000) as usize]));
            let must_exist = [None, None, Some(true), Some(false)][dice.below(4) as usize];
            let name = dice.pick(&["user.a", "user.b", "user.", "trusted.a"]).copied().unwrap_or("user.a");
            Operation::Extend { file: one, name, value, must_exist }
        }
        27 if dice.one_in(2) => Operation::Extended { file: one },
        27 => Operation::ReadLink { file },
        28 if dice.one_in(2) => Operation::Access { file: one },
        28 => Operation::Open { file: one, writes: dice.one_in(2) },
        _ => Operation::Close { file: one, writes: dice.one_in(2) },
    }
}

fn creation(dice: &mut Dice) -> Creation {
    match dice.below(3) {
        0 => Creation::Exclusive([dice.below(2) as u8; 8]),
        1 => Creation::Guarded(changes(dice)),
        _ => Creation::Unchecked(changes(dice)),
    }
}

fn node(dice: &mut Dice) -> Node {
    match dice.below(6) {
        0 => Node::Link { target: Bytes::from_static(b"../a") },
        1 => Node::Special(Kind::Pipe),
        2 => Node::Special(Kind::CharacterDevice { major: 1, minor: dice.below(4) as u32 }),
        _ => Node::Directory,
    }
}

fn changes(dice: &mut Dice) -> Changes {
    let id = |dice: &mut Dice, ids: &[u32]| if dice.one_in(4) { dice.pick(ids).copied() } else { None };
    Changes {
        mode: if dice.one_in(5) { None } else { dice.pick(MODES).copied() },
        uid: id(dice, &[0, 1001, 1002, 1003]),
        gid: id(dice, &[0, 2001, 2002, 2003, 5]),
        size: dice.one_in(4).then(|| offset(dice)),
        accessed: dice.one_in(8).then_some(SetTime::Now),
        modified: dice.one_in(8).then_some(SetTime::Now),
    }
}

fn offset(dice: &mut Dice) -> u64 {
    match dice.below(20) {
        0 => crate::model::SIZE_MAX - dice.below(3),
        1 => u64::MAX - dice.below(3),
        2..=9 => dice.below(100_000),
        _ => dice.pick(EDGES).copied().unwrap_or(0),
    }
}

fn data(dice: &mut Dice) -> Vec<Bytes> {
    let pieces = dice.below(4) as usize;
    let mut data = Vec::with_capacity(pieces);
    for _ in 0..pieces {
        let length = if dice.one_in(3) { 4096 } else { dice.below(WRITE_MAX / 4) };
        let mut piece = vec![0; length as usize];
        dice.fill(&mut piece);
        data.push(Bytes::from(piece));
    }
    data
}

impl View {
    fn of(file: &Attributes) -> View {
        View { kind: file.kind, mode: file.mode, links: file.links, owner: (file.uid, file.gid), size: file.size }
    }
}

impl<F: Files> Side<'_, F> {
    /// What the operation answers, and a file that may become an operand.
    async fn apply(&self, caller: &Caller, operation: &Operation) -> Result<(Seen, Option<Inode>)> {
        let files = self.files;
        let inode = |place: usize| self.inodes[place];
        let found = |file: Attributes| (Seen::File(View::of(&file)), Some(file.inode));
        let nothing = (Seen::Nothing, None);
        Ok(match operation.clone() {
            Operation::Create { directory, name, how } => {
                found(files.create(caller, inode(directory), name.as_bytes(), how).await?.file)
            }
            Operation::Make { directory, name, node, changes } => {
                found(files.make(caller, inode(directory), name.as_bytes(), node, changes).await?.file)
            }
            Operation::Remove { directory, name, what } => {
                found(files.remove(caller, inode(directory), name.as_bytes(), what).await?.after)
            }
            Operation::Rename { from, to } => {
                let (from, to) = ((inode(from.0), from.1.as_bytes()), (inode(to.0), to.1.as_bytes()));
                found(files.rename(caller, from, to).await?.1.after)
            }
            Operation::Link { file, directory, name } => {
                found(files.link(caller, inode(file), inode(directory), name.as_bytes()).await?.file)
            }
            Operation::Lookup { directory, name } => {
                found(files.lookup(caller, inode(directory), name.as_bytes()).await?)
            }
            Operation::Set { file, changes } => {
                found(files.set_attributes(caller, inode(file), changes, None).await?.after)
            }
            Operation::Write { file, offset, data, stability } => {
                found(files.write(caller, inode(file), offset, data, stability).await?.0.after)
            }
            Operation::Read { file, offset, length } => {
                let data = files.read(caller, inode(file), offset, length).await?;
                (Seen::Content(data.pieces.concat(), data.end), None)
            }
            Operation::Commit { file } => found(files.commit(inode(file)).await?),
            Operation::List { directory, limit } => {
                (Seen::Names(self.names(caller, inode(directory), limit).await?), None)
            }
            Operation::Extend { file, name, value, must_exist } => {
                let set = files.set_attribute(caller, inode(file), name.as_bytes(), value, must_exist).await;
                found(set?.after)
            }
            Operation::Extended { file } => (Seen::Values(self.extended(caller, inode(file)).await?), None),
            Operation::Access { file } => {
                let all = Access { read: true, lookup: true, modify: true, extend: true, delete: true, execute: true };
                (Seen::Access(files.access(caller, inode(file), all).await?), None)
            }
            Operation::ReadLink { file } => {
                (Seen::Content(files.read_link(caller, inode(file)).await?.to_vec(), true), None)
            }
            Operation::Open { file, writes } => files.opened(inode(file), writes).await.map(|()| nothing)?,
            Operation::Close { file, writes } => {
                files.closed(inode(file), writes).await;
                nothing
            }
        })
    }

    async fn names(&self, caller: &Caller, directory: Inode, limit: usize) -> Result<BTreeMap<Bytes, View>> {
        let mut names = BTreeMap::new();
        let mut cookie = 0;
        loop {
            let listing = self.files.read_directory(caller, directory, cookie, limit).await?;
            for entry in listing.entries {
                cookie = entry.cookie;
                let twice = names.insert(entry.name.clone(), View::of(&entry.attributes));
                assert!(twice.is_none(), "{:?} is listed twice", entry.name);
            }
            if listing.end {
                return Ok(names);
            }
        }
    }

    async fn extended(&self, caller: &Caller, inode: Inode) -> Result<BTreeMap<Bytes, Bytes>> {
        let mut values = BTreeMap::new();
        for name in self.files.attribute_names(caller, inode).await? {
            let value = self.files.attribute(caller, inode, &name).await?;
            values.insert(name, value);
        }
        Ok(values)
    }
}

/// Compares everything below the root, and every operand, by root.
async fn sweep<A: Files, B: Files>(left: &Side<'_, A>, right: &Side<'_, B>, at: &str) {
    let mut waiting: Vec<(Inode, Inode)> = left.inodes.iter().copied().zip(right.inodes.iter().copied()).collect();
    let mut known: BTreeMap<Inode, Inode> = BTreeMap::new();
    while let Some((a, b)) = waiting.pop() {
        let (x, y) = (left.files.attributes(a).await, right.files.attributes(b).await);
        let (x, y) = match (x, y) {
            (Ok(x), Ok(y)) => (x, y),
            (Err(FileError::Stale), Err(FileError::Stale)) => continue,
            (x, y) => panic!("{at}: {x:?} and {y:?}"),
        };
        if let Some(other) = known.insert(a, b) {
            assert!(other == b, "{at}: {a:?} is both {other:?} and {b:?}");
            continue;
        }
        assert!(View::of(&x) == View::of(&y), "{at}: {x:?} and {y:?}");
        let values = (left.extended(&Caller::ROOT, a).await, right.extended(&Caller::ROOT, b).await);
        assert!(values.0 == values.1, "{at}: {a:?}: {values:?}");
        match x.kind {
            Kind::File => same_content((left.files, a), (right.files, b), x.size, at).await,
            Kind::Directory => {
                let names = (left.names(&Caller::ROOT, a, 7).await, right.names(&Caller::ROOT, b, 11).await);
                assert!(names.0 == names.1, "{at}: {a:?}: {names:?}");
                for name in names.0.unwrap_or_default().into_keys() {
                    let found = left.files.lookup(&Caller::ROOT, a, &name).await;
                    let other = right.files.lookup(&Caller::ROOT, b, &name).await;
                    match (found, other) {
                        (Ok(found), Ok(other)) => waiting.push((found.inode, other.inode)),
                        other => panic!("{at}: {name:?} is listed and not found: {other:?}"),
                    }
                }
            }
            _ => {}
        }
    }
}

async fn same_content<A: Files, B: Files>(left: (&A, Inode), right: (&B, Inode), size: u64, at: &str) {
    let whole = [(0, size)];
    let parts: Vec<(u64, u64)> =
        EDGES.iter().map(|edge| (*edge, 100_000)).chain([(size.saturating_sub(1), 10)]).collect();
    let ranges = if size <= WHOLE_MAX { &whole[..] } else { &parts[..] };
    for (offset, length) in ranges {
        let length = *length as u32;
        let x = left.0.read(&Caller::ROOT, left.1, *offset, length).await;
        let y = right.0.read(&Caller::ROOT, right.1, *offset, length).await;
        match (x, y) {
            (Ok(x), Ok(y)) => {
                let (x, y) = (x.pieces.concat(), y.pieces.concat());
                let differs = x.iter().zip(&y).position(|(x, y)| x != y);
                assert!(x == y, "{at}: {:?} differs at {offset} + {differs:?} of {}", left.1, x.len());
            }
            (x, y) => panic!("{at}: {:?} is not read: {:?} and {:?}", left.1, x.err(), y.err()),
        }
    }
}
