"""Exceptions a cell catches itself: a failure of the device that one of them told is not told again.

TorchTPU raises a failure to whoever reads the lost value. Whether that was caught leaves no trace, so each
`except` of a cell notes what it holds. Handlers in libraries are not seen.
"""

from __future__ import annotations

import ast
import builtins
import sys

_NAME = "__tpu_caught__"
# a function that is sent to another process does not find the name there
_NOTE = f"try:\n    {_NAME}()\nexcept NameError:\n    pass"


class NoteCaught(ast.NodeTransformer):
    """Puts a note at the start of every `except` of cells that may use the device."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        """Look for handlers where torch is, or comes."""
        if "torch" not in sys.modules and not any(map(_imports_torch, ast.walk(node))):
            return node
        from ..tpu import device

        setattr(builtins, _NAME, device.caught)
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        """Note first, on the line of what follows."""
        self.generic_visit(node)
        note = ast.parse(_NOTE).body[0]
        for inner in ast.walk(note):
            ast.copy_location(inner, node.body[0])
        node.body.insert(0, note)
        return node


def _imports_torch(node: ast.AST) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return any(name.partition(".")[0] == "torch" for name in names)
