"""What notebook libraries look for is there."""

from __future__ import annotations

from notebook import Notebook


def test_the_shell_is_recognised_as_a_notebook(kernel: Notebook) -> None:
    assert kernel.run("type(get_ipython()).__name__, type(get_ipython()).__module__").text == (
        "('ZMQInteractiveShell', 'ipykernel.zmqshell')"
    )
    assert kernel.run("import sys; 'ipykernel.zmqshell' in sys.modules").text == "True"
    assert kernel.run("'google.colab' in sys.modules, 'colab' in str(get_ipython())").text == "(False, False)"


def test_the_facade_stands_before_a_real_ipykernel(kernel: Notebook) -> None:
    result = kernel.run("import ipykernel\nipykernel.version_info, 'tpu_kernel/compat' in ipykernel.__file__")
    assert result.text == "((7, 4, 0), True)"
    assert kernel.run("ipykernel.__spec__.name, len(ipykernel.__path__)").text == "('ipykernel', 1)"
    result = kernel.run(
        "from ipykernel.comm import Comm, CommManager\nfrom ipykernel.zmqshell import ZMQInteractiveShell\n"
        "from ipykernel.iostream import OutStream\nfrom ipykernel.kernelbase import Kernel\n"
        "from ipykernel.kernelapp import IPKernelApp\nfrom ipykernel.jsonutil import json_clean\n"
        "from ipykernel.connect import get_connection_file\nfrom ipykernel.ipkernel import IPythonKernel\n"
        "from ipykernel.displayhook import ZMQShellDisplayHook\n"
        "(isinstance(get_ipython(), ZMQInteractiveShell), isinstance(sys.stdout, OutStream), "
        "isinstance(get_ipython().kernel, Kernel), IPKernelApp.initialized(), json_clean({1: float('nan')}))"
    )
    assert result.text == "(True, True, True, True, {'1': 'nan'})"
    assert kernel.run("get_connection_file()").text == repr(kernel.manager.connection_file)


def test_a_module_the_facade_lacks_names_this_kernel(kernel: Notebook) -> None:
    result = kernel.run("import ipykernel.debugger")
    assert result.content["ename"] == "ModuleNotFoundError"
    assert "PyTorch (TPU)" in result.content["evalue"]
    assert "ipykernel.debugger" in result.content["evalue"]


def test_the_kernel_object_answers_libraries(kernel: Notebook) -> None:
    cell = kernel.send(
        "k = get_ipython().kernel\nprint(k.get_parent()['header']['msg_id'], k._parent_header['msg_id'])"
    )
    assert kernel.wait(cell).stdout.split() == [cell, cell]
    assert kernel.run(
        "k.shell is get_ipython(), k.language_info['name'], k.language_info['file_extension']"
    ).text == ("(True, 'python', '.py')")
    result = kernel.run("k.send_response(k.iopub_socket, 'stream', {'name': 'stdout', 'text': 'sent'}); None")
    assert result.stdout == "sent"
    result = kernel.run(
        "k.session.send(k.iopub_socket, 'display_data', {'data': {}, 'metadata': {}, 'transient': {}}, buffers=[b'xy'])\nNone"
    )
    assert [bytes(b) for m in result.messages if m["msg_type"] == "display_data" for b in m["buffers"]] == [
        b"xy"
    ]


def test_a_comm_is_opened_from_the_notebook(kernel: Notebook) -> None:
    kernel.run(
        "import comm\nheard = []\ndef opened(c, message):\n    heard.append(message['content']['data'])\n"
        "    @c.on_msg\n    def reply(m):\n"
        "        c.send({'echo': m['content']['data']}, buffers=[bytes(b)[::-1] for b in m['buffers']])\n"
        "comm.get_comm_manager().register_target('echo', opened)"
    )
    opened = kernel.request("comm_open", {"comm_id": "c1", "target_name": "echo", "data": {"hi": 1}})
    kernel.wait(opened, reply=False)
    sent = kernel.request("comm_msg", {"comm_id": "c1", "data": {"n": 2}}, buffers=[b"abc", b"12"])
    result = kernel.wait(sent, reply=False)
    answers = [m for m in result.messages if m["msg_type"] == "comm_msg"]
    assert [m["content"]["data"] for m in answers] == [{"echo": {"n": 2}}]
    assert [bytes(b) for b in answers[0]["buffers"]] == [b"cba", b"21"]
    assert kernel.run("heard").text == "[{'hi': 1}]"
    info = kernel.ask("comm_info_request", {"target_name": "echo"}).content
    assert info == {"status": "ok", "comms": {"c1": {"target_name": "echo"}}}
    kernel.wait(kernel.request("comm_close", {"comm_id": "c1", "data": {}}), reply=False)
    assert kernel.ask("comm_info_request", {}).content["comms"] == {}


def test_a_comm_for_an_unknown_target_is_closed(kernel: Notebook) -> None:
    opened = kernel.request("comm_open", {"comm_id": "c2", "target_name": "nobody", "data": {}})
    result = kernel.wait(opened, reply=False)
    assert [c["comm_id"] for c in result.contents("comm_close")] == ["c2"]


def test_the_kernel_opens_a_comm(kernel: Notebook) -> None:
    result = kernel.run(
        "import comm\nc = comm.create_comm(target_name='front', data={'a': 1}, buffers=[b'raw'])\nc.comm_id"
    )
    opened = [m for m in result.messages if m["msg_type"] == "comm_open"]
    assert opened[0]["content"]["target_name"] == "front"
    assert opened[0]["content"]["data"] == {"a": 1}
    assert bytes(opened[0]["buffers"][0]) == b"raw"
    assert result.text == repr(opened[0]["content"]["comm_id"])


def test_an_error_in_a_comm_handler_does_not_hurt_the_kernel(kernel: Notebook) -> None:
    kernel.run("import comm\ncomm.get_comm_manager().register_target('bad', lambda c, m: 1 / 0)")
    opened = kernel.request("comm_open", {"comm_id": "c3", "target_name": "bad", "data": {}})
    result = kernel.wait(opened, reply=False)
    assert [c["comm_id"] for c in result.contents("comm_close")] == ["c3"]
    assert kernel.run("2").text == "2"
