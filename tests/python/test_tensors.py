"""Tensors as a person reads them: printed without compiling, shown as cards, pictures as pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook
from PIL import Image

SETUP = """
import torch
from tpu_kernel.tpu import device

def made(expression):
    value = eval(expression)
    # what makes it compiles; what shows it must not
    torch.accelerator.synchronize()
    global programs
    programs = compiled()
    return value

def compiled():
    counters = device.snapshot()
    return counters["compiles"] + counters["cache_hits"]

base = torch.arange(1 << 20, dtype=torch.float32).reshape(1024, 1024).to("tpu")
"""


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec) as kernel:
        assert kernel.run(SETUP).status == "ok"
        yield kernel


@pytest.mark.parametrize(
    "expression",
    [
        "base",
        "base[10:20, 5:8]",
        "base.t()",
        "base[::100, 3]",
        "base[3, 4]",
        "torch.zeros(0, 3, device='tpu')",
        "torch.tensor([True, False]).to('tpu')",
        "torch.tensor([1.5, float('nan'), float('-inf')], dtype=torch.bfloat16).to('tpu')",
        "torch.tensor([[1, 2], [3, 40]]).to('tpu').expand(2, 2, 2)",
        "torch.nn.Parameter(torch.ones(2, 3).to('tpu'))",
        "torch.tensor([1 + 2j, 3 - 1j]).to('tpu')",
    ],
)
def test_printing_reads_the_tensor_once_and_compiles_nothing(notebook: Notebook, expression: str) -> None:
    assert notebook.run(f'value = made("""{expression}""")').status == "ok"
    printed = notebook.run("print(value); print([value]); compiled() - programs")
    assert printed.text == "0"
    host = (
        expression.replace(".to('tpu')", "")
        .replace("device='tpu'", "device='cpu'")
        .replace("base", "base.cpu()")
    )
    expected = notebook.run(f"value = {host}; print(value); print([value])").stdout
    seen = printed.stdout
    assert "device='tpu:0'" in seen
    without = " ".join(seen.split()).replace(", device='tpu:0'", "")
    assert without == " ".join(expected.split())


def test_a_tensor_on_the_device_is_shown_as_a_card(notebook: Notebook) -> None:
    notebook.run("value = made(\"torch.linspace(-1, 3, 4096).reshape(64, 64).to('tpu').requires_grad_()\")")
    shown = notebook.run("value")
    (data,) = [content["data"] for content in shown.contents("execute_result")]
    assert data["text/plain"].startswith("tensor([[-1.0000, ")
    card = data["text/html"]
    for fact in (
        "float32",
        "64 × 64",
        "tpu:0",
        "16.0 KiB of HBM",
        "requires_grad",
        "<b>-1</b>",
        "<b>3</b>",
        "<b>1</b>",
    ):
        assert fact.replace("16.0 ", "16.00 ") in card, fact
    assert card.count('title="10') >= 30, "a flat spread has columns of the same height"
    assert notebook.run("compiled() - programs").text == "0"


def test_all_forms_of_a_tensor_are_made_of_one_reading(notebook: Notebook) -> None:
    assert notebook.run("read = lambda: device.snapshot()['downloads']; was = read()").status == "ok"
    (data,) = [content["data"] for content in notebook.run("base").contents("execute_result")]
    assert {"text/plain", "text/html"} <= data.keys()
    assert notebook.run("read() - was").text == "1"
    changing = (
        "class Changing:\n"
        "    def __repr__(self):\n"
        "        first = repr(value); value.add_(1)\n"
        "        return f'{first} {value} {value * 2} {value * 3}'\n"
        "value = torch.tensor([1.0]).to('tpu'); Changing()"
    )
    shown = notebook.run(changing).text
    numbers = [word.split("]")[0] for word in (shown or "").split("tensor([")[1:]]
    assert numbers == ["1.", "2.", "4.", "6."], "what was changed or made meanwhile is read anew"


def test_values_that_are_no_numbers_are_counted_on_the_card(notebook: Notebook) -> None:
    notebook.run(
        "value = torch.ones(300); value[:7] = float('nan'); value[7] = float('inf'); value = value.to('tpu')"
    )
    (data,) = [content["data"] for content in notebook.run("value").contents("execute_result")]
    assert "<small>NaN</small> <b>7</b>" in data["text/html"]
    assert "<small>infinite</small> <b>1</b>" in data["text/html"]
    assert "<small>mean</small> <b>1</b>" in data["text/html"]


def test_what_looks_like_a_picture_is_shown_as_one(notebook: Notebook) -> None:
    notebook.run("value = torch.zeros(3, 20, 30); value[0, 5, 7] = 1.0; value = value.to('tpu')")
    (data,) = [content["data"] for content in notebook.run("value").contents("execute_result")]
    address = data["text/html"].split('src="data:image/png;base64,')[1].split('"')[0]
    picture = Image.open(io.BytesIO(base64.b64decode(address)))
    assert (picture.size, picture.mode) == ((30, 20), "RGB")
    assert (picture.getpixel((7, 5)), picture.getpixel((0, 0))) == ((255, 0, 0), (0, 0, 0))
    weights = notebook.run("torch.randn(3, 20, 30).to('tpu')")
    (data,) = [content["data"] for content in weights.contents("execute_result")]
    assert "<img" not in data["text/html"]


def test_small_tensors_and_tensors_on_the_host_have_no_card(notebook: Notebook) -> None:
    for expression in ("torch.ones(255).to('tpu')", "torch.ones(5000)"):
        (data,) = [content["data"] for content in notebook.run(expression).contents("execute_result")]
        assert list(data) == ["text/plain"]


HUGE = """
from tpu_kernel.output import tensors
tensors._MOST_ELEMENTS = 5000
torch.manual_seed(0)

