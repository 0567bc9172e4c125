//! Programs whose compiler could end the process are compiled in another one.
//!
//! The compilers inside CPU plug-ins check themselves, and a failed check ends the process. What is
//! made of plain operations alone never did that, in the whole sweep over `PyTorch`'s operators, and
//! is compiled at once. A program that holds others (loops above all) is compiled by a helper, which
//! lives for that one program and hands over the machine code. What ends the helper is an error here.

mod helper;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::bytecode::Module;

/// Path of the program that runs the helper, set by the launcher: `PROGRAM compile`.
const PROGRAM_VARIABLE: &str = "TPU_KERNEL_COMPILER";
/// What the helper writes once a compiler has survived a program; machine code follows, if any.
const SURVIVED: u8 = b'+';
/// How often a helper is started again that was interrupted before it could ignore that.
const STARTS: usize = 3;

/// Operations, without their versions, that never ended a compiler. Calls and composites name
/// functions of the program, whose operations count as well; custom calls are refused by name.
const PLAIN: &[&str] = &[
    "abs",
    "add",
    "and",
    "atan2",
    "batch_norm_grad",
    "batch_norm_inference",
    "batch_norm_training",
    "bitcast_convert",
    "broadcast",
    "broadcast_in_dim",
    "call",
    "cbrt",
    "ceil",
    "cholesky",
    "clamp",
    "compare",
    "complex",
    "composite",
    "concatenate",
    "constant",
    "convert",
    "convolution",
    "cosine",
    "count_leading_zeros",
    "custom_call",
    "divide",
    "dot",
    "dot_general",
    "dynamic_broadcast_in_dim",
    "dynamic_gather",
    "dynamic_iota",
    "dynamic_pad",
    "dynamic_reshape",
    "dynamic_slice",
    "dynamic_update_slice",
    "einsum",
    "exponential",
    "exponential_minus_one",
    "fft",
    "floor",
    "func",
    "gather",
    "get_dimension_size",
    "get_tuple_element",
    "imag",
    "iota",
    "is_finite",
    "log",
    "log_plus_one",
    "logistic",
    "map",
    "maximum",
    "minimum",
    "module",
    "multiply",
    "negate",
    "not",
    "optimization_barrier",
    "or",
    "pad",
    "popcnt",
    "power",
    "real",
    "real_dynamic_slice",
    "reduce",
    "reduce_precision",
    "reduce_window",
    "remainder",
    "reshape",
    "return",
    "reverse",
    "rng",
    "rng_bit_generator",
    "round_nearest_afz",
    "round_nearest_even",
    "rsqrt",
    "scatter",
    "select",
    "select_and_scatter",
    "set_dimension_size",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sine",
    "slice",
    "sort",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "torch_index_select",
    "transpose",
    "triangular_solve",
    "tuple",
    "unary_einsum",
    "xor",
];

/// How a compiler ended its process.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Ended {
    #[error(
        "the compiler of the emulated TPU fails on {name} ({check}) and would have ended the kernel: \
         move this step to the CPU, or write it with other operations"
    )]
    Crashed { name: String, check: String },
    #[error(
        "the process that compiled {name} was killed (signal {signal}), most likely for want of \
         memory: free some, call `torch.tpu._clear_cache()`, which forgets that it failed, and run it again"
    )]
    Killed { name: String, signal: i32 },
}

/// Whether a program, as it is compiled, holds anything but plain operations.
pub fn needed(code: &[u8]) -> bool {
    let Ok(module) = Module::read(code) else {
        return true;
    };
    !module.operation_names().all(|name| {
        let base = name.rsplit_once("_v").map_or(name, |(base, _)| base);
        PLAIN.contains(&base)
    })
}

