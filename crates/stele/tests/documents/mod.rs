//! Runs README.md, docs/first-hour.md and the runbooks, command by command as printed, and compares
//! the printed output with the real one.
//!
//! A fence of `console` has commands after `$ `, their continuation lines after `> `, and their
//! output. A command without shown output is not compared; `...` stands for any lines. Numbers and
//! identities may differ. A command ends with 0, unless the next one is `echo $?`. A fence of
//! `console server` has one command, which runs until the next server, or `^C`. A fence of
//! `console not run: WHY` is left out; the number of such fences is bounded.
//!
//! Each page has a machine of its own: bash in namespaces, without real root rights, with a
//! loopback device and an empty /srv, where it begins. `STELE_DOCUMENTS=write` writes the real
//! output into the pages.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{Place, clients, installed};

/// The reasons that allow a fence to be left out.
const REASONS: &[&str] = &["devices", "another machine", "a build", "minutes or hours"];
/// Largest number of fences left out, over all pages.
const LEFT_OUT_MAX: usize = 12;
/// Time limit of a command.
const COMMAND_MAX: Duration = Duration::from_secs(120);

/// A part of a page.
enum Part {
    /// Text that is neither a command nor output, unchanged.
    Text(String),
    Server(String),
    /// Stops the servers.
    Stop,
    Step {
        command: Vec<String>,
        shown: Vec<String>,
    },
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut pages = vec![root.join("README.md"), root.join("docs/first-hour.md")];
    let mut books: Vec<PathBuf> =
        std::fs::read_dir(root.join("docs/runbooks")).unwrap().map(|entry| entry.unwrap().path()).collect();
    books.sort();
    pages.append(&mut books);
    pages
}

/// The parts of a page, and the number of fences left out. Panics if a command stands outside a
/// known fence.
fn parts(page: &Path, text: &str) -> (Vec<Part>, usize) {
    let (mut parts, mut left_out, mut fence) = (Vec::new(), 0, None::<&str>);
    for (number, line) in text.lines().enumerate() {
        let place = format!("{}:{}", page.display(), number + 1);
        let own = Part::Text(line.to_owned());
        match (fence, line.strip_prefix("```")) {
            (None, Some(kind)) => {
                if let Some(why) = kind.strip_prefix("console not run: ") {
                    assert!(REASONS.contains(&why), "{place}: '{why}' is none of {REASONS:?}");
                    left_out += 1;
                }
                fence = Some(kind);
                parts.push(own);
            }
            (Some(_), Some(_)) => {
                fence = None;
                parts.push(own);
            }
            (Some("console"), None) => match (line.strip_prefix("$ "), line.strip_prefix("> "), parts.last_mut()) {
                (Some(command), ..) => parts.push(Part::Step { command: vec![command.to_owned()], shown: Vec::new() }),
                (None, Some(more), Some(Part::Step { command, shown })) if shown.is_empty() => {
                    command.push(more.to_owned())
                }
                (None, _, Some(Part::Step { shown, .. })) => shown.push(line.to_owned()),
                _ => panic!("{place}: output of no command"),
            },
            (Some("console server"), None) => match line.strip_prefix("$ ") {
                Some(command) => parts.push(Part::Server(command.to_owned())),
                None if line == "^C" => parts.push(Part::Stop),
                None => parts.push(own),
            },
            (Some(kind), None) => {
                let left = kind.starts_with("console not run: ");
                assert!(left || !line.starts_with("$ "), "{place}: a command in a fence '{kind}'");
                parts.push(own);
            }
            (None, None) => {
                let code = line.strip_prefix("    ").map(str::trim_start).unwrap_or_default();
                assert!(
                    !code.starts_with("stele ") && !code.starts_with("$ "),
                    "{place}: a command outside of a fence"
                );
                parts.push(own);
            }
        }
    }
    (parts, left_out)
}

/// The days and months as HTTP dates name them.
const DATES: [&str; 19] = [
    "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep",
    "Oct", "Nov", "Dec",
];

