"""Old names and what they are called now: of older TorchTPU, CUDA, PyTorch/XLA, and variables of the environment.

Plain records, looked at when somebody asks or an error is about one. A name that ends in `*` stands
for all that begin so.
"""

from __future__ import annotations

from typing import NamedTuple


class Renamed(NamedTuple):
    """One old name."""

    old: str
    #: Code that takes its place, "" where nothing is needed.
    new: str
    #: What is different, as a sentence; may be "".
    words: str = ""


_ANY = "`torch.tpu`'s own raises."
_ONE = "A process has one device: there is nothing to choose."

TORCH_TPU = (
    Renamed("torch.tpu.is_available", "torch.accelerator.is_available()", _ANY),
    Renamed("torch.tpu.synchronize", "torch.accelerator.synchronize()", _ANY),
    Renamed("torch.tpu.device_count", "torch.accelerator.device_count()", _ANY),
    Renamed("torch.tpu.current_device", "torch.accelerator.current_device_index()", _ANY),
    Renamed("torch.tpu.set_device", "torch.accelerator.set_device_index(0)", _ONE),
    Renamed("torch.tpu.current_stream", "torch.accelerator.current_stream()", _ANY),
    Renamed(
        "torch.tpu.set_stream", "torch.accelerator.set_stream(stream)", "Streams are placeholders on a TPU."
    ),
    Renamed("torch.tpu.memory_allocated", "torch.accelerator.memory_allocated()"),
    Renamed("torch.tpu.max_memory_allocated", "torch.accelerator.max_memory_allocated()"),
    Renamed("torch.tpu.reset_peak_memory_stats", "torch.accelerator.reset_peak_memory_stats()"),
    Renamed("torch.tpu.mem_get_info", "torch.accelerator.get_memory_info()", "Free and total bytes of HBM."),
    Renamed("torch.tpu.empty_cache", "", "HBM is free as soon as no tensor uses it: nothing is kept back."),
    Renamed(
        "torch.tpu._hbm_usage_summary",
        "torch.accelerator.memory_allocated()",
        "It tells the HBM of the compile cache only, not of tensors.",
    ),
    Renamed("torch_tpu.api", 'torch.device("tpu")', "`import torch` is enough: TorchTPU loads itself."),
    Renamed(
        "torch_tpu._internal.execution_mode.set_eager_mode",
        "torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE",
        "The internal one is a context now and does nothing outside `with`. In a notebook: `%tpu_mode fused`.",
    ),
    Renamed(
        "torch_tpu._internal.execution_mode.eager_mode",
        "with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):",
        "`eager_mode` is the mode in force, not a context. In a notebook: `%%tpu_eager --mode fused`.",
    ),
    Renamed("torch.backends.tpu.allow_excess_precision", "torch.tpu.allow_excess_precision = True"),
    Renamed(
        "torch_tpu._internal.distributed.launchers",
        "torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=8)",
        "In the parent, before it starts the processes.",
    ),
)

CUDA = (
    Renamed("cuda", '"tpu"', 'As a device: `.to("tpu")`, `device="tpu"`.'),
    Renamed(".cuda()", '.to("tpu")'),
    Renamed("torch.cuda.is_available", "torch.accelerator.is_available()"),
    Renamed("torch.cuda.synchronize", "torch.accelerator.synchronize()"),
    Renamed("torch.cuda.device_count", "torch.accelerator.device_count()"),
    Renamed("torch.cuda.current_device", "torch.accelerator.current_device_index()"),
    Renamed("torch.cuda.set_device", "", _ONE),
    Renamed("torch.cuda.get_device_name", "torch.tpu.get_device_name()"),
    Renamed("torch.cuda.get_device_properties", "torch.tpu.get_device_properties()"),
    Renamed("torch.cuda.memory_allocated", "torch.accelerator.memory_allocated()"),
    Renamed("torch.cuda.max_memory_allocated", "torch.accelerator.max_memory_allocated()"),
    Renamed("torch.cuda.reset_peak_memory_stats", "torch.accelerator.reset_peak_memory_stats()"),
    Renamed("torch.cuda.mem_get_info", "torch.accelerator.get_memory_info()"),
    Renamed("torch.cuda.empty_cache", "", "HBM is free as soon as no tensor uses it."),
    Renamed("torch.cuda.manual_seed", "torch.manual_seed(0)", "It seeds the device too."),
    Renamed("torch.cuda.manual_seed_all", "torch.manual_seed(0)", "It seeds the device too."),
    Renamed("torch.cuda.Event", 'torch.Event("tpu")'),
    Renamed("torch.cuda.Stream", "", "Placeholders on a TPU: leave them out."),
    Renamed("torch.cuda.amp.autocast", 'torch.amp.autocast("tpu", dtype=torch.bfloat16)'),
    Renamed(
        "torch.autocast",
        'torch.amp.autocast("tpu", dtype=torch.bfloat16)',
        "For cuda it does nothing here.",
    ),
    Renamed("GradScaler", "", "bfloat16 needs no scaling of gradients."),
    Renamed(
        "allow_tf32",
        'torch.set_float32_matmul_precision("highest")',
        "Passes of bfloat16: 1 by default, `high` 3, `highest` 6.",
    ),
    Renamed("torch.inference_mode", "torch.no_grad()", "For what takes part in `backward()`."),
    Renamed("pin_memory", "", "It changes nothing on a TPU."),
    Renamed("device_ids", "DistributedDataParallel(model)", "A process has one device: leave it out."),
    Renamed("torch.nn.DataParallel", "DistributedDataParallel(model)", "A process for each chip."),
    Renamed("nccl", 'dist.init_process_group(backend="tpu_dist")'),
    Renamed("inductor", "torch.compile(model)", "The one for the TPU is chosen by itself."),
    Renamed("cudagraphs", "torch.compile(model)", "The one for the TPU is chosen by itself."),
)

