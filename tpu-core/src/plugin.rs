//! The PJRT plug-in: the function table `TorchTPU` sees, each function over a handle of our own.
//!
//! No pointer of the wrapped plug-in leaves this module: client, device, memory, buffer,
//! executable, event, topology, layout, stream, transfer manager and error are objects made here. All
//! functions of the interface are there; where the wrapped plug-in is too old for one, it answers
//! UNIMPLEMENTED. A panic becomes an error, never an unwinding caller.

mod alias;
mod apart;
mod buffer;
mod callbacks;
mod calls;
mod chip_topology;
mod client;
mod compile;
mod description;
mod device;
mod event;
mod executable;
mod execute;
mod failure;
mod handle;
mod host_memory;
mod layouts;
mod memory;
mod optimized;
mod table;
mod topology;
mod tracking;
mod transfer;
mod transfer_manager;
mod wrapped;

use std::ffi::c_void;

pub use apart::machine_code;
pub use calls::list as calls;
pub use optimized::of as optimized;

use crate::pjrt::Api;

/// The table of this plug-in; the entry point every PJRT framework looks for.
///
/// It is valid for ever and never null: where nothing can be wrapped, its functions say so.
#[unsafe(no_mangle)]
pub extern "C" fn GetPjrtApi() -> *const Api {
    std::panic::catch_unwind(table::table).unwrap_or(std::ptr::null())
}

/// libtpu's own control interface (power, metrics), passed on; null where libtpu is not wrapped.
#[unsafe(no_mangle)]
pub extern "C" fn GetLibtpuSdkApi() -> *const c_void {
    type Getter = unsafe extern "C" fn() -> *const c_void;
    std::panic::catch_unwind(|| {
        let symbol = wrapped::get()
            .ok()
            .and_then(|wrapped| wrapped.symbol(c"GetLibtpuSdkApi"))?;
        // SAFETY: libtpu exports this symbol as a function without arguments that returns a table.
        let getter: Getter = unsafe { std::mem::transmute(symbol) };
        // SAFETY: see above.
        Some(unsafe { getter() })
    })
    .ok()
    .flatten()
    .unwrap_or(std::ptr::null())
}

/// Load the plug-in to wrap; why that fails, if it does.
pub fn problem() -> Option<String> {
    wrapped::get().err().map(|failure| failure.message)
}

/// What the wrapped plug-in is and has; `None` where there is none.
pub fn describe() -> Option<wrapped::Description<'static>> {
    Some(wrapped::get().ok()?.describe())
}

/// Wrap a function table of this process, before anything else is wrapped: for tests and
/// measurements. False when something is wrapped already, and why where the table is of no use.
pub fn wrap_table(api: &'static Api) -> Result<bool, String> {
    wrapped::set(api)
}
