//! From a connection file to a running kernel: in this process where the interpreter comes
//! as a shared library, else by becoming that interpreter.

use std::ffi::{CString, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs, mem, ptr};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_NOW, Symbol};

use crate::arguments::StartOptions;
use crate::compiler;
use crate::environment::Environment;
use crate::error::Error;

/// What `_kernel.abi3.so` offers a program that wants to be a kernel. It is given
/// `[python, connection file, settings …]`, binds the sockets, runs Python's own `main` and returns
/// the exit code.
const ENTRY: &[u8] = b"tpu_kernel_embedded_main\0";
type Entry = unsafe extern "C" fn(argc: c_int, argv: *const *const c_char) -> c_int;

/// `0` runs the interpreter's own program instead of loading it into this process.
const EMBED: &str = "TPU_KERNEL_EMBED";

/// Resolve every symbol at once: finds a symbol that an older Python lacks, in tests.
const BIND_NOW: &str = "TPU_KERNEL_BIND_NOW";

pub fn start(options: &StartOptions) -> Result<ExitCode, Error> {
    check_connection_file(&options.connection_file)?;
    let environment = Environment::find(options.python.as_deref())?;
    // Without compiled bytecode each start of Python pays for parsing IPython and torch.
    // SAFETY: this program has one thread so far.
    unsafe { env::remove_var("PYTHONDONTWRITEBYTECODE") };
    if let (Ok(program), None) = (env::current_exe(), env::var_os(compiler::VARIABLE)) {
        // SAFETY: see above.
        unsafe { env::set_var(compiler::VARIABLE, program) };
    }

    if let Some(entry) = embed(&environment) {
        return Ok(run_embedded(entry, &environment.python, options));
    }
    let source = Command::new(&environment.python)
        .args([
            OsStr::new("-m"),
            OsStr::new("tpu_kernel"),
            OsStr::new("-f"),
            options.connection_file.as_os_str(),
        ])
        .args(&options.settings)
        .exec();
    Err(Error::PythonUnusable {
        python: environment.python,
        source,
    })
}

/// Whoever starts a kernel by hand gets a clear word here; what the file says is read, and
/// judged, by the kernel.
fn check_connection_file(path: &Path) -> Result<(), Error> {
    let text = fs::read(path).map_err(|source| Error::ConnectionUnreadable {
        path: path.to_owned(),
        source,
    })?;
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&text) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::ConnectionInvalid {
            path: path.to_owned(),
        }),
    }
}

/// Loads the interpreter, then the kernel. `None` where either cannot be had this way: the
/// same module inside the interpreter's own program serves as well.
fn embed(environment: &Environment) -> Option<Entry> {
    if env::var_os(EMBED).is_some_and(|value| value == "0") {
        return None;
    }
    let libpython = environment.libpython.as_deref()?;
    let binding = if env::var_os(BIND_NOW).is_some() {
        RTLD_NOW
    } else {
        RTLD_LAZY
    };
    // Global, since extension modules do not name libpython as their dependency.
    let python = open(libpython, binding | RTLD_GLOBAL).ok()?;
    let kernel = open(&environment.module, binding).ok()?;
    // SAFETY: the name belongs to this signature; both sides are built from one checkout.
    let entry: Symbol<Entry> = unsafe { kernel.get(ENTRY) }.ok()?;
    let entry = *entry;
    // Neither may ever be unloaded: threads run in the one, objects live in the other.
    mem::forget((python, kernel));
    Some(entry)
}

fn open(library: &Path, flags: c_int) -> Result<Library, libloading::Error> {
    // SAFETY: the libraries' initialisers are those of libpython and of our own module.
    unsafe { Library::open(Some(library), flags) }
}

fn run_embedded(entry: Entry, python: &Path, options: &StartOptions) -> ExitCode {
    let words = [python.as_os_str(), options.connection_file.as_os_str()];
    let settings = options.settings.iter().map(OsString::as_os_str);
    let words: Result<Vec<CString>, _> = words
        .into_iter()
        .chain(settings)
        .map(|word| CString::new(word.as_bytes()))
        .collect();
    // A command line cannot hold a NUL byte.
    let Ok(words) = words else {
        return ExitCode::FAILURE;
    };
    let mut argv: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    argv.push(ptr::null());
    // SAFETY: argv holds C strings and a closing NULL that outlive the call, on the main
    // thread, and Python has not been initialised.
    let code = unsafe { entry(words.len() as c_int, argv.as_ptr()) };
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(path: &Path) -> String {
        check_connection_file(path).unwrap_err().to_string()
    }

    #[test]
    fn a_connection_file_that_is_missing_or_no_json_object_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kernel.json");
        let hint = "let Jupyter start this kernel, or give -f a file that Jupyter wrote";
        assert_eq!(
            complaint(&file),
            format!(
                "cannot read the connection file `{}` (No such file or directory): {hint}",
                file.display()
            )
        );
        assert_eq!(
            complaint(folder.path()),
            format!(
                "cannot read the connection file `{}` (Is a directory): {hint}",
                folder.path().display()
            )
        );
        for text in ["", "[1]", "{\"shell_port\": 1", "\u{0}"] {
            fs::write(&file, text).unwrap();
            assert_eq!(
                complaint(&file),
                format!(
                    "the connection file `{}` is not a JSON object: {hint}",
                    file.display()
                )
            );
        }
        fs::write(&file, "{\"shell_port\": 1}").unwrap();
        check_connection_file(&file).unwrap();
    }
}
