"""The shell's `Completer`: IPython's, with an own eye for Python code.

IPython's matchers see to magics, files, keys of dictionaries and characters by name; names,
attributes, arguments and imports come from `python_completion`, which is imported when something
is first completed.
"""

from __future__ import annotations

from typing import Any

from IPython.core.completer import IPCompleter, SimpleCompletion, context_matcher, not_found


class NotebookCompleter(IPCompleter):
    """What `shell.Completer` is."""

    unresolved = False
    """The last question was about code that live objects say nothing of."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.magic_arg_matchers.append(self.magic_options_matcher)

    @context_matcher()
    def magic_options_matcher(self, context: Any) -> Any:
        """Options of our own magics, and their values."""
        line = context.text_until_cursor
        if not line.lstrip().startswith("%"):
            return {"completions": [], "suppress": False}
        from ..magics.completion import complete

        begun, words = complete(line) or ("", [])
        found = [SimpleCompletion(word, type="param") for word in words]
        return {"completions": found, "matched_fragment": begun, "suppress": True, "ordered": True}

    @context_matcher()
    def magic_matcher(self, context: Any) -> Any:
        """Magics where one can stand: first on a line, after `=`, or where a `%` was typed."""
        lead = context.text_until_cursor[: len(context.text_until_cursor) - len(context.token)].strip()
        if lead and not context.token.startswith("%"):
            return {"completions": [], "suppress": False}
        return super().magic_matcher(context)

    @context_matcher()
    def python_matcher(self, context: Any) -> Any:
        """Names, attributes, arguments and imports."""
        from .python_completion import PythonCode

        lines = context.full_text.split("\n")
        before = "\n".join([*lines[: context.cursor_line], context.text_until_cursor])
        code = PythonCode(self, before, context.full_text)
        self.unresolved = code.unresolved
        return {
            "completions": code.matches,
            "matched_fragment": code.fragment,
            "suppress": code.alone and bool(code.matches),
        }

    @context_matcher()
    def python_func_kw_matcher(self, context: Any) -> Any:
        """Arguments come with the names."""
        return {"completions": [], "suppress": False}

    def _evaluate_expr(self, expr: str) -> Any:
        from .code_context import primary_before
        from .live import Namespace, Unknown

        primary = primary_before(expr + ".")
        try:
            names = Namespace(self.namespace, self.global_namespace)
            return names.resolve(primary[0] if primary else expr)
        except Unknown:
            return not_found

    @staticmethod
    def _get_keys(obj: Any) -> list[Any]:
        from .python_completion import keys_of

        return keys_of(obj)


NotebookCompleter.__name__ = NotebookCompleter.__qualname__ = "IPCompleter"
