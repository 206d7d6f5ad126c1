use super::*;
use crate::fio::jobs;

fn options(text: &str) -> Options {
    jobs(&format!("[a]\n{text}\n")).unwrap().remove(0)
}

#[test]
fn the_part_of_a_file_follows_from_offset_and_size() {
    const REAL: u64 = 81920;
    for (text, copy, wanted) in [
        ("size=64k", 0, (0, 65536)),
        ("size=64k\noffset=16k", 0, (16384, 65536)),
        ("offset=50%", 0, (40960, 40960)),
        ("offset=33%", 0, (24576, 57344)),
        ("size=50%", 0, (0, 40960)),
        ("size=16k\noffset_increment=16k", 3, (49152, 16384)),
        ("filesize=32k\noffset=8k", 0, (8192, 24576)),
    ] {
        let options = options(text);
        let asked = if let Amount::Bytes(size) = options.size { size } else { 0 };
        let found = region(&options, copy, asked, REAL).unwrap();
        assert_eq!((found.offset, found.length), wanted, "{text}");
    }
    for (text, real, words) in [
        ("offset=4k", 0, "beyond"),
        ("", 0, "nothing says how large"),
        ("filesize=4k\noffset=8k", 1, "beyond filesize"),
    ] {
        assert!(region(&options(text), 0, 0, real).unwrap_err().contains(words), "{text}");
    }
}

#[test]
fn files_are_named_by_job_copy_and_number() {
    let two = names(&options("directory=/d\nnrfiles=2\nsize=1m"), 3);
    assert_eq!(two, [PathBuf::from("/d/a.3.0"), PathBuf::from("/d/a.3.1")]);
    assert_eq!(names(&options("filename_format=$jobname-$filenum"), 0), [PathBuf::from("a-0")]);
    assert_eq!(names(&options("filename=x:y\ndirectory=/d"), 1), [PathBuf::from("/d/x"), PathBuf::from("/d/y")]);
}

#[test]
fn a_file_that_a_job_would_make_longer_is_refused_too() {
    let path = std::env::temp_dir().join(format!("stele-lab-fio-layout-{}", std::process::id()));
    std::fs::write(&path, [7; 4096]).unwrap();
    let options = options(&format!("filename={}\nrw=read\nsize=64k", path.display()));
    let laid = layout(&options, 0, &mut Made::new()).unwrap();
    let refused = admit(&options, &laid, false);
    let kept = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(&refused, Err(LabError::Refused(why)) if why.contains("--destroy")), "{refused:?}");
    assert_eq!(kept, [7; 4096]);
}

/// It would make no access, and say nothing of that.
#[test]
fn a_size_below_one_access_is_refused_as_fio_does() {
    let laid = |text: &str| layout(&options(text), 0, &mut Made::new());
    for text in ["ioengine=null\nsize=10", "size=4095\nfilename=/nowhere/x", "bs=64k,8k\nrw=rw\nsize=4k\nioengine=null"]
    {
        let refused = laid(text);
        assert!(matches!(&refused, Err(LabError::Usage(why)) if why.contains("less than one access")), "{refused:?}");
    }
    for text in ["ioengine=null\nsize=4096", "bs=64k,8k\nrw=rw\nsize=8k\nioengine=null"] {
        assert!(laid(text).is_ok(), "{text}");
    }
}
