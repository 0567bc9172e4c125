//! From program bytes to a loaded program: compiled, or taken from a cache.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::apart;
use super::buffer::client_of;
use super::client::Client;
use super::executable::{Executable, LoadedExecutable};
use super::failure::{Answer, Failure};
use super::handle::{Handle, give, own, present};
use super::topology::Topology;
use super::transfer::record_failure;
use super::wrapped::{self, Wrapped, bytes};
use crate::pjrt::{
    Arguments, ClientCompile, ClientLoad, Compile, ExecutableDeserializeAndLoad, Program, Raw,
};
use crate::session::{Arrival, EventKind, Open, Record, SESSION, Stage, now_ns};
use crate::signature::Origin;
use crate::{program, rewrite};

pub fn compile(arguments: &mut ClientCompile) -> Answer {
    compile_and_count(arguments).map_err(record_failure)
}

fn compile_and_count(arguments: &mut ClientCompile) -> Answer {
    let wrapped = wrapped::get()?;
    let client = client_of(arguments.client)?;
    let given = given(arguments.program)?;
    let code = bytes(given.code.cast(), given.code_size);
    let fitted = fit(wrapped, code)?;
    let mut program = with_code(given, &fitted);
    let options = options(
        wrapped,
        arguments.compile_options,
        arguments.compile_options_size,
    );
    let started_ns = now_ns();
    let mut inner = arguments.copied();
    inner.client = client.inner();
    inner.program = (&raw mut program).cast();
    inner.compile_options = options.as_ptr().cast_mut().cast();
    inner.compile_options_size = options.len();
    let compiling = SESSION.compiling.begin(Open {
        kind: EventKind::Compile,
        started_ns,
        bytes: code.len() as u64,
        name: program::name(code).map(Arc::from),
    });
    let origin = Arc::new(Origin::of(code, &options));
    let number = arrive(Stage::Compiling, started_ns, &origin, program::name(code));
    let failed = |failure| {
        SESSION.programs.fail(number, now_ns() - started_ns);
        failure
    };
    let made =
        apart::compile(wrapped, client, &fitted, &options, &origin.note()).map_err(failed)?;
    if let Some((executable, _)) = made {
        inner.executable = executable;
    } else {
        wrapped.call(&mut inner).map_err(failed)?;
    }
    drop(compiling);
    let mut loaded = LoadedExecutable::new(client, inner.executable, origin).map_err(failed)?;
    loaded.sealed = made.map(|(_, sealed)| sealed);
    let duration_ns = settle(number, started_ns, &loaded);
    SESSION.activity.compiles.fetch_add(1, Ordering::Relaxed);
    SESSION
        .activity
        .compile_ns
        .fetch_add(duration_ns, Ordering::Relaxed);
    record(
        EventKind::Compile,
        started_ns,
        duration_ns,
        code.len(),
        &loaded,
    );
    arguments.executable = give(loaded);
    Ok(())
}

/// A program comes: its number among all.
fn arrive(stage: Stage, started_ns: u64, origin: &Arc<Origin>, name: Option<&str>) -> u64 {
    SESSION.programs.arrive(Arrival {
        stage,
        cell: SESSION.cells.current(),
        started_ns,
        name: name.map(Arc::from),
        origin: Arc::clone(origin),
    })
}

/// It is loaded; the time it took.
fn settle(number: u64, started_ns: u64, loaded: &LoadedExecutable) -> u64 {
    let duration_ns = now_ns() - started_ns;
    SESSION.programs.load(&loaded.usage);
    SESSION.programs.settle(
        number,
        &loaded.name,
        duration_ns,
        loaded.memory,
        &loaded.usage,
    );
    duration_ns
}

fn record(
    kind: EventKind,
    started_ns: u64,
    duration_ns: u64,
    size: usize,
    loaded: &LoadedExecutable,
) {
    SESSION.journal.push(Record {
        kind,
        cell: SESSION.cells.current(),
        started_ns,
        duration_ns,
        bytes: size as u64,
        program: loaded.origin.program,
        name: Some(Arc::clone(&loaded.name)),
        ..Record::default()
    });
}

/// The program a caller gives.
fn given<'a>(program: Raw) -> Result<&'a Program, Failure> {
    if program.is_null() {
        return Err(Failure::invalid("no program"));
    }
    let program = super::layouts::checked::<Program>(program, size_of::<Program>())?;
    Ok(program)
}

/// A program's bytes as the wrapped plug-in can compile them.
fn fit<'a>(wrapped: &Wrapped, code: &'a [u8]) -> Result<Cow<'a, [u8]>, Failure> {
    if wrapped.real {
        return Ok(Cow::Borrowed(code));
    }
    rewrite::fit(code).map_err(|reason| Failure::unimplemented(reason.to_string()))
}

