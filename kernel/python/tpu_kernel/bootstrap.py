"""Makes `import torch; torch.ones(3, device="tpu")` simply work in this process and its children.

`install` prepares the environment TorchTPU reads when it starts and puts a finder on
`sys.meta_path` that touches a few modules of `torch_tpu` as they are loaded: on a machine
without a TPU they find an emulated one; everywhere they are quiet. Nothing of torch is imported
here, so a process that never uses it pays about a millisecond.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from . import caches

#: Shared library of the crate tpu-core, unless `TPU_KERNEL_CORE_LIBRARY` names another.
_LIBRARY = Path(__file__).resolve().parent / "lib" / "libtpu_core.so"

#: XLA CPU plug-ins, best first: package, path inside it. docs/ARCHITECTURE.md says why.
_CPU_PLUGINS = (
    ("fastatomstruct_xla_cpu", "libpjrt_cpu.so"),
    ("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so"),
    ("xla_plugins.xla_cpu_pjrt", "xla_cpu_pjrt.so"),
)

#: What TorchTPU and XLA read at start, unless the user decided otherwise.
_QUIET = {
    # Absl lines of torch_tpu and libtpu, the cache statistics at exit included.
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # No question to a metadata server that only a TPU VM has.
    "TPU_SKIP_MDS_QUERY": "1",
    # Warnings that C++ threads of TorchTPU raise about the variables set here; Python's own
    # warnings are not concerned.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


def library() -> Path:
    """Path of libtpu_core.so, whether it exists or not."""
    chosen = os.environ.get("TPU_KERNEL_CORE_LIBRARY")
    return Path(chosen) if chosen else _LIBRARY


def install(library: str | os.PathLike[str] | None = None) -> None:
    """Prepare this process and its children; harmless when called again.

    Does nothing where libtpu_core.so is missing, so that a broken installation still starts.
    """
    core = Path(library) if library else globals()["library"]()
    if not core.is_file() or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    _prepare_environment(core)
    # TorchTPU announces what is experimental, and that tcmalloc is not loaded.
    warnings.filterwarnings("ignore", message=r"<TorchTpu/")
    # Its C++ reads `.grad` of results in `.item()`; PyTorch then warns as if the user had. The
    # user's own mistake warns from PyTorch's source tree, not from torch_tpu's.
    warnings.filterwarnings("ignore", message=r"(?s)The \.grad attribute of a Tensor .*torch_tpu_pypi")
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]


def _prepare_environment(core: Path) -> None:
    environ = os.environ
    given = environ.get("TPU_LIBRARY_PATH")
    if given and Path(given).name != core.name:
        # The user's own libtpu: it is wrapped, not replaced.
        environ.setdefault("TPU_KERNEL_LIBTPU", given)
    environ["TPU_LIBRARY_PATH"] = str(core)
    environ["TPU_KERNEL_CORE_LIBRARY"] = str(core)
    # Children start through the .pth hook, which looks for this.
    environ["TPU_KERNEL_BOOT"] = "1"
    for name, value in _QUIET.items():
        environ.setdefault(name, value)


def _locate_plugins() -> None:
    """Say where the plug-ins are, for tpu-core, and where compiled programs go, for TorchTPU."""
    environ = os.environ
    if "TPU_KERNEL_CPU_PLUGIN" not in environ and (plugin := _find_cpu_plugin()):
        environ["TPU_KERNEL_CPU_PLUGIN"] = str(plugin)
    if "TPU_KERNEL_LIBTPU" not in environ and (libtpu := _find("libtpu", "libtpu.so")):
        environ["TPU_KERNEL_LIBTPU"] = str(libtpu)
    if plugin := choice().get("plugin"):
        caches.prepare(Path(plugin), library())


def _find(package: str, file: str) -> Path | None:
    """A file of an installed package, found without importing it."""
    search: Sequence[str] | None = None
    for part in package.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, search)
        if spec is None or spec.submodule_search_locations is None:
            return None
        search = list(spec.submodule_search_locations)
    paths = (Path(folder) / file for folder in search or ())
    return next((path for path in paths if path.is_file()), None)


def _find_cpu_plugin() -> Path | None:
    found = (_find(package, file) for package, file in _CPU_PLUGINS)
    return next((path for path in found if path), None)


def _ask_core(function: str) -> bytes:
    """What a function of tpu-core gives to its sink. Before torch_tpu there is no other way in."""
    import ctypes

    sink_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_size_t)
    core = ctypes.CDLL(str(library()), mode=os.RTLD_NOW)
    parts: list[bytes] = []
    sink = sink_type(lambda _context, data, size: parts.append(ctypes.string_at(data, size)))
    entry = getattr(core, function)
    entry.argtypes = [sink_type, ctypes.c_void_p]
    entry(sink, None)
    return b"".join(parts)


@functools.cache
def choice() -> dict[str, Any]:
    """What tpu-core would wrap: `chip`, `plugin`, `emulates` or `problem`. Loads the library, no plug-in."""
    import json

    return json.loads(_ask_core("tpu_core_choice"))


def emulated() -> bool:
    """Whether the "tpu" of this process is an emulated one."""
    return "emulates" in choice() or not choice()["chip"]


class _Finder:
    """Lets a few modules of torch_tpu load as always, then adjusts them.

    A finder and a loader by their methods: importing `importlib.abc` would cost each start 10 ms.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        patch = _PATCHES.get(fullname)
        if patch is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Patched(spec.loader, patch)  # type: ignore[assignment]
        return spec


