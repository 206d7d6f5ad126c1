use super::*;

/// The demonstration removes its directory at the end, with everything in it.
#[test]
fn a_directory_that_holds_anything_is_refused() {
    let dir = std::env::temp_dir().join(format!("stele-demo-test-{}", std::process::id()));
    prepare(&dir).unwrap();
    prepare(&dir).unwrap();
    for (name, reason) in [("photos.tar", "is not empty"), ("stele.toml", "already holds a pool")] {
        std::fs::write(dir.join(name), "content").unwrap();
        let refused = prepare(&dir).unwrap_err();
        assert!(refused.contains(reason) && refused.contains("--dir"), "{refused}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
