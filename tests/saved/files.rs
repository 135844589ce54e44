//! The file in which a process keeps its state.

use std::fs;
use std::io::{self, Read, Write};
use tempfile::TempDir;
use tollgate::StateFile;

fn contents(file: &StateFile) -> Option<String> {
    let mut text = String::new();
    file.read().unwrap()?.read_to_string(&mut text).unwrap();
    Some(text)
}

fn write(file: &StateFile, text: &str) {
    file.write(|to| to.write_all(text.as_bytes())).unwrap();
}

#[test]
fn a_write_replaces_the_file_and_a_failed_write_leaves_it() {
    let folder = TempDir::new().unwrap();
    let file = StateFile::open(folder.path().join("state")).unwrap();
    assert_eq!(contents(&file), None);
    write(&file, "long ago");
    write(&file, "now");
    assert_eq!(contents(&file).unwrap(), "now");
    let refused = file.write(|to| {
        to.write_all(b"half")?;
        Err(io::Error::other("no more room"))
    });
    assert!(refused.unwrap_err().to_string().ends_with("state: no more room"));
    assert_eq!(contents(&file).unwrap(), "now");
    let names = |folder: &TempDir| {
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&folder), ["state", "state.lock"]);
    assert_eq!(file.set_aside().unwrap(), folder.path().join("state.unusable"));
    assert_eq!(contents(&file), None);
    assert_eq!(names(&folder), ["state.lock", "state.unusable"]);
}

/// A process that was killed during a write has left an incomplete file, which everybody can read.
#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    fs::write(folder.path().join("state.new"), "half").unwrap();
    let file = StateFile::open(&path).unwrap();
    write(&file, "a secret");
    for name in ["state", "state.lock"] {
        let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_file_is_used_by_one_process_at_a_time() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    let file = StateFile::open(&path).unwrap();
    let refused = StateFile::open(&path).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    assert!(refused.to_string().contains("another process uses this state"), "{refused}");
    drop(file);
    assert!(StateFile::open(&path).is_ok());
}

#[test]
fn an_error_names_the_file() {
    let folder = TempDir::new().unwrap();
    let refused = StateFile::open(folder.path().join("missing").join("state")).unwrap_err();
    assert!(refused.to_string().contains("state.lock: "), "{refused}");
    let file = StateFile::open(folder.path().join("state")).unwrap();
    fs::create_dir(file.path()).unwrap();
    assert!(file.write(|_| Ok(())).unwrap_err().to_string().contains("state: "));
}

/// A write by root would replace even a device.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_and_left() {
    let folder = TempDir::new().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("missing"), &link).unwrap();
    let socket = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [folder.path(), &link, &socket, "".as_ref()] {
        let refused = StateFile::open(path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_relative_path_does_not_follow_the_working_directory() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let here = std::env::current_dir().unwrap();
    let Ok(relative) = folder.path().strip_prefix(here) else { return };
    let file = StateFile::open(relative.join("state")).unwrap();
    assert_eq!(file.path(), folder.path().join("state"));
}

/// Each thread writes a file that repeats its number.
#[test]
fn threads_that_write_at_once_leave_one_whole_file() {
    let folder = TempDir::new().unwrap();
    let file = StateFile::open(folder.path().join("state")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..10 {
                    let byte = [b'0' + thread];
                    file.write(|to| (0..2_000).try_for_each(|_| to.write_all(&byte))).unwrap();
                    let text = contents(file).unwrap();
                    assert_eq!(text, text[..1].repeat(2_000));
                }
            });
        }
    });
}
