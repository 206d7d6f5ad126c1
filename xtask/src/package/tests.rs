use super::*;

#[test]
fn the_newest_libc_that_a_program_names_is_found() {
    let program = b"\x7fELF..GLIBC_2.9\0GLIBC_2.35\0GLIBC_2.4.1\0GLIBC_PRIVATE\0GLIBC_";
    assert_eq!(libc_of(program), Some((2, 35)));
    assert_eq!(libc_of(b"\x7fELF static"), None);
}

/// An operator who has the package alone follows OPERATIONS.md to the runbooks.
#[test]
fn the_package_has_every_document_that_it_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let all = documents(root).unwrap();
    let mut seen = 0;
    for page in ["OPERATIONS.md", "README.md"] {
        let text = read(&root.join(page)).unwrap();
        let words = text.split(|c: char| !(c.is_alphanumeric() || "/._-".contains(c)));
        for word in words.map(|word| word.trim_end_matches('.')).filter(|word| word.ends_with(".md")) {
            assert!(all.iter().any(|document| document == word), "{page} names {word}, which is not in the package");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}
