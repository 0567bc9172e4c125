//! Launches: the path every operation takes, kept short.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer::{self, Buffer};
use super::device::Device;
use super::event;
use super::executable::LoadedExecutable;
use super::failure::{Answer, Failure};
use super::handle::{Handle, give, own, take};
use super::transfer::{admit, record_failure};
use super::wrapped::{self, slice};
use crate::pjrt::{
    ExecuteContextCreate, ExecuteContextDestroy, ExecuteOptions, LoadedExecutableExecute, Raw,
};
use crate::session::{EventKind, SESSION};

/// Arguments and devices up to which a launch allocates nothing for its translation.
const INLINE: usize = 32;

pub fn execute(arguments: &mut LoadedExecutableExecute) -> Answer {
    launch(arguments).map_err(record_failure)
}

fn launch(arguments: &mut LoadedExecutableExecute) -> Answer {
    let wrapped = wrapped::get()?;
    let executable = own::<LoadedExecutable>(arguments.executable)?;
    let devices = arguments.num_devices;
    let lists = slice::<*const Raw>(arguments.argument_lists, devices);
    let given = |device: usize| slice::<Raw>(lists[device].cast_mut().cast(), arguments.num_args);

    // SAFETY: the caller gives options that live during the call, or null.
    let options = unsafe { arguments.options.cast::<ExecuteOptions>().as_ref() };
    let kept = kept_bytes(options, if lists.is_empty() { &[] } else { given(0) })?;
    admit(
        executable.need.extra(kept),
        format_args!("program `{}`", executable.name),
    )?;

    let mut inline: [Raw; INLINE] = [std::ptr::null_mut(); INLINE];
    let total = devices * arguments.num_args;
    let mut spilled = Vec::new();
    let inner: &mut [Raw] = if total <= INLINE {
        &mut inline[..total]
    } else {
        spilled.resize(total, std::ptr::null_mut());
        &mut spilled
    };
    for device in 0..lists.len() {
        for (index, raw) in given(device).iter().enumerate() {
            inner[device * arguments.num_args + index] = own::<Buffer>(*raw)?.inner();
        }
    }
    let mut inline_lists = [std::ptr::null::<Raw>(); INLINE];
    let mut spilled_lists = Vec::new();
    let inner_lists: &mut [*const Raw] = if devices <= INLINE {
        &mut inline_lists[..devices]
    } else {
        spilled_lists.resize(devices, std::ptr::null());
        &mut spilled_lists
    };
    for (device, list) in inner_lists.iter_mut().enumerate() {
        *list = inner[device * arguments.num_args..].as_ptr();
    }

    let translated = translated_options(options)?;
    let mut events: [Raw; INLINE] = [std::ptr::null_mut(); INLINE];
    let mut call = *arguments;
    call.executable = executable.inner();
    call.argument_lists = inner_lists.as_ptr().cast_mut().cast();
    if let Some(options) = &translated {
        call.options = std::ptr::from_ref(options).cast_mut().cast();
    }
    if !arguments.execute_device.is_null() {
        call.execute_device = own::<Device>(arguments.execute_device)?.inner();
    }
    let wanted = !arguments.device_complete_events.is_null();
    if !wanted && devices <= INLINE {
        call.device_complete_events = events.as_mut_ptr().cast();
    }

    let name = Some(Arc::clone(&executable.name));
    let work = SESSION.start(
        EventKind::Execute,
        executable.need.output,
        executable.program,
        name,
    );
    if let Err(failure) = wrapped.call(&mut call) {
        SESSION.abandon(&work);
        return Err(failure);
    }
    SESSION.activity.executions.fetch_add(1, Ordering::Relaxed);
    // Inputs that were taken over leave the count before their successors enter it, so that the
    // peak is not raised by memory that exists once.
    for device in 0..lists.len() {
        for raw in given(device) {
            own::<Buffer>(*raw)?.settle_donation();
        }
    }
    adopt_outputs(executable, arguments.output_lists, devices);
    settle_events(&call, wanted, devices, work);
    Ok(())
}

