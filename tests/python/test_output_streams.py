"""`sys.stdout` and `sys.stderr` as programs use them: order, odd text, capture, logging, children."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from notebook import Notebook


def in_order(result: object) -> str:
    """Everything printed, in the order it came."""
    return "".join(c["text"] for c in result.contents("stream"))  # type: ignore[attr-defined]


def test_prints_and_writes_below_python_keep_their_order(kernel: Notebook) -> None:
    result = kernel.run(
        "import ctypes, os, subprocess, sys\nlibc = ctypes.CDLL(None)\n"
        "for n in range(20):\n"
        "    print('print', n)\n"
        "    os.write(1, b'out %d\\n' % n)\n"
        "    print('err', n, file=sys.stderr)\n"
        "    os.write(2, b'err fd %d\\n' % n)\n"
        "    sys.stdout.write('text %d\\n' % n)\n"
        "    libc.puts(b'C %d' % n); libc.fflush(None)\n"
        "print('before'); subprocess.run(['echo', 'child']); print('after')"
    )
    turns = (f"print {n}\nout {n}\nerr {n}\nerr fd {n}\ntext {n}\nC {n}\n" for n in range(20))
    assert in_order(result) == "".join(turns) + "before\nchild\nafter\n"


def test_displays_stand_between_what_was_printed_before_and_after(kernel: Notebook) -> None:
    result = kernel.run(
        "import os\nfor n in range(3):\n    print(n); os.write(1, b'fd\\n'); display(n)\nprint('end')"
    )
    shown = "".join(
        m["content"].get("text") or f"[{m['content']['data']['text/plain']}]"
        for m in result.messages
        if m["msg_type"] in ("stream", "display_data")
    )
    assert shown == "0\nfd\n[0]1\nfd\n[1]2\nfd\n[2]end\n"


def test_odd_text_arrives_as_it_is(kernel: Notebook) -> None:
    result = kernel.run(
        "import os, sys\n"
        "print('nul \\0', 'bell \\a', 'red \\x1b[31mred\\x1b[0m', 'lone \\ud800.', 'last \\U0010ffff', '\\u2028')\n"
        "print('10%\\r20%', end='\\r'); print('30%', end=''); print()\n"
        "sys.stdout.buffer.write(b'\\xff bytes \\xe2\\x82'); sys.stdout.buffer.write(b'\\xac\\n')\n"
        "sys.stdout.buffer.write(memoryview(b'-view-\\n')[::1]); sys.stdout.buffer.write(bytearray(b'array\\n'))\n"
        "os.write(1, b'\\xfe\\0fd\\n');"
    )
    assert result.stdout == (
        "nul \0 bell \a red \x1b[31mred\x1b[0m lone \\ud800. last \U0010ffff \u2028\n"
        "10%\r20%\r30%\n\ufffd bytes €\n-view-\narray\n\ufffd\0fd\n"
    )


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_the_stream_behaves_as_a_text_file(kernel: Notebook, name: str) -> None:
    result = kernel.run(
        f"import io, sys\nstream = sys.{name}\nfaults = []\n"
        "for wrong in (b'x', None, 5, memoryview(b'x')):\n"
        "    try: stream.write(wrong)\n"
        "    except TypeError as error: faults.append(str(error))\n"
        "for what in ('read', 'seek', 'tell', 'truncate'):\n"
        "    try: getattr(stream, what)(*([0] if what == 'seek' else []))\n"
        "    except (io.UnsupportedOperation, OSError) as error: faults.append(what)\n"
        "try: stream.buffer.write('text')\nexcept TypeError: faults.append('buffer')\n"
        "stream.close(); stream.write('not closed\\n')\n"
        "wrapped = io.TextIOWrapper(stream.buffer, encoding='utf-8', write_through=True)\n"
        "wrapped.write('wrapped é\\n'); del wrapped\n"
        "again = io.TextIOWrapper(stream.detach(), encoding='latin-1', errors='replace')\n"
        "again.write('detached\\n'); again.flush(); del again\n"
        "stream.writelines(iter(['still', ' there\\n']))\n"
        "(faults, stream.closed, stream.encoding, stream.errors, stream.isatty(), stream.fileno(), stream.name)"
    )
    shown = result.stdout if name == "stdout" else result.stderr
    assert shown == "not closed\nwrapped é\ndetached\nstill there\n"
    fd = 1 if name == "stdout" else 2
    assert result.text == (
        "(['write() argument must be str, not bytes',\n  'write() argument must be str, not NoneType',\n"
        "  'write() argument must be str, not int',\n  'write() argument must be str, not memoryview',\n"
        "  'read',\n  'seek',\n  'tell',\n  'truncate',\n  'buffer'],\n"
        f" False,\n 'UTF-8',\n 'replace',\n False,\n {fd},\n '<{name}>')"
    )


def test_log_handlers_of_an_earlier_cell_go_on_in_the_next(kernel: Notebook) -> None:
    kernel.run(
        "import logging, sys, warnings\nlog = logging.getLogger('app'); log.propagate = False\n"
        "log.addHandler(logging.StreamHandler()); log.addHandler(logging.StreamHandler(sys.stdout))"
    )
    result = kernel.run("log.warning('later'); logging.getLogger('bare').warning('last resort')")
    assert (result.stdout, result.stderr) == ("later\n", "later\nlast resort\n")
    result = kernel.run("warnings.warn('mind')\nprint('out')")
    assert result.stderr.endswith("UserWarning: mind\n  warnings.warn('mind')\n")
    kernel.run("%%capture kept\nlog.warning('taken by neither'); print('hidden')")
    result = kernel.run("log.warning('shown again'); kept.stdout")
    assert (result.stderr, result.text) == ("shown again\n", "'hidden\\n'")
    kernel.run("log.handlers.clear()")


def test_faulthandler_can_write_into_the_notebook(kernel: Notebook) -> None:
    result = kernel.run("import faulthandler, sys; faulthandler.dump_traceback(file=sys.stderr)")
    assert "(most recent call first):" in result.stderr
    assert result.status == "ok"


def test_redirects_take_what_threads_print_too(kernel: Notebook) -> None:
    result = kernel.run(
        "import contextlib, io, sys, threading\nout, err = io.StringIO(), io.StringIO()\n"
        "def work(): print('thread'); print('wrong', file=sys.stderr)\n"
        "with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n"
        "    thread = threading.Thread(target=work); thread.start(); thread.join(); print('main')\n"
        "print('after')\n(out.getvalue(), err.getvalue())"
    )
    assert (result.stdout, result.stderr, result.text) == ("after\n", "", "('thread\\nmain\\n', 'wrong\\n')")


def test_capture_takes_commands_displays_and_threads(kernel: Notebook) -> None:
    result = kernel.run(
        "%%capture kept\nimport sys, threading\nprint('print'); print('wrong', file=sys.stderr)\n!echo command\n"
        "thread = threading.Thread(target=print, args=['thread']); thread.start(); thread.join()\n"
        "display('shown'); 41 + 1"
    )
    assert result.types == ["execute_input"]
    told = kernel.run("kept.stdout, kept.stderr, [output.data['text/plain'] for output in kept.outputs]")
    assert told.text == "('print\\ncommand\\nthread\\n', 'wrong\\n', [\"'shown'\", '42'])"
    assert kernel.run("kept()").stdout == "print\ncommand\nthread\n"
    assert kernel.run("print('seen')").stdout == "seen\n"


def test_a_forked_child_shows_values_as_text(kernel: Notebook) -> None:
    result = kernel.run(
        "import os, sys\nfrom IPython.display import HTML, clear_output\npid = os.fork()\n"
        "if pid == 0:\n"
        "    print('before ', end=''); display(HTML('<b>x</b>'), 41 + 1, display_id='here'); clear_output()\n"
        "    get_ipython().run_cell('1 / 0'); sys.stdout.flush(); os._exit(7)\n"
        "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert result.text == "7"
    assert result.stdout == "before <IPython.core.display.HTML object>\n42\n"
    assert "ZeroDivisionError" in result.stderr
    assert result.displays == []
    assert kernel.run("display('here')").displays == [{"text/plain": "'here'"}]


def test_a_forked_child_may_end_in_an_error(kernel: Notebook) -> None:
    result = kernel.run(
        "import multiprocessing as mp\ndef work():\n    display('shown'); raise ValueError('in the child')\n"
        "p = mp.get_context('fork').Process(target=work); p.start(); p.join(); p.exitcode"
    )
    assert (result.stdout, result.text) == ("'shown'\n", "1")
    assert "ValueError: in the child" in result.stderr


def test_a_print_of_a_hundred_megabytes_comes_whole(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    result = kernel.run("print('0123456789' * 10_000_000)")
    assert len(result.stdout) == 100_000_001
    assert result.stdout == "0123456789" * 10_000_000 + "\n"
    result = kernel.run("for n in range(100): print(chr(97 + n % 26) * 1_000_000)")
    assert result.stdout == "".join(chr(97 + n % 26) * 1_000_000 + "\n" for n in range(100))
    assert result.stderr == ""
