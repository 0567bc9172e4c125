//! The caller's side: tpu-core's table over the stand-in, called as a framework calls it, and what
//! tpu-core says it counts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "only tests use it")]

use std::ffi::c_void;
use std::sync::Once;

use tpu_core::api::{Sink, tpu_core_api};
use tpu_core::client::Holdings;
#[allow(
    clippy::wildcard_imports,
    reason = "one argument struct for each of the table's functions"
)]
use tpu_core::pjrt::*;

/// Code and message of an error.
pub type Refused = (u32, String);

/// tpu-core's own table, over `wrapped` from the first call on.
pub fn table(wrapped: fn() -> &'static Api) -> &'static Api {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| assert_eq!(tpu_core::wrap_table(wrapped()), Ok(true)));
    // SAFETY: the table of this process, valid for ever.
    unsafe { &*tpu_core::GetPjrtApi() }
}

/// Call a function of a table.
pub fn call<A: Arguments>(api: &Api, arguments: &mut A) -> Result<(), Refused> {
    call_raw(api, A::SLOT, (&raw mut *arguments).cast())
}

/// Call the function at `slot` with whatever is at `raw`.
pub fn call_raw(api: &Api, slot: usize, raw: Raw) -> Result<(), Refused> {
    // SAFETY: every slot of the table is filled, and checks what it is given.
    let error = unsafe { api.slots[slot].unwrap()(raw) };
    if error.is_null() {
        return Ok(());
    }
    let mut code = ErrorGetCode::new();
    code.error = error;
    let mut message = ErrorMessage::new();
    message.error = error;
    let mut destroy = ErrorDestroy::new();
    destroy.error = error;
    // SAFETY: an error the table gave out.
    let text = unsafe {
        api.slots[ErrorGetCode::SLOT].unwrap()((&raw mut code).cast());
        api.slots[ErrorMessage::SLOT].unwrap()((&raw mut message).cast());
        let text = std::slice::from_raw_parts(message.message.cast::<u8>(), message.message_size);
        let text = String::from_utf8_lossy(text).into_owned();
        api.slots[ErrorDestroy::SLOT].unwrap()((&raw mut destroy).cast());
        text
    };
    Err((code.code, text))
}

/// What a function of tpu-core's own table tells, read from its JSON.
pub fn told<T: serde::de::DeserializeOwned>(tell: impl FnOnce(Sink, *mut c_void)) -> T {
    unsafe extern "C" fn collect(context: *mut c_void, data: *const u8, size: usize) {
        // SAFETY: the context is the vector below; data and size come together.
        unsafe {
            (*context.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(data, size));
        }
    }
    let mut text: Vec<u8> = Vec::new();
    tell(collect, (&raw mut text).cast());
    serde_json::from_slice(&text).unwrap()
}

/// What tpu-core counts.
pub fn holdings() -> Holdings {
    // SAFETY: the sink is called during the call only.
    told(|sink, context| unsafe { ((*tpu_core_api()).holdings)(sink, context) })
}

/// Stamp what follows with a cell.
pub fn enter(cell: &str) {
    // SAFETY: a string that lives during the call.
    unsafe { ((*tpu_core_api()).set_cell)(cell.as_ptr().cast(), cell.len()) };
}

/// A client of tpu-core and what it lists.
pub struct Client {
    pub api: &'static Api,
    pub raw: Raw,
    pub devices: Vec<Raw>,
    /// HBM of each device, then the host's memory at each.
    pub memories: Vec<Raw>,
}

const FLOAT32: u32 = 11;

impl Client {
    pub fn new(api: &'static Api) -> Result<Self, Refused> {
        let mut create = ClientCreate::new();
        call(api, &mut create)?;
        let mut devices = ClientDevices::new();
        devices.client = create.client;
        call(api, &mut devices)?;
        let devices = list(devices.devices, devices.num_devices);
        let memories = devices.iter().map(|device| {
            let mut memories = DeviceAddressableMemories::new();
            memories.device = *device;
            call(api, &mut memories).unwrap();
            list(memories.memories, memories.num_memories)
        });
        let memories: Vec<Vec<Raw>> = memories.collect();
        let nth = |n: usize| memories.iter().map(move |of| of[n]).collect::<Vec<Raw>>();
        Ok(Self {
            api,
            raw: create.client,
            devices,
            memories: [nth(0), nth(1)].concat(),
        })
    }

