//! The folder in which each kernel of a user has a socket that tells its numbers, as one line of JSON
//! to who connects. A socket is `PID-SESSION.sock`; beside it may lie other files of the kernel.
//!
//! Nobody else can read or write there: the folder must be this user's alone, else it is not used.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Ending of the sockets.
pub const SOCKET: &str = "sock";

/// Number of this user.
fn user() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::getuid() }
}

/// Where kernels may be, the best place first: a kernel that a service started may know of no
/// `XDG_RUNTIME_DIR` where a terminal does.
pub fn folders() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute());
    let named = runtime.map(|path| path.join("tpu-kernel"));
    let system = PathBuf::from(format!("/run/user/{}/tpu-kernel", user()));
    let temporary = PathBuf::from(format!("/tmp/tpu-kernel-{}", user()));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in named.into_iter().chain([system, temporary]) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// The first of them that can be used, made if it is not there.
pub fn make() -> io::Result<PathBuf> {
    let mut fault = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders() {
        match make_private(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => fault = error,
        }
    }
    Err(fault)
}

/// Make this folder for this user alone, or see that it is.
fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if is_private(folder) {
                Ok(())
            } else {
                Err(io::ErrorKind::PermissionDenied.into())
            }
        }
        Err(error) => Err(error),
    }
}

/// A real folder of this user, which nobody else may enter.
pub fn is_private(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| {
        found.is_dir() && found.uid() == user() && found.mode().trailing_zeros() >= 6
    })
}

/// The process a file here belongs to.
pub fn process_of(file: &Path) -> Option<i32> {
    file.file_name()?.to_str()?.split_once('-')?.0.parse().ok()
}

/// Is there a process with this number?
pub fn is_alive(process: i32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

/// The files of kernels that live, in all folders. Those that kernels left which were killed are taken
/// away.
pub fn files() -> Vec<PathBuf> {
    let folders = folders().into_iter().filter(|folder| is_private(folder));
    let entries = folders
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    let mut found = Vec::new();
    for file in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        match process_of(&file) {
            Some(process) if is_alive(process) => found.push(file),
            Some(_) => drop(fs::remove_file(file)),
            None => {}
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_is_made_for_one_user_and_others_are_not_trusted() {
        let inside = tempfile::tempdir().unwrap();
        let folder = inside.path().join("tpu-kernel");
        make_private(&folder).unwrap();
        assert_eq!(
            fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700
        );
        make_private(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(make_private(&folder).is_err());
        let link = inside.path().join("link");
        std::os::unix::fs::symlink(inside.path(), &link).unwrap();
        assert!(!is_private(&link));
    }

    #[test]
    fn a_file_names_its_process() {
        assert_eq!(process_of(Path::new("/run/42-ab12.sock")), Some(42));
        assert_eq!(process_of(Path::new("/run/notes.txt")), None);
        assert!(is_alive(std::process::id() as i32));
        assert!(!is_alive(i32::MAX));
    }
}