/// A line in the form used for comparison: without the values of numbers, dates, identities and
/// units, and with single blanks.
fn likeness(line: &str) -> String {
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if ["B", "KiB", "MiB", "GiB", "TiB", "ns", "us", "ms", "s", "min", "h"].contains(&bare) {
            words.push("unit".to_owned());
            continue;
        }
        if DATES.contains(&bare) {
            words.push("date".to_owned());
            continue;
        }
        // A text too wide for its column has lost its middle.
        if word.contains('…') {
            words.push("…".to_owned());
            continue;
        }
        let mut plain = String::new();
        for run in word.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
            let (text, end) = match run.char_indices().next_back() {
                Some((at, last)) if !last.is_ascii_alphanumeric() => run.split_at(at),
                _ => (run, ""),
            };
            let identity = text.len() >= 12 && text.contains(|c: char| c.is_ascii_digit());
            let mut masked: String = if identity { "#".to_owned() } else { String::new() };
            for c in text.chars().filter(|_| !identity) {
                match c.is_ascii_digit() {
                    true if masked.ends_with('#') => {}
                    true => masked.push('#'),
                    false => masked.push(c),
                }
            }
            plain.push_str(&masked);
            plain.push_str(end);
        }
        // 1.5 and 2, 3 and 4 count as alike.
        words.push(plain.replace("#.#", "#"));
    }
    words.join(" ")
}

/// Whether the shown output matches the real one.
fn fits(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first.trim() == "..." => (0..=printed.len()).any(|from| fits(rest, &printed[from..])),
        Some((first, rest)) => {
            printed.split_first().is_some_and(|(line, others)| likeness(first) == likeness(line) && fits(rest, others))
        }
    }
}

/// The output that is worth showing: the progress of work and the latest alarms differ each time.
fn lasting(printed: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in printed {
        let passing = ["  moving ", "  scrub", "  rebuild", "  copying "].iter().any(|word| line.starts_with(word));
        match passing || line == "Last alarms:" {
            true if lines.last().is_none_or(|last| last != "...") => lines.push("...".to_owned()),
            true => {}
            false => lines.push(line.clone()),
        }
        if line == "Last alarms:" {
            break;
        }
    }
    lines
}

/// Bash on a machine of its own.
struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    servers: usize,
    /// The server's log.
    logs: PathBuf,
}

