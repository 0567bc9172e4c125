"""What processes under test do: `python tpu_core_scenarios.py NAME` runs one and prints JSON.

Each runs in a fresh, plain Python with the real torch_tpu, because a process has one device for
its whole life. tpu-core is read through its C table with ctypes, without the kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from tpu_kernel import bootstrap

MIB = 1 << 20

FIELDS = [
    "struct_size",
    "live_bytes",
    "peak_bytes",
    "limit_bytes",
    "live_buffers",
    "largest_bytes",
    "allocations",
    "donations",
    "compiles",
    "compile_ns",
    "cache_hits",
    "cache_hit_ns",
    "executions",
    "busy_ns",
    "uploads",
    "upload_bytes",
    "downloads",
    "download_bytes",
    "errors",
    "issued",
    "pending",
    "next_sequence",
    "emulated",
    "loaded_programs",
    "programs_run",
    "cell_peak_bytes",
]

_SINK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Table(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("snapshot", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_size_t)),
        ("events", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, _SINK, ctypes.c_void_p)),
        ("set_cell", ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_size_t)),
        ("set_limit", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
        ("wait_idle", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_uint64)),
        ("identity", ctypes.CFUNCTYPE(ctypes.c_bool, _SINK, ctypes.c_void_p)),
        ("reset_peak", ctypes.CFUNCTYPE(None)),
        ("choice", ctypes.c_void_p),
        ("ongoing", ctypes.c_void_p),
        ("holdings", ctypes.c_void_p),
        ("calls", ctypes.c_void_p),
        ("cancel", ctypes.c_void_p),
        ("resume", ctypes.c_void_p),
        ("cancelling", ctypes.c_void_p),
        ("programs", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, _SINK, ctypes.c_void_p)),
    ]


class Core:
    """tpu-core of this process."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(bootstrap.library()))
        library.tpu_core_api.restype = ctypes.POINTER(_Table)
        self.table = library.tpu_core_api().contents

    def snapshot(self) -> dict[str, int] | None:
        values = (ctypes.c_uint64 * len(FIELDS))()
        known = self.table.snapshot(values, ctypes.sizeof(values))
        return dict(zip(FIELDS, values, strict=True)) if known else None

    def counters(self) -> dict[str, int]:
        snapshot = self.snapshot()
        assert snapshot is not None
        return snapshot

    def events(self, cursor: int = 0) -> list[dict[str, Any]]:
        parts: list[bytes] = []
        self.table.events(
            cursor, _SINK(lambda _context, data, size: parts.append(ctypes.string_at(data, size))), None
        )
        return json.loads(b"".join(parts))

    def programs(self, cursor: int = 0) -> list[dict[str, Any]]:
        parts: list[bytes] = []
        self.table.programs(
            cursor, _SINK(lambda _context, data, size: parts.append(ctypes.string_at(data, size))), None
        )
        return json.loads(b"".join(parts))

    def identity(self) -> dict[str, Any]:
        parts: list[bytes] = []
        self.table.identity(
            _SINK(lambda _context, data, size: parts.append(ctypes.string_at(data, size))), None
        )
        return json.loads(b"".join(parts))

    def set_cell(self, name: str) -> None:
        self.table.set_cell(name.encode(), len(name.encode()))

    def settled(self, expected: int | None = None, slack: int = 0) -> int:
        """Live bytes once nothing is under way and TorchTPU's worker has let go of its last task.

        With `expected`: as soon as the count is that, at most `slack` more; else what it is after
        a while.
        """
        import torch

        deadline = time.monotonic() + (2 if expected is None else 20)
        while True:
            torch.accelerator.synchronize()
            self.table.wait_idle(10**10)
            live = self.counters()["live_bytes"]
            if expected is not None and 0 <= live - expected <= slack:
                return live
            if time.monotonic() > deadline:
                return live
            time.sleep(0.01)


def first_tensor() -> dict[str, Any]:
    core = Core()
    before = core.snapshot()
    import torch

    x = torch.ones(3, device="tpu")
    return {
        "before": before,
        "values": x.tolist(),
        "identity": core.identity(),
        "emulated": core.counters()["emulated"],
        "name": torch.tpu.get_device_name(),
        "total": torch.tpu.get_device_properties().total_memory,
        "info": torch.accelerator.get_memory_info(),
        "limit": core.counters()["limit_bytes"],
    }


def live_storages() -> int:
    """Bytes of the distinct device storages Python objects reach, for comparison with tpu-core.

    Walks every tensor the garbage collector knows, and the gradients behind them.
    """
    import torch

    storages: dict[int, int] = {}
    for found in gc.get_objects():
        if type(found) not in (torch.Tensor, torch.nn.Parameter):
            continue
        tensor: Any = found
        for each in (tensor, tensor.grad if tensor.is_leaf else None):
            if each is not None and each.device.type == "tpu":
                storage = each.untyped_storage()
                storages[storage._cdata] = storage.nbytes()
    return sum(storages.values())


