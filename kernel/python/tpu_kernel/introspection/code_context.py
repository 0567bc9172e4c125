"""Where the cursor stands in unfinished Python code: in a string, after a dot, inside a call."""

from __future__ import annotations

import re

MAX_BACK = 5_000
_NEXT = re.compile(
    r"(?P<shell>^[ \t]*[%!][^\n]*)|(?P<comment>#[^\n]*)|(?P<prefix>\b[A-Za-z]{1,2})?(?P<quote>\"\"\"|'''|\"|')",
    re.MULTILINE,
)
_ENDS = {
    '"""': re.compile(r'(?:[^\\"]|\\.|"(?!""))*"""', re.DOTALL),
    "'''": re.compile(r"(?:[^\\']|\\.|'(?!''))*'''", re.DOTALL),
    '"': re.compile(r'(?:[^\\"\n]|\\.)*(?:"|\n)', re.DOTALL),
    "'": re.compile(r"(?:[^\\'\n]|\\.)*(?:'|\n)", re.DOTALL),
}
_CLOSERS = {")": "(", "]": "[", "}": "{"}
_WORD_END = re.compile(r"\w*$")
_NUMBER = re.compile(r"(?<![\w.])\d[\d_]*$")


def where(before: str) -> tuple[str, int]:
    """`"code"`, `"string"` or `"comment"` at the end of the text, and where that piece begins.

    Inside the braces of an f-string it is code again, which begins after the brace.
    """
    position = 0
    while found := _NEXT.search(before, position):
        if found["shell"] or found["comment"]:
            if found.end() == len(before):
                return ("comment", found.start()) if found["comment"] else ("code", found.start())
            position = found.end()
            continue
        end = _ENDS[found["quote"]].match(before, found.end())
        if end is not None:
            position = end.end()
            continue
        if "f" in (found["prefix"] or "").lower():
            brace = _open_brace(before, found.end())
            if brace is not None:
                return "code", brace + 1
        return "string", found.start()
    return "code", 0


def _open_brace(text: str, begin: int) -> int | None:
    """The brace of an f-string's expression that is still open."""
    depth, opened, position = 0, None, begin
    while position < len(text):
        two = text[position : position + 2]
        if depth == 0 and two in ("{{", "}}"):
            position += 2
            continue
        if text[position] == "{":
            opened = position if depth == 0 else opened
            depth += 1
        elif text[position] == "}":
            depth -= 1
        position += 1
    return opened if depth > 0 else None


def primary_before(before: str) -> tuple[str, str] | None:
    """For text that ends in `expression.word`: the expression and the word; else None."""
    word = _WORD_END.search(before)
    end = word.start() if word else len(before)
    dot = len(before[:end].rstrip()) - 1
    if dot < 0 or before[dot] != ".":
        return None
    begin = _begin_of_primary(before, dot)
    if begin is None or begin >= dot:
        return None
    expression = before[begin:dot].strip()
    if _NUMBER.search(expression) and expression.isdigit():
        return None
    return expression, before[end:]


def _begin_of_primary(text: str, end: int) -> int | None:
    """Where the name, call, item or literal begins that ends at `end`."""
    position, limit = end, max(0, end - MAX_BACK)
    operand = False  # something that a dot, a call or an item can follow was read
    while position > limit:
        stripped = len(text[limit:position].rstrip()) + limit
        if stripped < position and (operand or stripped == limit):
            return position
        position = stripped
        character = text[position - 1]
        if character in ")]}":
            opened = _opening(text, position - 1, limit)
            if opened is None:
                return None
            position = opened
            if character == "}":
                return position
            operand = _ends_operand(text, position, limit)
            if not operand:
                return position
            operand = False
        elif character in "\"'":
            return _string_begin(text, position, limit)
        elif character.isalnum() or character == "_":
            while position > limit and (text[position - 1].isalnum() or text[position - 1] == "_"):
                position -= 1
            rest = text[limit:position].rstrip()
            if not rest.endswith("."):
                return position
            position = limit + len(rest) - 1
        else:
            return position
    return position


def _ends_operand(text: str, position: int, limit: int) -> bool:
    """True when what stands directly before a bracket is called or subscripted by it."""
    if position <= limit:
        return False
    character = text[position - 1]
    return character.isalnum() or character in "_)]\"'"


def _opening(text: str, position: int, limit: int) -> int | None:
    """The bracket that the one at `position` closes."""
    stack: list[str] = []
    while position >= limit:
        character = text[position]
        if character in "\"'":
            begin = _string_begin(text, position + 1, limit)
            if begin is None:
                return None
            position = begin - 1
            continue
        if character in ")]}":
            stack.append(_CLOSERS[character])
        elif character in "([{":
            if not stack or stack.pop() != character:
                return None
            if not stack:
                return position
        position -= 1
    return None


def _string_begin(text: str, end: int, limit: int) -> int | None:
    """Where the string begins whose last quote stands before `end`."""
    quote = text[end - 1]
    wide = quote * 3
    mark = wide if end - 6 >= limit and text[end - 3 : end] == wide else quote
    position = end - len(mark)
    while position > limit:
        position = text.rfind(mark, limit, position)
        if position < 0:
            return None
        if text[position - 1 : position] != "\\":
            begin = position
            while begin > limit and text[begin - 1].isalpha() and position - begin < 2:
                begin -= 1
            return begin
    return None


def open_call(before: str) -> tuple[str, str] | None:
    """The function whose call is open at the end of the text, and the arguments so far."""
    limit = max(0, len(before) - MAX_BACK)
    position = len(before) - 1
    while position >= limit:
        character = before[position]
        if character in ")]}":
            opened = _opening(before, position, limit)
            if opened is None:
                return None
            position = opened - 1
        elif character in "\"'":
            begin = _string_begin(before, position + 1, limit)
            if begin is None:
                return None
            position = begin - 1
        elif character in "[{":
            return None
        elif character == "(":
            begin = _begin_of_primary(before, position)
            if begin is None or begin >= position or not _ends_operand(before, position, limit):
                return None
            return before[begin:position].strip(), before[position + 1 :]
        else:
            position -= 1
    return None
