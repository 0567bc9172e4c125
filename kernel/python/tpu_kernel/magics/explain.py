"""`%tpu_explain`: the last error in plain words, or what an old name is called now."""

from __future__ import annotations

import sys

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

from ..cards import show
from . import options

_MAGIC = "%tpu_explain"


@magics_class
class ExplainMagics(Magics):
    """Explains errors and old names."""

    @line_magic
    def tpu_explain(self, line: str) -> None:
        """Explain the last error in plain words, or say what an old name is called now.

        Usage:

          %tpu_explain [OLD_NAME]

        Alone: what the last error means, which of your variables or which other process it is
        about, and what to do, with the new code. What is known of an error stands in short under its
        traceback too, as `Hint:`; errors that your code catches are left alone.

        With a name, what takes its place:

          torch.tpu.is_available  a name of an older TorchTPU
          torch.cuda.synchronize  a name of CUDA; `cuda` lists all
          xm.mark_step            a name of PyTorch/XLA; `torch_xla` lists all
          TPU_LAUNCH_BLOCKING     a variable of the environment, and when it is read

        A cell that runs and says something in vain has a hint as well, once: a variable that nobody
        reads or that is set too late, `torch.cuda.is_available()`, autocast for "cuda",
        `GradScaler`, and the like.
        """
        name = options.read(_MAGIC, line).get("")
        if name:
            self._name(name)
        else:
            self._last_error()

    def _name(self, name: str) -> None:
        from ..cards.explain import NamesCard
        from ..explain.lookup import look_up, near

        found = look_up(name)
        if not found:
            alike = ", ".join(f"`{each}`" for each in near(name))
            more = (
                f"; alike: {alike}"
                if alike
                else ": `%tpu_explain cuda`, `torch_xla` or `torch_tpu` list what is known"
            )
            raise UsageError(f"{_MAGIC}: nothing is known of `{name}`{more}")
        show(NamesCard(name, found))

    def _last_error(self) -> None:
        from ..cards.explain import ErrorCard
        from ..explain import advice, looking, unknown
        from ..memory import shortage

        error = getattr(sys, "last_value", None)
        if not isinstance(error, BaseException) or isinstance(error, UsageError):
            print("There was no error to explain.")
            return
        error = getattr(error, "_tpu_explained", error)
        found = shortage.advice(error) or advice(error)
        where = looking.spot(error)
        place = f"line {where.line}: {where.text}" if where is not None else ""
        said = str(error).strip()
        show(ErrorCard(type(error).__name__, said, place, found or unknown(error), found is not None))
