//! `stele backup` beside restic and borg: the same tree in memory, processor time and wall time of
//! the whole command.
//!
//! Each program saves the tree first, saves it again unchanged, saves it after one file in 20
//! changed, restores it and reads all of it for a check. Last it removes all snapshots but the
//! latest, and the content that this one does not need. Each step is done by all programs in turns,
//! before any of them goes on. Agent and store are one process on one machine where a
//! repository is a directory in memory. The case "stele over S3" stores into a bucket of a server
//! on loopback with file drives beside this program; the server's processor time is counted too.
//! All repositories are encrypted. By default restic compresses with zstd, borg with lz4, and Stele
//! with zstd 1. The peers come from Debian; without one its lines are missing.
//!
//! Then come streams from memory, 1 to 16 at a time, and the index of a large repository. A file
//! system of ten million files is measured only if `--case` asks for it.
//!
//! The small tree is the first 4,096 files of the whole one. It is measured only if `--case` asks
//! for it: `--case small`.

mod agents;
mod index;
mod many;
mod streams;
mod tree;

use crate::harness::{Bench, TARGET, Unit};
use agents::{Agent, Cost, OVER_S3, OWN, PEERS, Stage, agents};

const CPU: Unit = Unit::less("CPU s");
const WALL: Unit = Unit::less("s");
const MEMORY: Unit = Unit::less("MiB");
const STORED: Unit = Unit::less("MiB");
const FREED: Unit = Unit::more("MiB");

/// The trees, with their files.
const WHOLE: (&str, u64) = ("whole tree", tree::FILES);
const SMALL: (&str, u64) = ("small tree", 4096);

/// The steps.
const STEPS: [&str; 6] = ["first backup", "unchanged", "5 % changed", "restore", "verify", "collection"];
/// A step, a kind of its figures, and the most that it may be for the whole tree. They were set on
/// the reference machine, for agent and server together: so the way over a server has them too.
const TARGETS: [(usize, &str, f64); 5] = [
    (0, "CPU", 7.0),
    (1, "CPU", 0.8),
    (CHANGED, "CPU", 2.5),
    (RESTORE, "CPU", 4.0),
    // 300 MB.
    (RESTORE, "memory", 300e6 / (1 << 20) as f64),
];
/// Before this step the tree changes.
const CHANGED: usize = 2;
const RESTORE: usize = 3;
const VERIFY: usize = 4;
const COLLECTION: usize = 5;

/// One round of one program: the cost of each step, and what the first backup stored.
#[derive(Clone, Default)]
struct Done {
    costs: Vec<Cost>,
    stored: Option<u64>,
    /// Bytes that the collection freed.
    freed: Option<u64>,
}

/// One round of all programs, step by step in turns.
fn round(stage: &mut Stage, agents: &[Agent], files: u64) -> Result<Vec<Done>, String> {
    stage.clear_all(agents)?;
    let tree = stage.path("tree");
    tree::make(&tree, files).map_err(|error| format!("cannot make the tree: {error}"))?;
    let mut done = vec![Done::default(); agents.len()];
    for agent in agents {
        stage.run(agent, agent.init, 0)?;
    }
    for step in 0..STEPS.len() {
        if step == CHANGED {
            tree::change(&tree, files).map_err(|error| format!("cannot change the tree: {error}"))?;
        }
        for (agent, done) in agents.iter().zip(&mut done) {
            let lines = match step {
                RESTORE => &[agent.restore],
                VERIFY => &[agent.verify],
                COLLECTION => agent.collect,
                _ => &[agent.save],
            };
            let before = stage.stored(agent);
            done.costs.push(stage.run_all(agent, lines, step)?);
            match step {
                0 => done.stored = stage.stored(agent),
                COLLECTION => done.freed = before.zip(stage.stored(agent)).map(|(was, is)| was.saturating_sub(is)),
                _ => {}
            }
        }
    }
    Ok(done)
}

