"""Which PJRT functions TorchTPU calls in a fixed piece of work: `python pjrt_calls.py` prints JSON.

A fresh, plain Python with the real torch_tpu; tpu-core counts. `torchtpu_calls.json` holds what was
recorded; `python pjrt_calls.py --record` writes it anew, after somebody has looked at the difference.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tpu_kernel import bootstrap

RECORDED = Path(__file__).with_name("torchtpu_calls.json")

_SINK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
#: Positions in the table of `tpu_core_api`, in words: see docs/tpu-core.md.
_CALLS, _PLUGIN = 12, 19


def told(function: int) -> Any:
    """What a function of tpu-core's table gives its sink."""
    library = ctypes.CDLL(str(bootstrap.library()))
    library.tpu_core_api.restype = ctypes.POINTER(ctypes.c_void_p)
    call = ctypes.CFUNCTYPE(None, _SINK, ctypes.c_void_p)(library.tpu_core_api()[function])
    parts: list[bytes] = []
    call(_SINK(lambda _context, data, size: parts.append(ctypes.string_at(data, size))), None)
    return json.loads(b"".join(parts))


def plugin() -> dict[str, Any]:
    """What is wrapped."""
    return told(_PLUGIN)


def work() -> None:
    """Tensors, programs, training, compiled code, failures: what notebooks do, once each."""
    import torch
    import torch.nn.functional as F

    x = torch.ones(4, 8).to("tpu")
    x[:, 1:3].t().contiguous().cpu()
    x.add_(1).sum().item()
    torch.empty(3, device="tpu").fill_(2).tolist()
    torch.arange(6, dtype=torch.int64).pin_memory().to("tpu", non_blocking=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(x), torch.zeros(4, dtype=torch.int64).to("tpu")).backward()
        optimizer.step()
    step = torch.compile(lambda a: (a @ a.t()).relu().sum())
    step(x).item()
    torch.manual_seed(1)
    torch.randn(3, device="tpu").tolist()
    with contextlib.suppress(RuntimeError):
        torch.zeros(1 << 40, dtype=torch.uint8, device="tpu").sum().item()
    torch.tpu.get_device_properties()
    torch.accelerator.memory_stats()
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.get_memory_info()
    torch.accelerator.synchronize()
    del x, model, optimizer


def run() -> dict[str, int]:
    """Each function that is called, and how large the argument struct is for TorchTPU."""
    calls: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        # The second process finds the programs of the first.
        for _ in range(2):
            result = Path(folder, "calls.json")
            env = {
                name: value for name, value in os.environ.items() if not name.startswith(("TPU_", "TORCH"))
            }
            env |= {"TPU_KERNEL_CACHE": str(Path(folder, "cache")), "TORCHINDUCTOR_CACHE_DIR": folder}
            command = [sys.executable, __file__, "--work", str(result)]
            subprocess.run(command, env=env, check=True, timeout=240, stdout=subprocess.DEVNULL)
            calls |= {call["function"]: call["struct_size"] for call in json.loads(result.read_text())}
    return calls


def main() -> None:
    match sys.argv[1:]:
        case ["--work", result]:
            bootstrap.install()
            work()
            Path(result).write_text(json.dumps(told(_CALLS)))
        case ["--record"]:
            RECORDED.write_text(json.dumps(run(), indent=1, sort_keys=True) + "\n")
        case _:
            print(json.dumps(run(), indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
