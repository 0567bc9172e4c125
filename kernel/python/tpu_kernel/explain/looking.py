"""What the notebook and the machine tell about an error: which variable, which line, which process.

Looks only: no `repr`, property or operation of what it finds is used. A tensor is asked for its device.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from . import Advice, names, processes

Found = re.Match[str]


class Spot(NamedTuple):
    """The last line of a cell on the way to an error."""

    frame: FrameType
    line: int
    text: str
    #: Names in the expression that failed, as far as Python knows which; dotted ones whole.
    names: tuple[str, ...]


def spot(error: BaseException) -> Spot | None:
    """Where in a cell an error came from."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    last = None
    tb = error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if shell is not None and shell.compile.format_code_name(code.co_filename) is not None:
            last = tb
        tb = tb.tb_next
    if last is None:
        return None
    code = last.tb_frame.f_code
    text = linecache.getline(code.co_filename, last.tb_lineno).strip()
    positions = list(code.co_positions())
    place = positions[last.tb_lasti // 2] if 0 <= last.tb_lasti // 2 < len(positions) else None
    source = "".join(linecache.getlines(code.co_filename))
    return Spot(last.tb_frame, last.tb_lineno, text, tuple(_names(source, last.tb_lineno, place)))


def _names(source: str, line: int, place: Any) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    first, last, begin, end = place if place and None not in place else (line, line, 0, 1 << 30)
    inside: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute) or (name := _dotted(node)) is None:
            continue
        position = (node.lineno, node.col_offset)
        if (first, begin) <= position and (node.end_lineno, node.end_col_offset) <= (last, end):
            # The walk comes to `a.b` before it comes to its `a`.
            if not any(known.startswith(f"{name}.") for known in inside):
                yield name
            inside.add(name)


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)) is not None:
        return f"{owner}.{node.attr}"
    return None


def at_tensors(told: Advice, _found: Found, error: BaseException) -> Advice:
    """Name what is on the CPU and what is on the TPU."""
    where = spot(error)
    places = list(_devices(where)) if where is not None else []
    host = [name for name, device, _ in places if device == "cpu"]
    chip = [name for name, device, _ in places if device != "cpu"]
    host, chip = list(dict.fromkeys(host)), list(dict.fromkeys(chip))
    if not host:
        cure = 'Something this line makes is on the CPU: make it with `device="tpu"`, or add `.to("tpu")`.'
        return told._replace(cure=cure) if chip else told
    words = f"{_list(host)} {'is' if len(host) == 1 else 'are'} on the CPU"
    if chip:
        words += f", {_list(chip)} on the TPU"
    first = next(place for place in places if place[1] == "cpu")
    name, _, module = first
    owner, _, attribute = name.rpartition(".")
    if not module and where is not None and _is_module(where.frame, owner):
        cure = f"A tensor that is a plain attribute stays where it is when the module moves. Where `{name}` is made:"
        return Advice(f"{words}.", cure, f'{owner}.register_buffer("{attribute}", …)')
    code = f'{name}.to("tpu")' if module else f'{name} = {name}.to("tpu")'
    return Advice(f"{words}.", "An operation works in one place; move it:", code)


def _devices(where: Spot) -> Iterator[tuple[str, str, bool]]:
    """Name, device and whether it is a module, of the tensors and modules in a line."""
    torch: Any = sys.modules["torch"]
    for name in where.names:
        found: list[tuple[str, str, bool]] = []
        for shorter, value in _values(where.frame, name):
            found = list(_devices_of(torch, shorter, value)) or found
        yield from found


def _devices_of(torch: Any, name: str, value: Any) -> Iterator[tuple[str, str, bool]]:
    if issubclass(type(value), torch.Tensor):
        yield name, value.device.type, False
    elif issubclass(type(value), torch.nn.Module):
        parameter = next(value.parameters(), None)
        if parameter is not None:
            yield name, parameter.device.type, True
    elif type(value) in (list, tuple):
        for index, each in enumerate(value[:32]):
            if issubclass(type(each), torch.Tensor):
                yield f"{name}[{index}]", each.device.type, False


def _is_module(frame: FrameType, name: str) -> bool:
    values = [value for path, value in _values(frame, name) if path == name]
    return bool(name and values) and issubclass(type(values[0]), sys.modules["torch"].nn.Module)


def _values(frame: FrameType, name: str) -> Iterator[tuple[str, Any]]:
    """What a dotted name means in a frame, part by part. Of instances only what they hold is taken."""
    first, *others = name.split(".")
    spaces = (frame.f_locals, frame.f_globals)
    value = next((space[first] for space in spaces if first in space), None)
    path = first
    yield path, value
    for part in others:
        held = getattr(value, "__dict__", None)
        if type(held) is not dict:
            return
        inner = [held, *(held.get(place) or {} for place in ("_parameters", "_buffers", "_modules"))]
        value = next((space[part] for space in inner if part in space), None)
        path = f"{path}.{part}"
        yield path, value


def at_lost(told: Advice, _found: Found, _error: BaseException) -> Advice:
    """Where that was, and what is lost since."""
    from ..memory import lost

    place, names = lost.before()
    if not names:
        return told
    words = f"Something this line needs has no value: what was to compute it failed, in {place}."
    return told._replace(
        words=words, cure=f"Without a value since then: {lost.words(names)}. Compute them again first."
    )


def at_numpy(told: Advice, _found: Found, error: BaseException) -> Advice:
    """Name the tensor to copy."""
    where = spot(error)
    on_chip = (
        [name for name, device, module in _devices(where) if device != "cpu" and not module] if where else []
    )
    return told._replace(code=f"{on_chip[0]}.cpu().numpy()") if on_chip else told


