"""TorchTPU's own trace of a cell, which XProf and TensorBoard's Profile tab open.

It has what TorchTPU and PyTorch did on the host. A plane of the device itself is in it only where the
plug-in has a profiler of its own: the emulated chip has none, and tpu-core does not pass libtpu's on.
"""

from __future__ import annotations

from pathlib import Path

_HOST_EVENTS, _DEVICE_EVENTS, _PYTHON_CALLS = 2, 1, 0


class XProf:
    """A trace that goes on between `begin` and `end`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Why there is none.
        self.problem = ""
        self._running = False

    def begin(self) -> None:
        """Begin; where TorchTPU refuses, as when another trace goes on, `problem` says why."""
        try:
            from torch_tpu._internal.profiler import _impl, _profiler_backend
        except ImportError as error:
            self.problem = str(error)
            return
        options = _impl.ProfileOptions(
            host_tracer_level=_HOST_EVENTS,
            device_tracer_level=_DEVICE_EVENTS,
            python_tracer_level=_PYTHON_CALLS,
        )
        try:
            _impl.start_trace(self.folder, options)
            self._running = True
            _profiler_backend._push_enable_profiler()
        except Exception as error:  # noqa: BLE001  whatever it is, the cell runs
            self.problem = str(error).partition("\n")[0]

    def end(self) -> list[Path]:
        """End; the files that were written."""
        if not self._running:
            return []
        self._running = False
        from torch_tpu._internal.profiler import _impl, _profiler_backend

        before = self._files()
        try:
            try:
                _profiler_backend._pop_enable_profiler()
            finally:
                _impl.stop_trace()
        except Exception as error:  # noqa: BLE001
            self.problem = str(error).partition("\n")[0]
        files = sorted({path for path, _ in self._files() - before})
        if not files and not self.problem:
            self.problem = "TorchTPU wrote no file"
        return files

    def _files(self) -> set[tuple[Path, int]]:
        """Files there are, and when each was written: their names go by the second."""
        return {(path, path.stat().st_mtime_ns) for path in self.folder.glob("plugins/profile/*/*.xplane.pb")}
