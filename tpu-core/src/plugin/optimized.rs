//! What the compiler made of a program, as the plug-in keeps it: asked for by a reader of the
//! session, never while something is compiled or run.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::failure::{Answer, Failure};
use super::handle::present;
use super::wrapped::{self, Wrapped, bytes, text};
use crate::hlo;
use crate::pjrt::{
    Arguments, ExecutableDestroy, ExecutableFingerprint, ExecutableOptimizedProgram,
    LoadedExecutableGetExecutable, Program, Raw,
};

/// Programs of the wrapped plug-in that are loaded, by address. Held while one of them is asked, so
/// that nobody unloads it meanwhile.
static LOADED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Most bytes that are believed to be one program.
const MOST_BYTES: usize = 1 << 31;

fn loaded_programs() -> MutexGuard<'static, BTreeSet<usize>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plug-in loaded a program.
pub fn loaded(inner: Raw) {
    loaded_programs().insert(inner as usize);
}

/// It is about to be unloaded.
pub fn unloaded(inner: Raw) {
    loaded_programs().remove(&(inner as usize));
}

/// The optimised program whose fingerprint this is, as a serialised `HloProto`; or why there is none.
pub fn of(fingerprint: &[u8]) -> Result<Vec<u8>, String> {
    let wrapped = wrapped::get().map_err(|failure| failure.message)?;
    let programs = loaded_programs();
    let mut problem = None;
    for inner in programs.iter() {
        let found = Unloaded::of(wrapped, *inner as Raw).and_then(|executable| {
            if executable.fingerprint()? == fingerprint {
                executable.optimized().map(Some)
            } else {
                Ok(None)
            }
        });
        match found {
            Ok(Some(program)) => return Ok(program),
            Ok(None) => {}
            Err(failure) => problem = Some(failure.message),
        }
    }
    Err(problem.unwrap_or_else(|| "it is not loaded any more".into()))
}

/// A program's description, freed at the end.
struct Unloaded {
    wrapped: &'static Wrapped,
    inner: Raw,
}

impl Unloaded {
    fn of(wrapped: &'static Wrapped, loaded: Raw) -> Result<Self, Failure> {
        let mut get = LoadedExecutableGetExecutable::new();
        get.loaded_executable = loaded;
        wrapped.call(&mut get)?;
        let inner = present(get.executable, "executable")?;
        Ok(Self { wrapped, inner })
    }

    fn fingerprint(&self) -> Result<&[u8], Failure> {
        let mut ask = ExecutableFingerprint::new();
        ask.executable = self.inner;
        self.wrapped.call(&mut ask)?;
        Ok(bytes(
            ask.executable_fingerprint,
            ask.executable_fingerprint_size,
        ))
    }

    fn optimized(&self) -> Result<Vec<u8>, Failure> {
        let mut program = Program {
            struct_size: size_of::<Program>(),
            extension_start: std::ptr::null_mut(),
            code: std::ptr::null_mut(),
            code_size: 0,
            format: std::ptr::null(),
            format_size: 0,
        };
        // Without room for it the plug-in says how much it needs.
        self.ask(&mut program)?;
        let (size, mut code) = (program.code_size, Vec::new());
        if size == 0 || size > MOST_BYTES || code.try_reserve_exact(size).is_err() {
            return Err(Failure::internal("the plug-in keeps no optimised program"));
        }
        code.resize(size, 0);
        program.code = code.as_mut_ptr().cast();
        self.ask(&mut program)?;
        code.truncate(program.code_size);
        let format = text(program.format.cast_mut().cast(), program.format_size);
        hlo::as_proto(&format, code)
            .ok_or_else(|| Failure::unimplemented(format!("the plug-in gives it as `{format}`")))
    }

    fn ask(&self, program: &mut Program) -> Answer {
        let mut ask = ExecutableOptimizedProgram::new();
        ask.executable = self.inner;
        ask.program = (&raw mut *program).cast();
        self.wrapped.call(&mut ask)
    }
}

impl Drop for Unloaded {
    fn drop(&mut self) {
        let mut destroy = ExecutableDestroy::new();
        destroy.executable = self.inner;
        // A plug-in that cannot free it keeps it.
        let _ = self.wrapped.call(&mut destroy);
    }
}