def accounting() -> dict[str, Any]:
    import torch
    import torch.nn.functional as F

    core, seen = Core(), {}

    def note(name: str, slack: int) -> None:
        walked = live_storages()
        live = core.settled(walked, slack)
        seen[name] = {"walked": walked, "over": live - walked}

    big = torch.ones(100 * MIB // 4, device="tpu")
    note("created", 64)
    moved = torch.arange(MIB, dtype=torch.int64).to("tpu")
    note("moved", 64)
    seen["upload_bytes"] = core.counters()["upload_bytes"]
    del big
    note("deleted", 64)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(
        "tpu"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, 256, device="tpu")
    labels = torch.zeros(64, dtype=torch.int64, device="tpu")
    steps = 6
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    seen["loss_fell"] = loss.item() < 2.0
    # The results of one operation live together in TorchTPU: the gradient that flowed through a
    # layer stays as long as those of its weights, and no Python object leads to it.
    optimizer.zero_grad()
    del loss
    # AdamW makes two scalars a step that TorchTPU keeps.
    note("trained", 64 * (2 * steps + 8))

    def fails() -> None:
        local = torch.ones(MIB, device="tpu")
        raise ValueError(str(local.shape))

    with contextlib.suppress(ValueError):
        fails()
    note("raised", 64 * (2 * steps + 8))
    del model, optimizer, inputs, labels, moved
    seen["left"] = core.settled(0, 64 * (2 * steps + 8))
    return seen


def donation_and_peak() -> dict[str, Any]:
    import torch

    core = Core()
    x = torch.zeros(MIB, device="tpu")
    start = core.settled(4 * MIB, 64)
    torch.accelerator.reset_peak_memory_stats()
    donations = core.counters()["donations"]
    for _ in range(10):
        x.add_(1.0)
    value = x.sum().item()
    live = core.settled(4 * MIB, 128)
    peak_in_place = core.counters()["peak_bytes"]
    donated = core.counters()["donations"] - donations
    y = x + x
    core.settled(8 * MIB, 128)
    peak_out_of_place = torch.accelerator.max_memory_allocated()
    del y
    core.settled(4 * MIB, 128)
    torch.accelerator.reset_peak_memory_stats()
    return {
        "start": start,
        "live": live,
        "donated": donated,
        "value": value,
        "peak_in_place": peak_in_place,
        "peak_out_of_place": peak_out_of_place,
        "peak_after_reset": torch.accelerator.max_memory_allocated(),
        "allocated": torch.accelerator.memory_allocated(),
        "counted": core.counters()["live_bytes"],
    }


def limit() -> dict[str, Any]:
    import torch

    core = Core()
    x = torch.ones(MIB, device="tpu")
    core.settled(4 * MIB, 64)
    core.table.set_limit(64 * MIB)
    seen: dict[str, Any] = {"info": torch.accelerator.get_memory_info()[1]}
    try:
        torch.zeros(25 * MIB).to("tpu")
    except RuntimeError as error:
        seen["transfer"] = str(error)
    try:
        torch.full((25 * MIB,), 3.0, device="tpu").sum().item()
    except RuntimeError as error:
        seen["execution"] = str(error)
    errors = [event for event in core.events() if event["kind"] == "error"]
    seen["errors"] = [[event["code"], event["deferred"]] for event in errors]
    seen["message"] = errors[-1]["message"]
    seen["count"] = core.counters()["errors"]
    seen["fits"] = torch.full((10 * MIB,), 3.0, device="tpu").sum().item()
    seen["old"] = x.sum().item()
    core.table.set_limit(0)
    seen["raised"] = torch.full((25 * MIB,), 3.0, device="tpu").sum().item()
    return seen


def programs() -> dict[str, Any]:
    import torch

    core = Core()
    core.set_cell("cell-a")
    x = torch.arange(1024, dtype=torch.float32).reshape(32, 32).to("tpu")
    total = (x @ x).sum().item()
    core.settled(4096, 0)
    first = core.counters()
    core.set_cell("cell-b")
    again = (x @ x).sum().item()
    core.settled(4096, 0)
    second = core.counters()
    core.set_cell("")
    events = core.events()
    return {
        "total": [total, again],
        "first": {
            key: first[key] for key in ("compiles", "cache_hits", "executions", "uploads", "downloads")
        },
        "second": {key: second[key] - first[key] for key in ("compiles", "cache_hits", "executions")},
        "time_counted": first["compile_ns"] + first["cache_hit_ns"] > 0 and first["busy_ns"] > 0,
        "kinds": {
            cell: sorted({e["kind"] for e in events if e["cell"] == cell}) for cell in ("cell-a", "cell-b")
        },
        "named": all(
            e["name"] and len(e["program"]) == 16 and e["bytes"] for e in events if e["kind"] == "compile"
        ),
        "pending": second["pending"],
    }


def why() -> dict[str, Any]:
    """Programs that come one after the other, each like an earlier one but for something."""
    import torch
    import torch.nn.functional as F

    core = Core()
    seen: dict[str, Any] = {}

    def note(name: str) -> None:
        core.settled(0, 1 << 40)
        seen[name] = core.programs(note.cursor)
        note.cursor += len(seen[name])

    note.cursor = 0
    weights = torch.ones(128, 128).to("tpu")
    for rows in (60, 61):
        core.set_cell(f"cell-{rows}")
        product = torch.ones(rows, 128).to("tpu") @ weights
        note(f"mm {rows}")
    product = torch.ones(61, 128).to("tpu") @ weights
    product @ weights
    note("again")
    seen["ran"] = [each["runs"] for each in core.programs() if each["name"] == "tt_jit_mm"]
    torch.ones(61, 128).to("tpu").bfloat16() @ weights.bfloat16()
    note("bfloat16")
    step = torch.compile(lambda x, factor: ((x @ weights) * factor).sum())
    for factor in (0.5, 1.5):
        step(product, factor).item()
        note(f"factor {factor}")
    for chance in (0.25, 0.75):
        F.dropout(product, chance)
        note(f"dropout {chance}")
    counters = core.counters()
    seen["counters"] = {
        name: counters[name]
        for name in ("compiles", "cache_hits", "executions", "programs_run", "loaded_programs")
    }
    return seen


def compiled_step() -> dict[str, Any]:
    import torch
    import torch.nn.functional as F

    core = Core()
    model = torch.nn.Linear(16, 4).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 16, device="tpu")
    y = torch.zeros(32, dtype=torch.int64, device="tpu")

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def counters() -> dict[str, int]:
        # The updates run when the loss is known already.
        torch.accelerator.synchronize()
        return core.counters()

    losses = [step(x, y).item() for _ in range(3)]
    before = counters()
    losses.append(step(x, y).item())
    after = counters()
    return {
        "falls": losses == sorted(losses, reverse=True) and losses[0] > losses[3],
        "compiles": after["compiles"] - before["compiles"],
        "executions": after["executions"] - before["executions"],
    }


