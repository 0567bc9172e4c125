"""Arguments that do not fit each other: PyTorch's own error, and the kernel and its tensors live on."""

from __future__ import annotations

import ast
import re

import pytest
from notebook import Notebook

PATIENCE = 120

pytestmark = pytest.mark.timeout(400)

#: `o` makes ones on the device. Each of these ended the process, or computed something.
ERRORS = {
    "o(3) @ o(4)": (
        "RuntimeError",
        (
            "inconsistent tensor size, expected tensor [3] and src [4] to have the same number of elements, "
            "but got 3 and 4 elements respectively"
        ),
    ),
    "torch.dot(o(3).requires_grad_(), o(1))": (
        "RuntimeError",
        (
            "inconsistent tensor size, expected tensor [3] and src [1] to have the same number of elements, "
            "but got 3 and 1 elements respectively"
        ),
    ),
    "o(3).copy_(o(4))": (
        "RuntimeError",
        "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0",
    ),
    "F.scaled_dot_product_attention(o(1,2,2,4), o(1,2,3,4), o(1,2,4,4))": (
        "RuntimeError",
        "Expected size for first two dimensions of batch2 tensor to be: [2, 3] but got: [2, 4].",
    ),
    "F.scaled_dot_product_attention(o(1,2,2,4), o(1,2,3,5), o(1,2,3,4))": (
        "RuntimeError",
        "Expected size for first two dimensions of batch2 tensor to be: [2, 4] but got: [2, 5].",
    ),
    "F.scaled_dot_product_attention(o(2,4,2,4), o(2,2,3,5), o(2,2,3,4), enable_gqa=True)": (
        "RuntimeError",
        "Expected size for first two dimensions of batch2 tensor to be: [8, 4] but got: [8, 5].",
    ),
    "F.scaled_dot_product_attention(o(1,1,2,4), o(1,2,3,4), o(1,2,3,4))": (
        "NotImplementedError",
        (
            "scaled_dot_product_attention(): query, key and value of [1, 1, 2, 4], [1, 2, 3, 4], [1, 2, 3, 4]: "
            "broadcasting batches or heads is not implemented for TPU: give them one shape with expand()"
        ),
    ),
    "F.conv2d(o(1,3,8,8), o(4,3,3,3), stride=0)": ("RuntimeError", "non-positive stride is not supported"),
    "F.conv2d(o(1,4,8,8), o(4,2,3,3), groups=0)": ("RuntimeError", "non-positive groups is not supported"),
    "F.conv2d(o(1,3,8,8), o(4,3,3,3), o(1))": (
        "RuntimeError",
        (
            "Given weight of size [4, 3, 3, 3], expected bias to be 1-dimensional with 4 elements, "
            "but got bias of size [1] instead"
        ),
    ),
    "F.layer_norm(o(2,4), (3,))": (
        "RuntimeError",
        ("Given normalized_shape=[3], expected input with shape [*, 3], but got input of size[2, 4]"),
    ),
    "F.layer_norm(o(2,4), (4,), o(4), o(1))": (
        "RuntimeError",
        "Expected bias to be of same shape as normalized_shape, but got bias of shape [1] and normalized_shape = [4]",
    ),
    "o(3) @ o(3).long()": (
        "RuntimeError",
        "dot : expected both vectors to have same dtype, but found Float and Long",
    ),
    "torch.index_select(o(3), 0, o(1))": (
        "RuntimeError",
        "index_select(): Expected dtype int32 or int64 for index",
    ),
    "F.avg_pool1d(o(1,3,8), 2, padding=2)": (
        "RuntimeError",
        "pad should be at most half of effective kernel size, but got pad=2, kernel_size=2 and dilation=1",
    ),
    "F.max_pool1d(o(1,3,8), 9)": ("RuntimeError", "max_pool1d() Invalid computed output size: 0"),
    "F.max_pool2d(o(1,3,8,8), 3, stride=0)": ("RuntimeError", "stride should not be zero"),
    "F.max_pool3d(o(1,3,2,2,2), 3)": (
        "RuntimeError",
        "Given input size: (3x2x2x2). Calculated output size: (3x0x0x0). Output size is too small",
    ),
    "F.avg_pool1d(o(1,3,8), 9)": (
        "RuntimeError",
        "Given input size: (3x1x8). Calculated output size: (3x1x0). Output size is too small",
    ),
    "F.unfold(o(1,3,4,4), 2, dilation=0)": (
        "RuntimeError",
        "dilation should be greater than zero, but got dilation_height: 0 dilation_width: 0",
    ),
    "F.grid_sample(o(1,3,8,8), o(2,4,4,2))": (
        "RuntimeError",
        (
            "grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            "[1, 3, 8, 8] and grid with sizes [2, 4, 4, 2]"
        ),
    ),
    "F.pad(o(1,3,4,4), (5,5,1,1), mode='reflect')": (
        "RuntimeError",
        (
            "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
            "(5, 5) at dimension 3 of input [1, 3, 4, 4]"
        ),
    ),
    "F.ctc_loss(o(5,2,3), o(2,2).long(), o(3).long(), o(2).long())": (
        "RuntimeError",
        "input_lengths must be of size batch_size",
    ),
    "F.ctc_loss(o(5,2,3), o(2,2).long(), (5,5), (2,2), blank=7)": (
        "RuntimeError",
        "blank must be in label range",
    ),
    "torch.take(o(0), o(3).long())": ("IndexError", "take(): tried to take from an empty tensor"),
    "torch.index_select(o(0), 0, o(1).long())": ("IndexError", "index out of range in self"),
    "F.embedding_bag(o(3).long(), o(0,4), o(1).long()*0)": (
        "RuntimeError",
        "Index 0 of input takes value 1 which is not in the valid range [0, 0)",
    ),
    "torch.roll(o(3), 1, 5)": (
        "IndexError",
        "Dimension out of range (expected to be in range of [-1, 0], but got 5)",
    ),
    "torch.linalg.solve_triangular(o(3,4), o(3,2), upper=True)": (
        "RuntimeError",
        "linalg.solve_triangular: A must be batches of square matrices, but they are 3 by 4 matrices",
    ),
}