    fn call<A: Arguments>(&self, arguments: &mut A) -> Result<(), Refused> {
        call(self.api, arguments)
    }

    pub fn upload(&self, elements: i64, device: Raw, memory: Raw) -> Result<Raw, Refused> {
        let mut a = ClientBufferFromHostBuffer::new();
        (a.client, a.device, a.memory) = (self.raw, device, memory);
        (a.dims, a.num_dims, a.kind) = ((&raw const elements).cast_mut().cast(), 1, FLOAT32);
        self.call(&mut a)?;
        self.free_event(a.done_with_host_buffer);
        Ok(a.buffer)
    }

    pub fn uninitialized(&self, elements: i64, device: Raw, memory: Raw) -> Result<Raw, Refused> {
        let mut a = ClientCreateUninitializedBuffer::new();
        (a.client, a.device, a.memory) = (self.raw, device, memory);
        (a.shape_dims, a.shape_num_dims) = ((&raw const elements).cast_mut().cast(), 1);
        a.shape_element_type = FLOAT32;
        self.call(&mut a)?;
        Ok(a.buffer)
    }

    pub fn view(&self) -> Result<Raw, Refused> {
        let mut a = ClientCreateViewOfDeviceBuffer::new();
        a.client = self.raw;
        self.call(&mut a)?;
        Ok(a.buffer)
    }

    pub fn error_buffer(&self) -> Result<Raw, Refused> {
        let mut a = ClientCreateErrorBuffer::new();
        a.client = self.raw;
        self.call(&mut a)?;
        Ok(a.buffer)
    }

    /// An alias, and what fulfils it.
    pub fn alias(&self, memory: Raw) -> Result<(Raw, Raw), Refused> {
        let mut a = ClientCreateAliasBuffer::new();
        (a.client, a.memory) = (self.raw, memory);
        self.call(&mut a)?;
        Ok((a.alias_buffer, a.fulfill_alias_buffer_cb))
    }

    pub fn fulfil(&self, fulfilment: Raw, buffer: Raw, code: u32) -> Result<(), Refused> {
        let mut a = ClientFulfillAliasBuffer::new();
        (a.client, a.buffer, a.status_code) = (self.raw, buffer, code);
        a.fulfill_alias_buffer_cb = fulfilment;
        self.call(&mut a)
    }

    pub fn copy_to_device(&self, buffer: Raw, device: Raw) -> Result<Raw, Refused> {
        let mut a = BufferCopyToDevice::new();
        (a.buffer, a.dst_device) = (buffer, device);
        self.call(&mut a)?;
        Ok(a.dst_buffer)
    }

    pub fn copy_to_memory(&self, buffer: Raw, memory: Raw) -> Result<Raw, Refused> {
        let mut a = BufferCopyToMemory::new();
        (a.buffer, a.dst_memory) = (buffer, memory);
        self.call(&mut a)?;
        Ok(a.dst_buffer)
    }

    pub fn bitcast(&self, buffer: Raw) -> Result<Raw, Refused> {
        let mut a = BufferBitcast::new();
        a.buffer = buffer;
        self.call(&mut a)?;
        Ok(a.out_buffer)
    }

    pub fn donate(&self, buffer: Raw) -> Result<Raw, Refused> {
        let mut a = BufferDonateWithControlDependency::new();
        a.buffer = buffer;
        self.call(&mut a)?;
        Ok(a.out_buffer)
    }

    pub fn delete(&self, buffer: Raw) -> Result<(), Refused> {
        let mut a = BufferDelete::new();
        a.buffer = buffer;
        self.call(&mut a)
    }

    pub fn destroy(&self, buffer: Raw) -> Result<(), Refused> {
        let mut a = BufferDestroy::new();
        a.buffer = buffer;
        self.call(&mut a)
    }

    pub fn keep(&self, buffer: Raw) -> Result<(), Refused> {
        let mut a = BufferIncreaseExternalReferenceCount::new();
        a.buffer = buffer;
        self.call(&mut a)
    }

