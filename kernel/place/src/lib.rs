//! The folder in which each kernel of a user has a socket that tells its numbers, as one line of JSON
//! to who connects. A socket is `PID-SESSION.sock`; beside it may lie other files of the kernel.
//!
//! Nobody else can read or write there: the folder must be this user's alone, else it is not used.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
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

/// The sockets in all folders. Not all are listened at: some kernels were killed.
pub fn sockets() -> Vec<PathBuf> {
    let folders = folders().into_iter().filter(|folder| is_private(folder));
    let mut found: Vec<PathBuf> = folders.flat_map(|folder| sockets_in(&folder)).collect();
    found.sort();
    found
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .filter(|file| file.extension().is_some_and(|ending| ending == SOCKET))
        .filter(|file| process_of(file).is_some())
        .collect()
}

/// Take away what kernels left that were killed.
pub fn sweep() {
    for socket in sockets() {
        let _ = connect(&socket);
    }
}

/// Connect to a kernel. Where nobody listens any more the socket is taken away, and the kernel's other
/// files with it. Its process number says nothing: containers that share the folder number theirs alike,
/// and do not see each other's.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let answer = UnixStream::connect(socket);
    if let Err(error) = &answer
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        forget(socket);
    }
    answer
}

/// The socket goes last: the others are found by it.
fn forget(socket: &Path) {
    let entries = socket.parent().map(fs::read_dir);
    let entries = entries.into_iter().flatten().flatten().flatten();
    let others = entries.map(|entry| entry.path()).filter(|file| {
        file.file_stem() == socket.file_stem() && file.extension() != socket.extension()
    });
    for file in others.chain([socket.to_owned()]) {
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

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
    }

    #[test]
    fn what_a_kernel_left_goes_when_nobody_listens_whatever_its_number() {
        let inside = tempfile::tempdir().unwrap();
        let file = |name: &str| inside.path().join(name);
        // No process of this machine has this number; in another container one may.
        let alive = format!("{}-ab12ab12", i32::MAX);
        let left = format!("{}-cd34cd34", std::process::id());
        let listener = UnixListener::bind(file(&format!("{alive}.sock"))).unwrap();
        drop(UnixListener::bind(file(&format!("{left}.sock"))).unwrap());
        for token in [&alive, &left] {
            fs::write(file(&format!("{token}.token")), "").unwrap();
        }
        fs::write(file("notes.sock"), "").unwrap();
        let mut sockets = sockets_in(inside.path());
        assert_eq!(sockets.len(), 2);
        sockets.retain(|socket| connect(socket).is_ok());
        assert_eq!(sockets, [file(&format!("{alive}.sock"))]);
        let names = fs::read_dir(inside.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let rest = [
            file(&format!("{alive}.sock")),
            file(&format!("{alive}.token")),
            file("notes.sock"),
        ];
        assert_eq!(names, rest);
        drop(listener);
    }
}