impl Shell {
    fn new(machine: &Path) -> Shell {
        let (srv, programs) = (machine.join("srv"), machine.join("bin"));
        let mut path = programs.into_os_string();
        path.push(":");
        path.push(clients());
        path.push(":/usr/sbin:/sbin");
        let mut child = Command::new("unshare")
            .args(["--map-root-user", "--net", "--mount", "bash", "--noprofile", "--norc"])
            .env("PATH", path)
            .envs([("COLUMNS", "100"), ("NO_COLOR", "1"), ("LC_ALL", "C.UTF-8"), ("HOME", "/srv")])
            .env_remove("STELE_DIR")
            .env_remove("STELE_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut shell = Shell { child, input, lines, servers: 0, logs: machine.to_owned() };
        let begin = format!("ip link set lo up && mount --bind {} /srv && cd /srv", srv.display());
        let (code, said) = shell.run(&begin);
        assert_eq!(code, 0, "{said:?}");
        shell
    }

    /// Runs a command; returns its exit code and its output.
    fn run(&mut self, command: &str) -> (i32, Vec<String>) {
        // Keep the status for `echo $?`.
        writeln!(
            self.input,
            "(exit ${{status:-0}})\n{{ {command}\n}} < /dev/null 2>&1; status=$?; echo \"@@ $status\""
        )
        .unwrap();
        let mut printed = Vec::new();
        loop {
            let line =
                self.lines.recv_timeout(COMMAND_MAX).unwrap_or_else(|_| panic!("'{command}' goes on: {printed:?}"));
            // Output may lack its line break.
            match line.rsplit_once("@@ ").and_then(|(before, code)| Some((before, code.parse().ok()?))) {
                Some((before, code)) => {
                    printed.extend((!before.is_empty()).then(|| before.to_owned()));
                    return (code, printed);
                }
                None => printed.push(line),
            }
        }
    }

    /// Like `run`. On a busy machine files answer late now and then; if a status reports that, the
    /// command is repeated once it is over.
    fn run_on_quick_drives(&mut self, command: &str) -> (i32, Vec<String>) {
        let is_slow = |line: &String| line.contains("slower than its peers");
        let tells = |line: &str| line.contains(" is slow: ") || line.contains("as fast as its peers again");
        for _ in 0..60 {
            let (code, mut printed) = self.run(command);
            let alarms = printed.iter().position(|line| line == "Last alarms:").unwrap_or(printed.len());
            if !command.starts_with("stele pool status") || !printed[..alarms].iter().any(is_slow) {
                printed.retain(|line| !tells(line));
                if printed.last().is_some_and(|line| line == "Last alarms:") {
                    printed.truncate(alarms.saturating_sub(1));
                }
                return (code, printed);
            }
            self.run("sleep 1");
        }
        self.run(command)
    }

    /// Starts a server, and waits until it reports that it is ready.
    fn serve(&mut self, command: &str) {
        self.stop();
        self.servers += 1;
        let log = format!("{}/said.{}", self.logs.display(), self.servers);
        let ready =
            format!("{{ for i in $(seq 600); do grep -q ready {log} && break; sleep 0.1; done; }}; grep ready {log}");
        let (code, said) =
            self.run(&format!("{command} > {log} 2> {log}.log & {ready} || cat {log} {log}.log; grep -q ready {log}"));
        assert_eq!(code, 0, "{command}: {said:?}");
    }

    fn stop(&mut self) {
        self.run("for job in $(jobs -p); do kill $job; wait $job; done");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a page. Returns its errors, and the corrected page.
fn perform(page: &Path, text: &str, machine: &Place) -> (Vec<String>, String) {
    // Two places, as in the pages: the binary in cargo's directory, and installed.
    let (target, programs) = (machine.0.join("srv/target/release"), machine.0.join("bin"));
    for folder in [&target, &programs] {
        std::fs::create_dir_all(folder).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_stele"), folder.join("stele")).unwrap();
    }
    let name = page.file_name().unwrap().to_string_lossy().into_owned();
    let (parts, _) = parts(page, text);
    let mut shell = Shell::new(&machine.0);
    let (mut wrong, mut right) = (Vec::new(), String::new());
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Text(line) => right.push_str(&format!("{line}\n")),
            Part::Server(command) => {
                shell.serve(command);
                right.push_str(&format!("$ {command}\n"));
            }
            Part::Stop => {
                shell.stop();
                right.push_str("^C\n");
            }
            Part::Step { command, shown } => {
                let (code, printed) = shell.run_on_quick_drives(&command.join("\n"));
                let asked = matches!(parts.get(at + 1), Some(Part::Step { command, .. }) if command == &["echo $?"]);
                if code != 0 && !asked {
                    wrong.push(format!("{name}: '{}' ends with {code}: {printed:#?}", command.join("\n")));
                }
                if !shown.is_empty() && !fits(shown, &printed) {
                    wrong.push(format!("{name}: '{}' shows {shown:#?} and prints {printed:#?}", command.join("\n")));
                }
                right.push_str(&format!("$ {}\n", command.join("\n> ")));
                let keeps = shown.is_empty() || fits(shown, &printed);
                let lines = if keeps { shown.clone() } else { lasting(&printed) };
                lines.iter().for_each(|line| right.push_str(&format!("{}\n", line.trim_end())));
            }
        }
    }
    (wrong, right)
}

#[test]
fn every_command_of_a_document_does_what_it_shows() {
    if !installed(&["unshare", "--map-root-user", "--net", "--mount", "ip", "link"])
        || !installed(&["aws", "--version"])
    {
        return;
    }
    let only = std::env::var("STELE_DOCUMENTS_OF").unwrap_or_default();
    let write = std::env::var("STELE_DOCUMENTS").is_ok_and(|word| word == "write");
    let pages = pages().into_iter().filter(|page| page.to_string_lossy().contains(&only));
    // Two at a time: most of the time is waiting.
    let pages = std::sync::Mutex::new(pages);
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (pages, wrong) = (&pages, &wrong);
            scope.spawn(move || {
                loop {
                    let Some(page) = pages.lock().unwrap().next() else { return };
                    let machine = Place::new(&format!("page-{worker}"));
                    let text = std::fs::read_to_string(&page).unwrap();
                    let (mut faults, right) = perform(&page, &text, &machine);
                    if write && right != text {
                        std::fs::write(&page, right).unwrap();
                    }
                    wrong.lock().unwrap().append(&mut faults);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn few_commands_of_documents_are_left_out() {
    let count = |page: &PathBuf| parts(page, &std::fs::read_to_string(page).unwrap()).1;
    let left_out: usize = pages().iter().map(count).sum();
    assert!(left_out <= LEFT_OUT_MAX, "{left_out} fences are not run, at most {LEFT_OUT_MAX} may be");
}

#[test]
fn what_is_shown_is_compared() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<String>>();
    for (shown, printed, good) in [
        ("a 12 MiB", "a 3.5 GiB", true),
        ("a 12 MiB", "b 12 MiB", false),
        ("a\n...\nc", "a\nb\nb\nc", true),
        ("a\n...\nc", "a\nb\nd", false),
        ("...", "anything", true),
        ("a", "a\nb", false),
        ("key STELEJK4BYKL2SX7LP33", "key STELEK7Q2M4XJ9TB3HWD", true),
        ("drive 3 is gone", "drive 3 is here", false),
        ("at Sun, 29 Nov 2026 03:20:56 GMT", "at Tue, 1 Dec 2026 00:04:28 GMT", true),
    ] {
        assert_eq!(fits(&lines(shown), &lines(printed)), good, "{shown} | {printed}");
    }
}
