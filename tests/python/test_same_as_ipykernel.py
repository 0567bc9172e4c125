"""The same cells in ipykernel and in this kernel: what a front end gets is the same, or better where said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

SAME = """
1 + 1
####
print('a'); print('b')
####
x = 3; x
####
x;
####
_, __, _i, In[1]
####
sorted(Out)
####
1/0
####
raise SystemExit
####
raise KeyboardInterrupt
####
assert False, 'why'
####
from IPython.display import HTML, display; display(HTML('<b>x</b>')); HTML('y')
####
%%html
<b>x</b>
####
%%javascript
alert(1)
####
%%svg
<svg></svg>
####
%%latex
$x$
####
%%markdown
# hi
####
%%bash
echo hi; echo err >&2
####
%%bash --out o --err e
echo hi
####
o
####
%%script python3
print(1)
####
%%sh
exit 3
####
!!echo hi
####
%sx echo hi
####
r = !echo a b
r
####
%pwd
####
%mkdir sub
%cd sub
####
%cd -
####
%cd nowhere
####
%env FOO=bar
####
%env FOO
####
%set_env FOO2 baz
####
%%writefile s.py
print('script', __name__)
v = 12
####
%run s.py
####
%run -i s.py
####
%run -n s.py
####
v
####
%run nowhere.py
####
%%writefile n.ipynb
{"cells":[{"cell_type":"code","source":["nbv = 5\\n","print('nb')"],"metadata":{},"outputs":[],
"execution_count":null}],"metadata":{},"nbformat":4,"nbformat_minor":5}
####
%run n.ipynb
####
nbv
####
%load s.py
####
%load nowhere
####
%less s.py
####
%pycat s.py
####
%edit s.py
####
%who
####
%who_ls int
####
%whos int
####
%xdel v
####
%store x
####
%store
####
%store -r x
####
%store -d x
####
%load_ext autoreload
####
%autoreload 2
####
%load_ext nothing_there
####
%macro mac 1
####
mac
####
%recall 1
####
%rerun 1
####
%history 1-3
####
%history -n -l 2
####
%hist -o 1
####
%logstart log.py
####
%logstate
####
%logstop
####
%save saved.py 1-3
####
%prun -q 1
####
%pdb off
####
%xmode
####
%xmode Minimal
####
1/0
####
%xmode Context
####
%colors nocolor
####
1/0
####
%colors linux
####
%config InteractiveShell.ast_node_interactivity = 'all'
####
1
2
####
%config InteractiveShell.ast_node_interactivity = 'last_expr'
####
%config InteractiveShell.ast_node_interactivity
####
%gui asyncio
####
%precision 3
####
3.14159
####
%precision
####
x?
####
x??
####
%pdoc print
####
%pdef print
####
os.pat*?
####
%alias ll echo [%l]
####
%unalias ll
####
%dirs
####
%automagic
####
%automagic
####
%autoawait
####
import asyncio
await asyncio.sleep(0); 5
####
async def coro(): return 3
await coro()
####
%%time
await coro()
####
%%capture cap
print('c'); import sys; print('e', file=sys.stderr); display(1)
####
cap.stdout, cap.stderr, len(cap.outputs)
####
cap.show()
####
get_ipython().set_next_input('z = 1')
####
get_ipython().set_next_input('z = 1', replace=True)
####
print('x', end='')
####
from IPython.display import clear_output; clear_output(wait=True)
####
h = display(1, display_id='u'); h.update(2)
####
#answers: bob|secret
n = input('name? '); import getpass; p = getpass.getpass('pw '); (n, p)
####
%debug_nothing
####
%%nothing
x
####
class B:
    def _repr_html_(self): return '<i>b</i>'
    def __repr__(self): return 'b'
B()
####
class C:
    def _ipython_display_(self): print('own')
