"""Cells that end in errors a kernel knows, as PyTorch and TorchTPU raise them, and the hint below each."""

from __future__ import annotations

SETUP = """
import os, torch, torch.distributed as dist
x, c = torch.ones(3, device="tpu"), torch.ones(3)
model, layers = torch.nn.Linear(3, 3).to("tpu"), [torch.nn.Linear(3, 3)]
class Holder: pass
holder = Holder(); holder.batch = torch.ones(3)
"""

ACCELERATOR = "Use what works for every accelerator:"
LEFT_OUT = "Leave `backend` out: the one for the TPU is chosen when the inputs are there."
AS_IT_SHOULD_BE = "The line as it should be:"
NO_CUDA = "There is no CUDA device here, there is a TPU."
GROUP = 'torch.distributed.init_process_group(backend="tpu_dist")'
SET_LAUNCH = "torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=8)"
MOVE = "An operation works in one place; move it:"
FUSED_CONTEXT = "with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):"

SCALED = """
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(3, 3); self.scale = torch.ones(3)
    def forward(self, t):
        return self.layer(t) * self.scale
Scaled().to("tpu")(x)
"""


def internal(name: str, code: str) -> tuple[str, list[str]]:
    words = f"`torch.tpu.{name}` is for PyTorch itself and raises in a notebook."
    return f"torch.tpu.{name}({'0' if name == 'set_device' else ''})", [words, ACCELERATOR, code]


