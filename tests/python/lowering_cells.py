"""Cells whose meaning depends on Python's scoping rules, for `test_lowering_semantics`.

Each is a list of cell texts run in turn on one notebook: plainly, and lowered with everything
outlined that may be. Both must leave the same names, results, output and errors.
"""

from __future__ import annotations

CELLS: dict[str, list[str]] = {
    "assignments": ["a = 1\nb = a + 1\nc = d = [a, b]\nc.append(3)\nd"],
    "unpacking": ["d = {}\na, (b, *c), d[0] = 1, (2, 3, 4), 5"],
    "swap": ["a, b = 1, 2", "a, b = b, a\na, b = b + 1, a + 1"],
    "augmented": ["x = [1]\ny = x\nx += [2]\nx *= 2\ny is x"],
    "augmented unbound": ["q = 1\nq += 1\nunknown += 1\nq = 99"],
    "rebinding a builtin": ["data = [3, 1]\nsum = sum(data)\nsum", "del sum\nsum([1, 2])"],
    "loop": ["total = 0\nfor i in range(4):\n    sq = i * i\n    total += sq\ntotal"],
    "loop else": ["for i in range(3):\n    last = i\nelse:\n    done = last + 1\ndone"],
    "loop break and continue": [
        (
            "seen = []\nfor i in range(10):\n    j = i * 2\n    if j == 4:\n        continue\n    if j > 8:\n        break\n"
            "    seen = seen + [j]\nelse:\n    seen = None\nseen, i, j"
        )
    ],
    "while": ["n = 5\nf = 1\nwhile n > 1:\n    f = f * n\n    n = n - 1\nf"],
    "empty loop leaves names unbound": [
        "for never in []:\n    inner = never\n'never' in globals(), 'inner' in globals()"
    ],
    "nested loops": [
        (
            "grid = []\nfor r in range(2):\n    row = []\n    for c in range(3):\n        row = row + [r * c]\n"
            "    grid = grid + [row]\ngrid"
        )
    ],
    "comprehension scope": [
        (
            "i = 'kept'\nsq = [i * i for i in range(3)]\nnested = [[i for i in range(j)] for j in range(3)]\n"
            "pairs = {k: v for k, v in zip('ab', sq)}\ni"
        )
    ],
    "comprehension reads notebook": [
        "k = 3\nm = [k * n for n in range(3)]\nk = 4\nm2 = {k + n for n in range(2)}\nm, m2"
    ],
    "generator is lazy": ["k = 1\ng = (k * n for n in range(3))\nk = 10\nlist(g)"],
    "lambda sees later values": ["k = 1\nf = lambda: k\nk = 2\nf()", "k = 3\nf()"],
    "function sees later values": ["def f():\n    return k\nk = 1\na = f()\nk = 2\nb = f()\n(a, b)"],
    "function reads what the run just bound": [
        "scale = 1\ndef g(x):\n    return x * scale",
        "scale = 10\ny = g(2)\nscale = 100\nz = g(2)\ny, z",
    ],
    "function in a list reads the notebook": [
        (
            "fs = []\ndef make():\n    def inner():\n        return hidden\n    return inner\n"
            "fs.append(make())\ndel make"
        ),
        "hidden = 5\nr = fs[0]()\nhidden = 6\nr, fs[0]()",
    ],
    "function rebinds a global": [
        "count = 0\ndef bump():\n    global count\n    count += 1\n    return count",
        "a = bump()\nb = count\nc = bump() + count\ncount = count + 10\na, b, c, count",
    ],
    "global write and read in one statement": [
        "n = 1\ndef f():\n    global n\n    n = 50\n    return 1",
        "n = n + f()\nn",
    ],
    "method reads the notebook": [
        "rate = 1\nclass A:\n    def go(self):\n        return rate",
        "a = A()\nrate = 7\nb = a.go()\nb",
    ],
    "function with exec": ["def sneaky():\n    return eval('w')", "w = 1\na = sneaky()\nw = 2\na, sneaky()"],
    "exec": ["exec('p = 1')\nq = p + 1\nexec('q = q * 10')\nq"],
    "locals and globals": ["here = 3\nlocals()['other'] = here\nother + 1, globals()['here']"],
    "vars and dir": ["here = 3\nvars()['x1'] = 2\n'x1' in dir(), x1"],
    "walrus": [
        "a = (b := 5) + 1\nif (n := len([1, 2])) > 1:\n    c = n\nd = [last := i for i in range(3)]\na, b, c, d, last"
    ],
    "short walrus": ["a = False and (zz := 1)\n'zz' in globals()"],
    "del": ["a = 1\nb = 2\ndel a\nb = b + 1\n'a' in globals(), b", "a"],
    "del then error": ["a = 1\ndel a\nb = 2\nc = a\nd = 4"],
    "class": [
        (
            "class P:\n    'doc'\n    x: int = 1\n    def m(self):\n        return __class__\np = P()\n"
            "P.__qualname__, P.__module__, p.m() is P, P.__doc__, P.__annotations__"
        )
    ],
    "pickle": [
        "import pickle\nclass Q:\n    def __eq__(self, o):\n        return True\nq = Q()\nr = pickle.loads(pickle.dumps(q))\nr == q"
    ],
    "dataclass": [
        "from dataclasses import dataclass\n@dataclass\nclass D:\n    a: int\n    b: str = 'x'\nd = D(1)\nd.a = d.a + 1\nd"
    ],
    "decorator": [
        "log = []\ndef deco(f):\n    log.append(f.__name__)\n    return f\n@deco\ndef h():\n    return 1\nv = h() + 1\nlog, v"
    ],
    "global statement": ["global gg\ngg = 4\ngg + 1"],
    "annotation": ["x: int = 3\ny: str\nz = x + 1\n__annotations__['x'], 'y' in globals(), z"],
    "future import": [
        "from __future__ import annotations\ndef f(x: Unknown) -> None: ...\nf.__annotations__"
    ],
    "imports": ["import os.path as p, math\nfrom math import pi\nr = math.floor(pi) + 1\nr"],
    "star import": ["from math import *\nr = floor(pi)\ns = sqrt(r + 1)\ns"],
    "star import rebinds": ["pi = 1\na = pi\nfrom math import *\nb = pi\na, round(b, 3)"],
    "with": [
        "import contextlib\nwith contextlib.suppress(KeyError):\n    a = 1\n    b = {}['no']\n    c = 2\nd = a + 1\nd"
    ],
    "with as": ["import io\nwith io.StringIO('ab') as s:\n    t = s.read()\n    u = t * 2\nu, s.closed"],
    "match": [
        "v = ('go', 3)\nmatch v:\n    case ('go', n):\n        m = n * 2\n        k = m + 1\n    case _:\n        m = None\nm, n, k"
    ],
    "match capture all": ["match {'a': 1, 'b': 2}:\n    case {'a': x, **rest}:\n        y = x + 1\ny, rest"],
    "try": [
        (
            "try:\n    a = 1\n    b = 1 / 0\n    c = 2\nexcept ZeroDivisionError as e:\n    d = str(e)\nelse:\n    d = None\nfinally:\n"
            "    f = a + 1\nd, f, 'c' in globals(), 'e' in globals()"
        )
    ],
    "try star": [
        "try:\n    raise ExceptionGroup('g', [ValueError(1)])\nexcept* ValueError as g:\n    k = len(g.exceptions)\nk"
    ],
    "raise": ["a = 1\nb = a + 1\nraise ValueError('no')\nc = 3"],
    "error in a run": ["a = 1\nb = a + 1\nc = b / 0\nd = 4"],
    "error in a loop": [
        "acc = []\nfor i in range(5):\n    j = 10 // (3 - i)\n    acc = acc + [j]\nnever = 1"
    ],
    "error in a called function": ["def f(x):\n    y = x\n    return y / 0", "a = 1\nb = f(a)\nc = 1"],
    "error in the last expression": ["a = 5\n\n\na / 0"],
    "error in a multi-line statement": ["a = 1\nb = (a +\n     1 +\n     undefined_name)\nc = 3"],
    "name error": ["a = 1\nb = missing\nc = 2"],
    "assert": ["a = 2\nassert a == 2\nb = a + 1\nassert b == 2, 'b'\nc = 1"],
    "exception chain": [
        "try:\n    x = 1\n    y = {}['k']\nexcept KeyError as e:\n    z = 3\n    raise RuntimeError('r') from e"
    ],
    "system exit": ["a = 1\nraise SystemExit(3)"],
    "docstring-looking strings": ["'first string'\na = 'x'\n'second'\nb = a\n'third'", "__doc__"],
    "docstring in a block": ["if True:\n    'not a docstring'\n    a = 1\na"],
    "only a string": ["'just this'"],
    "multi-line string": ["s = '''one\n  two\nthree'''\nt = s.splitlines()\nu = (1,\n\n 2)\nlen(t), u"],
    "f-string": ["n = 3\nt = f'{n=} {n!r:>4} {[i for i in range(n)]}'\nt"],
    "print": [
        "a = 1\nprint('a', a)\na = a + 1\nprint('a', a)\nfor i in range(2):\n    b = i\n    print(i, b)"
    ],
    "semicolons": ["a = 1; b = 2; a + b;"],
    "last expression": ["a = 3\na * 2"],
    "last expression none": ["a = 3\nNone"],
    "last statement is no expression": ["a = 3\na * 2\nb = 1"],
    "expression in the middle": ["a = [1]\na.append(2)\na.pop(0)\na"],
    "empty": [""],
    "comment": ["# nothing\n"],
    "underscore names": ["_x = 1\n__y = _x + 1\n_ = 5\n__y, _"],
    "unicode names": ["ſum = 1\nµ = 2\nμ + sum if False else μ"],
    "name mangling": ["class A:\n    __p = 1\n    def g(self):\n        return self.__p\nv = A().g() + 1\nv"],
    "if else": [
        "a = 1\nif a > 0:\n    b = a + 1\n    c = b\nelif a == 0:\n    b = 0\nelse:\n    d = 1\nb, 'd' in globals()"
    ],
    "conditional expression": ["a = 1\nb = a if a else 2\nc = a and b or 3\nd = not c\nb, c, d"],
    "starred call": [
        "def f(*a, **k):\n    return a, k\nargs = [1, 2]\nkw = {'z': 1}\nr = f(*args, y=2, **kw)\nr"
    ],
    "attributes": ["class O: pass\no = O()\no.a = 1\no.b = o.a + 1\no.a += 5\nvars(o)"],
    "subscripts": ["d = {'a': 1}\nd['b'] = d['a'] + 1\nd['a'] += 5\nl = [0] * 3\nl[1:] = [7, 8]\nd, l"],
    "async def": ["async def co():\n    x = 1\n    return x\nc = co()\nc.close()\nv = 1\nv"],
    "generator function": [
        "def gen():\n    yield base\n    yield base\nbase = 1\ng = gen()\na = next(g)\nbase = 2\nb = next(g)\na, b"
    ],
    "sorted with key": ["names = ['bb', 'a']\nr = sorted(names, key=len)\nr"],
    "sum of generator": [
        "k = 2\nt = sum(k * n for n in range(4))\nk = 3\nu = max((k - n) for n in range(4))\nt, u"
    ],
    "same object": ["a = []\nb = a\nc = (a, b)\nc[0] is b, c[1] is a"],
    "deep nesting": [
        (
            "out = 0\nfor a in range(2):\n    if a:\n        with __import__('contextlib').nullcontext():\n            try:\n"
            "                for b in range(3):\n                    t = a * b\n                    out = out + t\n"
            "            finally:\n                fin = out\nout, fin, t"
        )
    ],
    "getsource": [
        "import inspect\n\ndef twice(x):\n    # doubled\n    return x * 2\ns = inspect.getsource(twice)\ns"
    ],
    "syntax error": ["a = 1\nb = = 2"],
    "return outside": ["return 1"],
    "yield outside": ["yield 1"],
    "break outside": ["break"],
    "nonlocal outside": ["nonlocal x"],
    "star assignment error": ["a, *b, *c = 1, 2"],
    "run twice": ["try:\n    n = n + 1\nexcept NameError:\n    n = 0\nm = n * 2\nm"] * 3,
    "kind changes between runs": [
        "v = 1\nw = v * 2\nw",
        "v = 'ab'",
        "w = v * 2\nw",
        "v = [1]",
        "w = v * 2\nw",
    ],
    "functions redefined between runs": [
        "def h():\n    return 1",
        "u = 5\nr = h()\nr",
        "def h():\n    return u",
        "u = 6\nr = h()\nr",
    ],
    "stop iteration": ["it = iter([1])\na = next(it)\nb = next(it)\nc = 1"],
    "keyboard interrupt": ["a = 1\nraise KeyboardInterrupt\nb = 1"],
    "del in loop": ["xs = [1, 2]\nfor x in xs:\n    y = x\n    del x\n'x' in globals(), y"],
    "type hints in loop": ["for i in range(2):\n    k: int = i\n    j = k + 1\nj, __annotations__"],
    "ellipsis and constants": ["...\n1\nx = ...\nx"],
    "chained comparison": ["a = 5\nb = 1 < a < 10\nc = a in [5]\nd = a is not None\nb, c, d"],
    "operator order": [
        "log = []\ndef p(x):\n    log.append(x)\n    return x\nr = p(1) + p(2) * p(3)\nd = {}\nd[p('k')] = p('v')\nlog"
    ],
    "iterating the namespace": ["a = 1\nb = sorted(k for k in globals() if k in ('a', 'c'))\nc = 2\nb"],
}
