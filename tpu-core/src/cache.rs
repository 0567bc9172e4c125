//! The caches of compiled programs: kept below a size, what was used longest ago goes first.
//!
//! TorchTPU and PyTorch write them and never delete. Only folders that carry our tag are touched, so
//! that a person who names a folder with other things in it loses nothing. Other kernels may read
//! and write at the same time: a file that is gone is a miss, an open one stays readable.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use crate::choice::parse_size;

/// Folder of the cache on disk, set by the bootstrap; each version of what compiles has one below.
const FOLDER_VARIABLE: &str = "TPU_KERNEL_CACHE_FOLDER";
/// Bytes it may take, as `5GiB`.
const SIZE_VARIABLE: &str = "TPU_KERNEL_CACHE_SIZE";
const DEFAULT_SIZE: u64 = 5 << 30;

/// Name of TorchTPU's cache in shared memory, and where it is. It is copied from the one on disk.
const MEMORY_VARIABLE: &str = "TORCH_TPU_TIER2_COMPILATION_CACHE";
const MEMORY_FOLDER: &str = "/dev/shm/torch_tpu_cache";
const MEMORY_SIZE: u64 = 256 << 20;

/// A folder that may be pruned holds this file, which also tells backup programs to pass by.
const TAG: &str = "CACHEDIR.TAG";
/// What the tag begins with, by its published convention.
const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
const DEPTH: usize = 8;

static WRITTEN: AtomicU64 = AtomicU64::new(0);
static PRUNING: AtomicBool = AtomicBool::new(false);

/// A program of `bytes` was given to whoever keeps it: prune again when much has come together.
pub fn written(bytes: usize) {
    let before = WRITTEN.fetch_add(bytes as u64, Ordering::Relaxed);
    if before + bytes as u64 > wish().size / 16 {
        WRITTEN.store(0, Ordering::Relaxed);
        prune_aside();
    }
}

/// Prune what the environment names, on a thread of its own that ends with it.
pub fn prune_aside() {
    if PRUNING.swap(true, Ordering::AcqRel) {
        return;
    }
    let wish = wish();
    let work = || {
        if let Some(root) = &wish.folder {
            prune(&tagged(Path::new(root)), wish.size);
        }
        if let Some(name) = &wish.memory {
            prune(&relatives(Path::new(MEMORY_FOLDER), name), MEMORY_SIZE);
        }
        PRUNING.store(false, Ordering::Release);
    };
    let named = std::thread::Builder::new().name("tpu-core-cache".into());
    if named.spawn(work).is_err() {
        PRUNING.store(false, Ordering::Release);
    }
}

/// What the environment says.
struct Wish {
    folder: Option<OsString>,
    size: u64,
    memory: Option<OsString>,
}

/// Read once, on the caller's thread: later a cell may change the environment, and another thread that
/// reads it meanwhile may read what is freed.
fn wish() -> &'static Wish {
    static WISH: OnceLock<Wish> = OnceLock::new();
    WISH.get_or_init(|| Wish {
        folder: env::var_os(FOLDER_VARIABLE),
        size: env::var(SIZE_VARIABLE)
            .ok()
            .and_then(|text| parse_size(&text))
            .unwrap_or(DEFAULT_SIZE),
        memory: env::var_os(MEMORY_VARIABLE),
    })
}

/// Folders directly in `root` that carry the tag.
fn tagged(root: &Path) -> Vec<PathBuf> {
    entries(root)
        .filter(|folder| fs::read(folder.join(TAG)).is_ok_and(|tag| tag.starts_with(SIGNATURE)))
        .collect()
}

/// The folder `name` and those of other versions: what is the same but for the part behind the last
/// dash. Names that are not made so have no relatives.
fn relatives(root: &Path, name: &OsStr) -> Vec<PathBuf> {
    let name = name.to_string_lossy();
    let Some((ours, _)) = name
        .rsplit_once('-')
        .filter(|(ours, _)| ours.starts_with("tpu-kernel-"))
    else {
        return Vec::new();
    };
    let prefix = format!("{ours}-");
    entries(root)
        .filter(|folder| {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&prefix)
        })
        .collect()
}

