"""Binary buffers of comm messages, both ways."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest
from notebook import Message, Notebook

MIB = 1 << 20


@pytest.fixture(autouse=True)
def open_comm(kernel: Notebook) -> Iterator[None]:
    """A comm `here` in the notebook whose messages are kept in `got`."""
    kernel.run(
        "import comm\ngot = []\n"
        "def opened(c, message):\n"
        "    global here; here = c\n"
        "    c.on_msg(lambda m: (got.append(m), reply(m)))\n"
        "def reply(message): pass\n"
        "comm.get_comm_manager().register_target('test', opened)"
    )
    kernel.wait(kernel.request("comm_open", {"comm_id": "c", "target_name": "test", "data": {}}), reply=False)
    yield
    kernel.run("got.clear()")


def send(kernel: Notebook, *buffers: bytes) -> list[Message]:
    """Send buffers to the notebook; the messages that it sends because of them."""
    request = kernel.request("comm_msg", {"comm_id": "c", "data": {}}, buffers=list(buffers))
    messages = kernel.wait(request, reply=False).messages
    return [m for m in messages if m["msg_type"] == "comm_msg"]


def test_buffers_arrive_as_views_that_stay(kernel: Notebook) -> None:
    big = os.urandom(3 * MIB)
    send(kernel, b"", b"small", big)
    result = kernel.run(
        "import hashlib\nviews = got[0]['buffers']\n"
        "[(type(v).__name__, v.readonly, len(v), v.format) for v in views], bytes(views[1])"
    )
    assert result.text == (
        "([('memoryview', True, 0, 'B'),\n  ('memoryview', True, 5, 'B'),\n"
        "  ('memoryview', True, 3145728, 'B')],\n b'small')"
    )
    # Later messages do not disturb what arrived before.
    for _ in range(5):
        send(kernel, os.urandom(3 * MIB))
    import hashlib

    digest = hashlib.sha256(big).hexdigest()
    assert kernel.run("hashlib.sha256(views[2]).hexdigest()").text == repr(digest)
    assert kernel.run("views[1][0] = 1").content["ename"] == "TypeError"


def test_whatever_has_bytes_can_be_sent(kernel: Notebook) -> None:
    big = os.urandom(MIB)
    kernel.run(
        "import array, numpy as np\n"
        "def reply(message):\n"
        "    view = message['buffers'][0]; whole = bytes(view)\n"
        "    here.send({}, buffers=[view, view[100:-100], whole, memoryview(whole)[7:], bytearray(whole),\n"
        "        view[::2], np.frombuffer(view, 'u1').reshape(1024, -1).T[:3], np.arange(3, dtype='<f8'),\n"
        "        array.array('H', [1, 2]), memoryview(whole).cast('I'), b'', b'x'])"
    )
    (message,) = send(kernel, big)
    import numpy as np

    rows = np.frombuffer(big, "u1").reshape(1024, -1).T[:3].tobytes()
    assert [bytes(b) for b in message["buffers"]] == [
        big,
        big[100:-100],
        big,
        big[7:],
        big,
        big[::2],
        rows,
        np.arange(3, dtype="<f8").tobytes(),
        b"\1\0\2\0",
        big,
        b"",
        b"x",
    ]


def test_a_changed_array_is_sent_as_it_was(kernel: Notebook) -> None:
    kernel.run(
        "import numpy as np\n"
        "def reply(message):\n"
        "    for n in range(20):\n"
        "        data = np.full(1 << 20, n, 'u1'); here.send({}, buffers=[data]); data[:] = 99"
    )
    messages = send(kernel, b"go")
    assert [set(bytes(m["buffers"][0])) for m in messages] == [{n} for n in range(20)]


def test_large_buffers_leave_nothing_behind(kernel: Notebook) -> None:
    kernel.run(
        "def reply(message):\n"
        "    got.clear(); here.send({}, buffers=[message['buffers'][0], bytes(message['buffers'][0])])"
    )
    process = psutil.Process(int(kernel.run("import os; os.getpid()").text or 0))
    data = os.urandom(32 * MIB)
    most = 0
    for _ in range(6):
        (message,) = send(kernel, data)
        assert [bytes(b) == data for b in message["buffers"]] == [True, True]
        most = max(most, process.memory_info().rss)
    kernel.run("pass")
    kernel.run("got.clear()")
    kernel.run("pass")
    assert process.memory_info().rss < 300 * MIB
    assert most < 500 * MIB
