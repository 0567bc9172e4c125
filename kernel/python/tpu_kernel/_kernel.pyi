"""What the Rust half offers the Python half (crate `kernel/embed`).

Message parts are JSON as `bytes` in UTF-8. Nothing here waits with the GIL held.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

@final
class Parent:
    """The request that caused a piece of output. Immutable, cheap to keep and to compare.

    Kept in the context variable `PARENT` (module `tpu_kernel.parent`). Streams look there, then at
    the cell that runs now, then at the last one that ran; `publish` and `input_request` take it
    as an argument. Two are equal when they stand for the same request.
    """

    @staticmethod
    def from_header(header: bytes) -> Parent:
        """Of any request, from its header as JSON (`msg_id` and `msg_type` at least). Output can
        be made to belong to it; nobody can be asked for input through it."""
    @property
    def header(self) -> bytes: ...
    @property
    def msg_id(self) -> str: ...
    @property
    def cell_id(self) -> str:
        """`metadata.cellId` of the request, else `""`."""
    @property
    def subshell_id(self) -> str | None:
        """The subshell it runs in; None is the main shell."""

    @property
    def printed(self) -> list[tuple[str, str]]:
        """What the request printed and was sent on, as (stream, text), up to 64 KiB."""
    @property
    def outputs(self) -> int:
        """A count that grows with each piece of output of the request, and when it is cleared; not when a
        display is brought up to date. Says whether something is below what was shown before."""

@final
class Request:
    """One request that Python answers, exactly once, with `reply`."""

    @property
    def msg_type(self) -> str: ...
    @property
    def channel(self) -> str:
        """`"shell"` or `"control"`."""
    @property
    def shell(self) -> Shell | None:
        """Where it runs; None for what is no message."""
    @property
    def parent(self) -> Parent: ...
    @property
    def content(self) -> bytes: ...
    @property
    def metadata(self) -> bytes: ...
    @property
    def buffers(self) -> list[memoryview]:
        """The memory that arrived, not copied."""

def start(connection_file: str) -> None:
    """Read the connection file, bind the sockets, start the io thread, capture fd 1 and 2.

    Does nothing when the launcher has already done it in this process.
    Raises OSError or ValueError with one line that says what to do.
    """

def connection_file() -> str: ...
def session_id() -> str: ...
def owner() -> tuple[str, str]:
    """The environment variable by which this kernel's processes are found at its end, and its value."""

def ready(language_info: bytes, banner: str) -> None:
    """Python is up: kernel_info replies carry the full `language_info` from now on, and the main thread is
    woken where it does not feel an interrupt. Main thread."""

# -- requests ------------------------------------------------------------------

@final
class Shell:
    """The main shell, or a subshell (JEP 91): what waits for its thread."""

    @property
    def subshell_id(self) -> str | None:
        """None for the main shell."""
    def fileno(self) -> int:
        """An eventfd: readable while `next` has something. For `loop.add_reader`."""
    def next(self) -> Request | None:
        """The next request of this shell, else None.

        Clears the eventfd when the queue is empty. Publishes `status: busy` for it; on the main
        shell, where only execute_request and comm_* messages come, its parent is the running
        cell from then on. Of a deleted subshell all that waits is answered with `aborted`.
        """
    def next_comm(self, *, rest: bool = False) -> Request | None:
        """The first comm_* message that waits, past what waits before it, else None. For a cell that
        lets them have their turn while it runs; `finish` ends it. With `rest`, and none there, the
        eventfd is not readable until something comes, or `wake`."""
    def wake(self) -> None:
        """Make the eventfd readable."""
    def ended(self) -> bool:
        """The kernel stops, or the subshell was deleted: the thread is to end."""

def main_shell() -> Shell: ...
def subshell_ids() -> list[str]: ...
def raise_in_thread(ident: int) -> None:
    """Raise KeyboardInterrupt in a Python thread when it next runs Python code."""

def swap_sigint(handler: object) -> object:
    """Make `handler` that of SIGINT and give the one before, on the main thread; elsewhere nothing is done.

    `signal.signal` first lets the old handler see a signal that is pending, and does nothing when that raises:
    here what it raises is passed over. No Python code runs in between that could be interrupted."""

def unraisable(failure: object) -> None:
    """For `sys.unraisablehook`: a KeyboardInterrupt that landed in a destructor of the main thread is
    sent again, so that the cell feels it; anything else goes to `sys.__unraisablehook__`."""