/// Machine code of a program, compiled in another process; an error when that ended it. None where
/// there is no machine code to be had: no helper, a program that cannot be written down, or one that
/// the compiler refuses. Compiling it here then harms nobody and says why.
pub fn compile(code: &[u8], options: &[u8], name: Option<&str>) -> Result<Option<Vec<u8>>, Ended> {
    static PROGRAM: OnceLock<Option<OsString>> = OnceLock::new();
    let Some(program) = PROGRAM.get_or_init(|| std::env::var_os(PROGRAM_VARIABLE)) else {
        return Ok(None);
    };
    let name = || name.map_or("this program".to_owned(), |name| format!("`{name}`"));
    for _ in 0..STARTS {
        let mut helper = Command::new(program);
        helper.arg("compile");
        helper.stdin(Stdio::piped());
        helper.stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(child) = helper.spawn() else {
            return Ok(None);
        };
        let (mut answer, words, signal) = ask(child, code, options);
        if answer.first() == Some(&SURVIVED) {
            answer.remove(0);
            return Ok((!answer.is_empty()).then_some(answer));
        }
        match signal {
            Signal::None => return Ok(None),
            Signal::Was(libc::SIGINT) => {}
            Signal::Was(signal @ (libc::SIGKILL | libc::SIGTERM)) => {
                let name = name();
                return Err(Ended::Killed { name, signal });
            }
            Signal::Was(signal) => {
                let check = failed_check(&words).unwrap_or_else(|| format!("signal {signal}"));
                return Err(Ended::Crashed {
                    name: name(),
                    check,
                });
            }
            Signal::Unknown => {
                let check = failed_check(&words).unwrap_or_else(|| "it says nothing".to_owned());
                return Err(Ended::Crashed {
                    name: name(),
                    check,
                });
            }
        }
    }
    Ok(None)
}

#[derive(Debug, PartialEq, Eq)]
enum Signal {
    None,
    Was(i32),
    /// Somebody else took the child's status: a cell that calls `os.wait()`.
    Unknown,
}

/// What the helper answers, what it prints, and what ended it.
fn ask(mut child: Child, code: &[u8], options: &[u8]) -> (Vec<u8>, Vec<u8>, Signal) {
    let (mut answer, mut words) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        if let Some(mut printed) = child.stderr.take() {
            let words = &mut words;
            scope.spawn(move || printed.read_to_end(words));
        }
        if let Some(mut input) = child.stdin.take() {
            // One that is gone does not read on; how it went is asked below.
            let _ = input
                .write_all(&(code.len() as u64).to_le_bytes())
                .and_then(|()| input.write_all(code))
                .and_then(|()| input.write_all(options));
        }
        if let Some(mut output) = child.stdout.take() {
            let _ = output.read_to_end(&mut answer);
        }
    });
    let signal = match child.wait() {
        Ok(status) => status.signal().map_or(Signal::None, Signal::Was),
        Err(_) => Signal::Unknown,
    };
    (answer, words, signal)
}

/// The failed check among what a helper printed.
fn failed_check(printed: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(printed);
    let mut lines = text.lines();
    let (_, check) = lines.find_map(|line| line.split_once("Check failed: "))?;
    Some(check.trim().chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBLED: &[u8] = include_bytes!("../programs/aborts.mlirbc");
    const SVD: &[u8] = include_bytes!("../programs/svd.mlirbc");
    const CUMSUM: &[u8] = include_bytes!("../programs/cumsum.mlirbc");
    const POOL: &[u8] = include_bytes!("../programs/pool.mlirbc");
    const PRODUCT: &[u8] = include_bytes!("../programs/mm-60.mlirbc");

    #[test]
    fn loops_and_what_cannot_be_read_are_compiled_apart() {
        assert!(needed(SVD));
        assert!(needed(DOUBLED));
        assert!(needed(b"module {}"));
        assert!(needed(CUMSUM));
        assert!(needed(&crate::rewrite::fit(CUMSUM).unwrap()));
    }

    #[test]
    fn plain_programs_are_compiled_at_once() {
        for plain in [POOL, PRODUCT] {
            assert!(!needed(plain));
        }
    }

    #[test]
    fn the_failed_check_is_told() {
        let printed = b"F0000 00:00 1 a.cc:5] Check failed: x == 1 \n*** stack\n";
        assert_eq!(failed_check(printed).as_deref(), Some("x == 1"));
        assert_eq!(failed_check(b"other words"), None);
    }

    #[test]
    fn what_a_process_answers_prints_and_dies_of_is_seen() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::piped());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            ask(command.spawn().unwrap(), b"code", b"options")
        };
        let (answer, words, signal) = shell("tail -c +9; echo word >&2");
        assert_eq!((&*answer, &*words), (&b"codeoptions"[..], &b"word\n"[..]));
        assert_eq!(signal, Signal::None);
        assert_eq!(shell("kill -ABRT $$").2, Signal::Was(libc::SIGABRT));
    }
}
