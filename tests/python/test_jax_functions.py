"""A function of JAX in TorchTPU, which hands it over as a program: what `torch.tpu.pallas.jax_op` does."""

from __future__ import annotations

import pytest
from notebook import Notebook

pytestmark = pytest.mark.timeout(400)

SQUARED = """
module {
  func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %y = stablehlo.multiply %x, %x : tensor<3xf32>
    return %y : tensor<3xf32>
  }
}
"""
MOSAIC = """
module {
  func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %y = stablehlo.custom_call @tpu_custom_call(%x) {backend_config = ""} : (tensor<3xf32>) -> tensor<3xf32>
    return %y : tensor<3xf32>
  }
}
"""
SETUP = """
import torch
from torch_tpu._internal.compile.scan import tpu_torch_compile as tt
from torch_tpu._internal.pallas import tpu_torch_pallas as pallas
def function(name, text):
    artifact = tt.serialize_mlir_portable_artifact(tt.parse_mlir_text(text))
    pallas.register_custom_kernel(name, name * 4, serialized_mlir_module=artifact)
    shapes = [torch.empty(3, device="meta")]
    return lambda x: pallas.call_custom_kernel(name, name * 4, inputs=[x], output_shapes=shapes)[0]
"""


@pytest.fixture(scope="module")
def notebook(shared_kernel: Notebook) -> Notebook:
    assert shared_kernel.run(SETUP).status == "ok"
    return shared_kernel


def test_a_function_of_plain_operations_runs_on_the_emulated_chip(notebook: Notebook) -> None:
    cell = f"function('squared', {SQUARED!r})(torch.tensor([1.0, 2.0, 3.0]).tpu()).tolist()"
    assert notebook.run(cell).text == "[1.0, 4.0, 9.0]"


def test_a_kernel_written_for_the_chip_is_an_error_that_says_so(notebook: Notebook) -> None:
    failed = notebook.run(f"function('mosaic', {MOSAIC!r})(torch.ones(3).tpu()).tolist()")
    assert "the emulated TPU cannot run kernels written for a TPU (Pallas, flash attention)" in str(
        failed.content["evalue"]
    )
