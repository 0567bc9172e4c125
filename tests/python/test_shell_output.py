"""What a cell prints, shows and writes below Python, and whose output it is."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from notebook import Notebook


def test_print_goes_to_stdout_and_stderr_in_order(kernel: Notebook) -> None:
    result = kernel.run(
        "import sys\nfor n in range(3):\n    print('out', n)\n    print('err', n, file=sys.stderr)"
    )
    assert result.stdout == "out 0\nout 1\nout 2\n"
    assert result.stderr == "err 0\nerr 1\nerr 2\n"
    assert "".join(c["text"] for c in result.contents("stream")) == "".join(
        f"out {n}\nerr {n}\n" for n in range(3)
    )


def test_the_streams_are_whole_text_streams(kernel: Notebook) -> None:
    result = kernel.run(
        "import sys, io\n"
        "sys.stdout.writelines(['a', 'b\\n'])\n"
        "sys.stdout.buffer.write('é'.encode()[:1]); sys.stdout.buffer.write('é'.encode()[1:]); sys.stdout.buffer.flush()\n"
        "sys.stdout.reconfigure(line_buffering=True, encoding='utf-8', errors='replace')\n"
        "print()\n"
        "(sys.stdout.write('xyz\\n'), sys.stdout.encoding.lower(), sys.stdout.isatty(), sys.stdout.fileno(), "
        "sys.stderr.fileno(), sys.stdout.closed, sys.stdout.writable(), sys.stdout.line_buffering, "
        "isinstance(sys.stdout, io.TextIOBase), type(sys.stdout).__module__)"
    )
    assert result.stdout == "ab\né\nxyz\n"
    assert result.text == "(4, 'utf-8', False, 1, 2, False, True, True, True, 'ipykernel.iostream')"


def test_only_text_can_be_printed(kernel: Notebook) -> None:
    assert kernel.run("import sys; sys.stdout.write(b'x')").content["ename"] == "TypeError"


def test_the_original_streams_show_too(kernel: Notebook) -> None:
    result = kernel.run(
        "import sys; print('below', file=sys.__stdout__); print('beside', file=sys.__stderr__)"
    )
    assert result.stdout == "below\n"
    assert result.stderr == "beside\n"


def test_output_below_python_is_shown(kernel: Notebook) -> None:
    result = kernel.run(
        "import os, subprocess, ctypes\n"
        "os.write(1, b'fd one\\n'); os.write(2, b'fd two\\n')\n"
        "subprocess.run(['echo', 'from a child'])\n"
        "ctypes.CDLL(None).puts(b'from C')\nNone"
    )
    assert sorted(result.stdout.splitlines()) == ["fd one", "from C", "from a child"]
    assert result.stderr == "fd two\n"


def test_a_forked_child_is_heard(kernel: Notebook) -> None:
    result = kernel.run(
        "import multiprocessing as mp\ndef work(n): print('worker', n, flush=True)\n"
        "ps = [mp.get_context('fork').Process(target=work, args=(n,)) for n in range(3)]\n"
        "[p.start() for p in ps]; [p.join() for p in ps]; [p.exitcode for p in ps]"
    )
    assert sorted(result.stdout.splitlines()) == ["worker 0", "worker 1", "worker 2"]
    assert result.text == "[0, 0, 0]"


def test_capture_and_redirect_take_the_output(kernel: Notebook) -> None:
    result = kernel.run("%%capture kept\nprint('hidden')\ndisplay('shown?')\n!echo shouted")
    assert result.stdout == ""
    assert result.displays == []
    assert kernel.run("kept.stdout, len(kept.outputs)").text == "('hidden\\nshouted\\n', 1)"
    result = kernel.run(
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as f: print('in')\nf.getvalue()"
    )
    assert (result.stdout, result.text) == ("", "'in\\n'")


def test_a_thread_prints_into_the_cell_that_started_it(kernel: Notebook) -> None:
    first = kernel.send(
        "import threading, time\ngo = threading.Event()\n"
        "def late():\n    go.wait(100)\n    print('from the thread', flush=True)\n"
        "thread = threading.Thread(target=late); thread.start()"
    )
    kernel.wait(first)
    second = kernel.run("print('mine'); go.set(); thread.join()")
    assert second.stdout == "mine\n"
    late = [m for m in kernel.strays if m["msg_type"] == "stream"]
    assert [(m["parent_header"]["msg_id"], m["content"]["text"]) for m in late] == [
        (first, "from the thread\n")
    ]


def test_a_task_prints_into_the_cell_that_started_it(kernel: Notebook) -> None:
    first = kernel.send(
        "import asyncio\nasync def late():\n    await asyncio.sleep(0.2)\n    print('from the task')\n"
        "task = asyncio.create_task(late())"
    )
    kernel.wait(first)
    second = kernel.run("print('mine'); await task; print('still mine')")
    assert second.stdout == "mine\nstill mine\n"
    late = [m for m in kernel.strays if m["msg_type"] == "stream"]
    assert [(m["parent_header"]["msg_id"], m["content"]["text"]) for m in late] == [
        (first, "from the task\n")
    ]


def test_a_library_can_give_output_to_an_earlier_cell(kernel: Notebook) -> None:
    first = kernel.send("earlier = get_ipython().get_parent()")
    kernel.wait(first)
    assert kernel.run("earlier['header']['msg_id']").text == repr(first)
    second = kernel.run(
        "now = get_ipython().get_parent()\nget_ipython().set_parent(earlier)\nprint('yours')\n"
        "get_ipython().set_parent(now)\nprint('mine')"
    )
    assert second.stdout == "mine\n"
    late = [m for m in kernel.strays if m["msg_type"] == "stream"]
    assert [(m["parent_header"]["msg_id"], m["content"]["text"]) for m in late] == [(first, "yours\n")]


def test_a_printed_line_is_shown_while_the_cell_computes(kernel: Notebook) -> None:
    cell = kernel.send("print('now')\nwhile True: pass")
    kernel.wait_for_text(cell, "now")
    kernel.interrupt()
    assert kernel.wait(cell).content["ename"] == "KeyboardInterrupt"


def test_a_hundred_thousand_lines_come_whole(kernel: Notebook) -> None:
    result = kernel.run("for n in range(100_000): print(n)")
    assert result.stdout == "".join(f"{n}\n" for n in range(100_000))
    assert len(result.contents("stream")) < 2000


def test_displays_carry_data_metadata_and_ids(kernel: Notebook) -> None:
    result = kernel.run(
        "from IPython.display import HTML, update_display\n"
        "h = display(HTML('<b>1</b>'), display_id='here', metadata={'isolated': True})\n"
        "update_display(HTML('<b>2</b>'), display_id='here')\nh.update('three')"
    )
    shown = result.contents("display_data")[0]
    assert shown["data"]["text/html"] == "<b>1</b>"
    assert shown["metadata"] == {"text/html": {"isolated": True}} or shown["metadata"] == {"isolated": True}
    assert shown["transient"] == {"display_id": "here"}
    updates = result.contents("update_display_data")
    assert [u["transient"] for u in updates] == [{"display_id": "here"}] * 2
    assert updates[0]["data"]["text/html"] == "<b>2</b>"
    assert updates[1]["data"]["text/plain"] == "'three'"


def test_clear_output_is_sent(kernel: Notebook) -> None:
    result = kernel.run("from IPython.display import clear_output\nclear_output(wait=True)\nclear_output()")
    assert result.contents("clear_output") == [{"wait": True}, {"wait": False}]


def test_images_and_odd_values_become_json(kernel: Notebook) -> None:
    result = kernel.run(
        "import datetime, math, numpy as np\n"
        "display({'image/png': b'\\x89PNG..', 'application/json': {'n': np.int64(3), 'f': np.float32(0.5), "
        "'nan': math.nan, 'when': datetime.date(2026, 1, 2), 5: (1, 2), np.int64(7): 'key'}}, raw=True)"
    )
    data = result.displays[0]
    assert base64.b64decode(data["image/png"]) == b"\x89PNG.."
    assert data["application/json"] == {
        "n": 3,
        "f": 0.5,
        "nan": "nan",
        "when": "2026-01-02",
        "5": [1, 2],
        "7": "key",
    }


def test_what_is_not_json_is_an_error_of_the_cell(kernel: Notebook) -> None:
    result = kernel.run("display({'application/json': object()}, raw=True)")
    assert result.content["ename"] == "TypeError"
    assert "object" in result.content["evalue"]
    assert kernel.run("1").text == "1"


def test_an_error_in_a_repr_is_shown_and_fails_the_cell(kernel: Notebook) -> None:
    result = kernel.run("class Odd:\n    def __repr__(self): raise ValueError('no repr')\nOdd()")
    assert [c["evalue"] for c in result.contents("error")] == ["no repr"]
    assert (result.status, result.content["ename"]) == ("error", "ValueError")


def test_a_hook_can_take_a_display_away(kernel: Notebook) -> None:
    result = kernel.run(
        "seen = []\npub = get_ipython().display_pub\n"
        "def hook(message):\n    seen.append(message['msg_type'])\n    return None\n"
        "pub.register_hook(hook)\ndisplay(1)\npub.unregister_hook(hook)\ndisplay(2)\nseen"
    )
    assert [d["text/plain"] for d in result.displays] == ["2"]
    assert result.text == "['display_data']"


def test_a_semicolon_hides_the_value_and_keeps_it(kernel: Notebook) -> None:
    result = kernel.run("40 + 2;")
    assert result.text is None
    assert kernel.run("x = '; '\n'semi;colon'").text == "'semi;colon'"


def test_figures_are_shown_after_the_cell(kernel: Notebook) -> None:
    pytest.importorskip("matplotlib")
    result = kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]);\nprint('drawn')")
    assert result.status == "ok"
    assert result.stdout == "drawn\n"
    images = [d["image/png"] for d in result.displays if "image/png" in d]
    assert len(images) == 1
    assert base64.b64decode(images[0]).startswith(b"\x89PNG\r\n")
    assert kernel.run("plt.get_fignums()").text == "[]"
    assert len(kernel.run("plt.figure(); plt.plot([1]); plt.figure(); plt.plot([2]);").displays) == 2
    assert kernel.run("%matplotlib inline\nplt.plot([1]);").status == "ok"


def test_matplotlib_is_not_imported_before_a_cell_does(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    heavy = kernel.run(
        "import sys\n[m for m in ('matplotlib', 'torch', 'pandas', 'numpy', 'jedi', 'asyncio', 'zmq', 'comm', "
        "'pdb', 'subprocess', 'uuid') if m in sys.modules]"
    )
    assert heavy.text == "[]"
