//! The layouts extension over our handles. `TorchTPU` asks it about every buffer.

use std::sync::OnceLock;

use super::buffer::Buffer;
use super::client::Client;
use super::executable::Executable;
use super::failure::{Answer, Failure};
use super::handle::{Handle, give, hold, own, take};
use super::topology::Topology;
use super::wrapped::{self, slice};
use crate::pjrt::{
    BufferLayout, ClientDefaultLayout, LayoutDestroy, LayoutSerialize, OutputLayouts,
    ParameterLayouts, Raw, TopologyDefaultLayout,
};

/// A memory layout.
pub struct Layout {
    inner: Raw,
}

impl Handle for Layout {
    const NAME: &'static str = "layout";

    fn inner(&self) -> Raw {
        self.inner
    }
}

fn wrap(inner: Raw) -> Raw {
    if inner.is_null() {
        inner
    } else {
        give(Layout { inner })
    }
}

pub fn destroy(arguments: &mut LayoutDestroy) -> Answer {
    let Some(layout) = take::<Layout>(arguments.layout) else {
        return Ok(());
    };
    let mut inner = *arguments;
    inner.struct_size = size_of::<LayoutDestroy>();
    inner.layout = layout.inner;
    wrapped::get()?.call_layouts(LayoutDestroy::INDEX, &mut inner)
}

pub fn serialize(arguments: &mut LayoutSerialize) -> Answer {
    let raw = arguments.layout;
    arguments.layout = own::<Layout>(raw)?.inner;
    let answer = wrapped::get()?.call_layouts(LayoutSerialize::INDEX, arguments);
    arguments.layout = raw;
    answer?;
    hold(
        &mut arguments.serialized_layout,
        &mut arguments.serialized_layout_deleter,
    );
    Ok(())
}

pub fn client_default(arguments: &mut ClientDefaultLayout) -> Answer {
    let raw = arguments.client;
    arguments.client = own::<Client>(raw)?.inner();
    arguments.layout = std::ptr::null_mut();
    let answer = wrapped::get()?.call_layouts(ClientDefaultLayout::INDEX, arguments);
    arguments.client = raw;
    answer?;
    arguments.layout = wrap(arguments.layout);
    Ok(())
}

pub fn of_buffer(arguments: &mut BufferLayout) -> Answer {
    let raw = arguments.buffer;
    arguments.buffer = own::<Buffer>(raw)?.inner();
    arguments.layout = std::ptr::null_mut();
    let answer = wrapped::get()?.call_layouts(BufferLayout::INDEX, arguments);
    arguments.buffer = raw;
    answer?;
    arguments.layout = wrap(arguments.layout);
    Ok(())
}

pub fn topology_default(arguments: &mut TopologyDefaultLayout) -> Answer {
    let raw = arguments.topology_description;
    arguments.topology_description = own::<Topology>(raw)?.inner();
    arguments.layout = std::ptr::null_mut();
    let answer = wrapped::get()?.call_layouts(TopologyDefaultLayout::INDEX, arguments);
    arguments.topology_description = raw;
    answer?;
    arguments.layout = wrap(arguments.layout);
    Ok(())
}

pub fn of_outputs(arguments: &mut OutputLayouts) -> Answer {
    let raw = arguments.executable;
    let executable = own::<Executable>(raw)?;
    arguments.executable = executable.inner();
    let answer = wrapped::get()?.call_layouts(OutputLayouts::INDEX, arguments);
    arguments.executable = raw;
    answer?;
    arguments.layouts = list(
        &executable.output_layouts,
        arguments.layouts,
        arguments.num_outputs,
    );
    Ok(())
}

pub fn of_parameters(arguments: &mut ParameterLayouts) -> Answer {
    let raw = arguments.executable;
    let executable = own::<Executable>(raw)?;
    arguments.executable = executable.inner();
    let answer = wrapped::get()?.call_layouts(ParameterLayouts::INDEX, arguments);
    arguments.executable = raw;
    answer?;
    arguments.layouts = list(
        &executable.parameter_layouts,
        arguments.layouts,
        arguments.num_parameters,
    );
    Ok(())
}

/// Our layouts for a list that belongs to a program; made once, freed with it.
fn list(kept: &OnceLock<Vec<usize>>, inner: Raw, size: usize) -> Raw {
    kept.get_or_init(|| {
        slice::<Raw>(inner, size)
            .iter()
            .map(|layout| wrap(*layout) as usize)
            .collect()
    })
    .as_ptr()
    .cast_mut()
    .cast()
}

/// Free our layouts of a program. The plug-in's own go with its program.
pub fn release(executable: &Executable) {
    for kept in [&executable.output_layouts, &executable.parameter_layouts] {
        for layout in kept.get().into_iter().flatten() {
            drop(take::<Layout>(*layout as Raw));
        }
    }
}

/// A caller's argument struct, or an error to answer with.
pub fn checked<'a, A>(raw: Raw, size: usize) -> Result<&'a mut A, Failure> {
    // SAFETY: the caller gives an argument struct, or null; its size is checked before it is used.
    let given = unsafe { raw.cast::<usize>().as_ref() }
        .copied()
        .unwrap_or(0);
    if given < size {
        return Err(Failure::invalid(format!(
            "an argument struct of {given} bytes, {size} are needed"
        )));
    }
    // SAFETY: not null and large enough; during the call it is ours alone.
    Ok(unsafe { &mut *raw.cast::<A>() })
}
