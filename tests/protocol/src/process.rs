//! What a process holds, as Linux tells it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Resident memory of process `pid` (or `self`) in bytes.
pub fn resident_bytes(pid: &str) -> Result<usize> {
    memory(pid, 1)
}

/// Address space of process `pid` (or `self`) in bytes, memory reserved and never touched included.
pub fn address_bytes(pid: &str) -> Result<usize> {
    memory(pid, 0)
}

fn memory(pid: &str, field: usize) -> Result<usize> {
    let text = fs::read_to_string(Path::new("/proc").join(pid).join("statm"))?;
    let pages = text
        .split_whitespace()
        .nth(field)
        .context("statm is too short")?;
    Ok(pages.parse::<usize>()? * 4096)
}

/// Open files of process `pid` (or `self`).
pub fn open_files(pid: &str) -> Result<usize> {
    Ok(fs::read_dir(Path::new("/proc").join(pid).join("fd"))?.count())
}