/// Put our handles in the places where the plug-in wrote its results.
fn adopt_outputs(executable: &LoadedExecutable, lists: Raw, devices: usize) {
    for list in slice::<*mut Raw>(lists, devices) {
        if list.is_null() || executable.outputs == 0 {
            continue;
        }
        // SAFETY: the caller gave room for each result of each device, and the plug-in filled it.
        let outputs = unsafe { std::slice::from_raw_parts_mut(*list, executable.outputs) };
        let sizes = executable.output_bytes.get_or_init(|| {
            outputs
                .iter()
                .map(|inner| buffer::measure(*inner))
                .collect()
        });
        for (inner, bytes) in outputs.iter_mut().zip(sizes) {
            *inner = Buffer::adopt(executable.client, *inner, *bytes);
        }
    }
}

/// End the work with the launch, and give the caller its events if it wanted them.
fn settle_events(
    call: &LoadedExecutableExecute,
    wanted: bool,
    devices: usize,
    work: crate::session::Work,
) {
    if call.device_complete_events.is_null() || devices == 0 {
        SESSION.finish(work, None);
        return;
    }
    // SAFETY: room for one event a device, filled by the plug-in.
    let events = unsafe {
        std::slice::from_raw_parts_mut(call.device_complete_events.cast::<Raw>(), devices)
    };
    let mut work = Some(work);
    for event in events {
        // The first device stands for the launch; TorchTPU has one device a process.
        if let Some(work) = work.take() {
            event::watch(*event, wanted, work);
        } else if !wanted {
            event::discard(*event);
        }
        if wanted {
            *event = event::wrap(*event);
        }
    }
}

/// Bytes of arguments the caller forbids to overwrite.
fn kept_bytes(options: Option<&ExecuteOptions>, given: &[Raw]) -> Result<u64, Failure> {
    let Some(options) = options else { return Ok(0) };
    let kept = slice::<i64>(
        options.non_donatable_input_indices.cast_mut().cast(),
        options.num_non_donatable_input_indices,
    );
    let mut bytes = 0;
    for index in kept {
        if let Some(raw) = usize::try_from(*index)
            .ok()
            .and_then(|index| given.get(index))
        {
            bytes += own::<Buffer>(*raw)?.bytes();
        }
    }
    Ok(bytes)
}

/// The caller's options with the plug-in's context; `None` when they can pass as they are.
fn translated_options(options: Option<&ExecuteOptions>) -> Result<Option<ExecuteOptions>, Failure> {
    let Some(options) = options else {
        return Ok(None);
    };
    if options.num_send_ops > 0 || options.num_recv_ops > 0 {
        return Err(Failure::unimplemented(
            "programs that exchange data with the host while they run",
        ));
    }
    if options.context.is_null() {
        return Ok(None);
    }
    let mut translated = *options;
    translated.struct_size = size_of::<ExecuteOptions>().min(options.struct_size);
    translated.context = own::<ExecuteContext>(options.context)?.inner();
    Ok(Some(translated))
}

/// Data a caller attaches to launches.
struct ExecuteContext {
    inner: Raw,
}

impl Handle for ExecuteContext {
    const NAME: &'static str = "execute context";

    fn inner(&self) -> Raw {
        self.inner
    }
}

pub fn create_context(arguments: &mut ExecuteContextCreate) -> Answer {
    wrapped::get()?.call(arguments)?;
    arguments.context = give(ExecuteContext {
        inner: arguments.context,
    });
    Ok(())
}

pub fn destroy_context(arguments: &mut ExecuteContextDestroy) -> Answer {
    let Some(context) = take::<ExecuteContext>(arguments.context) else {
        return Ok(());
    };
    let mut inner = *arguments;
    inner.context = context.inner;
    wrapped::get()?.call(&mut inner)
}
