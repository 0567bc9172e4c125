//! Launches: the path every operation takes, kept short.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer::{self, Buffer};
use super::callbacks::Callbacks;
use super::device::Device;
use super::event;
use super::executable::{LoadedExecutable, Output};
use super::failure::{Answer, Failure};
use super::handle::{Handle, give, own, present, take};
use super::transfer::{admit, record_failure};
use super::wrapped::{self, slice};
use crate::pjrt::{
    Arguments, Code, ExecuteContextCreate, ExecuteContextDestroy, ExecuteOptions,
    LoadedExecutableExecute, Raw,
};
use crate::session::{Cancelled, EventKind, Hold, Place, Room, SESSION, Share};

/// Arguments and devices up to which a launch allocates nothing for its translation.
const INLINE: usize = 32;

pub fn execute(arguments: &mut LoadedExecutableExecute) -> Answer {
    let executable = own::<LoadedExecutable>(arguments.executable)?;
    // Not a failure to count: whoever cancels says what was lost by it.
    let room = SESSION
        .window
        .enter(&executable.cost)
        .map_err(|Cancelled| {
            Failure::new(
                Code::CANCELLED,
                "cancelled by an interrupt before it ran on the device",
            )
        })?;
    launch(arguments, executable, room).map_err(record_failure)
}

