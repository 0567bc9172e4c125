"""Dynamo's reasons, and those of the lowering, in plain words, each with its usual cure.

Dynamo names each kind of graph break in the first line of its message; what it was about stands in
the "developer debug context". A kind not listed here is told in Dynamo's own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .dynamo import APART, HIDDEN, HOOKED, ON_CPU, OPEN_SIZES

#: Why, and what to do; the second may be empty.
Cause = tuple[str, str]

_HOST_VALUE = "needs the value of a tensor on the host"
_KEEP_TENSOR = "keep it a tensor, and read it after the loop"
_OUTSIDE = "call it before or after the device work"
_SIZES = "the size of its result depends on values: the host waits, and each new size is a new program"
_SIZE_CURES = {
    "nonzero": "`torch.where(mask, x, 0)`, or multiply by the mask",
    "masked_select": "`torch.where(mask, x, 0)`, or multiply by the mask",
    "bincount": "`F.one_hot(x, n).sum(0)`",
    "repeat_interleave": "give `repeats` as a number, or pass `output_size=`",
    "unique": "do it once, outside the loop",
    "_unique2": "do it once, outside the loop",
    "unique_consecutive": "do it once, outside the loop",
}
_OP_WORDS = {"nonzero": "`nonzero` (as in `x[mask]`)", "_unique2": "`unique`"}
_BUILTINS: dict[str, Cause] = {
    "print": ("prints", "print outside the function, or every 100th turn"),
    "open": ("opens a file", "do it before or after the device work"),
    "input": ("asks for input", _OUTSIDE),
}
#: What Dynamo says instead of compiling a function once more.
LIMIT = "Dynamo recompile limit exceeded"

_KINDS: dict[str, Cause] = {
    "Unsupported Tensor.item() call with capture_scalar_outputs=False": (_HOST_VALUE, _KEEP_TENSOR),
    "Tensor.tolist() with non-integer tensor": (f"`.tolist()` {_HOST_VALUE}", _KEEP_TENSOR),
    "Tensor.numpy() with trace_numpy=False": ("goes through numpy on the host", "use torch's own function"),
    "Data-dependent branching": (
        "the branch depends on values of a tensor",
        "`torch.where(condition, a, b)`, or branch outside the function",
    ),
    "Data-dependent branching with non-constant __bool__": (
        "the branch depends on values of a tensor",
        "`torch.where(condition, a, b)`",
    ),
    "Data-dependent assertion failed (cannot compile partial graph)": (
        "asserts something about values of a tensor",
        "assert outside the function",
    ),
    "Dynamic slicing with Tensor arguments": (
        "the slice depends on values of a tensor",
        "`torch.index_select`, or slice with Python numbers",
    ),
    "Call to a time function": ("reads the clock", "read it in the cell, around the call"),
    "logging.Logger method not supported for non-export cases": (
        "logs",
        "log outside the function, or every 100th turn",
    ),
    "Attempted to copy.deepcopy a tensor": ("copies a tensor with `copy.deepcopy`", "`x.clone()`"),
    "copy.deepcopy()": ("uses `copy.deepcopy`", _OUTSIDE),
    "Attempt to trace generator": ("is a generator", "return a list"),
    "Call to `torch._dynamo.graph_break()`": ("asks for a graph break", "remove `graph_break()`"),
    "LOAD_BUILD_CLASS bytecode not supported": ("defines a class", "define it outside the function"),
    "Import failure": ("imports a module that is not there", "install it, or import it outside"),
    "Unsupported context manager": (
        "enters a context manager that PyTorch's compiler does not follow",
        "put the `with` around the call",
    ),
    LIMIT: (
        "PyTorch has compiled this function for as many different values as it does at most",
        "keep what changes in a tensor on the device, or pad to one size",
    ),
}


def of_dynamo(reason: str) -> Cause:
    """What Dynamo's message means."""
    if reason.startswith(ON_CPU):
        why = f"`{_cut(_name(reason.removeprefix(ON_CPU)), 60)}` is on the CPU"
        return why, cure_of(why)
    if reason.startswith(OPEN_SIZES):
        why = "a size is marked dynamic, and the emulated chip's compiler knows fixed sizes only"
        return why, cure_of(why)
    if reason.startswith(HIDDEN):
        why = "calls a function that runs `backward()` inside, so it ran eagerly"
        return why, "call that function in the cell, or in a function whose loop the cell calls by its name"
    if reason.startswith(HOOKED):
        return (
            "a hook on a gradient is Python, so it ran eagerly",
            "change `.grad` between `backward()` and `step()`, without a hook",
        )
    if reason.startswith(APART):
        return (
            "comes after a graph break: a program of its own would miss what was before, so it ran eagerly",
            "remove the graph break",
        )
    kind = reason.partition("\n")[0].strip()
    # After this line Dynamo tells of what it ran into while it handled the first break.
    reason = reason.partition("*** While handling")[0]
    context = _after(reason, "Developer debug context:")
    if kind.startswith("generic_jump"):
        kind = "Data-dependent branching"
    if kind in _SPECIAL:
        return _SPECIAL[kind](context, reason)
    if kind in _KINDS:
        return _KINDS[kind]
    if "skipped" in kind or "Skip" in kind:
        return _skipped(context, reason)
    explanation = _sentence(_after(reason, "Explanation:"))
    hint = _sentence(_after(reason, "Hint:"))
    if "report" in hint or "file an issue" in hint or "torch._dynamo" in hint:
        hint = ""
    if not explanation:  # an exception, not a break
        if kind.endswith("raised:"):  # one of TorchTPU's
            kind = reason.split("\n", 2)[1]
        return f"PyTorch's compiler failed: {_cut(kind, 160)}", ""
    return f"PyTorch's compiler stops here: {_cut(explanation, 160)}", _cut(hint, 120)


