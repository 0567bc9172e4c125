//! What a process holds, as Linux tells it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Resident memory of process `pid` (or `self`) in bytes.
pub fn resident_bytes(pid: &str) -> Result<usize> {
    let text = fs::read_to_string(Path::new("/proc").join(pid).join("statm"))?;
    let pages = text
        .split_whitespace()
        .nth(1)
        .context("statm has no second field")?;
    Ok(pages.parse::<usize>()? * 4096)
}

/// Open files of process `pid` (or `self`).
pub fn open_files(pid: &str) -> Result<usize> {
    Ok(fs::read_dir(Path::new("/proc").join(pid).join("fd"))?.count())
}
