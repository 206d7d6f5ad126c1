//! A label as bytes; see FORMAT/drive.md.
