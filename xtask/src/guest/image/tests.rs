use super::*;

/// Reads an archive back: path, mode and content of each entry.
fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut entries = Vec::new();
    let whole = bytes.len();
    loop {
        let word = |number: usize| {
            let text = std::str::from_utf8(&bytes[6 + number * 8..14 + number * 8]).unwrap();
            u32::from_str_radix(text, 16).unwrap() as usize
        };
        assert_eq!(&bytes[..6], b"070701");
        let (mode, length, name) = (word(1) as u32, word(6), word(11));
        let path = String::from_utf8(bytes[110..110 + name - 1].to_vec()).unwrap();
        let from = (110 + name).next_multiple_of(4);
        if path == "TRAILER!!!" {
            assert_eq!(bytes.len(), from, "the end of {whole} bytes");
            return entries;
        }
        entries.push((path, mode, bytes[from..from + length].to_vec()));
        bytes = &bytes[(from + length).next_multiple_of(4)..];
    }
}

#[test]
fn folders_come_before_their_files() {
    let mut archive = Archive::default();
    archive.add("a/b/file", b"12345".to_vec(), 0o755);
    archive.add("init", Vec::new(), 0o644);
    archive.folder("a");
    let expected = [("a", FOLDER, ""), ("a/b", FOLDER, ""), ("a/b/file", 0o100_755, "12345"), ("init", 0o100_644, "")];
    let expected = expected.map(|(path, mode, content)| (path.to_owned(), mode, content.as_bytes().to_vec()));
    assert_eq!(entries(&archive.bytes()), expected);
}
