//! Dependencies point down only (ARCHITECTURE.md, "Floors"). Dependencies of tests are free.

/// Each crate and those of ours it may use.
const FLOORS: &[(&str, &[&str])] = &[
    ("ground", &[]),
    ("isal", &[]),
    ("codes", &["ground"]),
    ("digests", &[]),
    ("media", &["ground"]),
    ("array", &["ground", "codes", "media"]),
    ("catalog", &["ground", "media"]),
    ("archive", &["ground", "catalog", "media", "digests"]),
    ("object", &["ground", "archive"]),
    ("block", &["ground", "media"]),
    ("file", &["ground", "media", "catalog", "archive"]),
    ("backup", &["ground"]),
    ("lab", &["ground", "codes", "media", "array", "block"]),
    ("papers", &["ground", "media", "lab"]),
    ("stamp", &["ground"]),
    ("sim", &["ground", "codes", "media", "array", "catalog", "archive", "object", "block", "file"]),
    (
        "server",
        &[
            "ground", "codes", "media", "array", "catalog", "archive", "object", "block", "file", "backup", "lab",
            "stamp",
        ],
    ),
    (
        "stele",
        &[
            "ground", "codes", "media", "array", "catalog", "archive", "block", "file", "backup", "lab", "papers",
            "stamp", "server",
        ],
    ),
    // What is not part of the product may use all of it.
    (
        "bench",
        &[
            "ground", "codes", "digests", "media", "array", "catalog", "archive", "object", "block", "backup", "lab",
            "papers", "sim", "isal",
        ],
    ),
    ("mutants", &[]),
    ("demo", &["ground", "codes", "media", "array", "catalog", "archive", "object"]),
];

pub fn check(name: &str, text: &str, faults: &mut Vec<String>) {
    let Some(own) = name.split('/').nth(1) else { return };
    let Some((_, allowed)) = FLOORS.iter().find(|(listed, _)| *listed == own) else {
        faults.push(format!("{name}: the crate has no floor; list it in xtask/src/tidy/floors.rs and ARCHITECTURE.md"));
        return;
    };
    let mut counted = false;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            counted = line.trim() == "[dependencies]";
        }
        let Some(rest) = line.strip_prefix("stele-").filter(|_| counted) else { continue };
        if line.contains("\"mutations\"") && own != "sim" {
            faults.push(format!("{name}:{}: the product is built without the feature 'mutations'", number + 1));
        }
        let used = rest.split(['.', ' ', '=']).next().unwrap_or(rest);
        if !allowed.contains(&used) {
            faults.push(format!("{name}:{}: {own} may not use {used}: dependencies point down only", number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_architecture_names_each_crate() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md");
        let text = std::fs::read_to_string(page).unwrap();
        let after = text.split("## Floors\n").nth(1).unwrap_or_default();
        let part = after.split("\n## ").next().unwrap_or_default();
        for (name, _) in FLOORS {
            assert!(part.contains(&format!("`{name}`")), "ARCHITECTURE.md, \"Floors\", does not name {name}");
        }
    }
}