def next_service(timeout: float) -> Request | None:
    """Waits, GIL released, for a complete, inspect, is_complete, history, comm_info request, or a
    comm_* message of a `jupyter.widget.control` comm, which `finish` ends.

    None after `timeout` seconds. `msg_type == "exit"` asks the service thread to run the
    `atexit` functions because the main thread does not come back; it needs no reply.
    `"start"` asks to start the thread of the subshell `shell`, `"interrupt"` to interrupt what
    subshells run, `"cancelled"` to say what is lost of what waited for the device, `"locate"` asks where the main thread is, for an interrupt that waits: `located` answers.
    `"compiling"` says that a program is being compiled: see `tpu_watch_compiles`.
    `"start_debugger"` asks to start pydevd and let it connect to `port` with `token`, both in its
    `content`: `debugger_started` or `debugger_failed` answers.
    """

def located(place: str, moving: bool, handling: bool) -> None:
    """Answer to `"locate"`: the place in a cell or `""`, whether the main thread runs Python,
    whether it is handling a KeyboardInterrupt."""

def execute_input(request: Request, code: str, execution_count: int) -> None:
    """Publish `execute_input`."""

def reply(request: Request, content: bytes, metadata: bytes = b"{}", *, abort: bool = False) -> None:
    """Send the reply (its type is the request's with `_request` made `_reply`), then, after
    all output so far (fd 1 and 2 included), `status: idle`.

    `abort=True` (an error with `stop_on_error`) answers every execute_request that waits
    in the same shell with `aborted`, in order. comm_* messages have no reply: `finish`.
    """

def finish(request: Request) -> None:
    """`status: idle` for a message that has no reply (comm_open, comm_msg, comm_close)."""

def stopping() -> bool: ...
def exit(code: int) -> None:
    """Flush everything that can still be sent, then end the process (`_exit`)."""

def request_exit() -> None:
    """The user said `exit`: shut down once the running request is answered."""

# -- the debugger ---------------------------------------------------------------

def cell_file(source: str) -> str:
    """The file name the cell with this source is compiled under: the one front ends compute."""

def debugging() -> bool:
    """A front end debugs now."""

def debugger_started(rules: bytes) -> None:
    """What `start_debugger` asked for is done. `rules`: what stepping passes over, as `attach` takes it."""

def debugger_failed(reason: str) -> None:
    """It cannot be done; `reason` is the answer to who asked."""

def hidden_variable(name: str) -> bool:
    """A name that IPython keeps in the notebook's namespace."""

# -- output --------------------------------------------------------------------

def publish(
    msg_type: str,
    content: bytes,
    metadata: bytes = b"{}",
    *,
    parent: Parent | None = None,
    buffers: Sequence[Any] | None = None,
) -> None:
    """Publish on iopub, after all output written so far. Buffers: anything with a buffer
    interface; `bytes` and what arrived in a request are sent uncopied, others copied once. In a
    forked child the text form goes to fd 1 or 2 instead."""

def output_fds(parent: Parent | None) -> tuple[int, int] | None:
    """Where a child started now for `parent` is to write, when that is not what fd 1 and 2 are
    now (another cell runs). The caller closes both."""

def running() -> Parent | None:
    """Parent of the cell that runs now on the main thread."""

@final
class Stream:
    """The destination of `sys.stdout` or `sys.stderr`.

    Writes are coalesced, appear within a millisecond when nothing is pending, keep the
    order of stdout, stderr, fd 1/2 and displays, and go straight to the file descriptor in
    a forked child. Waits, GIL released and interruptible, when 8 MiB are unsent.
    """

    def __init__(self, name: str, parent_getter: Any) -> None:
        """`name` is `"stdout"` or `"stderr"`; `parent_getter()` returns Parent or None
        (the bound `get` of the context variable)."""
    def write(self, text: str) -> int: ...
    def write_bytes(self, data: Any) -> int:
        """Bytes in UTF-8 (what is not becomes U+FFFD); an incomplete sequence at the end
        waits for its rest."""
    def flush(self) -> None: ...
    def fileno(self) -> int:
        """The file descriptor (1 or 2), which is captured."""