def is_error(reason: str) -> bool:
    """Not a graph break: the code itself raises, here or when it is run eagerly."""
    return _SPECIAL.get(reason.partition("\n")[0].strip()) is _raises


def _builtin(context: str, reason: str) -> Cause:
    found = re.match(r"builtin (\w+)", context)
    name = found[1] if found else "?"
    return _BUILTINS.get(name, (f"calls the builtin `{name}`", _OUTSIDE))


def _sized(context: str, reason: str) -> Cause:
    name = _operator(context)
    return f"{_OP_WORDS.get(name, f'`{name}`')}: {_SIZES}", _SIZE_CURES.get(name, "")


def _valued(context: str, reason: str) -> Cause:
    return f"`{_operator(context)}` {_HOST_VALUE}", "`(a == b).all()` stays on the device"


def _skipped(context: str, reason: str) -> Cause:
    found = re.search(r"module: ([\w.]+), qualname: ([\w.<>]+)", context)
    if found is None:
        found = re.search(r"`()([\w.<>]+)`", _after(reason, "Explanation:"))
    name = ".".join(part for part in found.groups() if part) if found else "a function"
    if name == "_warnings.warn":
        return "warns", "warn outside the function"
    if name.startswith(("numpy.", "PIL.", "pandas.")):
        return f"`{name}` works on the host", "use torch's own function"
    return f"calls `{name}`, which PyTorch's compiler does not follow", _OUTSIDE


def _raises(context: str, reason: str) -> Cause:
    found = re.search(r"raised exception (.+)|got (\w+\(.+\))", reason)
    return f"raises `{_cut(found[1] or found[2], 120)}`" if found else "raises an exception", ""


def _method(context: str, reason: str) -> Cause:
    found = re.search(r"method `(\w+)` of class `([\w.]+)`", _after(reason, "Explanation:"))
    name = f"{found[2]}.{found[1]}" if found else "a method"
    return f"calls `{name}`, which PyTorch's compiler does not follow", _OUTSIDE


_SPECIAL: dict[str, Callable[[str, str], Cause]] = {
    "Failed to trace builtin operator": _builtin,
    "Dynamic shape operator": _sized,
    "Dynamic shape operator (no meta kernel)": _sized,
    "Data dependent operator": _valued,
    "Unsupported method call": _method,
    "Attempted to call function marked as skipped": _skipped,
    "Observed exception": _raises,
    "RuntimeError when making fake tensor call": _raises,
    "TypeError when making fake tensor call": _raises,
    "TypeError from user code": _raises,
}

_CURES: tuple[tuple[str, str], ...] = (
    (r"prints|displays", "print every 100th turn, or after the loop"),
    (r"formats text", "format after the loop"),
    (r"`\.(item|tolist|numpy)\(\)`|`\.cpu\(\)`|`(float|int|bool)\(\)`", _KEEP_TENSOR),
    (r"`(?P<name>\w+)` is on the CPU", '`{name} = {name}.to("tpu")` once, before'),
    (r"`.*` is on the CPU", "move it to the device once, before"),
    (r"a size is marked dynamic", "remove `mark_dynamic`, and pad to one size"),
    (r".* makes its result on the CPU", 'give it `device="tpu"`'),
    (r"the place `\w+` changes", "slice on a line of its own (`part = X[…]`), and work on that"),
    (r"the number `\w+` changes", "keep it in a tensor on the device"),
    (r"decides on a host value", "`torch.where`, or compare after the loop"),
    (r"the branch depends", "`torch.where(condition, a, b)`"),
    (r"a lambda|a generator", "write a function with `def`, or a list"),
    (r"`:=`", "assign on a line of its own"),
    (
        r"`.+` runs `backward\(\)` inside",
        "write the training step as a function with `def` in a cell, or into the loop",
    ),
    (r"`.+\(\)` goes through", "keep forward and `backward()` together, with nothing eager in between"),
    (r"`.*scaler\.", "bfloat16 needs no `GradScaler`: `loss.backward()`, `opt.step()` in `torch.autocast`"),
    (r"computes with what", "give the result a name on a line of its own"),
    (r"sets a gradient", "`zero_grad()`"),
    (r"`(momentum|betas)` of ", "`cycle_momentum=False` in the scheduler"),
)