    pub fn let_go(&self, buffer: Raw) -> Result<(), Refused> {
        let mut a = BufferDecreaseExternalReferenceCount::new();
        a.buffer = buffer;
        self.call(&mut a)
    }

    /// A manager of buffers with these numbers of elements.
    pub fn manager(&self, elements: &[i64], memory: Raw) -> Result<Raw, Refused> {
        let shapes: Vec<ShapeSpec> = elements
            .iter()
            .map(|elements| ShapeSpec {
                struct_size: 36,
                extension_start: std::ptr::null_mut(),
                dims: std::ptr::from_ref(elements),
                num_dims: 1,
                element_type: FLOAT32,
            })
            .collect();
        let mut a = ClientCreateBuffersForAsyncHostToDevice::new();
        (a.client, a.memory) = (self.raw, memory);
        (a.shape_specs, a.num_shape_specs) = (shapes.as_ptr().cast_mut().cast(), shapes.len());
        self.call(&mut a)?;
        Ok(a.transfer_manager)
    }

    pub fn retrieve(&self, manager: Raw, index: i32) -> Result<Raw, Refused> {
        let mut a = TransferManagerRetrieveBuffer::new();
        (a.transfer_manager, a.buffer_index) = (manager, index);
        self.call(&mut a)?;
        Ok(a.buffer_out)
    }

    pub fn transfer(&self, manager: Raw, index: i32, bytes: i64) -> Result<(), Refused> {
        let mut a = TransferManagerTransferData::new();
        (a.transfer_manager, a.buffer_index, a.transfer_size) = (manager, index, bytes);
        self.call(&mut a)?;
        self.free_event(a.done_with_h2d_transfer);
        Ok(())
    }

    pub fn destroy_manager(&self, manager: Raw) -> Result<(), Refused> {
        let mut a = TransferManagerDestroy::new();
        a.transfer_manager = manager;
        self.call(&mut a)
    }

    /// A program in the stand-in's notation.
    pub fn compile(&self, code: &str) -> Result<Raw, Refused> {
        let mut program = Program {
            struct_size: 48,
            extension_start: std::ptr::null_mut(),
            code: code.as_ptr().cast_mut().cast(),
            code_size: code.len(),
            format: c"mlir".as_ptr(),
            format_size: 4,
        };
        let mut a = ClientCompile::new();
        (a.client, a.program) = (self.raw, (&raw mut program).cast());
        self.call(&mut a)?;
        Ok(a.executable)
    }

    /// Launch on one device; with `device` on that, else on the program's first.
    pub fn execute(
        &self,
        program: Raw,
        given: &[Raw],
        results: usize,
        device: Raw,
    ) -> Result<Vec<Raw>, Refused> {
        self.execute_with(std::ptr::null_mut(), program, given, results, device)
    }

    /// As [`Self::execute`], with options.
    pub fn execute_with(
        &self,
        options: Raw,
        program: Raw,
        given: &[Raw],
        results: usize,
        device: Raw,
    ) -> Result<Vec<Raw>, Refused> {
        let arguments = given.as_ptr();
        let mut outputs: Vec<Raw> = vec![std::ptr::null_mut(); results];
        let list = outputs.as_mut_ptr();
        let mut a = LoadedExecutableExecute::new();
        (a.executable, a.execute_device) = (program, device);
        a.options = options;
        (a.num_devices, a.num_args) = (1, given.len());
        a.argument_lists = (&raw const arguments).cast_mut().cast();
        a.output_lists = (&raw const list).cast_mut().cast();
        self.call(&mut a)?;
        Ok(outputs)
    }

    pub fn destroy_program(&self, program: Raw) -> Result<(), Refused> {
        let mut a = LoadedExecutableDestroy::new();
        a.executable = program;
        self.call(&mut a)
    }

    fn free_event(&self, event: Raw) {
        let mut a = EventDestroy::new();
        a.event = event;
        // A plug-in that lies fails here too.
        let _ = self.call(&mut a);
    }
}

fn list(start: Raw, size: usize) -> Vec<Raw> {
    if start.is_null() {
        return Vec::new();
    }
    // SAFETY: a list of the table's, alive as long as the client.
    unsafe { std::slice::from_raw_parts(start.cast::<Raw>(), size) }.to_vec()
}
