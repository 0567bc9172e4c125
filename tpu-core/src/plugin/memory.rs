//! Memory spaces of a device, with the data callers attach to them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::failure::Answer;
use super::handle::{Handle, own};
use crate::pjrt::{MemoryAddressableByDevices, Raw};
use crate::session::Place;

/// A memory space. Callers of interface 0.112 and later expect its function table first.
#[repr(C)]
pub struct Memory {
    table: *const MemoryTable,
    inner: Raw,
    devices: OnceLock<Vec<Raw>>,
    /// The device whose HBM it is; none for memory of the host.
    home: OnceLock<Place>,
    attached: Mutex<HashMap<usize, Attached>>,
}

struct Attached {
    data: usize,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

#[repr(C)]
struct MemoryTable {
    struct_size: usize,
    extension_start: Raw,
    instance_size: usize,
    get: unsafe extern "C" fn(Raw, *const c_void) -> *mut c_void,
    set: unsafe extern "C" fn(
        Raw,
        *const c_void,
        *mut c_void,
        Option<unsafe extern "C" fn(*mut c_void)>,
    ),
}

// SAFETY: constant; its one data pointer is null.
unsafe impl Sync for MemoryTable {}

const _: () = assert!(size_of::<MemoryTable>() == 40);

static MEMORY_TABLE: MemoryTable = MemoryTable {
    struct_size: size_of::<MemoryTable>(),
    extension_start: std::ptr::null_mut(),
    instance_size: size_of::<Memory>(),
    get,
    set,
};

impl Handle for Memory {
    const NAME: &'static str = "memory";

    fn inner(&self) -> Raw {
        self.inner
    }
}

impl Memory {
    pub fn new(inner: Raw) -> Self {
        Self {
            table: &raw const MEMORY_TABLE,
            inner,
            devices: OnceLock::new(),
            home: OnceLock::new(),
            attached: Mutex::new(HashMap::new()),
        }
    }

    /// Say which devices, by our handles, can use it.
    pub fn set_devices(&self, devices: Vec<Raw>) {
        let _ = self.devices.set(devices);
    }

    /// Say that it is the HBM of a device.
    pub fn set_home(&self, device: Place) {
        let _ = self.home.set(device);
    }

    /// Where what is in it is counted.
    pub fn place(&self) -> Place {
        self.home.get().copied().unwrap_or(Place::Host)
    }
}

unsafe extern "C" fn get(memory: Raw, key: *const c_void) -> *mut c_void {
    let Ok(memory) = own::<Memory>(memory) else {
        return std::ptr::null_mut();
    };
    let attached = memory
        .attached
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    attached
        .get(&(key as usize))
        .map_or(std::ptr::null_mut(), |entry| entry.data as *mut c_void)
}

unsafe extern "C" fn set(
    memory: Raw,
    key: *const c_void,
    data: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
) {
    let Ok(memory) = own::<Memory>(memory) else {
        return;
    };
    let entry = Attached {
        data: data as usize,
        deleter,
    };
    let old = memory
        .attached
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(key as usize, entry);
    if let Some(Attached {
        data,
        deleter: Some(deleter),
    }) = old
    {
        // SAFETY: the caller gave both together, and the entry is gone.
        unsafe { deleter(data as *mut c_void) };
    }
}

pub fn devices(arguments: &mut MemoryAddressableByDevices) -> Answer {
    let devices = own::<Memory>(arguments.memory)?
        .devices
        .get()
        .map_or(&[][..], Vec::as_slice);
    arguments.devices = devices.as_ptr().cast_mut().cast();
    arguments.num_devices = devices.len();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::handle::{give, take};
    use super::*;

    static DELETED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn deleter(data: *mut c_void) {
        DELETED.fetch_add(data as usize, Ordering::Relaxed);
    }

    #[test]
    fn attached_data_come_back_by_key_and_are_freed_when_replaced() {
        let memory = give(Memory::new(std::ptr::null_mut()));
        let (key, other) = (8 as *const c_void, 16 as *const c_void);
        // SAFETY: a live memory; keys and data are only compared.
        unsafe {
            assert!(get(memory, key).is_null());
            set(memory, key, 5 as *mut c_void, Some(deleter));
            set(memory, other, 7 as *mut c_void, None);
            assert_eq!(get(memory, key) as usize, 5);
            set(memory, key, 6 as *mut c_void, Some(deleter));
            assert_eq!(
                (get(memory, key) as usize, get(memory, other) as usize),
                (6, 7)
            );
        }
        assert_eq!(DELETED.load(Ordering::Relaxed), 5);
        drop(take::<Memory>(memory));
    }
}
