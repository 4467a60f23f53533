//! Tests of where a library is unpacked, with a short text in its place.

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

const TEXT: &[u8] = b"a library";

fn packed() -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::best());
    to.write_all(TEXT).unwrap();
    to.finish().unwrap()
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Unpacks in a folder of its own, which `prepare` gets before.
fn unpack(prepare: impl FnOnce(&Path)) -> (tempfile::TempDir, io::Result<PathBuf>) {
    let (dir, packed) = (tempfile::tempdir().unwrap(), packed());
    prepare(dir.path());
    let path = Packed(&packed).unpacked_in(dir.path(), None);
    (dir, path)
}

/// Returns the folder that the library gets.
fn own(dir: &Path) -> PathBuf {
    let sum = Packed(&packed()).contents().sum;
    dir.join(format!("softring-{}-{sum:08x}", geteuid().as_raw()))
}

#[test]
fn a_library_is_unpacked_once() {
    let (dir, path) = unpack(|_| {});
    let path = path.unwrap();
    assert_eq!((fs::read(&path).unwrap(), path.parent()), (TEXT.into(), Some(&*own(dir.path()))));
    let all = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((all(&path), all(&own(dir.path()))), (0o644, 0o755));
    let (first, packed) = (path.metadata().unwrap().ino(), packed());
    let again = Packed(&packed).unpacked_in(dir.path(), None).unwrap();
    assert_eq!((&again, again.metadata().unwrap().ino()), (&path, first));
    assert_eq!(fs::read_dir(own(dir.path())).unwrap().count(), 1);
}

#[test]
fn a_damaged_file_is_written_anew() {
    for damage in [&b"a librarY"[..], b"a libr", b""] {
        let (dir, path) = unpack(|dir| {
            fs::create_dir(own(dir)).unwrap();
            fs::write(own(dir).join(NAME), damage).unwrap();
        });
        assert_eq!(fs::read(path.unwrap()).unwrap(), TEXT);
        drop(dir);
    }
}

#[test]
fn folders_that_others_may_change_are_refused() {
    let refused = |prepare: fn(&Path)| {
        let (dir, path) = unpack(prepare);
        assert!(path.is_err(), "{path:?}");
        assert!(!own(dir.path()).join(NAME).exists());
    };
    refused(|dir| mode(dir, 0o777));
    refused(|dir| {
        fs::create_dir(own(dir)).unwrap();
        mode(&own(dir), 0o777);
    });
    refused(|dir| fs::write(own(dir), "a file").unwrap());
    refused(|dir| {
        fs::create_dir(dir.join("elsewhere")).unwrap();
        symlink(dir.join("elsewhere"), own(dir)).unwrap();
    });
    let packed = packed();
    let dir = tempfile::tempdir().unwrap();
    let other = Some(geteuid().as_raw() + 1);
    assert!(Packed(&packed).unpacked_in(dir.path(), other).is_err());
}

#[test]
fn a_link_in_place_of_the_file_is_replaced() {
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    let (dir, path) = unpack(|dir| {
        fs::create_dir(own(dir)).unwrap();
        symlink(elsewhere.path(), own(dir).join(NAME)).unwrap();
    });
    assert!(path.unwrap().symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read(elsewhere.path()).unwrap(), b"");
    drop(dir);
}

#[test]
fn a_file_in_memory_cannot_be_changed() {
    let packed = packed();
    let mut file = File::from(Packed(&packed).in_memory().unwrap());
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    assert_eq!(fs::read(path).unwrap(), TEXT);
    assert!(file.write_all(b"x").is_err() && file.set_len(0).is_err());
}
