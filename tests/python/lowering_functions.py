"""Cells that define and call functions, for `test_lowering_functions`.

Each is a list of cell texts run in turn on one notebook: plainly, and with every function of the
notebook lowered, its straight lines outlined. Both must leave the same names, results, output and errors.
"""

from __future__ import annotations

CELLS: dict[str, list[str]] = {
    "arguments": [
        (
            "def f(x, y=2, *a, k=3, **kw):\n    z = x + y\n    w = z * k\n    return w, a, kw\n"
            "q = f(1)\nr = f(1, 2, 3, k=4, b=5)\nq, r"
        )
    ],
    "early return": [
        (
            "def f(x):\n    a = x + 1\n    if a > 3:\n        return 'big', a\n    b = a * 2\n    return b + 1\n"
            "[f(i) for i in range(5)]"
        )
    ],
    "closure with nonlocal": [
        (
            "def make():\n    n = 0\n    def step(d):\n        nonlocal n\n        n = n + d\n        m = n * 2\n"
            "        return m\n    return step\ns = make()"
        ),
        "a = s(1)\nb = s(2)\na, b",
    ],
    "inner functions see later values": [
        (
            "def f(x):\n    y = x + 1\n    def g():\n        return y\n    y = y + 1\n    z = g()\n    y = y + 10\n"
            "    return z, g(), [y + i for i in range(2)], (lambda: y)()\nf(1)"
        )
    ],
    "methods": [
        (
            "class A:\n    def __init__(self, n):\n        self.n = n\n        self.log = []\n    def step(self, d=1):\n"
            "        v = self.n + d\n        self.n = v\n        self.log.append(v)\n        return self.n\n"
            "    @staticmethod\n    def s(x):\n        y = x + 1\n        return y\n    @classmethod\n    def c(cls, x):\n"
            "        y = x + 2\n        return cls.__name__, y\n    def __call__(self, z):\n        w = z + self.n\n        return w\n"
            "class B(A):\n    def step(self, d=1):\n        r = super().step(d)\n        q = r + 1\n        return q\na = A(1)"
        ),
        "x = a.step()\ny = a.step(5)\nz = A.s(1), A.c(3), a(4), B(2).step(), a.log\nz",
    ],
    "errors": [
        "def f(x):\n    a = x + 1\n    b = a / 0\n    return b",
        "p = 1\nf(3)",
        "f()",
        "f(1, 2)",
        "f(x=1, z=2)",
    ],
    "try and finally": [
        (
            "def f(x):\n    a = x\n    try:\n        a = a + 1\n        b = a + 5\n        c = b / 0\n        d = 4\n"
            "    except ZeroDivisionError:\n        return a, b\n    finally:\n        print(a)\nf(3)"
        )
    ],
    "an error in a function that is called": [
        "def g(x):\n    y = x\n    return 1 / y\ndef f(x):\n    a = x + 1\n    b = g(a - 1)\n    return b",
        "f(0)",
        "for i in (1, 0):\n    k = f(i)",
    ],
    "name without a value": [
        "def f(c):\n    if c:\n        v = 1\n    w = v + 1\n    return w\nf(1)",
        "f(0)",
    ],
    "globals": [
        "n = 1\ndef f():\n    global n, m\n    n = n + 1\n    m = n * 2\n    return n\nf()\nf()\nn, m"
    ],
    "generators and recursion": [
        "def f(x):\n    y = x + 1\n    yield y\nlist(f(1))",
        "def r(n):\n    m = n - 1\n    return 1 if m < 0 else n * r(m)\nr(4)",
    ],
    "loops": [
        (
            "def epoch(xs):\n    total = 0\n    for i, x in enumerate(xs):\n        if x == 3:\n            continue\n        y = x * 2\n"
            "        total += y\n        if i > 6:\n            break\n    else:\n        total = -1\n    while total > 20:\n"
            "        total = total - 3\n    return total\nepoch(range(20)), epoch([1])"
        )
    ],
    "defined again": [
        "def h(x):\n    y = x + 1\n    return y\ndef f(x):\n    z = h(x)\n    return z",
        "a = f(1)\na",
        "def h(x):\n    y = x + 100\n    return y",
        "a = f(1)\na",
        "def f(x):\n    return 'new'",
        "a = f(1)\na",
    ],
    "defaults are the function's own": [
        "def f(x, seen=[]):\n    y = x + 1\n    seen.append(y)\n    return seen\nf(1)\nf(2)",
        "f.__defaults__ = ([9],)\nf(3)",
    ],
    "decorated": [
        (
            "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def wrapper(*a, **k):\n        v = f(*a, **k)\n"
            "        return v, 'w'\n    return wrapper\n@deco\ndef g(x):\n    y = x + 1\n    return y\ng(1)"
        )
    ],
    "the function is left alone": [
        (
            "import inspect, pickle\ndef f(x):\n    y = x + 1\n    return y\ng = f\nf(1)\n"
            "inspect.getsource(f), g is f, f.__code__.co_varnames, pickle.loads(pickle.dumps(f)) is f"
        )
    ],
    "locals": ["def f(x):\n    y = x + 1\n    return sorted(locals())\nf(1)"],
    "with": [
        "import contextlib",
        "def f(x):\n    with contextlib.suppress(KeyError):\n        a = x + 1\n        b = {}[a]\n    c = a + 1\n    return c\nf(1)",
    ],
    "match": [
        (
            "def f(x):\n    match x:\n        case [a, b]:\n            c = a + b\n            return c\n        case _:\n"
            "            d = str(x)\n    e = d * 2\n    return e\nf([1, 2]), f(4)"
        )
    ],
    "computed in the return": [
        "def f(x):\n    y = x + 1\n    return {'a': y, 'b': y * 2, 'c': [y + 1, (y, x - 1)], **{'d': x}}\nf(1)",
        "def f(x):\n    return print('a') or x + 1, float(x * 2), [print('b'), *range(x)], (k := x) + 1, k\nf(2)",
    ],
    "walrus": ["def f(x):\n    if (n := x + 1) > 1:\n        m = n\n    return (k := m) + n\nf(1)"],
    "annotations": [
        (
            "from __future__ import annotations\ndef f(x: Foo, *, k: int = 3) -> Bar:\n    y: int = x + 1\n    z: Quux\n"
            "    return y + k\nf(1), f.__annotations__"
        )
    ],
    "partial": [
        "import functools\ndef f(x, y):\n    z = x - y\n    return z",
        "functools.partial(f, 5)(y=3)",
    ],
    "del": ["def f(x):\n    y = x + 1\n    del x\n    z = y + 1\n    return z, x", "f(1)"],
    "private names": [
        "class A:\n    def __init__(self):\n        self.__v = 3\n    def step(self):\n        w = self.__v + 1\n        return w\na = A()",
        "a.step()",
    ],
    "handed to others": [
        (
            "def f(x):\n    y = x + 1\n    return y\n"
            "list(map(f, [1, 2])), sorted([3, 1], key=f), [f(f(i)) for i in range(2)], (lambda: f(1))()"
        )
    ],
    "comprehensions": [
        "k = 5\ndef f(x):\n    a = [i * x for i in range(3)]\n    b = {i: k for i in a}\n    return a, b\nf(2)"
    ],
    "raise": [
        (
            "def f(x):\n    y = x + 1\n    if y > 1:\n        raise ValueError(y)\n    return y\ntry:\n    f(1)\n"
            "except ValueError as e:\n    got = str(e)\ngot"
        ),
        "f(1)",
    ],
}