def png(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    """A PNG of 8-bit pixels, rows from the top: 1 (grey), 3 (RGB) or 4 (RGBA) channels.
    Raises ValueError when `pixels` is not `width * height * channels` bytes."""

def png_columns(heights: bytes, rows: int, colour: tuple[int, int, int]) -> bytes:
    """A small PNG of columns that stand on the lower edge, as high as `heights` (0 to `rows`) say, in one
    colour on nothing."""

def original_fd(fd: int) -> int:
    """A duplicate of what fd 1 or 2 was before capture (the server's log)."""

def input_request(prompt: str, password: bool, parent: Parent | None = None) -> str:
    """Ask the front end that sent the parent request on stdin and wait (GIL released,
    KeyboardInterrupt honoured). A late answer to an earlier question is dropped.
    Raises RuntimeError, which says why, when the request has `allow_stdin: false`, no request runs, or
    this is a forked child."""

# -- the live feed (comm `tpu.stats`, docs/feed.md) ------------------------------

def feed_order() -> str | None:
    """What the feed wants done between cells, as JSON, else None: `tensors` (the table is wanted), `do`
    (`free`, or `mode` with `mode`) with the `comm_id` that ordered it. The mode in force is wanted each
    time. `feed_answer` answers. Main thread."""

def feed_answer(answer: bytes) -> None:
    """The answer, as JSON: `mode`, `tensors`, and with the order's `comm_id` `said` or `error`."""

def feed_comms() -> list[str]:
    """The open comms of the feed."""

def feed_live(parent: Parent) -> None:
    """Show one display under this cell, brought up to date by the io thread until the cell ends."""

def feed_storm(text: str) -> None:
    """A loop compiles at every step: one line for the list of events."""

# -- crashes -------------------------------------------------------------------

def crash_stack_fd() -> int:
    """A file in memory: what faulthandler writes there is part of the report of a crash."""

def crash_handlers_on_top() -> None:
    """Call once faulthandler is enabled: our handlers run first and call it. Main thread."""

def crash_copy(fd: int) -> None:
    """Write the stack to `fd` too, as the notebook's own `faulthandler.enable` asks; -1: no more."""

# -- the TPU session (tpu-core) --------------------------------------------------

def tpu_attach(library: str) -> bool:
    """Load the tpu-core library (the same file TorchTPU loads). False when it cannot be loaded;
    RuntimeError when it is another version's."""

def tpu_snapshot() -> dict[str, Any] | None:
    """Counters of the session, or None while no device exists. Keys: see tpu_core::Snapshot."""

def tpu_used() -> bool:
    """Whether a device exists."""

def tpu_events(cursor: int) -> tuple[int, list[dict[str, Any]]]:
    """Events since `cursor` (compile, cache hit, execute, transfer, error) and the next cursor."""

def tpu_keep_events(bytes: int) -> int:
    """Keep as many bytes of events of launches and transfers, for a reader who wants all of a stretch of
    time; 0 for as usual. The time it is, in nanoseconds on the clock of the events."""

def tpu_programs(cursor: int) -> tuple[int, list[dict[str, Any]]]:
    """Programs from number `cursor` on, those being compiled included, and the next cursor. Keys: see
    tpu_core::Program; `why` is `first`, `again` or `differs`."""

def tpu_optimized(fingerprint: bytes) -> bytes:
    """What the compiler made of the loaded program with this fingerprint (PJRT's), as a serialised
    `HloProto`. RuntimeError, in one line, where the plug-in does not give it."""

def hlo_text(program: bytes, all: bool) -> str:
    """A serialised `HloProto` in XLA's own notation; `all`: with where each instruction comes from and
    what the compiler noted for itself. ValueError where it is none."""

def tpu_watch_compiles() -> None:
    """From now on `next_service` gives `"compiling"` when a compile begins, once until `tpu_programs`
    is called."""

def tpu_set_place(number: int, place: str) -> None:
    """Say where in its cell a program comes from."""

def tpu_ongoing() -> list[dict[str, Any]]:
    """What goes on now: compiles, then the oldest launch or transfer that has not ended. Keys
    `kind`, `elapsed_ns`, `bytes`, `name`."""

def tpu_holdings() -> dict[str, Any]:
    """Memory by device (`places`, the host's last) and by the cell that made it (`cells`). Keys: see
    tpu_core::client::Holdings."""

def tpu_identity() -> dict[str, Any] | None:
    """Generation, HBM, coordinates, emulated or not; None while no device exists."""

def tpu_set_limit(bytes: int) -> None:
    """HBM of the emulated chip, in bytes; 0 goes back to its own."""

def tpu_parse_size(text: str) -> int | None:
    """Bytes of a size people write, as `8GiB`; None for what is none."""

def tpu_set_cell(cell_id: str) -> None:
    """Stamp following device events with this cell."""

def tpu_cancelling() -> bool:
    """A second interrupt came: what is launched on the device is refused until `tpu_resume`."""

def tpu_resume() -> int:
    """Launch again; how many launches were refused."""

def tpu_drain(timeout: float) -> bool:
    """Wait, GIL released and interruptible, until what was queued on the device has ended."""

# -- functions of PyTorch --------------------------------------------------------

def look_before(
    function: Callable[..., Any], fits: Callable[..., bool], arm: Callable[[], Callable[[], None]]
) -> None:
    """From now on each call of `function`, a function or method written in C, asks `fits` with the same
    arguments (`self` first). Where it says True the function just runs; where not, or where it fails,
    `arm` is called before and what that returned after. ValueError for other functions."""