SETUP = """
import torch, torch.nn.functional as F
kept = torch.arange(4.0).tpu()
def o(*shape):
    return torch.ones(*shape, device="tpu")
def outcome(call):
    try:
        result = call()
        torch.accelerator.synchronize()
        return "no error", list(result.shape)
    except Exception as error:
        return type(error).__name__, str(error)
"""


@pytest.fixture
def ready(kernel: Notebook) -> Notebook:
    assert kernel.run(SETUP, patience=PATIENCE).status == "ok"
    return kernel


def test_arguments_that_do_not_fit_are_the_cpu_s_error_and_the_kernel_goes_on(ready: Notebook) -> None:
    calls = ", ".join(f"lambda: {code}" for code in ERRORS)
    found = ast.literal_eval(ready.run(f"[outcome(call) for call in ({calls})]", patience=PATIENCE).text)
    assert dict(zip(ERRORS, found, strict=True)) == ERRORS
    assert ready.run("(kept + 1).tolist()", patience=PATIENCE).text == "[1.0, 2.0, 3.0, 4.0]"


def test_the_error_shows_the_line_of_the_cell(ready: Notebook) -> None:
    failed = ready.run("left, right = o(3), o(4)\nleft @ right", patience=PATIENCE)
    assert failed.content["ename"] == "RuntimeError"
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(failed.content["traceback"]))
    assert "----> 2 left @ right" in shown
    assert "bad_input.py" not in shown


def test_results_without_elements_are_as_on_the_cpu(ready: Notebook) -> None:
    cell = (
        "[list(t.cpu().shape) for t in (torch.index_select(o(3, 0), 0, o(2).long()),"
        " F.adaptive_avg_pool2d(o(1, 3, 8, 8), (0, 2)), F.grid_sample(o(0, 3, 8, 8), o(0, 4, 4, 2)))]"
    )
    assert ready.run(cell, patience=PATIENCE).text == "[[2, 0], [1, 3, 0, 2], [0, 3, 4, 4]]"


