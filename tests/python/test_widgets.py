"""ipywidgets and tqdm, seen as a page sees them: the models that come, their state, who hears of changes."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from notebook import Message, Notebook, Result


class Page:
    """What a page knows of the widgets: their state, by id, as the messages so far made it."""

    def __init__(self, kernel: Notebook) -> None:
        self.kernel = kernel
        self.states: dict[str, Message] = {}
        self.closed: set[str] = set()

    def read(self, result: Result) -> Result:
        """Follow the comm messages of a result."""
        for message in result.messages:
            content = message["content"]
            if message["msg_type"] == "comm_open" and content["target_name"] == "jupyter.widget":
                self.states[content["comm_id"]] = dict(content["data"]["state"])
            elif message["msg_type"] == "comm_msg" and content["data"].get("method") == "update":
                self.states.setdefault(content["comm_id"], {}).update(content["data"]["state"])
            elif message["msg_type"] == "comm_close":
                self.closed.add(content["comm_id"])
        return result

    def run(self, code: str) -> Result:
        """Run a cell that must not fail."""
        result = self.read(self.kernel.run(code))
        assert result.status == "ok", result.content
        return result

    def of(self, model: str) -> list[Message]:
        """The states of all models with this name, in the order they were made."""
        return [state for state in self.states.values() if state["_model_name"] == model]

    def id_of(self, name: str) -> str:
        """The id of the widget in a variable."""
        return self.kernel.run(f"print({name}.model_id)").stdout.strip()

    def tell(self, comm_id: str, data: Message, buffers: list[bytes] | None = None) -> Result:
        """A message of the page to a widget."""
        content = {"comm_id": comm_id, "data": data}
        msg_id = self.kernel.request("comm_msg", content, buffers=buffers)
        return self.read(self.kernel.wait(msg_id, reply=False))

    def move(self, comm_id: str, **state: Any) -> Result:
        """The person changed something."""
        return self.tell(comm_id, {"method": "update", "state": state, "buffer_paths": []})

    def click(self, comm_id: str) -> Result:
        """The person pressed a button."""
        return self.tell(comm_id, {"method": "custom", "content": {"event": "click"}})


def test_a_slider_that_is_moved_changes_its_value_and_its_observers_hear_it(kernel: Notebook) -> None:
    page = Page(kernel)
    result = page.run(
        "import ipywidgets as w\nslider = w.IntSlider(value=3, max=50)\nheard = []\n"
        "slider.observe(lambda change: heard.append((change.old, change.new)), 'value')\nslider"
    )
    slider = page.id_of("slider")
    view = result.contents("execute_result")[0]["data"]["application/vnd.jupyter.widget-view+json"]
    assert view == {"version_major": 2, "version_minor": 0, "model_id": slider}
    assert (page.states[slider]["value"], page.states[slider]["max"]) == (3, 50)
    page.move(slider, value=8)
    page.move(slider, value=21)
    assert kernel.run("slider.value, heard").text == "(21, [(3, 8), (8, 21)])"
    page.run("slider.value = 30")
    assert page.states[slider]["value"] == 30


def test_interact_runs_its_function_again_and_shows_only_the_last_output(kernel: Notebook) -> None:
    page = Page(kernel)
    result = page.run("from ipywidgets import interact\n@interact(n=(0, 10))\ndef f(n=4):\n    print(n * n)")
    (output,) = page.of("OutputModel")
    ids = {state["_model_name"]: comm_id for comm_id, state in page.states.items()}
    assert result.stdout == "16\n"
    moved = page.move(ids["IntSliderModel"], value=7)
    assert moved.stdout == "49\n"
    assert output["msg_id"] == ""
    captured = [
        c["data"]["state"]["msg_id"] for c in moved.contents("comm_msg") if "msg_id" in c["data"]["state"]
    ]
    parents = {m["parent_header"]["msg_id"] for m in moved.messages if m["msg_type"] == "stream"}
    assert captured == [parents.pop(), ""]


def test_interactive_output_follows_several_widgets(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run(
        "a, b = w.IntSlider(2), w.IntText(3)\nout = w.interactive_output(lambda a, b: print(a * b), {'a': a, 'b': b})"
    )
    assert page.move(page.id_of("a"), value=5).stdout == "15\n"
    assert page.move(page.id_of("b"), value=7).stdout == "35\n"


def test_output_widgets_take_what_is_printed_shown_and_raised(kernel: Notebook) -> None:
    page = Page(kernel)
    cell = kernel.send(
        "out = w.Output()\nwith out:\n    print('in')\n    display(1)\n    raise KeyError('k')\nprint('out')"
    )
    result = page.read(kernel.wait(cell))
    assert result.status == "ok"
    # a busy machine may take text and newline of a print one after the other
    assert [t for t, _ in groupby(result.types) if t != "comm_open"] == [
        "execute_input",
        "comm_msg",  # from here on the page takes the messages of this cell into the widget
        "stream",
        "display_data",
        "error",
        "comm_msg",
        "stream",
    ]
    changes = [c["data"]["state"] for c in result.contents("comm_msg")]
    assert changes == [{"msg_id": cell}, {"msg_id": ""}]
    assert result.stdout == "in\nout\n"


def test_output_widgets_take_what_threads_print(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run("import threading, time\nout = w.Output()")
    cell = kernel.send(
        "def work():\n    with out:\n        print('in thread')\n    out.append_stdout('appended')\n"
        "t = threading.Thread(target=work)\nt.start()\nt.join()"
    )
    result = page.read(kernel.wait(cell))
    changes = [c["data"]["state"] for c in result.contents("comm_msg")]
    assert changes[0] == {"msg_id": cell}
    assert {"outputs": [{"output_type": "stream", "name": "stdout", "text": "appended"}]} in changes
    assert result.stdout == "in thread\n"


def test_capture_inside_an_output_widget_keeps_the_text(kernel: Notebook) -> None:
    page = Page(kernel)
    result = page.run(
        "with out:\n    get_ipython().run_cell_magic('capture', 'kept', 'print(5)\\ndisplay(w.IntSlider())')\n"
        "kept.stdout, len(kept.outputs), 'application/vnd.jupyter.widget-view+json' in kept.outputs[0].data"
    )
    assert result.text == "('5\\n', 1, True)"
    assert (result.stdout, result.displays) == ("", [])


def test_clear_output_of_an_output_widget_clears_only_it(kernel: Notebook) -> None:
    page = Page(kernel)
    result = page.run("with out:\n    print('a')\n    out.clear_output(wait=True)\n    print('b')")
    assert result.kinds == ["execute_input", "comm_msg", "stream", "clear_output", "stream", "comm_msg"]
    assert result.contents("clear_output") == [{"wait": True}]


def test_a_button_runs_its_callbacks_and_shows_what_one_of_them_raises(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run(
        "def broken(button):\n    raise ValueError('not today')\nbutton = w.Button(description='go')\n"
        "button.on_click(broken)\nbutton.on_click(lambda b: print('pressed', b.description))"
    )
    result = page.click(page.id_of("button"))
    assert result.stdout == "pressed go\n"
    (error,) = result.contents("error")
    assert (error["ename"], error["evalue"]) == ("ValueError", "not today")
    assert "broken" in "\n".join(error["traceback"])


def test_an_observer_that_fails_is_shown(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run(
        "s = w.IntSlider(1)\ndef observer(change):\n    raise RuntimeError('seen')\ns.observe(observer, 'value')"
    )
    (error,) = page.move(page.id_of("s"), value=2).contents("error")
    assert (error["ename"], error["evalue"]) == ("RuntimeError", "seen")
    assert kernel.run("s.value").text == "2"


def test_links_on_both_sides(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run(
        "a, b, c = w.IntSlider(1), w.IntText(2), w.IntText(3)\nw.link((a, 'value'), (b, 'value'))\n"
        "in_page = w.jslink((b, 'value'), (c, 'value'))"
    )
    assert [s["source"] for s in page.of("LinkModel")] == [[f"IPY_MODEL_{page.id_of('b')}", "value"]]
    page.move(page.id_of("a"), value=9)
    assert page.states[page.id_of("b")]["value"] == 9


def test_layout_and_style_are_models_that_can_be_changed(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run("box = w.HBox([w.Label('x')], layout=w.Layout(width='50%'))\nbox.layout.border = '1px solid'")
    layout = page.states[page.id_of("box.layout")]
    assert (layout["width"], layout["border_top"]) == ("50%", "1px solid")
    assert page.states[page.id_of("box")]["children"] == [f"IPY_MODEL_{page.id_of('box.children[0]')}"]


def test_a_file_is_uploaded(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run("upload = w.FileUpload()")
    file = {"name": "weights.bin", "type": "", "size": 3 << 20, "last_modified": 1_700_000_000_000}
    data = {"method": "update", "state": {"value": [file]}, "buffer_paths": [["value", 0, "content"]]}
    page.tell(page.id_of("upload"), data, buffers=[b"\x01\x02\x03" * (1 << 20)])
    assert kernel.run(
        "f = upload.value[0]\nf.name, f.size, bytes(f.content[:4]), len(f.content), f.last_modified.year"
    ).text == ("('weights.bin', 3145728, b'\\x01\\x02\\x03\\x01', 3145728, 2023)")


def test_an_image_of_32_mib_reaches_the_page_as_bytes(kernel: Notebook) -> None:
    result = kernel.run("image = w.Image(value=b'\\x89PNG' + bytes(32 << 20))")
    opened = [m for m in result.messages if m["msg_type"] == "comm_open" and m["buffers"]]
    assert [m["content"]["data"]["buffer_paths"] for m in opened] == [[["value"]]]
    assert [len(b) for b in opened[0]["buffers"]] == [(32 << 20) + 4]
    assert bytes(opened[0]["buffers"][0][:6]) == b"\x89PNG\x00\x00"
    kernel.run("image.close(); del image")


def test_one_widget_is_asked_for_its_state(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run("t = w.Text('asked')")
    (answer,) = page.tell(page.id_of("t"), {"method": "request_state"}).contents("comm_msg")
    assert (answer["data"]["method"], answer["data"]["state"]["value"]) == ("update", "asked")


def bars(page: Page) -> list[tuple[float, str]]:
    """Value and colour of each bar."""
    return [(state["value"], state["bar_style"]) for state in page.of("FloatProgressModel")]


def test_bars_of_tqdm_nest_end_green_and_turn_red_at_an_error(kernel: Notebook) -> None:
    page = Page(kernel)
    result = page.run(
        "from tqdm.auto import tqdm\nfor a in tqdm(range(2), desc='outer'):\n"
        "    for b in tqdm(range(3), desc='inner', leave=False): pass"
    )
    assert bars(page) == [(2.0, "success"), (3.0, ""), (3.0, "")]
    assert len(page.closed) == 2
    assert len(result.displays) == 3
    assert result.stderr == ""
    page = Page(kernel)
    failed = page.read(kernel.run("for a in tqdm(range(10)):\n    if a == 4: raise KeyError(a)"))
    assert failed.content["ename"] == "KeyError"
    assert bars(page) == [(4.0, "danger")]
    texts = [state["value"] for state in page.of("HTMLModel")]
    assert texts[0].strip("\u2007") == "40%"


def test_bars_of_tqdm_move_while_the_cell_runs_and_in_threads(kernel: Notebook) -> None:
    page = Page(kernel)
    seen: list[float] = []

    def watch(message: Message) -> None:
        if message["msg_type"] == "comm_msg" and "value" in message["content"]["data"].get("state", {}):
            value = message["content"]["data"]["state"]["value"]
            if isinstance(value, float):
                seen.append(value)

    cell = kernel.send(
        "import time\nfor a in tqdm(range(4), mininterval=0):\n    time.sleep(0.15)\nprint('done')"
    )
    kernel.wait(cell, on_message=watch)
    assert seen == [1.0, 2.0, 3.0, 4.0]
    page.run(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def work(n):\n    return sum(tqdm(range(50), position=n, leave=True))\n"
        "with ThreadPoolExecutor(3) as pool: print(list(pool.map(work, range(3))))"
    )
    assert bars(page) == [(50.0, "success")] * 3


def test_pandas_and_the_thread_map_of_tqdm(kernel: Notebook) -> None:
    page = Page(kernel)
    result = page.run(
        "import pandas as pd\nfrom tqdm.contrib.concurrent import thread_map\ntqdm.pandas()\n"
        "print(pd.Series(range(6)).progress_apply(lambda n: n + 1).sum(), thread_map(abs, [-1, -2], max_workers=2))"
    )
    assert result.stdout == "21 [1, 2]\n"
    assert bars(page) == [(6.0, "success"), (2.0, "success")]


def test_an_anywidget_carries_its_code_and_speaks_binary(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run(
        "import anywidget, traitlets\nclass Scope(anywidget.AnyWidget):\n"
        "    _esm = 'export default { render({ model, el }) {} }'\n    _css = '.scope { color: red }'\n"
        "    n = traitlets.Int(1).tag(sync=True)\n    raw = traitlets.Any(None).tag(sync=True)\n"
        "scope = Scope()\nheard = []\nscope.on_msg(lambda widget, content, buffers: heard.append((content, [bytes(b) for b in buffers])))\n"
        "scope"
    )
    scope = page.id_of("scope")
    assert page.states[scope]["_esm"] == "export default { render({ model, el }) {} }"
    assert page.states[scope]["_model_module"] == "anywidget"
    page.move(scope, n=5)
    page.tell(scope, {"method": "update", "state": {}, "buffer_paths": [["raw"]]}, [b"\x00\x01\x02"])
    page.tell(scope, {"method": "custom", "content": {"kind": "tap"}}, [b"xy"])
    assert kernel.run("scope.n, bytes(scope.raw), heard").text == (
        "(5, b'\\x00\\x01\\x02', [({'kind': 'tap'}, [b'xy'])])"
    )
    result = kernel.run("scope.send({'kind': 'draw'}, buffers=[b'ab'])")
    (message,) = [m for m in result.messages if m["msg_type"] == "comm_msg"]
    assert message["content"]["data"] == {"method": "custom", "content": {"kind": "draw"}}
    assert [bytes(b) for b in message["buffers"]] == [b"ab"]


def test_a_cell_that_asks_for_them_hears_widgets_while_it_runs(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run(
        "pressed = []\nasked = w.Button()\nasked.on_click(lambda b: (pressed.append('yes'), print('in callback')))"
    )
    button = page.id_of("asked")
    cell = kernel.send(
        "print('go')\nwhile not pressed:\n    await get_ipython().kernel.do_one_iteration()\nprint(pressed)"
    )
    kernel.wait_for_text(cell, "go")
    waiting = kernel.send("pressed.append('next cell')")
    click = kernel.request(
        "comm_msg", {"comm_id": button, "data": {"method": "custom", "content": {"event": "click"}}}
    )
    assert kernel.wait(click, reply=False).stdout == "in callback\n"
    assert kernel.wait(cell).stdout == "['yes']\n"
    kernel.wait(waiting)
    assert kernel.run("pressed").text == "['yes', 'next cell']"


def test_jupyter_ui_poll_waits_for_a_button(kernel: Notebook) -> None:
    page = Page(kernel)
    page.run(
        "from jupyter_ui_poll import run_ui_poll_loop\npressed = []\npolled = w.Button()\npolled.on_click(pressed.append)"
    )
    button = page.id_of("polled")
    cell = kernel.send("print('go')\nrun_ui_poll_loop(lambda: len(pressed) or None)")
    kernel.wait_for_text(cell, "go")
    page.click(button)
    result = kernel.wait(cell)
    assert (result.status, result.text) == ("ok", "1")
