"""One `execute_request`: the cell is run and answered, exactly once, whatever it does."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

from .. import _kernel
from ..output import jsontext
from ..parent import PARENT
from . import interrupts
from .errors import safe_str
from .shell import NotebookShell

PID = os.getpid()
#: A cell with one of these may say something in vain: `explain.silent` looks at it.
_PERHAPS_IN_VAIN = (
    "environ",
    "env ",
    "putenv",
    "cuda",
    "GradScaler",
    "DataParallel",
    "tpu:",
    "set_eager_mode",
)
_running_cell_id = ""


class Cell:
    """A cell between its request and its reply."""

    def __init__(self, shell: NotebookShell, request: _kernel.Request) -> None:
        content = jsontext.loads(request.content)
        self.shell = shell
        self.request = request
        self.code = jsontext.scrub(str(content.get("code", "")))
        self.silent = bool(content.get("silent", False))
        self.store_history = bool(content.get("store_history", True)) and not self.silent
        self.user_expressions = content.get("user_expressions") or {}
        self.stop_on_error = bool(content.get("stop_on_error", True))
        self.started = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        self._options = {
            "store_history": self.store_history,
            "silent": self.silent,
            "cell_id": request.parent.cell_id or None,
            "cell_meta": jsontext.loads(request.metadata) or {},
        }
        # what is on the device is followed for the main shell's cell: others run beside it
        self._on_main = request.parent.subshell_id is None
        self.number = shell.begin_cell(self.store_history and bool(self.code.strip()), waits=self._on_main)
        self.cell_id = request.parent.cell_id or str(self.number)
        #: What was there before a cell that may say something in vain.
        self._at_start: dict[str, bool] | None = None

    def begin(self) -> None:
        """Say that the cell runs."""
        trace(False)
        PARENT.set(self.request.parent)
        self.shell.kernel.parents.begin(self.request)
        if self.store_history:
            self.shell.remember(self.number, self.request.parent)
        if not self.silent:
            _kernel.execute_input(self.request, self.code, self.number)

    def run(self) -> Coroutine[Any, Any, None] | None:
        """Run and answer the cell; or the coroutine that does, when the cell awaits."""
        expressions: dict[str, Any] = {}
        try:
            with interrupts.raising():
                if self.shell.prepare(self.code):
                    return self._run_async()
                error = self._run()
                expressions = self._expressions(error)
        except BaseException as failure:  # noqa: BLE001  an interrupt that came outside the cell's own code
            # first of all, and no call of Python's: another one may be on its way
            _kernel.swap_sigint(interrupts.note)
            interrupts.idle()
            error = self._show(failure)
        self._answer(self._content(error, expressions))
        return None

    def _run(self) -> BaseException | None:
        try:
            self._before()
            error = self._error_of(self.shell.run_cell(self.code, **self._options))
        except BaseException as failure:  # noqa: BLE001
            error = self._show(failure)
        return self._after(error)

    async def _run_async(self) -> None:
        """Run and answer a cell that awaits; the loop sees to interrupts."""
        expressions: dict[str, Any] = {}
        try:
            error = self._after(await self._await())
            expressions = self._expressions(error)
        except BaseException as failure:  # noqa: BLE001
            _kernel.swap_sigint(interrupts.note)
            error = self._show(failure)
        interrupts.idle()
        self._answer(self._content(error, expressions))

    async def _await(self) -> BaseException | None:
        try:
            self._before()
            return self._error_of(await self.shell.run_prepared_async(self.code, **self._options))
        except BaseException as failure:  # noqa: BLE001
            return self._show(failure)

    def _before(self) -> None:
        """Tell the device whose work comes now."""
        global _running_cell_id
        if any(word in self.code for word in _PERHAPS_IN_VAIN):
            from ..explain import silent

            self._at_start = silent.before(sys.modules)
        if not self._on_main:
            return
        _running_cell_id = self.cell_id
        if (device := device_module()) is not None:
            device.before_cell(self.cell_id)
            if (freeing := sys.modules.get("tpu_kernel.memory.freeing")) is not None:
                freeing.forget_full(self.code)
        if not self.silent and (watch := watch_module()) is not None:
            watch.begin(self.request.parent)

    def _error_of(self, result: Any) -> BaseException | None:
        error = None if result is None else result.error_before_exec or result.error_in_exec
        if isinstance(error, KeyboardInterrupt) and self.shell.ended_by is not None:
            return self.shell.ended_by  # it had failed before
        return error

    def _after(self, error: BaseException | None) -> BaseException | None:
        """Wait for the device; then the error of the cell, if any."""
        device = device_module()
        try:
            if device is not None and self._on_main and not _kernel.stopping() and os.getpid() == PID:
                device.after_cell(error, self.code)
            if error is None:
                self.shell.device_is_done()
        except BaseException as failure:  # noqa: BLE001
            told = self.shell.last_traceback
            shown = self._show(failure)
            if error is None:
                return shown
            self.shell.last_traceback = told  # the reply is about the first
        if error is None:
            if self._at_start is not None:
                from ..explain import silent

                silent.tell(self.code, self._at_start)
            return None
        from . import tracebacks

        tracebacks.break_circle(error)
        return as_shown(error)

    def _show(self, failure: BaseException) -> BaseException:
        """Report an error that came from outside the cell's own frames; the cell's error."""
        if isinstance(failure, KeyboardInterrupt) and self.shell.ended_by is not None:
            return self.shell.ended_by  # it had failed before
        self.shell.last_execution_succeeded = False
        bare = failure.with_traceback(None)
        with interrupts.held():
            self.shell.showtraceback((type(bare), bare, None))
            self.shell.ends_cell(as_shown(bare))
        return as_shown(bare)

    def _expressions(self, error: BaseException | None) -> dict[str, Any]:
        """What the front end wants to know beside, after a cell without an error."""
        wanted = error is None and self.shell.error_while_displaying is None and self.user_expressions
        return self.shell.user_expressions(self.user_expressions) if wanted else {}

    def _content(self, error: BaseException | None, expressions: dict[str, Any]) -> dict[str, Any]:
        """The content of the reply. An interrupt is shown, whatever came in between."""
        if isinstance(error, KeyboardInterrupt) and not self.shell.last_traceback:
            error = self._show(error)
        shell = self.shell
        content: dict[str, Any] = {
            "status": "ok",
            "execution_count": shell.execution_count - 1,
            "user_expressions": expressions,
            "payload": shell.payload_manager.read_payload(),
        }
        shell.payload_manager.clear_payload()
        if error is not None:
            text = (error is shell.ended_by and shell.ended_with) or safe_str(error)
            content["ename"], content["evalue"] = type(error).__name__, text
        elif shell.error_while_displaying is not None:
            content["ename"], content["evalue"] = shell.error_while_displaying
        if "ename" in content:
            content["status"] = "error"
            content["traceback"] = shell.last_traceback
        return content

    def _answer(self, content: dict[str, Any]) -> None:
        """Send the reply, whatever else fails."""
        status = content["status"]
        if os.getpid() != PID:
            end_forked_child(status == "ok")
        for end in (self._end_watch, self._end_parent, self.shell.end_cell):
            try:
                end()
            except BaseException:  # noqa: BLE001  without a reply the front end waits for ever
                from ..loop import report_fault

                report_fault()
        metadata = {
            "started": self.started,
            "dependencies_met": True,
            "engine": self.shell.kernel.ident,
            "status": status,
        }
        try:
            body = jsontext.dumps(content)
        except Exception as failure:  # noqa: BLE001  what the cell put there is not JSON
            self.shell.log.warning("left out of the reply of cell %s: %s", self.cell_id, failure)
            body = jsontext.dumps(content | {"user_expressions": {}, "payload": []})
        abort = status == "error" and self.stop_on_error and not self.silent
        _kernel.reply(self.request, body, jsontext.dumps(metadata), abort=abort)
        trace(True)

    def _end_watch(self) -> None:
        if self._on_main and (watch := watch_module()) is not None:
            watch.end()

    def _end_parent(self) -> None:
        self.shell.kernel.parents.end(self.request)


def as_shown(error: BaseException) -> BaseException:
    """The error as the shell showed it: with more to say, where the device was full."""
    return getattr(error, "_tpu_explained", error)


def start(shell: NotebookShell, request: _kernel.Request) -> Coroutine[Any, Any, None] | None:
    """Run a cell to its end, or give the coroutine of one that awaits."""
    try:
        cell = Cell(shell, request)
        cell.begin()
    except Exception as failure:  # noqa: BLE001  a request that is none
        shell.end_cell()
        refuse(request, failure)
        return None
    return cell.run()


def refuse(request: _kernel.Request, failure: Exception) -> None:
    """Answer a request that cannot be run."""
    content = {
        "status": "error",
        "ename": type(failure).__name__,
        "evalue": f"the request cannot be run: {failure}",
        "traceback": [],
    }
    _kernel.reply(request, jsontext.dumps(content))


def device_module() -> Any:
    """The module that follows the device, once torch is there; else None."""
    if "torch" not in sys.modules:
        return None
    from ..tpu import device

    return device


def watch_module() -> Any:
    """The module that shows a line under each cell, once somebody asked for it; else None."""
    return sys.modules.get("tpu_kernel.tpu.cell_line")


def trace(on: bool) -> None:
    """Once debugging has begun: let the debugger follow the main thread, or not."""
    if (debugger := sys.modules.get("tpu_kernel.debugging.debugger")) is not None:
        debugger.trace(on)


def torch_imported(_: object) -> None:
    """A cell imported torch: what it does on the device from now on is that cell's."""
    if _kernel.running() is not None and (device := device_module()) is not None:
        device.before_cell(_running_cell_id)


def end_forked_child(succeeded: bool) -> None:
    """A child the cell forked came back from it: it is not the kernel, so it ends here."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0 if succeeded else 1)
