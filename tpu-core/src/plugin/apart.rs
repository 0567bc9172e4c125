//! A program compiled in another process: both ends of it.

use std::sync::Arc;

use super::client::Client;
use super::failure::Failure;
use super::handle::Handle;
use super::wrapped::{self, Wrapped, bytes};
use crate::pjrt::{
    Arguments, ClientCompile, ClientCreate, Code, ExecutableDeserializeAndLoad,
    ExecutableSerialize, LoadedExecutableGetExecutable, Program, Raw,
};
use crate::{program, trial};

/// A loaded program of the wrapped plug-in, and the form in which it is kept.
pub type Loaded = (Raw, Arc<[u8]>);

/// Have a helper compile a program that could end this process, and load what it made. None where
/// the program is to be compiled here. `note` is kept with it.
pub fn compile(
    wrapped: &Wrapped,
    client: &Client,
    code: &[u8],
    options: &[u8],
    note: &[u8],
) -> Result<Option<Loaded>, Failure> {
    if wrapped.real || !trial::needed(code) {
        return Ok(None);
    }
    let made = trial::compile(code, options, program::name(code))
        .map_err(|ended| Failure::new(Code::INTERNAL, ended.to_string()))?;
    Ok(made.and_then(|machine_code| load(wrapped, client, &machine_code, note)))
}

fn load(wrapped: &Wrapped, client: &Client, machine_code: &[u8], note: &[u8]) -> Option<Loaded> {
    let mut load = ExecutableDeserializeAndLoad::new();
    load.client = client.inner();
    load.serialized_executable = machine_code.as_ptr().cast_mut().cast();
    load.serialized_executable_size = machine_code.len();
    wrapped.call(&mut load).ok()?;
    let sealed = program::seal(machine_code, note, wrapped.maker);
    Some((load.loaded_executable, sealed.into()))
}

/// The helper's end: compile a program on a client of its own, and write it down.
pub fn machine_code(code: &[u8], options: &[u8]) -> Result<Vec<u8>, Failure> {
    let wrapped = wrapped::get()?;
    let mut client = ClientCreate::new();
    wrapped.call(&mut client)?;
    let format = b"mlir";
    let mut program = Program {
        struct_size: size_of::<Program>(),
        extension_start: std::ptr::null_mut(),
        code: code.as_ptr().cast_mut().cast(),
        code_size: code.len(),
        format: format.as_ptr().cast(),
        format_size: format.len(),
    };
    let mut compile = ClientCompile::new();
    compile.client = client.client;
    compile.program = (&raw mut program).cast();
    compile.compile_options = options.as_ptr().cast_mut().cast();
    compile.compile_options_size = options.len();
    wrapped.call(&mut compile)?;
    let mut get = LoadedExecutableGetExecutable::new();
    get.loaded_executable = compile.executable;
    wrapped.call(&mut get)?;
    let mut serialize = ExecutableSerialize::new();
    serialize.executable = get.executable;
    // Nothing is freed: the process ends.
    wrapped.call(&mut serialize)?;
    Ok(bytes(serialize.serialized_bytes, serialize.serialized_bytes_size).to_vec())
}
