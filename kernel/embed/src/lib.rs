//! The extension module `tpu_kernel._kernel`: the only place that touches the interpreter.
//! `kernel/python/tpu_kernel/_kernel.pyi` says what each function means.
//!
//! - `requests`: what Python answers
//! - `shells`: the main shell and the subshells, whose threads take requests one by one
//! - `output`: streams, publications, questions
//! - `picture`: pixels to PNG
//! - `debugger`: where cells are compiled, how the debugger starts
//! - `feed`: what the live feed asks of Python
//! - `tpu`: the runtime session of tpu-core
//! - `felt`: whether Python has seen an interrupt
//! - `entries`: a look at the arguments of PyTorch's own functions
//! - `unraisable`: an interrupt that lands where nothing can be raised
//! - `crash`: how faulthandler and the report of a crash work together
//! - `embedded`: the entry of the launcher, which starts Python inside this library

mod buffers;
mod crash;
mod debugger;
mod embedded;
mod entries;
mod feed;
mod felt;
mod output;
mod picture;
mod requests;
mod shared;
mod shells;
mod tpu;
mod unraisable;

use pyo3::prelude::*;

/// Not the C library's: a thread that dies inside `malloc` leaves it locked or broken, and the io
/// thread is to report just that.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

#[pymodule]
mod _kernel {
    #[pymodule_export]
    use crate::crash::{crash_copy, crash_handlers_on_top, crash_stack_fd};
    #[pymodule_export]
    use crate::debugger::{
        cell_file, debugger_failed, debugger_started, debugging, hidden_variable,
    };
    #[pymodule_export]
    use crate::entries::look_before;
    #[pymodule_export]
    use crate::feed::{feed_answer, feed_comms, feed_live, feed_order, feed_storm};
    #[pymodule_export]
    use crate::output::{Stream, input_request, original_fd, output_fds, publish, running};
    #[pymodule_export]
    use crate::picture::{png, png_columns};
    #[pymodule_export]
    use crate::requests::{
        Parent, Request, execute_input, exit, finish, located, next_service, ready, reply,
        request_exit, stopping,
    };
    #[pymodule_export]
    use crate::shared::{connection_file, owner, session_id, start};
    #[pymodule_export]
    use crate::shells::{Shell, main_shell, raise_in_thread, subshell_ids, swap_sigint};
    #[pymodule_export]
    use crate::tpu::{
        hlo_text, tpu_attach, tpu_cancelling, tpu_drain, tpu_events, tpu_holdings, tpu_identity,
        tpu_keep_events, tpu_ongoing, tpu_optimized, tpu_parse_size, tpu_programs, tpu_resume,
        tpu_set_cell, tpu_set_limit, tpu_set_place, tpu_snapshot, tpu_used, tpu_watch_compiles,
    };
    #[pymodule_export]
    use crate::unraisable::unraisable;
}
