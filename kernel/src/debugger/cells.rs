//! The file names cells are compiled under. A front end computes the same name from a cell's source,
//! and so finds the cell of a frame, and the file to set a breakpoint in.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

/// Front ends take it from `debugInfo`; any value would do.
const SEED: u32 = 0xc70f_6907;
const SUFFIX: &str = ".py";

/// The folder of one kernel's cells. It is made when the first cell is written.
#[derive(Debug)]
pub struct CellFiles {
    folder: PathBuf,
    made: AtomicBool,
}

impl Default for CellFiles {
    fn default() -> Self {
        Self::new(&std::env::temp_dir())
    }
}

impl CellFiles {
    fn new(temporary: &Path) -> Self {
        // numba and joblib know a notebook's functions by a folder of this name.
        let name = format!("ipykernel_{}", std::process::id());
        Self {
            folder: temporary.join(name),
            made: AtomicBool::new(false),
        }
    }

    /// What a front end must know to compute `path` itself, as `debugInfo` has it.
    pub fn rules(&self) -> Value {
        json!({
            "hashMethod": "Murmur2",
            "hashSeed": SEED,
            "tmpFilePrefix": format!("{}/", self.folder.display()),
            "tmpFileSuffix": SUFFIX,
        })
    }

    pub fn path(&self, source: &str) -> String {
        let hash = murmur2(source.as_bytes(), SEED);
        format!("{}/{hash}{SUFFIX}", self.folder.display())
    }

    /// Write the cell where `path` says.
    pub fn write(&self, source: &str) -> io::Result<String> {
        self.make_folder()?;
        let path = self.path(source);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        io::Write::write_all(&mut file, source.as_bytes())?;
        Ok(path)
    }

    /// The folder's name can be guessed: one that somebody else made is not used.
    fn make_folder(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = fs::symlink_metadata(&self.folder)?;
                // SAFETY: cannot fail.
                if !found.is_dir() || found.uid() != unsafe { libc::geteuid() } {
                    return Err(io::Error::other(
                        "it is there already and belongs to somebody else; set TMPDIR to another folder",
                    ));
                }
            }
            made => made?,
        }
        self.made.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Remove the folder, if one was made.
    pub fn remove(&self) {
        if self.made.load(Ordering::Relaxed) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// `MurmurHash2`, 32 bits, as front ends compute it of a cell's source in UTF-8.
fn murmur2(data: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = seed ^ data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(M);
        mixed ^= mixed >> 24;
        hash = hash.wrapping_mul(M) ^ mixed.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_front_ends_compute() {
        // From ipykernel 7.4, whose scheme JupyterLab follows.
        for (source, hash) in [
            ("", 3_990_065_800),
            ("a", 2_167_009_006),
            ("ab", 2_805_137_849),
            ("abc", 3_350_977_461),
            ("x = 1\n", 1_602_534_638),
            ("größe = '🦀'", 2_207_642_079),
        ] {
            assert_eq!(murmur2(source.as_bytes(), SEED), hash, "{source}");
        }
    }

    #[test]
    fn a_cell_is_written_for_its_user_alone_and_removed() {
        let temporary = std::env::temp_dir().join(format!("cells-{}", std::process::id()));
        fs::create_dir(&temporary).unwrap();
        let cells = CellFiles::new(&temporary);
        let path = cells.write("x = 1").unwrap();
        assert_eq!(path, cells.path("x = 1"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "x = 1");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(cells.folder()).unwrap().mode() & 0o777, 0o700);
        cells.remove();
        assert!(!cells.folder().exists());
        fs::remove_dir(&temporary).unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_folder_is_refused() {
        let temporary = std::env::temp_dir().join(format!("cells-link-{}", std::process::id()));
        fs::create_dir(&temporary).unwrap();
        let cells = CellFiles::new(&temporary);
        std::os::unix::fs::symlink("/tmp", cells.folder()).unwrap();
        let error = cells.write("x").unwrap_err().to_string();
        assert!(error.contains("belongs to somebody else"), "{error}");
        cells.remove();
        fs::remove_dir_all(&temporary).unwrap();
    }
}