/// `given` with `code` in the place of its own.
fn with_code(given: &Program, code: &[u8]) -> Program {
    Program {
        struct_size: size_of::<Program>(),
        code: code.as_ptr().cast_mut().cast(),
        code_size: code.len(),
        ..*given
    }
}

/// Compile options as the wrapped plug-in understands them.
fn options<'a>(wrapped: &Wrapped, start: Raw, size: usize) -> Cow<'a, [u8]> {
    let options = bytes(start, size);
    if wrapped.real {
        Cow::Borrowed(options)
    } else {
        Cow::Owned(program::without_overrides(options))
    }
}

pub fn compile_for_topology(arguments: &mut Compile) -> Answer {
    let wrapped = wrapped::get()?;
    let given = given(arguments.program)?;
    let fitted = fit(wrapped, bytes(given.code.cast(), given.code_size))?;
    let mut program = with_code(given, &fitted);
    let options = options(
        wrapped,
        arguments.compile_options,
        arguments.compile_options_size,
    );
    let mut inner = arguments.copied();
    inner.program = (&raw mut program).cast();
    inner.topology = own::<Topology>(arguments.topology)?.inner();
    inner.client = if arguments.client.is_null() {
        arguments.client
    } else {
        own::<Client>(arguments.client)?.inner()
    };
    inner.compile_options = options.as_ptr().cast_mut().cast();
    inner.compile_options_size = options.len();
    wrapped.call(&mut inner).map_err(record_failure)?;
    let origin = Origin::of(bytes(given.code.cast(), given.code_size), &options);
    let inner = present(inner.executable, Executable::NAME)?;
    arguments.executable = give(Executable::new(inner, None, Arc::new(origin)));
    Ok(())
}

pub fn load(arguments: &mut ClientLoad) -> Answer {
    let wrapped = wrapped::get()?;
    let client = client_of(arguments.client)?;
    let options = options(
        wrapped,
        arguments.compile_options,
        arguments.compile_options_size,
    );
    let mut inner = arguments.copied();
    inner.client = client.inner();
    let executable = own::<Executable>(arguments.executable)?;
    inner.executable = executable.inner();
    inner.compile_options = options.as_ptr().cast_mut().cast();
    inner.compile_options_size = options.len();
    wrapped.call(&mut inner).map_err(record_failure)?;
    let origin = Arc::clone(&executable.origin);
    let loaded = LoadedExecutable::new(client, inner.loaded_executable, origin)?;
    SESSION.programs.load(&loaded.usage);
    arguments.loaded_executable = give(loaded);
    Ok(())
}

/// A serialised program comes from a cache: a hit. One that this plug-in cannot load is a miss,
/// which the caller makes good by compiling, not a failure to report.
pub fn deserialize_and_load(arguments: &mut ExecutableDeserializeAndLoad) -> Answer {
    let wrapped = wrapped::get()?;
    let client = client_of(arguments.client)?;
    let saved = bytes(
        arguments.serialized_executable,
        arguments.serialized_executable_size,
    );
    let (code, note) = if wrapped.real {
        (saved, &[][..])
    } else {
        program::unseal(saved, wrapped.maker).ok_or_else(|| {
            Failure::invalid(
                "the cached program was made by another plug-in or for another CPU, or is damaged",
            )
        })?
    };
    let overrides = options(
        wrapped,
        arguments.overridden_serialized_compile_options,
        arguments.overridden_serialized_compile_options_size,
    );
    let started_ns = now_ns();
    let mut inner = arguments.copied();
    inner.client = client.inner();
    inner.serialized_executable = code.as_ptr().cast_mut().cast();
    inner.serialized_executable_size = code.len();
    if !arguments.overridden_serialized_compile_options.is_null() {
        inner.overridden_serialized_compile_options = overrides.as_ptr().cast_mut().cast();
        inner.overridden_serialized_compile_options_size = overrides.len();
    }
    wrapped.call(&mut inner)?;
    // A plug-in's own form says nothing of the program it was made from.
    let origin = serde_json::from_slice(note).unwrap_or_else(|_| Origin::of(code, &[]));
    let origin = Arc::new(origin);
    let mut loaded = LoadedExecutable::new(client, inner.loaded_executable, Arc::clone(&origin))?;
    loaded.sealed = (!wrapped.real).then(|| saved.into());
    let number = arrive(Stage::Cached, started_ns, &origin, Some(&loaded.name));
    let duration_ns = settle(number, started_ns, &loaded);
    SESSION.activity.cache_hits.fetch_add(1, Ordering::Relaxed);
    SESSION
        .activity
        .cache_hit_ns
        .fetch_add(duration_ns, Ordering::Relaxed);
    record(
        EventKind::CacheHit,
        started_ns,
        duration_ns,
        code.len(),
        &loaded,
    );
    arguments.loaded_executable = give(loaded);
    Ok(())
}