struct File {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

/// Delete files, those used longest ago first, until all that `folders` hold is `most` bytes less a
/// tenth. Links are not followed; those that lead nowhere go. Returns how many went.
pub fn prune(folders: &[PathBuf], most: u64) -> usize {
    let mut files = Vec::new();
    let mut removed = 0;
    for folder in folders {
        removed += collect(folder, DEPTH, &mut files);
    }
    let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
    if bytes <= most {
        return removed;
    }
    files.sort_unstable_by_key(|file| file.used);
    for file in files {
        if bytes <= most - most / 10 {
            break;
        }
        if fs::remove_file(&file.path).is_ok() {
            removed += 1;
            bytes -= file.bytes;
        }
    }
    removed
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<File>) -> usize {
    let mut removed = 0;
    for path in entries(folder) {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_symlink() {
            removed += usize::from(!path.exists() && fs::remove_file(&path).is_ok());
        } else if metadata.is_dir() && depth > 0 {
            removed += collect(&path, depth - 1, files);
        } else if metadata.is_file() && path.file_name() != Some(OsStr::new(TAG)) {
            let times = [metadata.modified(), metadata.accessed()];
            files.push(File {
                used: times
                    .into_iter()
                    .flatten()
                    .max()
                    .unwrap_or(SystemTime::UNIX_EPOCH),
                bytes: metadata.len(),
                path,
            });
        }
    }
    removed
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                env::temp_dir().join(format!("tpu-core-cache-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// A file of `bytes`, used so many hours ago.
        fn file(&self, path: &str, bytes: usize, hours: u64) -> PathBuf {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, vec![0; bytes]).unwrap();
            let then = SystemTime::now() - Duration::from_secs(3600 * hours);
            let times = fs::FileTimes::new().set_modified(then).set_accessed(then);
            fs::File::open(&path).unwrap().set_times(times).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let folder = Folder::new("oldest");
        let old = folder.file("a/x/old.bin", 600, 9);
        let older = folder.file("b/older.bin", 300, 20);
        let fresh = folder.file("a/fresh.bin", 500, 0);
        assert_eq!(prune(&[folder.0.join("a"), folder.0.join("b")], 1400), 0);
        assert_eq!(prune(&[folder.0.join("a"), folder.0.join("b")], 1000), 2);
        assert!(!older.exists() && !old.exists() && fresh.exists());
    }

    #[test]
    fn only_folders_with_our_tag_are_pruned() {
        let folder = Folder::new("tagged");
        folder.file("mine/thesis.tex", 100, 1);
        folder.file("other/CACHEDIR.TAG", 100, 1);
        folder.file("cache/program.bin", 100, 1);
        fs::write(folder.0.join("cache").join(TAG), SIGNATURE).unwrap();
        assert_eq!(tagged(&folder.0), [folder.0.join("cache")]);
        assert_eq!(prune(&tagged(&folder.0), 10), 1);
        assert_eq!(tagged(&folder.0), [folder.0.join("cache")], "the tag stays");
    }

    #[test]
    fn links_are_not_followed_and_dead_ones_go() {
        let folder = Folder::new("links");
        let shared = folder.file("shared/program.bin", 1000, 5);
        fs::create_dir(folder.0.join("cache")).unwrap();
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, folder.0.join("cache").join(name)).unwrap();
        };
        link(&shared, "program.bin");
        link(&folder.0.join("shared"), "folder");
        link(Path::new("/nowhere/at/all"), "dead.bin");
        assert_eq!(prune(&[folder.0.join("cache")], 10), 1);
        assert!(shared.exists() && folder.0.join("cache/program.bin").exists());
    }

    #[test]
    fn caches_in_memory_of_other_versions_are_found_and_those_of_others_are_not() {
        let folder = Folder::new("memory");
        for name in [
            "tpu-kernel-7-aa",
            "tpu-kernel-7-bb",
            "tpu-kernel-70-aa",
            "default",
        ] {
            fs::create_dir(folder.0.join(name)).unwrap();
        }
        let mut found = relatives(&folder.0, OsStr::new("tpu-kernel-7-aa"));
        found.sort();
        assert_eq!(
            found,
            [
                folder.0.join("tpu-kernel-7-aa"),
                folder.0.join("tpu-kernel-7-bb")
            ]
        );
        assert!(relatives(&folder.0, OsStr::new("default")).is_empty());
        assert!(relatives(&folder.0, OsStr::new("my-model")).is_empty());
    }
}