# cell, and what stands under its traceback
HINTS: list[tuple[str, list[str]]] = [
    (
        "torch.randn(3, device='tpu', generator=torch.Generator())",
        [
            "Random numbers on the TPU need a generator of the TPU's.",
            "Make it there, or leave it out: `torch.manual_seed` seeds the device too.",
            'torch.Generator("tpu").manual_seed(0)',
        ],
    ),
    (
        "x.pin_memory()",
        [
            "Only what is on the CPU can be pinned, and it changes nothing for a TPU.",
            "Leave `pin_memory` out.",
        ],
    ),
    (
        SCALED,
        [
            "`self.scale` is on the CPU, `self.layer` and `t` on the TPU.",
            "A tensor that is a plain attribute stays where it is when the module moves. Where `self.scale` is made:",
            'self.register_buffer("scale", …)',
        ],
    ),
    (
        "torch.nn.DataParallel(model)(x)",
        [NO_CUDA, "Leave `DataParallel` out: a process has one TPU."],
    ),
    (
        "dist.init_process_group('nccl')",
        [
            "A process group is made of processes that are started together, each told its place among them.",
            "On one chip leave it out; else, in the parent, before it starts them and uses the device:",
            SET_LAUNCH,
        ],
    ),
    internal("is_available", "torch.accelerator.is_available()"),
    internal("synchronize", "torch.accelerator.synchronize()"),
    internal("device_count", "torch.accelerator.device_count()"),
    internal("current_device", "torch.accelerator.current_device_index()"),
    internal("set_device", "torch.accelerator.set_device_index(0)"),
    internal("current_stream", "torch.accelerator.current_stream()"),
    (
        "torch.tpu.memory_allocated()",
        ["`torch.tpu` has no `memory_allocated`.", ACCELERATOR, "torch.accelerator.memory_allocated()"],
    ),
    (
        "torch.tpu.empty_cache()",
        [
            "`torch.tpu` has no `empty_cache`.",
            "HBM is free as soon as no tensor uses it: nothing is kept back.",
        ],
    ),
    (
        "torch.tpu.get_device_nam()",
        ["`torch.tpu` has no `get_device_nam`.", "Did you mean:", "torch.tpu.get_device_name"],
    ),
    *(
        (
            cell,
            [
                "`torch_tpu.api` was part of an older TorchTPU.",
                '`import torch` is enough, and the device is called "tpu":',
                'device = torch.device("tpu")',
            ],
        )
        for cell in (
            "from torch_tpu import api",
            "import torch_tpu.api",
            "import torch_tpu; torch_tpu.api.tpu_device()",
        )
    ),
    (
        "import torch_tpu._internal.execution_mode as em\nwith em.eager_mode(em.EagerMode.DEFER_NEVER): pass",
        [
            "`eager_mode` is the mode in force, not a context.",
            "For a block the following; for a whole cell `%%tpu_eager --mode fused`:",
            FUSED_CONTEXT,
        ],
    ),
    (
        "torch.tpu.eager_mode = 'fused'",
        [
            "The eager mode is a member of `torch.tpu.EagerMode`.",
            "In a notebook, `%tpu_mode fused`; in code:",
            "torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE",
        ],
    ),
    (
        "torch.tpu.EagerMode.DEBUG",
        [
            "`torch.tpu.EagerMode` has no `DEBUG`: its names say when operations are put off.",
            "In a notebook, `%tpu_mode`; in code DEFER_NEVER (strict), DEFER_AND_FUSE (fused) and, for debug:",
            "torch.tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING",
        ],
    ),
    (
        "torch.backends.tpu.allow_excess_precision = True",
        [
            "There is no `torch.backends.tpu`.",
            "The setting is called:",
            "torch.tpu.allow_excess_precision = True",
        ],
    ),
    (
        "from torch_tpu._internal.distributed.launchers import singlehost_wrapper",
        [
            "The launchers of an older TorchTPU are gone.",
            "In the parent, before it starts the processes and uses the device:",
            SET_LAUNCH,
        ],
    ),
    *(
        (
            cell,
            [
                "`torch_xla` is another package, PyTorch/XLA; TorchTPU takes its place.",
                "`%tpu_explain torch_xla` lists what takes the place of what.",
                code,
            ],
        )
        for cell, code in (
            ("import torch_xla.core.xla_model as xm", 'device = torch.device("tpu")'),
            (
                "import torch_xla.distributed.parallel_loader as pl",
                'for batch in loader: batch = batch.to("tpu")',
            ),
            ("import torch_xla.distributed.xla_multiprocessing as xmp", SET_LAUNCH),
        )
    ),
    (
        'torch.ones(3, device="xla")',
        [
            'A device "xla" is of PyTorch/XLA; here it is called "tpu".',
            AS_IT_SHOULD_BE,
            'torch.ones(3, device="tpu")',
        ],
    ),
    (
        "c.to('xla')",
        ['A device "xla" is of PyTorch/XLA; here it is called "tpu".', AS_IT_SHOULD_BE, "c.to('tpu')"],
    ),
    (
        "torch.ones(3, device='mps')",
        ["There is no MPS device here, there is a TPU.", AS_IT_SHOULD_BE, "torch.ones(3, device='tpu')"],
    ),
    ("c.to('mps')", ["There is no mps device here, there is a TPU.", AS_IT_SHOULD_BE, "c.to('tpu')"]),
    ("c.xpu()", ["There is no XPU device here, there is a TPU.", AS_IT_SHOULD_BE, 'c.to("tpu")']),
    ("y = c.cuda()", [NO_CUDA, AS_IT_SHOULD_BE, 'y = c.to("tpu")']),
    ("model.to('cuda:0')", [NO_CUDA, AS_IT_SHOULD_BE, "model.to('tpu')"]),
    ("torch.cuda.synchronize()", [NO_CUDA, AS_IT_SHOULD_BE, "torch.accelerator.synchronize()"]),
    ("torch.cuda.get_device_name(0)", [NO_CUDA, AS_IT_SHOULD_BE, "torch.tpu.get_device_name()"]),
    (
        "torch.cuda.Stream()",
        [NO_CUDA, 'Say "tpu" where the code says "cuda".', 'torch.device("tpu")'],
    ),
    (
        'torch.ones(3, device="gpu")',
        [
            'PyTorch knows no device "gpu"; the TPU is called "tpu".',
            AS_IT_SHOULD_BE,
            'torch.ones(3, device="tpu")',
        ],
    ),
    (
        "dist.init_process_group('nccl', rank=0, world_size=1, store=dist.HashStore())",
        ['The backend "nccl" is for CUDA devices.', "For TPUs:", GROUP],
    ),
    (
        "torch.nn.parallel.DistributedDataParallel(model)",
        [
            "There is no process group yet: training on several chips has a process for each.",
            "On one chip leave `DistributedDataParallel` out; else, in each process, first:",
            GROUP,
        ],
    ),
    (
        "dist.init_process_group('tpu_dist', rank=0, world_size=1, store=dist.HashStore())",
        [
            "A process group of TPUs needs a process for each chip, started with its place among them.",
            "In the parent, before it starts the processes and uses the device:",
            SET_LAUNCH,
        ],
    ),
    (
        (
            "dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())\n"
            "torch.nn.parallel.DistributedDataParallel(model)"
        ),
        [
            "This process group cannot move tensors on a TPU.",
            "Make it with TorchTPU's own backend:",
            GROUP,
        ],
    ),
    (
        "torch.nn.parallel.DistributedDataParallel(layers[0], device_ids=[0])",
        [
            "`device_ids` is for several devices in one process; here a process has one.",
            "Leave it out:",
            "torch.nn.parallel.DistributedDataParallel(model)",
        ],
    ),
    ("x + c", ["`c` is on the CPU, `x` on the TPU.", MOVE, 'c = c.to("tpu")']),
    (
        "%%tpu_compile --quiet\n\nx * 2; x + c",
        ["`c` is on the CPU, `x` on the TPU.", MOVE, 'c = c.to("tpu")'],
    ),
    (
        "import asyncio\nawait asyncio.sleep(0)\nx + c",
        ["`c` is on the CPU, `x` on the TPU.", MOVE, 'c = c.to("tpu")'],
    ),
    (
        "%%tpu_eager --mode fused\nx + c",
        ["`c` is on the CPU, `x` on the TPU.", MOVE, 'c = c.to("tpu")'],
    ),
    ("model(c)", ["`c` is on the CPU, `model` on the TPU.", MOVE, 'c = c.to("tpu")']),
    (
        "def step(batch):\n    return torch.cat([x, batch])\nstep(c)",
        ["`batch` is on the CPU, `x` on the TPU.", MOVE, 'batch = batch.to("tpu")'],
    ),
    (
        "x * 2; x + holder.batch",
        ["`holder.batch` is on the CPU, `x` on the TPU.", MOVE, 'holder.batch = holder.batch.to("tpu")'],
    ),
    (
        "net = layers[0]\nnet(x)",
        ["`net` is on the CPU, `x` on the TPU.", MOVE, 'net.to("tpu")'],
    ),
    (
        "x + torch.ones(3)",
        [
            "An operation got tensors on the CPU and on the TPU.",
            'Something this line makes is on the CPU: make it with `device="tpu"`, or add `.to("tpu")`.',
        ],
    ),
    (
        "torch.compile(lambda t, s: t + s)(x, torch.tensor(2.0))",
        [
            "A compiled function was given a tensor that is on the CPU.",
            'Move it (`.to("tpu")`); where it is the step counter of an optimizer, make that capturable:',
            "torch.optim.Adam(model.parameters(), capturable=True)",
        ],
    ),
    (
        "try:\n    x + c\nexcept RuntimeError as failure:\n    raise ValueError('no step') from failure",
        ["`c` is on the CPU, `x` on the TPU.", MOVE, 'c = c.to("tpu")'],
    ),
    ("x.numpy()", ["NumPy can only read what is on the CPU.", "Copy it first:", "x.cpu().numpy()"]),
    (
        (
            "class Ones(torch.utils.data.Dataset):\n"
            "    def __len__(self): return 4\n"
            "    def __getitem__(self, i): return torch.ones(2, device='tpu')\n"
            "next(iter(torch.utils.data.DataLoader(Ones(), num_workers=1)))"
        ),
        [
            "A worker of the DataLoader used the device: a chip belongs to one process.",
            "Let the dataset give CPU tensors, and move each batch in the loop:",
            'batch = batch.to("tpu")',
        ],
    ),
    (
        "def work(i): pass\ntorch.multiprocessing.spawn(work)",
        [
            "A spawned process does not find `work`: it imports modules, not the notebook.",
            "Write the function to a file, and import it here and there:",
            "%%writefile work.py",
        ],
    ),
    (
        "torch.linalg.eigh(torch.eye(3).to('tpu'))",
        ["TorchTPU has no `linalg.eigh`.", "Do this step on the CPU:", "torch.linalg.eigh(x.cpu())"],
    ),
    (
        "torch.linalg.lstsq(torch.eye(3).to('tpu'), torch.eye(3).to('tpu'))",
        ["TorchTPU has no `linalg.lstsq`.", "The nearest that it has:", "torch.linalg.pinv(a) @ b"],
    ),
    (
        "x.long().dot(x.long())",
        [
            "TorchTPU's `dot` does not take int64.",
            "Convert first, where the values allow it:",
            "x.to(torch.float32)",
        ],
    ),
    (
        "torch.compile(lambda t: torch.linalg.inv(t))(torch.eye(3).to('tpu'))",
        [
            "Something in the compiled function has to look at a result in between.",
            "Leave that step out of the compiled function; `%%tpu_compile` does so by itself:",
            "@torch.compiler.disable",
        ],
    ),
    (
        "torch.compile(lambda t: t * 2, backend='inductor')(x)",
        ['The backend "inductor" makes code for GPUs and CPUs.', LEFT_OUT, "torch.compile(model)"],
    ),
    (
        "torch.compile(lambda t: t * 2, backend='openxla')(x)",
        ['The backend "openxla" is of PyTorch/XLA.', LEFT_OUT, "torch.compile(model)"],
    ),
    (
        "torch.compile(lambda t: t * 2, dynamic=True)(x)",
        [
            "A program on the TPU has fixed sizes: `dynamic=True` cannot be had.",
            "Leave it out, and pad inputs to a few sizes:",
            "torch.compile(model)",
        ],
    ),
    (
        "torch.compile(lambda t: t * 2, mode='max-autotune')(x)",
        [
            "The modes of `torch.compile` are those of another backend.",
            "Leave `mode` out:",
            "torch.compile(model)",
        ],
    ),
    (
        (
            "@torch.compile\ndef fused(t):\n"
            "    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE): return t + 1\nfused(x)"
        ),
        [
            "`set_eager_mode` cannot stand inside a compiled function.",
            "Put it around the call:",
            "with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_NEVER): compiled(x)",
        ],
    ),
    (
        "with torch.inference_mode(): frozen = x * 2\n(frozen * model.weight).sum().backward()",
        [
            "What is made under `torch.inference_mode` cannot take part in gradients or in some compiled code.",
            "Use this instead:",
            "with torch.no_grad():",
        ],
    ),
    (
        (
            "torch.accelerator.set_device_index(1)\ntry:\n    torch.compile(lambda t: t * 3)(x)\n"
            "finally:\n    torch.accelerator.set_device_index(0)"
        ),
        [
            "A device with another index than 0 was chosen, but a process has one TPU.",
            "Choose that again:",
            "torch.accelerator.set_device_index(0)",
        ],
    ),
]
