"""Names of Python and of torch whose meaning in a program the classifier knows."""

from __future__ import annotations

BUILTINS_TRACED = frozenset(
    [
        "len",
        "range",
        "sum",
        "min",
        "max",
        "abs",
        "pow",
        "zip",
        "enumerate",
        "tuple",
        "list",
        "dict",
        "set",
        "isinstance",
        "reversed",
        "divmod",
        "getattr",
    ]
)
FACTORIES = frozenset(
    [
        "ones",
        "zeros",
        "empty",
        "full",
        "rand",
        "randn",
        "randint",
        "arange",
        "linspace",
        "logspace",
        "eye",
        "randperm",
    ]
)
TORCH_HOST = frozenset(
    [
        "manual_seed",
        "seed",
        "save",
        "load",
        "compile",
        "tensor",
        "as_tensor",
        "from_numpy",
        "set_default_device",
        "set_default_dtype",
        "set_grad_enabled",
        "set_float32_matmul_precision",
        "get_rng_state",
        "set_rng_state",
        "set_num_threads",
        "device",
        "frombuffer",
        "asarray",
        "scalar_tensor",
        "is_tensor",
    ]
)
TORCH_HOST_MODULES = (
    "torch.accelerator",
    "torch.compiler",
    "torch.cuda",
    "torch.distributed",
    "torch.jit",
    "torch.onnx",
    "torch.profiler",
    "torch.tpu",
    "torch.utils",
    "torch_tpu",
)
CONTEXTS = frozenset({"no_grad", "enable_grad", "autocast"})
MODULE_SETUP = frozenset(
    [
        "train",
        "eval",
        "half",
        "float",
        "double",
        "bfloat16",
        "apply",
        "load_state_dict",
        "state_dict",
        "add_module",
        "register_module",
        "register_parameter",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "compile",
        "register_full_backward_hook",
        "children",
        "modules",
        "named_children",
        "named_modules",
        "zero_grad",
        "to_empty",
    ]
)
