"""A cell has one reply, whatever fails while it is answered."""

from __future__ import annotations

import pytest
from notebook import Notebook


@pytest.mark.parametrize("awaits", ["", "import asyncio; await asyncio.sleep(0)"])
@pytest.mark.parametrize(
    "failing",
    [
        "from tpu_kernel.tpu import cell_line as holder; name = 'end'",
        "holder, name = get_ipython().kernel.parents, 'end'",
        "holder, name = get_ipython(), 'end_cell'",
    ],
)
def test_a_fault_of_the_kernel_between_a_cell_and_its_reply_does_not_keep_the_reply(
    shared_kernel: Notebook, failing: str, awaits: str
) -> None:
    broken = f"""
{failing}
kept, called = getattr(holder, name), []
def fails(*given):
    setattr(holder, name, kept)
    called.append(1)
    kept(*given)
    raise RuntimeError('a fault of the kernel')
setattr(holder, name, fails)
{awaits}
'the value'
"""
    result = shared_kernel.run(broken)
    assert (result.status, result.text) == ("ok", "'the value'")
    assert shared_kernel.run("len(called), getattr(holder, name) == kept").text == "(1, True)"
    shared_kernel.run("del holder, name, kept, called, fails; from tpu_kernel.tpu import cell_line")
