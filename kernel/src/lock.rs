//! Locks. One whose holder panicked is taken all the same: none here guards more than one consistent
//! step, and a kernel that goes on is worth more than one that stops for caution.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