def compared(made, **options):
    host = eval(made)
    chip = host.to("tpu").detach()
    if host.dtype.is_complex:
        chip, host = chip.conj(), host.conj()
    torch.set_printoptions(profile="default")
    torch.set_printoptions(**options)
    texts = repr(chip), repr(host)
    torch.set_printoptions(profile="default")
    return texts

def numbers(text):
    return text[: text.rindex("]")]
"""


@pytest.mark.parametrize(
    "made",
    [
        "torch.randn(5001)",
        "torch.randn(70, 80)",
        "torch.randn(3, 2000)",
        "torch.randn(9, 8, 7, 2, 30) * 1e5",
        "torch.randn(2500, 6)",
        "torch.randint(-500, 500, (100, 200))",
        "torch.rand(100, 200) > 0.5",
        "torch.randn(80, 90).to(torch.bfloat16)",
        "torch.randn(80, 90).to(torch.float8_e4m3fn)",
        "torch.randn(80, 90, dtype=torch.complex64)",
        "torch.full((80, 90), float('nan'))",
        "torch.arange(16000, dtype=torch.float32).reshape(80, 200).t()[1:, ::2]",
        "torch.ones(1).expand(6000)",
    ],
)
def test_of_a_huge_tensor_the_edges_are_copied_and_its_text_is_pytorchs_own(
    notebook: Notebook, made: str
) -> None:
    assert notebook.run(HUGE).status == "ok"
    for options in ("", "edgeitems=1, threshold=7, precision=2", "edgeitems=2, threshold=4999, linewidth=50"):
        compared = notebook.run(
            f"chip, host = compared({made!r}, {options})\nnumbers(chip) == numbers(host), '...' in chip"
        )
        assert compared.text == "(True, True)", (options, compared.content)


def test_of_a_huge_tensor_all_is_copied_only_when_all_is_printed(notebook: Notebook) -> None:
    assert notebook.run(HUGE).status == "ok"
    printed = notebook.run(
        "huge = torch.arange(6000.0).to('tpu'); before = device.snapshot()['download_bytes']; text = repr(huge)\n"
        "some = device.snapshot()['download_bytes'] - before\n"
        "torch.set_printoptions(threshold=float('inf')); full = repr(huge)\n"
        "torch.set_printoptions(profile='default')\n"
        "print(some, device.snapshot()['download_bytes'] - before - some, full.count('.'), '...' in full)\nprint(text)"
    )
    assert printed.stdout == (
        "24 24000 6000 False\n"
        "tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 5.9970e+03, 5.9980e+03,\n"
        "        5.9990e+03], device='tpu:0')\n"
    ), printed.content
