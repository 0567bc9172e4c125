"""Under which names cells are compiled, and how tracebacks find their source."""

from __future__ import annotations

import linecache
import re
from types import FrameType

from IPython.core import ultratb
from IPython.core.compilerop import CachingCompiler

from .. import _kernel
from ..output import jsontext

#: Text that makes functions.
_MAKES_FUNCTIONS = re.compile(r"\b(?:def|lambda|class)\b")
#: Text that may run what is not a cell. `model.eval()` and `torch.compile` do not.
RUNS_OTHER_CODE = re.compile(
    r"\b(?:builtins|\w*pickle|dill|importlib|reload|FunctionType)\b|(?<!\.)\b(?:exec|eval|compile)\b"
    r"|\bget_ipython\(\)(?!\.run_line_magic\('(?:tpu_|time|matplotlib)|\.system\()"
)
#: They have the cell below them compiled, under a name of its own.
_LOWERED = tuple(f"get_ipython().run_cell_magic('tpu_{name}'" for name in ("compile", "eager", "profile"))


class NotebookCompiler(CachingCompiler):
    """Compiles cells under the name that front ends compute from their text, to debug them."""

    def __init__(self) -> None:
        super().__init__()
        #: Cells that may have made functions, and their text, for `tpu_kernel.lowering.functions`, which empties it.
        self.noted: dict[str, str] = {}

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        name = super().cache(transformed_code, number, raw_code)
        makes = _MAKES_FUNCTIONS.search(transformed_code) or RUNS_OTHER_CODE.search(transformed_code)
        if makes and not transformed_code.startswith(_LOWERED):
            self.noted[name] = transformed_code
        return name

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        if transformed_code.startswith("get_ipython().run_cell_magic("):
            # the name is for the magic's body, which may be compiled with the cell's line numbers
            return super().get_code_name(raw_code, transformed_code, number)
        return _kernel.cell_file(jsontext.scrub(raw_code))

    def show_source_of_cells(self) -> None:
        """Let tracebacks count a cell's lines: there is no file of its name, so IPython would show it raw."""
        count = ultratb.get_line_number_of_frame

        def count_lines(frame: FrameType) -> int:
            name = frame.f_code.co_filename
            return len(linecache.getlines(name)) if name in self._filename_map else count(frame)

        ultratb.get_line_number_of_frame = count_lines
