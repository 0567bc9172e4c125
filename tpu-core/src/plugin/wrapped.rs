//! The plug-in that does the work: loaded once, called by slot, its errors turned into ours.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Serialize;

use super::failure::{Answer, Failure};
use crate::choice::{self, Choice};
use crate::library::{self, symbol};
use crate::pjrt::{
    Api, Arguments, CHIP_TOPOLOGY_EXTENSION, ChipTopologyExtension, Code, ErrorDestroy,
    ErrorGetCode, ErrorMessage, ExtensionBase, Function, HOST_MEMORY_EXTENSION,
    HostMemoryExtension, LAYOUTS_EXTENSION, LayoutsExtension, NamedValue, PluginAttributes,
    PluginInitialize, Raw, SLOT_COUNT, SLOT_NAMES, TABLE_OFFSET,
};
use crate::program;
use crate::session::Generation;

/// A loaded plug-in.
pub struct Wrapped {
    api: &'static Api,
    slots: usize,
    library: usize,
    layouts: Option<&'static LayoutsExtension>,
    layout_functions: usize,
    host_memory: Option<&'static HostMemoryExtension>,
    chip_topology: Option<&'static ChipTopologyExtension>,
    /// It is libtpu: nothing is emulated.
    pub real: bool,
    /// The chip it plays where it is not.
    pub generation: &'static Generation,
    /// HBM of that chip, where somebody asked for another size than its own.
    pub hbm_bytes: Option<u64>,
    pub path: PathBuf,
    /// Stands for this plug-in on this kind of CPU: whose compiled programs can be loaded again.
    pub maker: u64,
}

/// Extensions looked at. A chain that bites its tail is not followed for ever.
const MOST_EXTENSIONS: usize = 64;

static WRAPPED: OnceLock<Result<Wrapped, Failure>> = OnceLock::new();

/// The plug-in to wrap, loaded at the first call.
pub fn get() -> Result<&'static Wrapped, Failure> {
    WRAPPED.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Wrapped, Failure> {
    let choice =
        choice::choose().map_err(|error| Failure::new(Code::NOT_FOUND, error.to_string()))?;
    let path = choice.plugin.display().to_string();
    let wrapped = open(choice).map_err(|reason| {
        Failure::new(Code::NOT_FOUND, format!("cannot load `{path}`: {reason}"))
    })?;
    wrapped.call(&mut PluginInitialize::new())?;
    Ok(wrapped)
}

fn open(choice: Choice) -> Result<Wrapped, String> {
    let library = library::open(&choice.plugin)?;
    let entry = symbol(library, c"GetPjrtApi").ok_or("it is no PJRT plug-in (no GetPjrtApi)")?;
    if std::ptr::eq(entry.cast_const(), super::GetPjrtApi as *const c_void) {
        return Err("it is this very library; name the plug-in to wrap".into());
    }
    // SAFETY: the symbol has this type in every PJRT plug-in.
    let entry: unsafe extern "C" fn() -> *const Api = unsafe { std::mem::transmute(entry) };
    // SAFETY: see above.
    let table = unsafe { entry() };
    // SAFETY: a plug-in's table is never freed. A shorter table is only read up to its size.
    let api: &'static Api = unsafe { table.as_ref() }.ok_or("it has no function table")?;
    around(api, library, choice)
}

/// Wrap a table of this process instead of a library's. False when something is wrapped already.
pub fn set(api: &'static Api) -> Result<bool, String> {
    let choice = Choice {
        plugin: "a table of this process".into(),
        generation: Generation::DEFAULT,
        hbm_bytes: None,
    };
    let wrapped = around(api, std::ptr::null_mut(), choice)?;
    Ok(WRAPPED.set(Ok(wrapped)).is_ok())
}

fn around(api: &'static Api, library: *mut c_void, choice: Choice) -> Result<Wrapped, String> {
    if api.version.major != 0 || api.struct_size < TABLE_OFFSET {
        return Err(format!(
            "its interface {}.{} is unknown",
            api.version.major, api.version.minor
        ));
    }
    let (layouts, host_memory, chip_topology) = extensions(api);
    Ok(Wrapped {
        api,
        slots: ((api.struct_size - TABLE_OFFSET) / size_of::<Function>()).min(SLOT_COUNT),
        library: library as usize,
        layouts,
        host_memory,
        chip_topology,
        layout_functions: layouts.map_or(0, |layouts| {
            layouts
                .base
                .struct_size
                .saturating_sub(size_of::<ExtensionBase>())
                / size_of::<Function>()
        }),
        real: symbol(library, c"GetLibtpuSdkApi").is_some(),
        maker: maker(&choice.plugin),
        generation: choice.generation,
        hbm_bytes: choice.hbm_bytes,
        path: choice.plugin,
    })
}