type Kind = (&'static str, Unit, fn(&Cost) -> f64);

const KINDS: [Kind; 3] = [
    ("CPU", CPU, |cost| cost.cpu_seconds),
    ("wall", WALL, |cost| cost.wall_seconds),
    ("memory", MEMORY, |cost| cost.memory_mib),
];

/// All names of figures that a tree has.
fn names(tree: &str) -> Vec<String> {
    let mut figures = vec!["stored".to_owned(), "freed".to_owned()];
    for step in STEPS {
        figures.extend(KINDS.map(|(kind, ..)| format!("{step}, {kind}")));
    }
    let beside = |figure: &String| [PEERS[0], PEERS[1], OVER_S3].map(|other| name(tree, figure, other));
    let mut names: Vec<String> = figures.iter().flat_map(beside).collect();
    if tree == WHOLE.0 {
        names.extend(TARGETS.iter().flat_map(|target| [OWN, OVER_S3].map(|agent| target_name(target, agent))));
    }
    names
}

fn target_name((step, kind, _): &(usize, &str, f64), agent: &str) -> String {
    format!("{}: {}, {kind} of {agent}, beside the target", WHOLE.0, STEPS[*step])
}

fn name(tree: &str, figure: &str, other: &str) -> String {
    format!("{tree}: {figure}, beside {other}")
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    if streams::wanted(bench) {
        streams::run(bench)?;
    }
    index::run(bench)?;
    many::run(bench)?;
    let wanted = |tree: &str| names(tree).iter().any(|name| bench.wants(name));
    let (whole, small) = (wanted(WHOLE.0), wanted(SMALL.0));
    if !whole && !small {
        return Ok(());
    }
    // A pattern that fits both means the whole one.
    let (tree, files) = if small && !whole { SMALL } else { WHOLE };
    let agents = agents()?;
    let mut stage = Stage::new()?;
    bench.note(&format!("{files} files in {}; {OVER_S3}: agent and server", stage.path("tree").display()));
    let mut rounds = Vec::new();
    for _ in 0..bench.rounds() {
        rounds.push(round(&mut stage, &agents, files)?);
    }
    let of = |name: &str, figure: &dyn Fn(&Done) -> Option<f64>| -> Vec<f64> {
        let at = agents.iter().position(|agent| agent.name == name);
        rounds.iter().filter_map(|round| figure(round.get(at?)?)).collect()
    };
    for (step, words) in STEPS.iter().enumerate() {
        for (kind, unit, figure) in KINDS {
            let figure = |done: &Done| done.costs.get(step).map(figure);
            report(bench, (tree, &format!("{words}, {kind}")), unit, &of, &figure);
        }
    }
    if tree == WHOLE.0 {
        beside_targets(bench, &of);
    }
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    report(bench, (tree, "stored"), STORED, &of, &|done| done.stored.map(mebibytes));
    report(bench, (tree, "freed"), FREED, &of, &|done| done.freed.map(mebibytes));
    Ok(())
}

type Figure<'a> = &'a dyn Fn(&Done) -> Option<f64>;

/// Our figures beside the most that each may be.
fn beside_targets(bench: &mut Bench, of: &dyn Fn(&str, Figure<'_>) -> Vec<f64>) {
    for target in &TARGETS {
        let (step, wanted, most) = *target;
        for (_, unit, figure) in KINDS.into_iter().filter(|(kind, ..)| *kind == wanted) {
            for agent in [OWN, OVER_S3] {
                let ours = of(agent, &|done| done.costs.get(step).map(figure));
                bench.figures(&target_name(target, agent), unit, &ours, Some((TARGET, most)), Some(1.0));
            }
        }
    }
}

/// Our figure beside that of each peer, and of our own way over a server.
fn report(
    bench: &mut Bench,
    (tree, words): (&str, &str),
    unit: Unit,
    of: &dyn Fn(&str, Figure<'_>) -> Vec<f64>,
    figure: Figure<'_>,
) {
    let ours = of(OWN, figure);
    for other in PEERS.into_iter().chain([OVER_S3]) {
        let mut theirs = of(other, figure);
        theirs.sort_by(f64::total_cmp);
        if let Some(median) = theirs.get(theirs.len() / 2) {
            bench.figures(&name(tree, words, other), unit, &ours, Some((other, *median)), None);
        }
    }
}