TORCH_XLA = (
    Renamed("torch_xla.core.xla_model.xla_device", 'torch.device("tpu")'),
    Renamed("xm.xla_device", 'torch.device("tpu")'),
    Renamed("torch_xla.device", 'torch.device("tpu")'),
    Renamed("xm.mark_step", "", "Nothing is needed: operations run as they are reached."),
    Renamed("torch_xla.sync", "", "Nothing is needed; to wait: `torch.accelerator.synchronize()`."),
    Renamed("xm.optimizer_step", "optimizer.step()"),
    Renamed("xm.get_ordinal", "dist.get_rank()"),
    Renamed("xm.xrt_world_size", "dist.get_world_size()"),
    Renamed("xm.all_reduce", "dist.all_reduce(tensor)"),
    Renamed("xm.save", "torch.save(state, path)"),
    Renamed(
        "torch_xla.distributed.parallel_loader",
        'batch = batch.to("tpu", non_blocking=True)',
        "In the loop over a plain DataLoader, with `drop_last=True`.",
    ),
    Renamed(
        "torch_xla.distributed.xla_multiprocessing",
        "torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=8)",
        "Then `torch.multiprocessing.spawn(fn, nprocs=8)`, before this process uses the device.",
    ),
    Renamed(
        "torch_xla.launch",
        "torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=8)",
        "Then `torch.multiprocessing.spawn(fn, nprocs=8)`, before this process uses the device.",
    ),
    Renamed("torch_xla.debug.metrics", "%tpu_stats", "In code: `torch.tpu._get_cache_stats()`."),
    Renamed("torch_xla.distributed.spmd", "DTensor", "There is no GSPMD: `torch.distributed.tensor`."),
    Renamed("xs.mark_sharding", "DTensor", "There is no GSPMD: `torch.distributed.tensor`."),
    Renamed("openxla", "torch.compile(model)", "The one for the TPU is chosen by itself."),
)

#: Variables nobody reads.
NO_VARIABLES = (
    Renamed("TPU_LAUNCH_BLOCKING", "TORCH_TPU_LAUNCH_BLOCKING", "In a notebook: `%tpu_mode debug`."),
    Renamed("CUDA_LAUNCH_BLOCKING", "TORCH_TPU_LAUNCH_BLOCKING", "In a notebook: `%tpu_mode debug`."),
    Renamed("TPU_DEFER_AND_FUSE", "TORCH_TPU_DEFER_AND_FUSE", "In a notebook: `%tpu_mode fused`."),
    Renamed("TORCH_TPU_INTERNAL_ENABLE_DEBUG_CHECKS", "TORCH_TPU_ENABLE_DEBUG_CHECKS"),
    Renamed("CUDA_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS"),
    Renamed("XLA_USE_BF16", "", "Use bfloat16: `model.to(torch.bfloat16)`, or autocast."),
    Renamed("XLA_DOWNCAST_BF16", "", "Use bfloat16: `model.to(torch.bfloat16)`, or autocast."),
    Renamed("PJRT_DEVICE", "", "No variable is needed: the device is called `tpu`."),
    Renamed("XRT_TPU_CONFIG", "", "No variable is needed: the device is called `tpu`."),
)

#: Variables that are read once, when the device starts.
READ_ONCE = (
    "TORCH_TPU_LAUNCH_BLOCKING",
    "TORCH_TPU_DEFER_AND_FUSE",
    "TORCH_TPU_ENABLE_DEBUG_CHECKS",
    "TORCH_TPU_TIER2_COMPILATION_CACHE",
    "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT",
    "TORCH_TPU_INTERNAL_TIER3_COMPILATION_CACHE_LOCAL_BACKUP_TASK",
    "TORCH_TPU_INTERNAL_XLA_OPTIONS",
    "TORCH_TPU_TOPOLOGY",
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "TPU_LIBRARY_PATH",
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "TPU_PROCESS_BOUNDS",
    "TPU_CHIPS_PER_PROCESS_BOUNDS",
    "TPU_PREMAPPED_BUFFER_SIZE",
    "TPU_KERNEL_EMULATE",
    "TPU_KERNEL_HBM",
    "TPU_KERNEL_CACHE",
    "TPU_KERNEL_CACHE_SIZE",
    "TPU_KERNEL_SHARED_CACHE",
)

#: Variables that are read once, by `import torch`.
READ_AT_IMPORT = ("TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_TPU_ALLOW_LEGACY_DEVICE_APIS", "TORCH_TRACE")

#: What does for the rest of this kernel what a variable would have done.
INSTEAD = {
    "TORCH_TPU_LAUNCH_BLOCKING": "%tpu_mode debug",
    "TORCH_TPU_DEFER_AND_FUSE": "%tpu_mode fused",
    "TPU_KERNEL_HBM": "%tpu_limit 8GiB",
}

#: Operators TorchTPU lacks, and code for the nearest that it has. The rest: on the CPU.
NEAREST = {
    "linalg_lstsq": "torch.linalg.pinv(a) @ b",
    "cholesky_inverse": "torch.linalg.inv(factor @ factor.mT)",
    "_to_sparse": "x * mask",
    "quantize_per_tensor": "torch.clamp(torch.round(x / scale) + zero, -128, 127).to(torch.int8)",
}

ALL = (*TORCH_TPU, *CUDA, *TORCH_XLA, *NO_VARIABLES)