def test_what_fits_still_computes_and_has_its_gradient(ready: Notebook) -> None:
    values = {
        "torch.dot(kept, kept).item()": "14.0",
        "o(2, 3).copy_(torch.arange(3.0).tpu()).tolist()": "[[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]",
        "torch.roll(kept, 1, -1).tolist()": "[3.0, 0.0, 1.0, 2.0]",
        "torch.index_select(kept, 0, torch.tensor([3, 1]).tpu()).tolist()": "[3.0, 1.0]",
        "F.max_pool1d(kept.view(1, 1, 4), 3, padding=1).tolist()": "[[[1.0, 3.0]]]",
        "F.avg_pool1d(kept.view(1, 4), 4).tolist()": "[[1.5]]",
        "F.pad(kept.view(1, 2, 2), (1, 1, 1, 0), mode='reflect')[0, 0].tolist()": "[3.0, 2.0, 3.0, 2.0]",
        "F.scaled_dot_product_attention(o(1, 4, 2, 4), o(1, 2, 3, 4), o(1, 2, 3, 4), enable_gqa=True).sum().item()": "32.0",
        "a = torch.arange(24.0).view(1, 2, 1, 3, 4) / 9; b = a.tpu()\n"
        "torch.allclose(F.scaled_dot_product_attention(b, b, b).cpu(), F.scaled_dot_product_attention(a, a, a))": "True",
        "torch.nn.LayerNorm(2).tpu()(o(3, 2)).tolist()": "[[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]",
        "F.conv_transpose1d(o(1, 2, 3), o(2, 1, 2), o(2), groups=2)[0, 0].tolist()": "[2.0, 3.0, 3.0, 2.0]",
        "x = o(1, 1, 4, 4).requires_grad_(); w = o(1, 1, 3, 3).requires_grad_()\n"
        "F.conv2d(x, w).sum().backward(); x.grad[0, 0, 1].tolist(), w.grad[0, 0, 0].tolist()": (
            "([2.0, 4.0, 4.0, 2.0], [4.0, 4.0, 4.0])"
        ),
    }
    for code, expected in values.items():
        assert ready.run(code, patience=PATIENCE).text == expected, code


@pytest.mark.parametrize("mode", ["fused", "debug"])
def test_the_other_eager_modes_check_too(ready: Notebook, mode: str) -> None:
    calls = "lambda: o(3) @ o(4), lambda: F.conv2d(o(1, 3, 8, 8), o(4, 3, 3, 3), stride=0)"
    cell = f"%%tpu_eager --mode {mode}\nprint([outcome(call)[0] for call in ({calls})])"
    assert ready.run(cell, patience=PATIENCE).stdout == "['RuntimeError', 'RuntimeError']\n"


def test_compiled_functions_check_too(ready: Notebook) -> None:
    cell = (
        "compiled = torch.compile(lambda a, b: torch.dot(a, b), backend='tpu')\n"
        "pooled = torch.compile(lambda t: F.max_pool2d(t, 3, stride=0), backend='tpu')\n"
        "[outcome(lambda: compiled(o(3), o(4)))[0], outcome(lambda: pooled(o(1, 3, 8, 8)))[0],"
        " compiled(kept, kept).item()]"
    )
    found = ast.literal_eval(ready.run(cell, patience=PATIENCE).text)
    assert found == ["TorchRuntimeError", "TorchRuntimeError", 14.0]


def test_functions_looked_at_are_still_known_to_torch_compile(ready: Notebook) -> None:
    """It finds them by their hash, which what CPython was told of a function is part of."""
    cell = (
        "def run(x, w):\n"
        "    y = F.layer_norm(F.max_pool2d(F.conv2d(x, w, torch.zeros(4, device='tpu')), 2), (3, 3))\n"
        "    return F.scaled_dot_product_attention(y, y.clone().copy_(y), y)\n"
        "compiled = torch.compile(run, backend='tpu', fullgraph=True)\n"
        "x, w = torch.arange(192.0).view(1, 3, 8, 8).sin().tpu(), torch.arange(108.0).view(4, 3, 3, 3).cos().tpu()\n"
        "torch.allclose(compiled(x, w), run(x, w), atol=1e-5), compiled(x, w).shape"
    )
    assert ready.run(cell, patience=PATIENCE).text == "(True, torch.Size([1, 4, 3, 3]))"
    assert (
        ready.run("torch.jit.trace(run, (x, w))(x, w).shape", patience=PATIENCE).text
        == "torch.Size([1, 4, 3, 3])"
    )
