"""Programs with loops are compiled in another process: what would end the kernel is an error of the cell."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from notebook import PATIENCE, Notebook

#: Within a loop over a tensor, a counter that is added to itself: the compiler's own check fails on it.
DOUBLING = """
module {
  func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %four = stablehlo.constant dense<4> : tensor<i32>
    %r:2 = stablehlo.while(%k = %one, %v = %x) : tensor<i32>, tensor<4xf32>
      cond {
        %c = stablehlo.compare LT, %k, %four, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %d = stablehlo.add %k, %k : tensor<i32>
        %i = stablehlo.iota dim = 0 : tensor<4xi32>
        %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<i32>) -> tensor<4xi32>
        %m = stablehlo.compare GE, %i, %b, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
        %w = stablehlo.add %v, %v : tensor<4xf32>
        %s = stablehlo.select %m, %w, %v : tensor<4xi1>, tensor<4xf32>
        stablehlo.return %d, %s : tensor<i32>, tensor<4xf32>
      }
    %z = stablehlo.add %r#1, %y : tensor<4xf32>
    return %r#1, %z : tensor<4xf32>, tensor<4xf32>
  }
}
"""
LOOPED = (
    "from torch_tpu._internal.compile.scan import tpu_torch_compile as tt\n"
    "looped = tt.create_scan_op(inits=[kept], inputs=[torch.ones(2, 4, device='tpu')],"
    f" body_module=tt.parse_mlir_text({DOUBLING!r}), scan_direction=tt.ScanDirection.kForward,"
    " dummy_ys=[torch.zeros(2, 4, device='meta')], num_scan_inputs=1)\n"
    "looped[0].cpu()"
)
PROGRAM = shutil.which("tpu-kernel", path=str(Path(sys.prefix, "bin")))
SVD = "torch.linalg.svdvals(torch.diag(torch.tensor([3.0, 1.0, 2.0])).tpu()).tolist()"

pytestmark = pytest.mark.timeout(400)


def script(folder: Path, body: str) -> tuple[dict[str, str], Path]:
    """Variables that put a shell script in the place of the helper, and a file for it to write to."""
    path, log = folder / "compiler", folder / "log"
    path.write_text(f"#!/bin/sh\n{body.format(log=log, program=PROGRAM)}\n")
    path.chmod(0o755)
    log.touch()
    return {"TPU_KERNEL_COMPILER": str(path)}, log


def test_what_would_end_the_kernel_is_an_error_and_tensors_live_on(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel(env={"TPU_KERNEL_CACHE": str(tmp_path)})
    pid = kernel.run("import os, torch; os.getpid()").text
    assert kernel.run("kept = torch.full((4,), 2.0, device='tpu')").status == "ok"
    failed = kernel.run(LOOPED)
    assert failed.content["ename"] == "RuntimeError"
    words = failed.content["evalue"]
    assert "the compiler of the emulated TPU fails on `tt_jit_create_scan_op_custom_kernel` (" in words
    assert words.endswith(
        "cannot be downcasted to 'N3xla22HloConstantInstructionE.') and would have ended the kernel: "
        "move this step to the CPU, or write it with other operations"
    )
    alive = kernel.run("(kept * 3).tolist(), os.getpid()")
    assert alive.text == f"([6.0, 6.0, 6.0, 6.0], {pid})"
    assert kernel.run(SVD).text == "[3.0, 2.0, 1.0]"
    assert kernel.run("os.wait()").content["ename"] == "ChildProcessError"


def test_only_programs_with_loops_start_a_helper_and_only_once(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    env, log = script(tmp_path, 'echo started >> {log}\nexec {program} "$@"')
    env["TPU_KERNEL_CACHE"] = str(tmp_path / "cache")

    def starts() -> int:
        return len(log.read_text().splitlines())

    kernel = new_kernel(env=env)
    training = (
        "import torch, torch.nn.functional as F\n"
        "m = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(),"
        " torch.nn.LayerNorm(72), torch.nn.Dropout(), torch.nn.Linear(72, 3)).tpu()\n"
        "o = torch.optim.AdamW(m.parameters())\n"
        "F.cross_entropy(m(torch.ones(2, 1, 8, 8).tpu()), torch.tensor([0, 2]).tpu()).backward(); o.step()\n"
        "torch.ones(5).tpu().sort().values.sum().item()"
    )
    assert kernel.run(training).text == "5.0"
    assert starts() == 0
    assert kernel.run(SVD).text == "[3.0, 2.0, 1.0]"
    first = starts()
    assert first >= 1
    assert kernel.run("torch.arange(4.0).tpu().cumsum(0).tolist()").text == "[0.0, 1.0, 3.0, 6.0]"
    assert starts() == first + 1
    kernel.manager.shutdown_kernel()
    again = new_kernel(env=env)
    assert again.run("import torch\n" + SVD).text == "[3.0, 2.0, 1.0]"
    assert again.run("torch.arange(4.0).tpu().cumsum(0).tolist()").text == "[0.0, 1.0, 3.0, 6.0]"
    assert starts() == first + 1


def test_a_helper_that_is_killed_is_told_and_one_that_does_not_start_is_done_without(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    env, log = script(tmp_path, "if [ -s {log} ]; then exit 1; fi; echo started >> {log}; kill -KILL $$")
    kernel = new_kernel(env={**env, "TPU_KERNEL_CACHE": "off"})
    cumsum = "import torch\ntorch.arange(4.0).tpu().cumsum(0).tolist()"
    killed = kernel.run(cumsum)
    assert killed.content["ename"] == "RuntimeError"
    assert killed.content["evalue"].endswith(
        "the process that compiled `tt_jit_cumsum` was killed (signal 9), most likely for want of memory: "
        "free some, call `torch.tpu._clear_cache()`, which forgets that it failed, and run it again"
    )
    kernel.run("torch.tpu._clear_cache()")
    assert kernel.run(cumsum).text == "[0.0, 1.0, 3.0, 6.0]"
    assert log.read_text() == "started\n"


def test_a_helper_outlives_an_interrupt_but_not_the_kernel(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    # A pipe that it holds open itself: it reads for ever.
    os.mkfifo(tmp_path / "pipe")
    env, log = script(tmp_path, f'echo $$ > {{log}}; exec {{program}} "$@" 0<>{tmp_path / "pipe"}')
    kernel = new_kernel(env={**env, "TPU_KERNEL_CACHE": "off"})
    owner = int(kernel.run("import os, torch; os.getpid()").text or "")
    kernel.send("torch.arange(4.0).tpu().cumsum(0).tolist()")
    helper = Path("/proc", wait_for(lambda: log.read_text().strip()), "status")
    wait_for(lambda: ignores_interrupts(helper))
    os.kill(int(helper.parent.name), signal.SIGINT)
    time.sleep(0.2)
    assert ignores_interrupts(helper)
    os.kill(owner, signal.SIGKILL)
    wait_for(lambda: not helper.exists() or "State:\tZ" in helper.read_text())


def ignores_interrupts(status: Path) -> bool:
    lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
    return bool(int(lines["SigIgn"], 16) & 1 << signal.SIGINT - 1)


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found
    return found
