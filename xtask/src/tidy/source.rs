//! Rules for Rust files.

/// The files that may contain `unsafe`: the io_uring drivers, the SIMD kernels, the binding of a
/// test oracle, and loop devices that fail.
const UNSAFE: &[&str] = &[
    "crates/codes/src/kernel/avx2.rs",
    "crates/codes/src/kernel/gfni.rs",
    "crates/digests/src/kernel/vectors.rs",
    "crates/isal/src/lib.rs",
    "crates/lab/src/live/uring.rs",
    "crates/media/src/",
    "crates/sim/src/loops/system.rs",
    "crates/stele/tests/days/devices.rs",
];

/// Crates whose state is synchronous and deterministic.
const DETERMINISTIC: &[&str] = &["ground", "codes", "digests", "array", "catalog", "archive"];

/// Sources of nondeterminism that they may not use, and their replacements. Tests may.
const CHANCE: &[(&str, &str)] = &[
    ("Instant::now", "take the time as a value"),
    ("SystemTime::now", "take the time as a value"),
    ("thread::sleep", "the driver waits, not the core"),
    ("HashMap", "iteration order is chance: BTreeMap, or a fixed hasher"),
    ("HashSet", "iteration order is chance: BTreeSet, or a fixed hasher"),
    ("getrandom", "take dice or bytes as a value"),
    ("SystemRandom", "take dice or bytes as a value"),
];

const FIXED_HASHER: &str = "FixedState";

/// The drivers at the edge of a deterministic crate: they may wait, read a clock and draw keys.
const DRIVERS: &[&str] = &["crates/ground/src/clock.rs", "crates/archive/examples/measure.rs"];

/// Words of unfinished work.
const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "dbg!(", "TODO", "FIXME", "XXX:"];

/// Phrases in comments that announce unfinished work.
const EXCUSES: &[&str] = &["for now,", "for now.", "placeholder", "simplified version"];

const IGNORED: &str = "#[ignore";

const LINES_MAX: usize = 600;

/// Empty last words of type names.
const DRAWERS: &[&str] = &["Manager", "Helper", "Util", "Utils", "Common"];

/// What takes a stripe in the array, and what waits for log space without regard to one.
const HOLDS: &[&str] = &[".locks.exclusive(", ".locks.shared("];
const WAITS_FOR_ROOM: &[&str] = &[".log.reserve(", ".log.reserve_within(", "self.record("];

pub fn check(name: &str, text: &str, faults: &mut Vec<String>) {
    let mut fault = |line: usize, what: &str| faults.push(format!("{name}:{}: {what}", line + 1));
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > LINES_MAX {
        fault(lines.len() - 1, &format!("{} lines; split where the ideas split (at most {LINES_MAX})", lines.len()));
    }
    let test = is_test(name);
    if name.starts_with("crates/array/src/") && !test {
        check_room(&lines, &mut fault);
    }
    let core = is_core(name);
    // The tests of a file follow this line.
    let tests_from = lines.iter().position(|line| line.trim() == "mod tests {").unwrap_or(lines.len());
    // A paused clock jumps ahead whenever all tasks wait: it is not the wall clock.
    let virtual_time = text.contains("start_paused = true");
    for (number, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if let Some(word) = UNFINISHED.iter().find(|word| line.contains(**word)) {
            fault(number, &format!("'{word}' is unfinished work: finish it"));
        }
        if let Some(comment) = line.find("//").map(|at| line[at..].to_lowercase())
            && let Some(phrase) = EXCUSES.iter().find(|phrase| comment.contains(**phrase))
        {
            fault(
                number,
                &format!("'{phrase}' announces unfinished work: finish it, or state the limit and its reason"),
            );
        }
        if line.trim_start().starts_with(IGNORED) {
            fault(number, "an ignored test proves nothing: make it run or delete it");
        }
        let sleeps = code.contains("thread::sleep") || (code.contains("time::sleep") && !virtual_time);
        if (test || number > tests_from) && sleeps {
            fault(number, "a test may not wait for the wall clock: wait for the event");
        }
        if core && !test && number < tests_from {
            // A fixed hasher beside the type makes the order the same in every run.
            let fixed = if code.trim_start().starts_with("use ") { text } else { code }.contains(FIXED_HASHER);
            let chance = CHANCE.iter().filter(|(word, _)| code.contains(word));
            for (word, instead) in chance.filter(|(word, _)| !(fixed && word.starts_with("Hash"))) {
                fault(number, &format!("{word} in a deterministic crate: {instead}"));
            }
        }
        if (code.contains("allow(unsafe_code)") || code.contains("expect(unsafe_code)"))
            && !UNSAFE.iter().any(|allowed| name.starts_with(allowed))
        {
            fault(number, "unsafe code is for the io_uring drivers and the SIMD kernels");
        }
        if is_unsafe_block(code) && !has_reason(&lines, number) {
            fault(number, "an unsafe block without '// SAFETY:' above it");
        }
        if let Some(drawer) = named_type(code).and_then(|name| DRAWERS.iter().find(|word| name.ends_with(**word))) {
            fault(number, &format!("'{drawer}' in a type's name says nothing: name what it does"));
        }
    }
}

/// In the array, a function that holds a stripe waits for log space only as such: the log may be
/// waiting for the stripe.
fn check_room(lines: &[&str], mut fault: impl FnMut(usize, &str)) {
    let mut holds = false;
    for (number, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if code.contains("fn ") {
            holds = false;
        }
        holds |= HOLDS.iter().any(|word| code.contains(word));
        if holds && WAITS_FOR_ROOM.iter().any(|word| code.contains(word)) {
            fault(number, "a stripe is held while this waits for log space: use room_while_held");
        }
    }
}

pub fn is_test(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

fn is_core(name: &str) -> bool {
    let crate_name = name.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
    crate_name.is_some_and(|name| DETERMINISTIC.contains(&name)) && !DRIVERS.contains(&name)
}

fn is_unsafe_block(code: &str) -> bool {
    code.contains("unsafe {") || code.contains("unsafe impl ")
}

/// Whether a SAFETY comment is in the lines above: a block may begin in the middle of a statement.
fn has_reason(lines: &[&str], number: usize) -> bool {
    lines[number.saturating_sub(6)..=number].iter().any(|line| line.contains("// SAFETY"))
}

/// The name of the struct, enum or trait declared in a line.
fn named_type(code: &str) -> Option<&str> {
    let mut words = code.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let declared = matches!(words.next()?, "struct" | "enum" | "trait" | "type");
    let end = |c: char| !c.is_alphanumeric();
    declared.then(|| words.next()).flatten().map(|name| name.split(end).next().unwrap_or(name))
}
