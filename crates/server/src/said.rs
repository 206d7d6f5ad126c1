//! Answers as they leave the program. Names, keys and errors are untrusted text. Every answer to a
//! command passes [`answered`] before it is printed, which makes all its texts safe to display.
//! Machines get the exact text as JSON, whose escapes leave no control characters for a terminal.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stele_ground::shown::{is_unsafe, shown};

use crate::failure::{Failure, Outcome};

/// Whether this process prints JSON; set from the command line before anything is printed.
static FOR_MACHINES: AtomicBool = AtomicBool::new(false);

/// Sets whether this process prints JSON.
pub fn for_machines(json: bool) {
    FOR_MACHINES.store(json, Relaxed);
}

/// An answer for the caller: exact for machines, safe to display for people.
pub fn answered<T: Serialize + DeserializeOwned>(answer: T) -> Outcome<T> {
    if FOR_MACHINES.load(Relaxed) { Ok(answer) } else { safe(answer) }
}

/// Makes every text in the answer safe to display.
pub fn safe<T: Serialize + DeserializeOwned>(answer: T) -> Outcome<T> {
    let broken = |error: serde_json::Error| Failure::failed(format!("cannot show the answer: {error}"));
    let mut value = serde_json::to_value(answer).map_err(broken)?;
    make_safe(&mut value);
    serde_json::from_value(value).map_err(broken)
}

fn make_safe(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(is_unsafe) => *text = shown(text),
        Value::Array(values) => values.iter_mut().for_each(make_safe),
        Value::Object(fields) => {
            if fields.keys().any(|name| name.contains(is_unsafe)) {
                *fields = std::mem::take(fields).into_iter().map(|(name, value)| (shown(&name), value)).collect();
            }
            fields.values_mut().for_each(make_safe);
        }
        _ => {}
    }
}

/// JSON on one line without control characters for a terminal: only texts can contain them, and
/// there they are escaped.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    if !text.contains(is_unsafe) {
        return Ok(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(line, "\\u{unit:04x}");
            }
        } else {
            line.push(c);
        }
    }
    Ok(line)
}
