"""The known errors. Each is told by its type and text; the first that fits counts.

Words name parts of the text in braces, by the names of the pattern's groups. Where only the
notebook or the machine can tell more, `look` is asked: it gets the advice and may make a better one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from . import Advice, looking

Look = Callable[[Advice, re.Match[str], BaseException], Advice]


class Known(NamedTuple):
    """One kind of error."""

    pattern: re.Pattern[str]
    words: str
    cure: str
    code: str = ""
    look: Look | None = None

    def advice(self, found: re.Match[str], error: BaseException) -> Advice:
        """What to say of an error that fits."""
        parts = found.groupdict("")
        told = Advice(*(text.format(**parts) for text in (self.words, self.cure, self.code)))
        return self.look(told, found, error) if self.look is not None else told


def _known(pattern: str, words: str, cure: str, code: str = "", look: Look | None = None) -> Known:
    return Known(re.compile(pattern, re.DOTALL), words, cure, code, look)


_XLA = "`torch_xla` is another package, PyTorch/XLA; TorchTPU takes its place."
_SAY_TPU = 'Say "tpu" where the code says "cuda".'

KNOWN = (
    # names of an older TorchTPU
    _known(
        r"^RuntimeError: (?P<name>\w+) is internal to TorchTPU.* Use (?P<new>torch\.accelerator\.\w+) instead",
        "`torch.tpu.{name}` is for PyTorch itself and raises in a notebook.",
        "Use what works for every accelerator:",
        "{new}()",
        looking.at_renamed,
    ),
    _known(
        r"^AttributeError: module 'torch\.tpu' has no attribute '(?P<name>\w+)'",
        "`torch.tpu` has no `{name}`.",
        "`dir(torch.tpu)` lists what it has.",
        look=looking.at_names_of_tpu,
    ),
    _known(
        r"cannot import name 'api' from 'torch_tpu'|No module named 'torch_tpu\.api'|"
        r"module 'torch_tpu' has no attribute 'api'",
        "`torch_tpu.api` was part of an older TorchTPU.",
        '`import torch` is enough, and the device is called "tpu":',
        'device = torch.device("tpu")',
    ),
    _known(
        r"^TypeError: '_?EagerMode' object is not callable",
        "`eager_mode` is the mode in force, not a context.",
        "For a block the following; for a whole cell `%%tpu_eager --mode fused`:",
        "with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):",
    ),
    _known(
        r"^TypeError: _set_eager_mode\(\): incompatible",
        "The eager mode is a member of `torch.tpu.EagerMode`.",
        "In a notebook, `%tpu_mode fused`; in code:",
        "torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE",
    ),
    _known(
        r"^AttributeError: (?P<name>STRICT|FUSED|DEBUG)$",
        "`torch.tpu.EagerMode` has no `{name}`: its names say when operations are put off.",
        "In a notebook, `%tpu_mode`; in code DEFER_NEVER (strict), DEFER_AND_FUSE (fused) and, for debug:",
        "torch.tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING",
    ),
    _known(
        r"module 'torch\.backends' has no attribute 'tpu'",
        "There is no `torch.backends.tpu`.",
        "The setting is called:",
        "torch.tpu.allow_excess_precision = True",
    ),
    _known(
        r"No module named 'torch_tpu\._internal\.distributed\.launchers",
        "The launchers of an older TorchTPU are gone.",
        "In the parent, before it starts the processes and uses the device:",
        "torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=8)",
    ),
    # PyTorch/XLA
    _known(
        r"No module named 'torch_xla|module 'torch' has no attribute 'xla'",
        _XLA,
        "`%tpu_explain torch_xla` lists what takes the place of what.",
        'device = torch.device("tpu")',
        looking.at_xla_names,
    ),
    _known(
        r"from the 'XLA' backend|not linked with support for xla devices",
        'A device "xla" is of PyTorch/XLA; here it is called "tpu".',
        'Say "tpu" where the code says "xla".',
        'torch.device("tpu")',
        looking.at_device_strings,
    ),
    _known(
        r"backend='openxla|Invalid backend: '(?:xla|openxla)",
        'The backend "openxla" is of PyTorch/XLA.',
        "Leave `backend` out: the one for the TPU is chosen when the inputs are there.",
        "torch.compile(model)",
    ),
    # CUDA
    _known(
        r"Found no NVIDIA driver|CUDA driver version is insufficient|not compiled with CUDA enabled|"
        r"Attempting to deserialize object on a CUDA device",
        "There is no CUDA device here, there is a TPU.",
        _SAY_TPU,
        'torch.device("tpu")',
        looking.at_device_strings,
    ),
    # other accelerators: what code written on a Mac or an Intel GPU says
    _known(
        r"from the '(?P<device>MPS|XPU)' backend|not linked with support for (?P<linked>mps) devices|"
        r"Torch not compiled with (?P<enabled>MPS|XPU) enabled",
        "There is no {device}{linked}{enabled} device here, there is a TPU.",
        'Say "tpu" there.',
        'torch.device("tpu")',
        looking.at_device_strings,
    ),
    _known(
        r"nccl\d? requires at least one CUDA|ProcessGroupNCCL",
        'The backend "nccl" is for CUDA devices.',
        "For TPUs:",
        'torch.distributed.init_process_group(backend="tpu_dist")',
    ),
    _known(
        r"No backend type associated with device type tpu",
        "This process group cannot move tensors on a TPU.",
        "Make it with TorchTPU's own backend:",
        'torch.distributed.init_process_group(backend="tpu_dist")',
    ),
    _known(
        r"device_ids and output_device arguments only work with",
        "`device_ids` is for several devices in one process; here a process has one.",
        "Leave it out:",
        "torch.nn.parallel.DistributedDataParallel(model)",
    ),
    _known(
        r"Default process group has not been initialized",
        "There is no process group yet: training on several chips has a process for each.",
        "On one chip leave `DistributedDataParallel` out; else, in each process, first:",
        'torch.distributed.init_process_group(backend="tpu_dist")',
    ),
    _known(
        r"Error initializing torch\.distributed using env:// rendezvous",
        "A process group is made of processes that are started together, each told its place among them.",
        "On one chip leave it out; else, in the parent, before it starts them and uses the device:",
        "torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=8)",
    ),
    _known(
        r"create_process_group\(\): expected exactly one TPU device per PyTorch process",
        "A process group of TPUs needs a process for each chip, started with its place among them.",
        "In the parent, before it starts the processes and uses the device:",
        "torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=8)",
    ),
    # where tensors are
    _known(
        r"failed to prepare compiled mode arguments.*expected tensor to be on tpu, got cpu",
        "A compiled function was given a tensor that is on the CPU.",
        'Move it (`.to("tpu")`); where it is the step counter of an optimizer, make that capturable:',
        "torch.optim.Adam(model.parameters(), capturable=True)",
    ),
    _known(
        r"Expected all tensors to be on the same device|expected tensor to be on tpu, got cpu|"
        r"indices should be either on cpu or on the same device",
        "An operation got tensors on the CPU and on the TPU.",
        'Make or move them all to one: `device="tpu"`, `.to("tpu")`.',
        look=looking.at_tensors,
    ),
    _known(
        r"Expected a 'tpu' device type for generator but found 'cpu'",
        "Random numbers on the TPU need a generator of the TPU's.",
        "Make it there, or leave it out: `torch.manual_seed` seeds the device too.",
        'torch.Generator("tpu").manual_seed(0)',
    ),
    _known(
        r"cannot pin '(?P<type>\w+)'",
        "Only what is on the CPU can be pinned, and it changes nothing for a TPU.",
        "Leave `pin_memory` out.",
    ),
    _known(
        r"can't convert tpu:\d+ device type tensor to numpy",
        "NumPy can only read what is on the CPU.",
        "Copy it first:",
        "x.cpu().numpy()",
        looking.at_numpy,
    ),
    _known(
        r"Expected one of cpu, cuda, .* device string: tpu",
        'PyTorch knows no device "tpu": TorchTPU is not loaded, or found no TPU.',
        "It comes with `import torch` where the package `torch_tpu` is installed in this Python:",
        "%pip install torch_tpu",
        looking.at_autoload,
    ),
    _known(
        r"Expected one of cpu, cuda, .* device string: (?P<name>\S+)",
        'PyTorch knows no device "{name}"; the TPU is called "tpu".',
        'Say "tpu":',
        'torch.device("tpu")',
        looking.at_device_strings,
    ),
    _known(
        r"^RuntimeError: .*in a failed state",
        "Something this line needs has no value, because what was to compute it failed.",
        "Compute that again first.",
        look=looking.at_lost,
    ),
    # processes
    _known(
        r"DataLoader worker process.*TPU in a forked subprocess",
        "A worker of the DataLoader used the device: a chip belongs to one process.",
        "Let the dataset give CPU tensors, and move each batch in the loop:",
        'batch = batch.to("tpu")',
    ),
    _known(
        r"TPU in a forked subprocess",
        "A forked process cannot use the device of its parent: a chip belongs to one process.",
        "Let the process work on the CPU, or start it before the device is used, with spawn:",
        'torch.multiprocessing.get_context("spawn")',
    ),
    _known(
        r"The TPU is already in use by process with pid (?P<pid>\d+)|TPU is already in use by another process|"
        r"libtpu multi-process lockfile|/dev/(?:vfio|accel)\S*: Device or resource busy",
        "Another process holds the chip.",
        "When it has ended, run the cell again.",
        look=looking.at_holder,
    ),
    _known(
        r"^ProcessExitedException: process \d+ terminated with exit code 1",
        "A process ended before its work had: what it printed is above.",
        "If it names a function of this notebook, write that to a file, and import it here and there:",
        "%%writefile work.py",
        looking.at_spawned,
    ),
    _known(
        r"Changing the active TPU device within a process",
        "A process has one TPU device.",
        "Leave out the index; other chips need processes of their own:",
        'torch.device("tpu")',
    ),
    _known(
        r"generator device index \(0\) does not match target device index \([1-9]",
        "A device with another index than 0 was chosen, but a process has one TPU.",
        "Choose that again:",
        "torch.accelerator.set_device_index(0)",
    ),
    # what TorchTPU does not have
    _known(
        r"operator 'aten::(?P<name>\w+?)(?:\.\w+)?' is not implemented for TPU",
        "TorchTPU has no `{name}`.",
        "Do this step on the CPU:",
        'f(x.cpu()).to("tpu")',
        looking.at_operators,
    ),
    _known(
        r"^NotImplementedError: (?P<name>\w+)\(\): not implemented for (?P<type>\w+)",
        "TorchTPU's `{name}` does not take {type}.",
        "Convert first, where the values allow it:",
        "x.to(torch.float32)",
    ),
    _known(
        r"cannot record EventSnapshot during an FX trace",
        "Something in the compiled function has to look at a result in between.",
        "Leave that step out of the compiled function; `%%tpu_compile` does so by itself:",
        "@torch.compiler.disable",
    ),
    # torch.compile
    _known(
        r"backend='inductor'",
        'The backend "inductor" makes code for GPUs and CPUs.',
        "Leave `backend` out: the one for the TPU is chosen when the inputs are there.",
        "torch.compile(model)",
    ),
    _known(
        r"does not support torch\.compile\(\.\.\., dynamic=True",
        "A program on the TPU has fixed sizes: `dynamic=True` cannot be had.",
        "Leave it out, and pad inputs to a few sizes:",
        "torch.compile(model)",
    ),
    _known(
        r"Unexpected keyword arguments: \{'mode'",
        "The modes of `torch.compile` are those of another backend.",
        "Leave `mode` out:",
        "torch.compile(model)",
    ),
    _known(
        r"Attempt to trace forbidden callable <function (?P<name>\w+)",
        "`{name}` cannot stand inside a compiled function.",
        "Put it around the call:",
        "with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_NEVER): compiled(x)",
    ),
    _known(
        r"[Ii]nference tensor",
        "What is made under `torch.inference_mode` cannot take part in gradients or in some compiled code.",
        "Use this instead:",
        "with torch.no_grad():",
    ),
    # installation
    _known(
        r"undefined symbol: (?P<symbol>\S+)",
        "A library was built for another version of PyTorch than the one that is installed.",
        "Install versions that belong together, then restart the kernel:",
        '%pip install "torch>=2.11,<2.16" "torch_tpu>=0.2,<0.3"',
        looking.at_versions,
    ),
)
