//! Reads what faulthandler wrote: the stacks of the thread that crashed and of the main thread.

/// Frames shown of one thread.
const FRAMES: usize = 30;

/// Stacks of interest, innermost call first.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Of the thread that crashed; empty when it runs no Python.
    pub crashed: Vec<String>,
    /// Of the main thread, when it is another one.
    pub main: Vec<String>,
}

/// Take them from `dump`. `main` is the main thread's `pthread_t`.
pub fn read(dump: &str, main: u64) -> Stacks {
    let mut stacks = Stacks::default();
    let mut into: Option<&mut Vec<String>> = None;
    for line in dump.lines() {
        if let Some(rest) = line.strip_prefix("Current thread ") {
            into = rest
                .contains("most recent call")
                .then_some(&mut stacks.crashed);
        } else if let Some(rest) = line.strip_prefix("Thread 0x") {
            let number = rest.split_whitespace().next().unwrap_or("");
            let is_main = u64::from_str_radix(number, 16) == Ok(main);
            into = is_main.then_some(&mut stacks.main);
        } else if line.starts_with("  ") {
            if let Some(frames) = &mut into {
                frames.push(line.trim_end().to_owned());
            }
        } else {
            into = None;
        }
    }
    trim(&mut stacks.crashed);
    trim(&mut stacks.main);
    stacks
}

/// Leave out the frames of the kernel below the cell's own.
fn trim(frames: &mut Vec<String>) {
    let below = |frame: &String| {
        frame.contains("/IPython/core/interactiveshell.py\"")
            || (frame.contains("/threading.py\"") && frame.contains(" in _bootstrap"))
    };
    let size = frames.iter().position(below).unwrap_or(frames.len());
    frames.truncate(size);
    let mut repeated = 0;
    let mut kept: Vec<String> = Vec::new();
    for frame in frames.drain(..) {
        if kept.last() == Some(&frame) {
            repeated += 1;
            continue;
        }
        note_repeated(&mut kept, std::mem::take(&mut repeated));
        kept.push(frame);
    }
    note_repeated(&mut kept, repeated);
    kept.truncate(FRAMES);
    *frames = kept;
}

fn note_repeated(frames: &mut Vec<String>, times: usize) {
    if times > 0 {
        frames.push(format!("  ... {times} times more"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = r#"Fatal Python error: Segmentation fault

Thread 0x00007f3bac6a9740 (most recent call first):
  File "<ipython-input-1-aa>", line 2 in <module>
  File "/x/IPython/core/interactiveshell.py", line 3701 in run_code
  File "/x/tpu_kernel/loop.py", line 90 in run

Current thread 0x00007f3b00000640 (most recent call first):
  File "/x/ctypes/__init__.py", line 519 in string_at
  File "<ipython-input-1-aa>", line 1 in crash
  File "/x/threading.py", line 982 in run

Thread 0x00007f3b11111640 (most recent call first):
  File "/x/threading.py", line 331 in wait

Extension modules: zmq.backend, numpy (total: 2)
"#;

    #[test]
    fn the_crashed_and_the_main_thread_are_found_and_the_kernel_is_left_out() {
        let stacks = read(DUMP, 0x7f3b_ac6a_9740);
        assert_eq!(
            stacks.crashed,
            [
                r#"  File "/x/ctypes/__init__.py", line 519 in string_at"#,
                r#"  File "<ipython-input-1-aa>", line 1 in crash"#,
                r#"  File "/x/threading.py", line 982 in run"#,
            ]
        );
        assert_eq!(
            stacks.main,
            [r#"  File "<ipython-input-1-aa>", line 2 in <module>"#]
        );
    }

    #[test]
    fn a_recursion_is_shown_once() {
        let frame = "  File \"<ipython-input-1-aa>\", line 5 in g\n";
        let dump = format!(
            "Current thread 0x01 (most recent call first):\n{}  ...\n",
            frame.repeat(100)
        );
        assert_eq!(
            read(&dump, 1).crashed,
            [frame.trim_end(), "  ... 99 times more", "  ..."]
        );
    }

    #[test]
    fn a_thread_without_python_leaves_only_the_main_one() {
        let dump = DUMP.replace("Current thread", "Thread");
        let stacks = read(&dump, 0x7f3b_ac6a_9740);
        assert!(stacks.crashed.is_empty());
        assert_eq!(stacks.main.len(), 1);
        assert_eq!(read("", 1), Stacks::default());
    }
}
