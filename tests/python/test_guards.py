"""Calls on which TorchTPU would end its process: right values where there are any, else an error."""

from __future__ import annotations

import pytest
from notebook import Notebook

pytestmark = pytest.mark.timeout(400)


def test_nadam_that_keeps_its_steps_on_the_device_trains_as_on_the_cpu(kernel: Notebook) -> None:
    cell = """
import torch
def trained(device):
    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(6.0).view(2, 3) / 7)
        layer.bias.fill_(0.5)
    layer.to(device)
    options = {"capturable": device == "tpu", "foreach": True}
    optimizer = torch.optim.NAdam(layer.parameters(), lr=0.1, **options)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.ones(4, 3, device=device)).square().sum().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in layer.parameters()]
[torch.allclose(a, b, atol=1e-5) for a, b in zip(trained("tpu"), trained("cpu"))]
"""
    assert kernel.run(cell).text == "[True, True]"


def test_lists_of_tensors_are_as_large_as_what_they_are_combined_with(kernel: Notebook) -> None:
    setup = (
        "import torch\n"
        "small, large = [torch.tensor(2.0).tpu()], [torch.tensor([[1.0, 3.0], [5.0, 7.0]]).tpu()]"
    )
    assert kernel.run(setup).status == "ok"
    values = {
        "torch._foreach_mul(small, large)": "[[2.0, 6.0], [10.0, 14.0]]",
        "torch._foreach_add(small, large, alpha=2)": "[[4.0, 8.0], [12.0, 16.0]]",
        "torch._foreach_sub(small, large)": "[[1.0, -1.0], [-3.0, -5.0]]",
        "torch._foreach_div(large, small)": "[[0.5, 1.5], [2.5, 3.5]]",
        "torch._foreach_lerp(small, large, 0.5)": "[[1.5, 2.5], [3.5, 4.5]]",
        "torch._foreach_addcmul(small, large, large, 0.5)": "[[2.5, 6.5], [14.5, 26.5]]",
        "torch._foreach_addcmul(large, large, small, torch.tensor([3.0]))": "[[7.0, 21.0], [35.0, 49.0]]",
        "torch._foreach_addcdiv(large, large, small, torch.tensor([4.0]))": "[[3.0, 9.0], [15.0, 21.0]]",
    }
    for code, expected in values.items():
        assert kernel.run(f"{code}[0].tolist()").text == expected, code


@pytest.mark.parametrize(
    ("shape", "padding", "words"),
    [
        ((2, 3, 4), (-4, 5), "replication_pad1d(): padding a dimension of 4 by (-4, 5)"),
        ((5, 3, 4, 4), (-4, 5, 0, 0), "replication_pad2d(): padding a dimension of 4 by (-4, 5)"),
        ((1, 2, 4, 4, 4), (0, 0, 2, -4, 0, 0), "replication_pad3d(): padding a dimension of 4 by (2, -4)"),
    ],
)
def test_padding_of_what_was_cropped_to_nothing_is_an_error(
    kernel: Notebook, shape: tuple[int, ...], padding: tuple[int, ...], words: str
) -> None:
    cell = (
        f"import torch; x = torch.ones({shape}, device='tpu', requires_grad=True)\n"
        f"torch.nn.functional.pad(x, {padding}, mode='replicate').sum().backward()"
    )
    failed = kernel.run(cell)
    assert failed.content["ename"] == "NotImplementedError"
    assert failed.content["evalue"] == (
        f"{words} leaves none of its elements, which is not implemented for TPU: do this step on the CPU"
    )


def test_padding_that_crops_some_and_repeats_the_rest_still_has_its_gradient(kernel: Notebook) -> None:
    cell = (
        "import torch; x = torch.arange(4.0).view(1, 1, 4).tpu().requires_grad_()\n"
        "y = torch.nn.functional.pad(x, (-2, 3), mode='replicate'); y.sum().backward()\n"
        "y.tolist(), x.grad.tolist()"
    )
    expected = "([[[2.0, 3.0, 3.0, 3.0, 3.0]]], [[[0.0, 0.0, 1.0, 4.0]]])"
    assert kernel.run(cell).text == expected


def test_unique_of_many_equal_elements_does_not_end_the_kernel(kernel: Notebook) -> None:
    """TorchTPU's comparison says of equal elements that each comes first, which no plain sort can bear."""
    result = kernel.run(
        "import torch\ntorch.manual_seed(0)\n"
        "many = [torch.zeros(64), torch.randint(0, 7, (1000,)), torch.rand(40, 40) > 0.5, torch.rand(300).round()]\n"
        "def parts(t):\n"
        "    values, inverse, counts = torch.unique(t, return_inverse=True, return_counts=True)\n"
        "    return [values.tolist(), inverse.tolist(), counts.tolist()]\n"
        "[parts(t.tpu()) == parts(t) for t in many]",
    )
    assert result.text == "[True, True, True, True]"