C()
####
raise Exception('a') from ValueError('b')
####
import logging; logging.warning('log')
####
help(len)
####
%alias_magic t timeit
####
%doctest_mode
####
>>> 1 + 1
####
%doctest_mode
####
%reset_selective -f ^nbv$
####
nbv
####
'\\ud800'
####
b'\\xff'
####
{1, 2}, (1,), [3]
####
...
####
range(3)
####
?
####
here = %pwd
####
import this_is_not_there
####
open('nothing')
####
eval('1 +')
####
int('x')
####
{'é': 'ü', 'long': list(range(60))}
####
%reset -f
####
x
####
exit(keep_kernel=True)
"""

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
NUMBERS = [
    (re.compile(r"0x[0-9a-f]{6,}"), "0x"),
    (re.compile(r"(/tmp/)?ipykernel_\d+/\d+\.py|<ipython-input-\d+-[0-9a-f]+>"), "CELL"),
    (re.compile(r"/[\w./-]*/(ipykernel|pytorch)/(work|home)"), r"/\2"),
]


@pytest.fixture(scope="module")
def kernels(kernelspec: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Notebook]]:
    """ipykernel and this kernel, each in a folder of its own."""
    open_kernels = []
    found = {}
    for label, name in (("ipykernel", "python3"), ("pytorch", kernelspec)):
        folder = tmp_path_factory.mktemp(label, numbered=False)
        for part in ("work", "home"):
            (folder / part).mkdir()
        context = running_kernel(name, cwd=folder / "work", env={"IPYTHONDIR": str(folder / "home")})
        found[label] = context.__enter__()
        open_kernels.append(context)
    implementations = {label: _implementation(kernel) for label, kernel in found.items()}
    assert implementations == {"ipykernel": "ipython", "pytorch": "pytorch-tpu"}
    yield found
    for context in open_kernels:
        context.__exit__(None, None, None)


def _implementation(kernel: Notebook) -> str:
    return kernel.ask("kernel_info_request", {}).content["implementation"]


def shown(result: Result) -> list[Any]:
    """What a front end shows: streams joined, in the order of the rest."""
    streams = {name: result.stream(name) for name in ("stdout", "stderr")}
    rest = [
        [message["msg_type"], message["content"]]
        for message in result.messages
        if message["msg_type"] not in ("status", "stream", "execute_input")
    ]
    reply = {key: value for key, value in result.content.items() if not key.startswith("engine")}
    return json.loads(_plain(json.dumps([streams, rest, reply, sorted(result.reply["metadata"])])))


def _plain(text: str) -> str:
    text = ESCAPES.sub("", text.replace("\\u001b", "\x1b"))
    for pattern, word in NUMBERS:
        text = pattern.sub(word, text)
    return text


def run(kernel: Notebook, code: str) -> Result:
    answers = None
    if code.startswith("#answers: "):
        line, code = code.split("\n", 1)
        answers = line.removeprefix("#answers: ").split("|")
    kernel.strays.clear()
    # ipykernel answers what comes right after an error with `aborted`
    return kernel.run(code, answers=answers, stop_on_error=False)


@pytest.mark.parametrize("code", SAME.strip().split("\n####\n"), ids=lambda code: code[:40])
def test_a_cell_shows_the_same(kernels: dict[str, Notebook], code: str) -> None:
    expected = shown(run(kernels["ipykernel"], code))
    assert shown(run(kernels["pytorch"], code)) == expected


@pytest.mark.parametrize(
    ("code", "theirs", "ours"),
    [
        ("!printf 'hi\\n'", "hi\r\n", "hi\n"),
        ("%clear", "\x1b[H\x1b[2J", ""),
    ],
)
def test_output_that_is_meant_to_differ(
    kernels: dict[str, Notebook], code: str, theirs: str, ours: str
) -> None:
    assert run(kernels["ipykernel"], code).stdout == theirs
    assert run(kernels["pytorch"], code).stdout == ours


def test_an_exception_group_is_an_error_message_here(kernels: dict[str, Notebook]) -> None:
    code = "raise ExceptionGroup('several', [ValueError(1)])"
    assert run(kernels["ipykernel"], code).contents("error") == []
    (error,) = run(kernels["pytorch"], code).contents("error")
    assert (error["ename"], error["evalue"]) == ("ExceptionGroup", "several (1 sub-exception)")


def test_a_failing_repr_is_named_in_the_reply_here(kernels: dict[str, Notebook]) -> None:
    code = "class A:\n    def __repr__(self): raise ValueError('bad repr')\nA()"
    names = [run(kernels[label], code).content["ename"] for label in ("ipykernel", "pytorch")]
    assert names == ["NoneType", "ValueError"]


def test_stdout_and_stderr_keep_their_order_here(kernels: dict[str, Notebook]) -> None:
    code = "import sys\nprint(1); print(2, file=sys.stderr); print(3)"
    texts = [c["text"] for c in run(kernels["pytorch"], code).contents("stream")]
    assert texts == ["1\n", "2\n", "3\n"]


def test_a_notebook_is_exported_with_all_its_outputs(kernels: dict[str, Notebook], tmp_path: Path) -> None:
    kernel = kernels["pytorch"]
    outputs = {
        "print('out')": [("stream", "stdout", ["out\n"])],
        "import sys; print('a\\nb', file=sys.stderr); print('c')": [
            ("stream", "stderr", ["a\n", "b\n"]),
            ("stream", "stdout", ["c\n"]),
        ],
        "'val' + 'ue'": [("execute_result", None, None)],
        "1 / 0": [("error", None, None)],
    }
    for code in outputs:
        run(kernel, code)
    run(kernel, f"%notebook {tmp_path}/out.ipynb")
    notebook = json.loads((tmp_path / "out.ipynb").read_text())
    cells = {"".join(cell["source"]): cell["outputs"] for cell in notebook["cells"]}
    for code, expected in outputs.items():
        assert [(o["output_type"], o.get("name"), o.get("text")) for o in cells[code]] == expected
    assert notebook["metadata"]["kernelspec"]["name"] == "pytorch-tpu"