class _Patched:
    """A module's own loader, and what is done around it."""

    def __init__(self, loader: Any, patch: Callable[[ModuleType, Callable[[], None]], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._patch(module, lambda: self._loader.exec_module(module))

    def __getattr__(self, name: str) -> Any:
        # `inspect`, `pkgutil` and debuggers ask the loader for source, file names and the like.
        return getattr(self._loader, name)


def _before_torch_tpu(_module: ModuleType, execute: Callable[[], None]) -> None:
    _locate_plugins()
    execute()


def _emulate_hardware(module: ModuleType, execute: Callable[[], None]) -> None:
    """TorchTPU looks for chips on the PCI bus; where one is emulated it finds that one."""
    execute()
    if emulated():
        name = choice().get("emulates", "TPU v5e")
        numbers = {known: number for number, known in module._PCI_DEVICE_ID_TO_NAME.items()}
        topology = module._TOPOLOGY_BY_TPU_PCI_DEVICE_ID[numbers[name]]
        module.get_tpu_device_name = lambda: name
        module._scan_pci_tpus = lambda: (1, topology)


def _quiet_loader(module: ModuleType, execute: Callable[[], None]) -> None:
    """The loader prints four lines about what it registers; nobody asked. What it registered is guarded."""
    module.__dict__["print"] = lambda *_args, **_keywords: None
    execute()
    _install_checks()
    if emulated():
        import torch

        # The flash kernel is TPU machine code. The mathematical form runs everywhere.
        torch.backends.cuda.enable_flash_sdp(False)


def _install_checks() -> None:
    from .tpu import bad_input, entries, guards

    guards.install()
    bad_input.install()
    entries.install()


def _check_before_use(module: ModuleType, execute: Callable[[], None]) -> None:
    """Where no device can be had, its first use is an error; TorchTPU would end the process.

    PyTorch calls `_lazy_init` before the first tensor on the device.
    """
    execute()
    device = module.TpuDeviceModule
    initialize = device._lazy_init

    def lazy_init(_cls: type) -> None:
        try:
            initialize()
        except RuntimeError as failure:
            from torch.utils.data import get_worker_info

            from . import explain

            if get_worker_info() is None:
                explain.note(failure)  # a forked process shows its own errors
            raise
        if problem := _ask_core("tpu_core_load"):
            raise RuntimeError(problem.decode())
        # The plug-in loads; whether it gives a device is known when the client is made. This
        # question makes it and, unlike the first operation, survives a refusal.
        module._device_ops_backend._get_local_device_attributes()

    device._lazy_init = classmethod(lazy_init)


def _print_from_the_host(module: ModuleType, execute: Callable[[], None]) -> None:
    """PyTorch reads a tensor piece by piece to print it: on the device each piece is a program."""
    execute()
    pieces = module._tensor_str

    def tensor_str(tensor: Any, indent: int) -> str:
        if tensor.device.type == "tpu":
            from .output import tensors

            tensor = tensors.to_print(tensor, module.PRINT_OPTS)
        return pieces(tensor, indent)

    module._tensor_str = tensor_str


def _keep_trained_functions(module: ModuleType, execute: Callable[[], None]) -> None:
    """PyTorch's cache keeps what TorchTPU compiles, unless gradients flow through it: the backward pass
    is compiled when it is first run, and by then TorchTPU's setting that lets it be kept is over."""
    execute()
    info = module._cache_autograd_info

    def cache_autograd_info(*arguments: Any, **options: Any) -> tuple[Any, Any]:
        save, entry = info(*arguments, **options)
        if save is None or not module.should_bundle_autograd_cache():
            return save, entry

        def save_later(*arguments: Any, **options: Any) -> Any:
            with module.config.patch("bundled_autograd_cache", True):
                return save(*arguments, **options)

        return save_later, entry

    module._cache_autograd_info = cache_autograd_info


def _know_triton_by_its_file(module: ModuleType, execute: Callable[[], None]) -> None:
    """PyTorch's cache reads all of Triton, 500 MB, once in each process, to know it by its content. On a
    TPU it compiles nothing: its size and date will do."""
    execute()
    library = _find("triton", "_C/libtriton.so")
    known = library and library.stat()
    module.triton_key = lambda: f"triton {known.st_size} {known.st_mtime_ns}" if known else None


_PATCHES: dict[str, Callable[[ModuleType, Callable[[], None]], None]] = {
    "torch._functorch._aot_autograd.graph_compile": _keep_trained_functions,
    "torch._inductor.codecache": _know_triton_by_its_file,
    "torch._tensor_str": _print_from_the_host,
    "torch_tpu": _before_torch_tpu,
    "torch_tpu._internal.utils.hardware": _emulate_hardware,
    "torch_tpu._internal.device._device_module": _check_before_use,
    "torch_tpu._loader": _quiet_loader,
}