def cure_of(why: str) -> str:
    """The usual cure for a reason of the lowering; empty where there is none."""
    for pattern, cure in _CURES:
        found = re.match(pattern, why)
        if found:
            return cure.format(**found.groupdict())
    return ""


def is_of_loops(cure: str) -> bool:
    """Does this help only where it is done again and again?"""
    return re.search(r"(after|outside) the loop|100th turn", cure) is not None


def of_guard(guard: str, now: str = "") -> str:
    """A guard that failed: which name, what it was, what it is."""
    for pattern, words in _GUARDS:
        found = re.match(pattern, guard)
        if found:
            parts = {key: _TYPES.get(value, value) for key, value in found.groupdict().items()}
            if "name" in parts:
                parts["name"] = _name(parts["name"])
            told = words.format(**parts)
            return f"{told}, is {now}" if now and words.endswith("was {was}") else told
    return f"no longer so: `{_cut(_name(guard), 100)}`"


_TENSOR = r"tensor '(?P<name>.+?)' "
_EXPECTED = r"expected (?P<was>.+?), actual (?P<now>.+)"
_GUARDS = (
    (_TENSOR + rf"size mismatch at index (?P<at>\d+)\. {_EXPECTED}", "dimension {at} of `{name}` was {was}, is {now}"),
    (_TENSOR + rf"dtype mismatch\. {_EXPECTED}", "`{name}` was {was}, is {now}"),
    (_TENSOR + rf"rank mismatch\. {_EXPECTED}", "`{name}` had {was} dimensions, has {now}"),
    (_TENSOR + rf"stride mismatch at index (?P<at>\d+)\. {_EXPECTED}", "`{name}` lies differently in memory"),
    (_TENSOR + r"requires_grad mismatch\. expected requires_grad=1", "`{name}` needed a gradient, and does not"),
    (_TENSOR + r"requires_grad mismatch\. expected requires_grad=0", "`{name}` needed no gradient, and does"),
    (_TENSOR + r"dispatch key set mismatch", "`{name}` is another kind of tensor, or on another device"),
    (
        r"not ___dict_contains\('(?P<key>\w+)', _tpu_stepper_(?P<name>\w+)\.state\[",
        "the first step of `{name}` made its `{key}`",
    ),
    (
        r"expected type of '(?P<name>.+)' to be <class '(?P<was>.+)'>, but found <class '(?P<found>.+)'>",
        "`{name}` was {was}, is {found}",
    ),
    (
        r"len\(_tpu_stepper_(?P<name>\w+)\.state(?:\[.+)?\) == .+",
        "`{name}` has another state: an optimizer made anew begins without",
    ),
    (r"(?P<name>.+)\.grad is None", "`{name}.grad` was None: the first turn has no gradients to add to"),
    (r"KeyError on .*", "a name that it uses is another object now"),
    (r"not (?P<name>[\w.]+)$", "`{name}` was empty"),
    (r"___stack\d+ == (?P<was>.+)", "a value from before a graph break was {was}"),
    (r"BACKEND_MATCH", "it was compiled for another use before"),
    (r"GLOBAL_STATE changed: (?P<was>.+)", "a setting of PyTorch changed: {was}"),
    (
        r"(?P<name>.+)\.storage_offset\(\) == .+",
        "`{name}` begins at another place of a tensor that is in the program too: give it `{name}.clone()`",
    ),
    (r"len\((?P<name>.+)\) == (?P<was>\d+)", "the length of `{name}` was {was}"),
    (r"(?P<name>.+) == (?P<was>.+)", "`{name}` was {was}"),
    (r"___check_type_id\((?P<name>[^,]+), .*", "`{name}` is of a class that was defined anew, or of another type"),
    (r"___check_obj_id\((?P<name>[^,]+), .*", "`{name}` was another object"),
)  # fmt: skip
_TYPES = {
    "Float": "float32",
    "BFloat16": "bfloat16",
    "Half": "float16",
    "Double": "float64",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
    "Byte": "uint8",
    "torch.Tensor": "a tensor",
    "NoneType": "None",
}


def _name(expression: str) -> str:
    """`net._modules['fc'].weight` as people write it."""
    expression = re.sub(r"\b[GL]\['(\w+)'\]", r"\1", expression)
    expression = re.sub(r"\b_tpu_stepper_(\w+)", lambda found: found[1].replace("_of_", "."), expression)
    return re.sub(r"(?:\._modules|\.__dict__|\._parameters|\._buffers)\['(\w+)'\]", r".\1", expression)


def _operator(context: str) -> str:
    found = re.match(r"\w+\.(\w+)", context)
    return found[1] if found else _cut(context, 40)


def _after(reason: str, label: str) -> str:
    return reason.partition(label)[2].partition("\n")[0].strip() if label in reason else ""


def _sentence(text: str) -> str:
    return text.rstrip(". ").replace("Dynamo", "it")


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
