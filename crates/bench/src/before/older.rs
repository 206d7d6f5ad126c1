//! Runs one version of this program for a round, and reads its figures.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a version printed for a case.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    pub case: String,
    pub unit: String,
    pub value: f64,
    /// Older versions do not say it.
    pub more_is_better: Option<bool>,
}

/// The figures of one round of a bench.
pub fn measured(program: &Path, bench: &str, pattern: &str) -> Result<Vec<Figure>, String> {
    let mut command = Command::new(program);
    command.args([bench, "--json", "--rounds", "1"]);
    if !pattern.trim().is_empty() {
        command.args(["--case", pattern]);
    }
    let shown = program.display();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        format!("cannot run {shown}: {error}; give the stele-bench of the older version, as cargo built it")
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        // Without the line that describes the machine.
        let said = said.find("bench: ").map_or(&*said, |at| &said[at..]).trim();
        let said = if said.is_empty() { "it said nothing".to_owned() } else { format!("it said:\n{said}") };
        return Err(format!("{shown} {bench} ended with {}; {said}", output.status));
    }
    let figures = figures(&String::from_utf8_lossy(&output.stdout)).map_err(|line| {
        format!("{shown} printed '{line}', which is no figure of a bench; give the stele-bench of the older version")
    })?;
    if figures.is_empty() {
        return Err(format!("{shown} {bench} printed no figure; give the stele-bench of the older version"));
    }
    Ok(figures)
}

/// One figure a line; or the first line that is none.
pub fn figures(text: &str) -> Result<Vec<Figure>, &str> {
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| figure(line).ok_or(line)).collect()
}

fn figure(line: &str) -> Option<Figure> {
    let row: Value = serde_json::from_str(line).ok()?;
    let text = |field: &str| row.get(field).and_then(Value::as_str).map(str::to_owned);
    Some(Figure {
        case: text("case")?,
        unit: text("unit")?,
        value: row.get("value")?.as_f64()?,
        more_is_better: row.get("more_is_better").and_then(Value::as_bool),
    })
}