fn maker(path: &Path) -> u64 {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let features = choice::cpu_features();
    program::hash(&[name, &size.to_le_bytes(), features.as_bytes()].concat())
}

/// The extensions of a plug-in that are translated. The others are left out of the chain we offer,
/// because their functions take handles that are not.
fn extensions(
    api: &Api,
) -> (
    Option<&'static LayoutsExtension>,
    Option<&'static HostMemoryExtension>,
    Option<&'static ChipTopologyExtension>,
) {
    let mut found = (None, None, None);
    for head in heads(api) {
        let next = std::ptr::from_ref(head).cast_mut();
        let whole = head.struct_size >= size_of::<HostMemoryExtension>();
        match head.kind {
            // SAFETY: this type number stands for this struct; functions are read up to its size.
            LAYOUTS_EXTENSION => found.0 = unsafe { next.cast::<LayoutsExtension>().as_ref() },
            HOST_MEMORY_EXTENSION if whole => {
                // SAFETY: this type number stands for this struct, and all of it is there.
                found.1 = unsafe { next.cast::<HostMemoryExtension>().as_ref() }
            }
            CHIP_TOPOLOGY_EXTENSION => {
                // SAFETY: see above.
                found.2 = unsafe { next.cast::<ChipTopologyExtension>().as_ref() }
            }
            other => super::table::log(format_args!("extension {other} is not offered")),
        }
    }
    found
}

/// The heads of a plug-in's extensions, in its order.
fn heads(api: &Api) -> impl Iterator<Item = &'static ExtensionBase> {
    // SAFETY: the chain is made of live extension heads and ends with null.
    let read = |next: *mut ExtensionBase| unsafe { next.as_ref() };
    std::iter::successors(read(api.extension_start.cast()), move |head| {
        read(head.next)
    })
    .take(MOST_EXTENSIONS)
}

/// A named value as JSON.
fn json(value: &NamedValue) -> serde_json::Value {
    // SAFETY: `kind` says which of the union's fields is set; lists and texts have `value_size`.
    unsafe {
        match value.kind {
            0 => text(value.value.text.cast_mut().cast(), value.value_size).into(),
            1 => value.value.integer.into(),
            2 => slice::<i64>(value.value.integers.cast_mut().cast(), value.value_size).into(),
            3 => value.value.float.into(),
            4 => (value.value.flag != 0).into(),
            _ => serde_json::Value::Null,
        }
    }
}

/// What the wrapped plug-in is and has.
#[derive(Debug, Serialize)]
pub struct Description<'a> {
    path: &'a Path,
    /// Version of the interface, as `0.117`.
    interface: String,
    emulated: bool,
    /// Functions of the table it does not have.
    missing: Vec<&'static str>,
    extensions: Vec<Extension>,
    /// What it says of itself: versions it reads, among others.
    attributes: BTreeMap<String, serde_json::Value>,
}

/// An extension, by its number in the interface.
#[derive(Debug, Serialize)]
struct Extension {
    kind: u32,
    /// Passed on to callers.
    offered: bool,
}