fn launch(
    arguments: &mut LoadedExecutableExecute,
    executable: &LoadedExecutable,
    room: Room,
) -> Answer {
    let wrapped = wrapped::get()?;
    let devices = arguments.num_devices;
    let lists = slice::<*const Raw>(arguments.argument_lists, devices);
    let passed = |device: usize| slice::<Raw>(lists[device].cast_mut().cast(), arguments.num_args);

    let options = given_options(arguments.options);
    let options = options.as_ref();
    let kept = kept_bytes(options, if lists.is_empty() { &[] } else { passed(0) })?;
    admit(
        executable.place(0, arguments.execute_device)?,
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
        for (index, raw) in passed(device).iter().enumerate() {
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

    let mut translated = translated_options(options, devices)?;
    let mut events: [Raw; INLINE] = [std::ptr::null_mut(); INLINE];
    let mut call = arguments.copied();
    call.executable = executable.inner();
    call.argument_lists = inner_lists.as_ptr().cast_mut().cast();
    if let Some((options, _)) = &translated {
        call.options = std::ptr::from_ref(options).cast_mut().cast();
    }
    if !arguments.execute_device.is_null() {
        call.execute_device = own::<Device>(arguments.execute_device)?.inner();
    }
    let wanted = !arguments.device_complete_events.is_null();
    if !wanted && devices <= INLINE {
        call.device_complete_events = events.as_mut_ptr().cast();
    }

    clear_results(executable, &call);
    let name = Some(Arc::clone(&executable.name));
    let mut work = SESSION.start(
        EventKind::Execute,
        executable.need.output,
        executable.origin.program,
        name,
    );
    work.room = Some(room);
    if let Err(failure) = wrapped.call(&mut call) {
        SESSION.abandon(&work);
        return Err(failure);
    }
    SESSION.activity.executions.fetch_add(1, Ordering::Relaxed);
    SESSION.programs.run(&executable.usage);
    // Inputs that were taken over leave the count before their successors enter it, so that the
    // peak is not raised by memory that exists once.
    for device in 0..lists.len() {
        for raw in passed(device) {
            own::<Buffer>(*raw)?.settle_donation();
        }
    }
    if let Some(callbacks) = translated.take().and_then(|(_, callbacks)| callbacks) {
        keep_callbacks(&call, devices, Arc::new(callbacks));
    }
    let adopted = adopt_outputs(executable, arguments);
    // Who is refused gets no events either: they are freed here.
    settle_events(&call, wanted && adopted.is_ok(), devices, work);
    adopted
}

/// Null in every place a result or event is to go: callers do not clear them.
fn clear_results(executable: &LoadedExecutable, call: &LoadedExecutableExecute) {
    let lists = slice::<*mut Raw>(call.output_lists, call.num_devices);
    let events = (call.device_complete_events.cast::<Raw>(), call.num_devices);
    let lists = lists.iter().map(|list| (*list, executable.outputs));
    for (start, size) in lists.chain([events]).filter(|(start, _)| !start.is_null()) {
        for index in 0..size {
            // SAFETY: the caller, or we, gave room for each result and event.
            unsafe { start.add(index).write(std::ptr::null_mut()) };
        }
    }
}

/// Where the plug-in wrote its results, for each device that has some.
fn outputs<'a>(
    executable: &LoadedExecutable,
    arguments: &LoadedExecutableExecute,
) -> impl Iterator<Item = (usize, &'a mut [Raw])> {
    let count = executable.outputs;
    let lists = slice::<*mut Raw>(arguments.output_lists, arguments.num_devices);
    let lists = lists.iter().enumerate();
    lists
        .filter(move |(_, list)| count > 0 && !list.is_null())
        .map(move |(device, list)| {
            // SAFETY: the caller gave room for each result of each device, and the plug-in filled it.
            let outputs = unsafe { std::slice::from_raw_parts_mut(*list, count) };
            (device, outputs)
        })
}

/// Put our handles in the places where the plug-in wrote its results: for all, or where one is
/// missing for none, and the others are freed.
fn adopt_outputs(executable: &LoadedExecutable, arguments: &LoadedExecutableExecute) -> Answer {
    let mut results = outputs(executable, arguments).flat_map(|(_, outputs)| outputs);
    if results.any(|inner| inner.is_null()) {
        for (_, outputs) in outputs(executable, arguments) {
            for inner in outputs {
                buffer::discard(std::mem::replace(inner, std::ptr::null_mut()));
            }
        }
        return Err(Failure::internal("the plug-in gave no result"));
    }
    let client = executable.client;
    for (device, outputs) in outputs(executable, arguments) {
        let place = executable.place(device, arguments.execute_device)?;
        let results = executable.results.get_or_init(|| {
            let describe = |inner: &Raw| Output {
                bytes: buffer::measure(*inner),
                on_host: buffer::locate(client, *inner) == Place::Host,
            };
            outputs.iter().map(describe).collect()
        });
        for (inner, Output { bytes, on_host }) in outputs.iter_mut().zip(results) {
            let share = Share::new(if *on_host { Place::Host } else { place }, *bytes);
            *inner = Buffer::adopt(client, *inner, Hold::of(share))?;
        }
    }
    Ok(())
}

/// The plug-in calls them until the last device has ended.
fn keep_callbacks(call: &LoadedExecutableExecute, devices: usize, callbacks: Arc<Callbacks>) {
    let events = slice::<Raw>(call.device_complete_events, devices);
    if events.is_empty() {
        std::mem::forget(callbacks);
        return;
    }
    for event in events {
        event::keep_until(*event, Arc::clone(&callbacks));
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

/// The caller's options as far as they go: what those of an older version lack is zero. `None` for
/// null.
fn given_options(given: Raw) -> Option<ExecuteOptions> {
    // SAFETY: the caller gives options that live during the call and begin with their size, or null.
    let size = *unsafe { given.cast::<usize>().as_ref() }?;
    // SAFETY: numbers, flags and pointers, all of which may be zero.
    let mut options: ExecuteOptions = unsafe { std::mem::zeroed() };
    let size = size.min(size_of::<ExecuteOptions>());
    // SAFETY: both have so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut options).cast(), size) };
    Some(options)
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

/// The caller's options with handles and functions the plug-in can use; `None` when they can pass as
/// they are. The functions must be kept until the launch has ended.
fn translated_options(
    options: Option<&ExecuteOptions>,
    devices: usize,
) -> Result<Option<(ExecuteOptions, Option<Callbacks>)>, Failure> {
    let Some(options) = options else {
        return Ok(None);
    };
    let exchanges = options.num_send_ops > 0 || options.num_recv_ops > 0;
    if options.context.is_null() && !exchanges {
        return Ok(None);
    }
    let mut translated = *options;
    translated.struct_size = size_of::<ExecuteOptions>().min(options.struct_size);
    if !options.context.is_null() {
        translated.context = own::<ExecuteContext>(options.context)?.inner();
    }
    let callbacks = exchanges.then(|| Callbacks::new(options, devices));
    if let Some(callbacks) = &callbacks {
        callbacks.fill(&mut translated);
    }
    Ok(Some((translated, callbacks)))
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
        inner: present(arguments.context, ExecuteContext::NAME)?,
    });
    Ok(())
}

pub fn destroy_context(arguments: &mut ExecuteContextDestroy) -> Answer {
    let Some(context) = take::<ExecuteContext>(arguments.context) else {
        return Ok(());
    };
    let mut inner = arguments.copied();
    inner.context = context.inner;
    wrapped::get()?.call(&mut inner)
}
