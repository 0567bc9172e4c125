"""Completion and inspection. They only look: no property, no `__getattr__`, no `repr` of anybody's is run.

completion         Tab: live objects first, jedi last
completer          the shell's `Completer`
python_completion  names, attributes, arguments, imports
jedi_completion    what jedi makes of code that is not running yet
code_context       where the cursor stands in unfinished code
importable         what can be imported
inspection         `inspect_request`, and whether a cell is complete
inspector          `name?` and Shift-Tab
description        an object, described
signatures         what a call takes
live               what an expression stands for
patience           giving up on what takes too long
"""