def saved_again() -> dict[str, Any]:
    import torch

    core = Core()
    step = torch.compile(lambda a, b: (a @ b).relu().sum(dim=1) * 2 - 1)
    a = torch.arange(4096, dtype=torch.float32).reshape(64, 64).to("tpu") / 4096
    value = step(a, a).sum().item()
    core.settled()
    counters = core.counters()
    return {"value": value, "compiles": counters["compiles"], "cache_hits": counters["cache_hits"]}


def matmul() -> dict[str, Any]:
    import torch

    core = Core()
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3).to("tpu")
    compiled = torch.compile(lambda a: (a @ a.T).relu())
    return {
        "product": (x @ x.T).tolist(),
        "compiled": compiled(x).tolist(),
        "live": core.counters()["live_bytes"] > 0,
        "plugin": core.identity()["plugin"],
    }


def attention() -> dict[str, Any]:
    import torch
    import torch.nn.functional as F

    q = torch.randn(1, 2, 512, 64, generator=torch.Generator().manual_seed(0))
    on_device = F.scaled_dot_product_attention(*[q.to("tpu")] * 3).cpu()
    return {"error": (on_device - F.scaled_dot_product_attention(q, q, q)).abs().max().item()}


def no_plugin() -> dict[str, Any]:
    import torch

    try:
        torch.ones(3, device="tpu").cpu()
    except RuntimeError as error:
        return {"message": str(error), "cpu": torch.ones(3).sum().item()}
    return {}


class Squares:
    """A data set whose items are made on the host by workers."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.full((4,), float(index * index))


def workers() -> dict[str, Any]:
    import torch
    from torch.utils.data import DataLoader

    total = torch.zeros((), device="tpu")
    for method in ("fork", "spawn"):
        for batch in DataLoader(Squares(), batch_size=16, num_workers=2, multiprocessing_context=method):
            total += batch.to("tpu").sum()
    return {"total": total.item()}


def main() -> None:
    scenario: Callable[[], dict[str, Any]] = globals()[sys.argv[1]]
    bootstrap.install()
    result = scenario()
    with open(os.environ["TPU_CORE_RESULT"], "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
