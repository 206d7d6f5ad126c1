//! Data files that the laboratory brings along: comma-separated, with comments and a heading.

/// The rows of a data file, cut at commas; comments and the heading are left out.
pub fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).skip(1).map(|line| line.split(',').collect())
}
