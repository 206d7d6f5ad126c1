//! A job file as text: sections, and the entries that hold for each, with the line of every one.
//!
//! As in fio a `[global]` section holds for the jobs behind it, and what is behind `;` or `#` is a
//! comment. `${NAME}` is the environment's; fio takes a name that is missing there for nothing,
//! here it is an error.

use crate::error::LabError;

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionLine {
    pub line: usize,
    pub key: String,
    pub value: String,
}

/// A job's section, with what the `[global]` ones before it say in front of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    pub line: usize,
    pub name: String,
    pub entries: Vec<OptionLine>,
}

/// All jobs of a file, in their order.
pub fn sections(text: &str) -> Result<Vec<Section>, LabError> {
    let mut global: Vec<OptionLine> = Vec::new();
    let mut jobs: Vec<Section> = Vec::new();
    let mut in_global = None;
    for (at, raw) in text.lines().enumerate() {
        let line = at + 1;
        let said = raw.split([';', '#']).next().unwrap_or_default().trim();
        if said.is_empty() {
            continue;
        }
        if let Some(name) = said.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let name = name.trim();
            in_global = Some(name == "global");
            if name != "global" {
                jobs.push(Section { line, name: name.to_owned(), entries: global.clone() });
            }
            continue;
        }
        let (key, value) = said.split_once('=').unwrap_or((said, ""));
        let key = key.trim().to_ascii_lowercase();
        let value = expanded(value.trim()).map_err(|why| LabError::Usage(format!("line {line}: {key}: {why}")))?;
        let entry = OptionLine { line, key, value };
        match (in_global, jobs.last_mut()) {
            (Some(true), _) => global.push(entry),
            (Some(false), Some(job)) => job.entries.push(entry),
            _ => {
                let key = entry.key;
                return Err(LabError::Usage(format!("line {line}: '{key}' stands before the first [section]")));
            }
        }
    }
    match jobs.is_empty() {
        true => Err(LabError::Usage("the file has no job: a [section] with another name than global".into())),
        false => Ok(jobs),
    }
}

/// `${NAME}` by the environment; `$pagesize` and `$ncpus` as fio has them.
fn expanded(value: &str) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), value);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or("${ has no end")?;
        out.push_str(before);
        out.push_str(&std::env::var(name).map_err(|_| format!("the environment has no {name}"))?);
        rest = behind;
    }
    out.push_str(rest);
    let processors = crate::job::processors().to_string();
    Ok(out.replace("$pagesize", "4096").replace("$ncpus", &processors))
}

#[cfg(test)]
mod tests;