def _list(words: list[str]) -> str:
    shown = [f"`{word}`" for word in words[:4]]
    return ", ".join(shown[:-1]) + f" and {shown[-1]}" if len(shown) > 1 else shown[0]


_STRINGS = re.compile(r"""(["'])(?:cuda|gpu|xla|mps|xpu|TPU|GPU|tpu)(?::\d+)?\1""")


def at_device_strings(told: Advice, _found: Found, error: BaseException) -> Advice:
    """The line as it should be."""
    where = spot(error)
    if where is None:
        return told
    line = re.sub(r"\.(?:cuda|xpu)\(\s*\d*\s*\)", '.to("tpu")', where.text)
    line = _STRINGS.sub(r"\1tpu\1", line)
    for renamed in names.CUDA:
        if renamed.new and renamed.old.startswith("torch.cuda."):
            line = re.sub(rf"{re.escape(renamed.old)}\([^()]*\)", renamed.new, line)
    if "DataParallel(" in where.text:
        return told._replace(cure="Leave `DataParallel` out: a process has one TPU.", code="")
    return told._replace(cure="The line as it should be:", code=line) if line != where.text else told


def at_xla_names(told: Advice, _found: Found, error: BaseException) -> Advice:
    """What takes the place of what the line imports."""
    where = spot(error)
    for module, code in (
        ("parallel_loader", 'for batch in loader: batch = batch.to("tpu")'),
        ("xla_multiprocessing", "torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=8)"),
        ("metrics", "%tpu_stats"),
    ):
        if where is not None and module in where.text:
            return told._replace(code=code)
    return told


def at_renamed(told: Advice, found: Found, _error: BaseException) -> Advice:
    """The new name with its arguments."""
    known = next((each for each in names.TORCH_TPU if each.old == f"torch.tpu.{found['name']}"), None)
    return told._replace(code=known.new) if known is not None and known.new else told


def at_names_of_tpu(told: Advice, found: Found, _error: BaseException) -> Advice:
    """The same name of `torch.accelerator`, or one that is alike."""
    torch: Any = sys.modules["torch"]
    name = found["name"]
    for known in names.TORCH_TPU:
        if known.old == f"torch.tpu.{name}":
            if not known.new:
                return told._replace(cure=known.words)
            return told._replace(cure="Use what works for every accelerator:", code=known.new)
    if hasattr(torch.accelerator, name):
        return told._replace(cure="Use what works for every accelerator:", code=f"torch.accelerator.{name}()")
    import difflib

    near = difflib.get_close_matches(name, [each for each in dir(torch.tpu) if each[0] != "_"], 1)
    return told._replace(cure="Did you mean:", code=f"torch.tpu.{near[0]}") if near else told


def at_operators(told: Advice, found: Found, _error: BaseException) -> Advice:
    """The nearest operator that TorchTPU has."""
    name = found["name"]
    public = name.lstrip("_").replace("linalg_", "linalg.").replace("special_", "special.")
    told = told._replace(words=f"TorchTPU has no `{public}`.")
    if name in names.NEAREST:
        return told._replace(cure="The nearest that it has:", code=names.NEAREST[name])
    torch: Any = sys.modules["torch"]
    owner: Any = torch
    for part in public.split("."):
        owner = getattr(owner, part, None)
    if owner is not None:
        return told._replace(code=f"torch.{public}(x.cpu())")
    return told


def at_holder(told: Advice, found: Found, _error: BaseException) -> Advice:
    """Who holds the chip, as far as /proc tells."""
    pid = int(found.groupdict().get("pid") or 0)
    holder = processes.process(pid) if pid else processes.holder()
    if holder is None:
        return told._replace(
            words="Another process holds the chip, or held it a moment ago.",
            cure="No process of this user is seen to hold it now: run the cell again. Else ask who shares the machine.",
        )
    if holder.pid == os.getpid():
        return Advice(
            "This notebook itself holds the chip: a process that it starts cannot have it as well.",
            "Restart the kernel and start the process before the notebook uses the device.",
        )
    return Advice(
        f"The chip is held by {holder.words}.",
        "It is free when that has ended: shut that notebook or program down where it runs, then run the cell again.",
    )


def at_spawned(told: Advice, _found: Found, error: BaseException) -> Advice:
    """Name the function that a spawned process was to find in the notebook."""
    tb = error.__traceback__
    while tb is not None:
        function = tb.tb_frame.f_locals.get("fn")
        if (
            tb.tb_frame.f_code.co_name == "start_processes"
            and getattr(function, "__module__", "") == "__main__"
        ):
            name = getattr(function, "__name__", "it")
            return told._replace(
                words=f"A spawned process does not find `{name}`: it imports modules, not the notebook.",
                cure="Write the function to a file, and import it here and there:",
            )
        tb = tb.tb_next
    return told


def at_autoload(told: Advice, _found: Found, _error: BaseException) -> Advice:
    """TorchTPU is there but was told not to load itself."""
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return told._replace(
            cure="`TORCH_DEVICE_BACKEND_AUTOLOAD=0` keeps it from loading with `import torch`. In this kernel:",
            code="import torch_tpu._loader; torch_tpu._loader.load()",
        )
    return told


def at_versions(told: Advice, _found: Found, _error: BaseException) -> Advice:
    """Which versions are installed."""
    from importlib import metadata

    installed = []
    for package in ("torch", "torch_tpu", "libtpu"):
        try:
            installed.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            installed.append(f"no {package}")
    return told._replace(words=f"{told.words} Here: {', '.join(installed)}.")
