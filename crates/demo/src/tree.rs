//! The files to archive: their names, their lengths, and their SHA-256 as read from disk.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};

use crate::Outcome;

/// Files beyond this size are left out.
const FILE_MAX: u64 = 256 << 20;

pub struct Item {
    pub path: PathBuf,
    pub key: String,
}

/// Every regular file below the roots, in order of key; build output and version control's own
/// objects are left out.
pub fn gather(roots: &[(String, PathBuf)]) -> Outcome<Vec<Item>> {
    let mut items = Vec::new();
    for (prefix, root) in roots {
        if root.is_file() {
            items.push(Item { path: root.clone(), key: prefix.clone() });
        } else {
            descend(root, prefix, &mut items)?;
        }
    }
    items.sort_by(|a, b| a.key.cmp(&b.key));
    if items.is_empty() {
        return Err(format!("there is no file to archive under {roots:?}; name another directory with --from"));
    }
    Ok(items)
}

fn descend(dir: &Path, prefix: &str, items: &mut Vec<Item>) -> Outcome<()> {
    let entries =
        std::fs::read_dir(dir).map_err(|error| format!("cannot read the directory {}: {error}", dir.display()))?;
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot read the directory {}: {error}", dir.display()))?;
        let (Ok(kind), Some(name)) = (entry.file_type(), entry.file_name().to_str().map(str::to_owned)) else {
            continue;
        };
        let key = format!("{prefix}/{name}");
        if kind.is_dir() {
            if name != "target" && name != "stele-data" && name != ".git" {
                descend(&entry.path(), &key, items)?;
            }
        } else if let (true, Ok(about)) = (kind.is_file(), entry.metadata())
            && about.len() <= FILE_MAX
        {
            items.push(Item { path: entry.path(), key });
        }
    }
    Ok(())
}

/// The existing default roots: the repository around the working directory, cargo's downloads, and
/// the program itself.
pub fn default_roots() -> Vec<(String, PathBuf)> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let mut roots = vec![("repository".to_owned(), PathBuf::from("."))];
    roots.extend(home.map(|home| ("downloads".to_owned(), home.join("registry/cache"))));
    let program = std::env::current_exe().map(|own| own.with_file_name("stele"));
    roots.extend(program.map(|program| ("program/stele".to_owned(), program)));
    roots.retain(|(_, root)| root.exists());
    roots
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
    sum
}