impl Wrapped {
    pub fn describe(&self) -> Description<'_> {
        let (major, minor) = self.interface();
        let missing = (0..SLOT_COUNT).filter(|slot| self.function(*slot).is_none());
        let mut attributes = PluginAttributes::new();
        let attributes = match self.call(&mut attributes) {
            Ok(()) => slice::<NamedValue>(attributes.attributes, attributes.num_attributes),
            Err(_) => &[],
        };
        Description {
            path: &self.path,
            interface: format!("{major}.{minor}"),
            emulated: !self.real,
            missing: missing.map(|slot| SLOT_NAMES[slot]).collect(),
            extensions: heads(self.api)
                .map(|head| Extension {
                    kind: head.kind,
                    offered: matches!(
                        head.kind,
                        LAYOUTS_EXTENSION | HOST_MEMORY_EXTENSION | CHIP_TOPOLOGY_EXTENSION
                    ),
                })
                .collect(),
            attributes: attributes
                .iter()
                .map(|value| {
                    (
                        text(value.name.cast_mut().cast(), value.name_size).into_owned(),
                        json(value),
                    )
                })
                .collect(),
        }
    }

    /// Platform version of the emulated chip, with the plug-in's own in it.
    pub fn emulated_version(&self, of_plugin: &str) -> String {
        format!("emulated {} on {of_plugin}", self.generation.device_name)
    }

    /// Version of the interface it was built with.
    pub fn interface(&self) -> (i32, i32) {
        (self.api.version.major, self.api.version.minor)
    }

    pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        symbol(self.library as *mut c_void, name)
    }

    /// Whether it has the function these arguments are for.
    pub fn offers<A: Arguments>(&self) -> bool {
        self.function(A::SLOT).is_some()
    }

    /// The function at `slot`, where the table is long enough to have one.
    fn function(&self, slot: usize) -> Option<Function> {
        (slot < self.slots).then(|| self.api.slots[slot]).flatten()
    }

    /// Call the function these arguments are for.
    pub fn call<A: Arguments>(&self, arguments: &mut A) -> Answer {
        let function = self.function(A::SLOT).ok_or_else(|| {
            let (name, path) = (SLOT_NAMES[A::SLOT], self.path.display());
            Failure::unimplemented(format!("{name} is not offered by `{path}`"))
        })?;
        arguments.clear_results();
        // SAFETY: the arguments are those of the slot, their handles the plug-in's own.
        self.answer(unsafe { function((&raw mut *arguments).cast()) })
    }

    /// Call a function of the layouts extension.
    pub fn call_layouts<A>(&self, index: usize, arguments: &mut A) -> Answer {
        let function = self
            .layouts
            .filter(|_| index < self.layout_functions)
            .and_then(|layouts| layouts.functions[index])
            .ok_or_else(|| Failure::unimplemented("the wrapped plug-in does not tell layouts"))?;
        self.call_function(function, arguments)
    }

    /// The function of the host memory extension, where the plug-in has it.
    pub fn host_memory(&self) -> Option<Function> {
        self.host_memory?.allocate
    }

    /// A function of the TPU topology extension, where the plug-in has it.
    pub fn chip_topology(&self, index: usize) -> Option<Function> {
        let extension = self.chip_topology?;
        let known = (extension.base.struct_size).saturating_sub(size_of::<ExtensionBase>());
        (index < known / size_of::<Function>()).then(|| extension.functions[index])?
    }

    /// Call a function of an extension with its own arguments.
    pub fn call_function<A>(&self, function: Function, arguments: &mut A) -> Answer {
        // SAFETY: the arguments are those of the function, their handles the plug-in's own.
        self.answer(unsafe { function((&raw mut *arguments).cast()) })
    }

    pub fn layout_functions(&self) -> usize {
        self.layout_functions
    }

    fn answer(&self, error: Raw) -> Answer {
        if error.is_null() {
            Ok(())
        } else {
            Err(self.take_error(error))
        }
    }

    /// Read and free an error of the plug-in. Its own functions do both: what an error is made of
    /// differs between versions.
    pub fn take_error(&self, error: Raw) -> Failure {
        let run = |slot: usize, arguments: Raw| {
            if let Some(function) = self.function(slot) {
                // SAFETY: argument structs of these slots around a live error of the plug-in.
                unsafe { function(arguments) };
            }
        };
        let mut code = ErrorGetCode::new();
        code.error = error;
        run(ErrorGetCode::SLOT, (&raw mut code).cast());
        let mut message = ErrorMessage::new();
        message.error = error;
        run(ErrorMessage::SLOT, (&raw mut message).cast());
        let text = text(message.message, message.message_size).into_owned();
        let mut destroy = ErrorDestroy::new();
        destroy.error = error;
        run(ErrorDestroy::SLOT, (&raw mut destroy).cast());
        Failure::new(Code(code.code), text)
    }
}

/// Text of `size` bytes at `start`, whatever is in it.
pub fn text<'a>(start: Raw, size: usize) -> std::borrow::Cow<'a, str> {
    String::from_utf8_lossy(bytes(start, size))
}

/// `size` bytes at `start`; none for null.
pub fn bytes<'a>(start: Raw, size: usize) -> &'a [u8] {
    slice(start, size)
}

/// `size` items at `start`; none for null, and none for what cannot be a list of them.
pub fn slice<'a, T>(start: Raw, size: usize) -> &'a [T] {
    let possible = size
        .checked_mul(size_of::<T>())
        .is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if start.is_null() || size == 0 || !possible || !start.cast::<T>().is_aligned() {
        return &[];
    }
    // SAFETY: pointer and length come together in an argument struct and are valid during the call.
    unsafe { std::slice::from_raw_parts(start.cast::<T>(), size) }
}
