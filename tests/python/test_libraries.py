"""Libraries that draw, print and show in notebooks do it here as they do under ipykernel."""

from __future__ import annotations

import base64
import json

from notebook import Message, Notebook, Result


def bundle(result: Result) -> Message:
    """The one bundle a cell showed or returned."""
    assert result.status == "ok", result.content
    shown = [c["data"] for t in ("display_data", "execute_result") for c in result.contents(t)]
    assert len(shown) == 1, [sorted(s) for s in shown]
    return shown[0]


def is_png(text: str) -> bool:
    """True for the text of a PNG in base64."""
    return base64.b64decode(text)[:8] == b"\x89PNG\r\n\x1a\n"


def test_matplotlib_draws_inline_without_being_told(kernel: Notebook) -> None:
    data = bundle(kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]);"))
    assert sorted(data) == ["image/png", "text/plain"]
    assert is_png(data["image/png"])
    assert data["text/plain"] == "<Figure size 640x480 with 1 Axes>"
    assert kernel.run("plt.get_fignums()").text == "[]"


def test_figures_made_before_an_error_are_shown(kernel: Notebook) -> None:
    result = kernel.run("plt.plot([1, 2])\nplt.show()\nplt.plot([2, 1])\n1 / 0")
    assert result.content["ename"] == "ZeroDivisionError"
    assert [is_png(d["image/png"]) for d in result.displays] == [True, True]


def test_matplotlib_widget_shows_a_canvas_that_can_be_driven(kernel: Notebook) -> None:
    result = kernel.run("%matplotlib widget\nfig, axes = plt.subplots()\naxes.plot([1, 2])\nplt.show()")
    data = bundle(result)
    opened = {c["data"]["state"]["_model_name"]: c["comm_id"] for c in result.contents("comm_open")}
    canvas = opened["MPLCanvasModel"]
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == canvas
    press = {"type": "button_press", "x": 300, "y": 200, "button": 0, "buttons": 1, "modifiers": []}
    kernel.run(
        "clicked = []\nfig.canvas.mpl_connect('button_press_event', lambda e: clicked.append((e.x, e.inaxes is axes)));"
    )
    content = {"comm_id": canvas, "data": {"method": "custom", "content": press}}
    kernel.wait(kernel.request("comm_msg", content), reply=False)
    assert kernel.run("[(int(x), inside) for x, inside in clicked]").text == "[(300, True)]"
    kernel.run("plt.close('all')")


def test_matplotlib_agg_draws_only_into_files(kernel: Notebook) -> None:
    result = kernel.run(
        "%matplotlib agg\nimport io\nplt.plot([1, 2])\nplt.show()\nfile = io.BytesIO()\nplt.savefig(file)\nplt.close('all')\n"
        "file.getvalue()[:4]"
    )
    assert (result.text, result.displays) == ("b'\\x89PNG'", [])


def test_matplotlib_notebook_opens_the_comm_of_its_page(kernel: Notebook) -> None:
    result = kernel.run("%matplotlib notebook\nfig = plt.figure()\nplt.show()")
    assert result.status == "ok"
    assert [c["target_name"] for c in result.contents("comm_open")] == ["matplotlib"]
    assert kernel.run("plt.close('all')\n%matplotlib inline").status == "ok"
    assert kernel.run("plt.plot([1]);").displays[0]["text/plain"] == "<Figure size 640x480 with 1 Axes>"


def test_plotly_chooses_the_renderer_of_jupyterlab(kernel: Notebook) -> None:
    result = kernel.run("import plotly.graph_objects as go, plotly.io\nplotly.io.renderers.default")
    assert result.text == "'plotly_mimetype'"
    for show in ("go.Figure(go.Bar(y=[2, 3]))", "go.Figure(go.Bar(y=[2, 3])).show()"):
        figure = bundle(kernel.run(show))["application/vnd.plotly.v1+json"]
        assert figure["data"] == [{"type": "bar", "y": [2, 3]}]


def test_a_figure_widget_of_plotly_is_changed_from_both_sides(kernel: Notebook) -> None:
    result = kernel.run("live = go.FigureWidget(go.Scatter(y=[1, 2]))\nlive")
    (model,) = [
        c["comm_id"] for c in result.contents("comm_open") if "_py2js_addTraces" in c["data"]["state"]
    ]
    assert bundle(result)["application/vnd.jupyter.widget-view+json"]["model_id"] == model
    changed = kernel.run("live.data[0].name = 'renamed'")
    states = [c["data"]["state"] for c in changed.contents("comm_msg")]
    assert any((s.get("_py2js_restyle") or {}).get("restyle_data") == {"name": ["renamed"]} for s in states)
    relayout = {"relayout_data": {"xaxis.range[0]": 0, "xaxis.range[1]": 5}, "source_view_id": "v"}
    content = {
        "comm_id": model,
        "data": {"method": "update", "state": {"_js2py_relayout": relayout}, "buffer_paths": []},
    }
    kernel.wait(kernel.request("comm_msg", content), reply=False)
    assert kernel.run("live.layout.xaxis.range").text == "(0, 5)"


def test_bokeh_loads_shows_and_pushes(kernel: Notebook) -> None:
    result = kernel.run(
        "from bokeh.io import output_notebook, push_notebook, show\nfrom bokeh.plotting import figure\noutput_notebook()"
    )
    assert "application/vnd.bokehjs_load.v0+json" in result.displays[-1]
    result = kernel.run(
        "p = figure(title='before')\nline = p.line([1, 2], [3, 4])\nhandle = show(p, notebook_handle=True)"
    )
    assert "application/vnd.bokehjs_exec.v0+json" in result.displays[-1]
    (comm,) = [c["comm_id"] for c in result.contents("comm_open")]
    messages = kernel.run("p.title.text = 'after'\npush_notebook(handle=handle)").contents("comm_msg")
    assert {m["comm_id"] for m in messages} == {comm}
    (event,) = json.loads(messages[2]["data"])["events"]
    assert (event["attr"], event["new"]) == ("text", "after")


def test_panel_binds_a_slider_to_a_pane(kernel: Notebook) -> None:
    result = kernel.run("import panel as pn\npn.extension()")
    assert "application/vnd.holoviews_load.v0+json" in result.displays[1]
    result = kernel.run(
        "import json\nbefore = len(get_ipython().kernel.comm_manager.targets)\n"
        "size = pn.widgets.IntSlider(name='size', start=0, end=10, value=2)\nseen = []\n"
        "pane = pn.pane.Markdown(pn.bind(lambda n: seen.append(n) or f'size {n}', size))\ncolumn = pn.Column(size, pane)\ncolumn"
    )
    assert sorted(result.contents("execute_result")[0]["data"]) == [
        "application/vnd.holoviews_exec.v0+json",
        "text/html",
        "text/plain",
    ]
    # the page opens the comm that the output names, and says over it what the person did
    (target,) = json.loads(
        kernel.run("print(json.dumps(list(get_ipython().kernel.comm_manager.targets)[before:]))").stdout
    )
    model = kernel.run("print(next(iter(size._models.values()))[0].id)").stdout.strip()
    kernel.wait(
        kernel.request("comm_open", {"comm_id": "panel", "target_name": target, "data": {}}), reply=False
    )
    change = {"kind": "ModelChanged", "model": {"id": model}, "attr": "value", "new": 7}
    patch = {
        "header": {"msgid": "1", "msgtype": "PATCH-DOC"},
        "metadata": {},
        "content": {"events": [change]},
    }
    heard = kernel.wait(kernel.request("comm_msg", {"comm_id": "panel", "data": patch}), reply=False)
    assert heard.contents("error") == []
    assert kernel.run("size.value, seen").text == "(7, [2, 7])"


def test_rich_prints_html_and_text(kernel: Notebook) -> None:
    result = kernel.run(
        "from rich.console import Console\nfrom rich.table import Table\ntable = Table('layer')\ntable.add_row('[green]conv1[/]')\n"
        "Console(width=40).print(table)"
    )
    data = bundle(result)
    assert '<span style="color: #008000; text-decoration-color: #008000">conv1</span>' in data["text/html"]
    assert "conv1" in data["text/plain"]
    assert kernel.run("Console().is_jupyter, Console().is_terminal").text == "(True, False)"


def test_rich_progress_lives_in_an_output_widget(kernel: Notebook) -> None:
    result = kernel.run(
        "from rich.progress import track\nfor _ in track(range(3), description='steps'): pass"
    )
    names = [c["data"]["state"]["_model_name"] for c in result.contents("comm_open")]
    assert names == ["LayoutModel", "OutputModel"]
    assert "100%" in "".join(d["text/plain"] for d in result.displays)


def test_pandas_styles_are_html(kernel: Notebook) -> None:
    data = bundle(
        kernel.run("import pandas as pd\npd.DataFrame({'a': [1, 2]}).style.highlight_max(color='gold')")
    )
    assert "background-color: gold" in data["text/html"]
    data = bundle(kernel.run("pd.DataFrame({'a': [1, 2]})"))
    assert data["text/plain"] == "   a\n0  1\n1  2"
    assert data["text/html"].count("<td>") == 2


def test_altair_charts_carry_their_specification(kernel: Notebook) -> None:
    data = bundle(
        kernel.run(
            "import altair as alt\nalt.renderers.enable('mimetype')\n"
            "alt.Chart(pd.DataFrame({'x': [1], 'y': [2]})).mark_bar().encode(x='x', y='y')"
        )
    )
    (specification,) = [v for k, v in data.items() if k.startswith("application/vnd.vegalite")]
    assert specification["mark"] == {"type": "bar"}


def test_pictures_of_pil_are_images(kernel: Notebook) -> None:
    data = bundle(kernel.run("from PIL import Image as P\nP.new('RGB', (4, 4), 'red')"))
    assert is_png(data["image/png"])


def test_all_that_ipython_can_display(kernel: Notebook) -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
    result = kernel.run(
        "import base64\nfrom IPython.display import *\n"
        f"display(HTML('<b>h</b>'), Markdown('*m*'), Latex('$x$'), Math('y'), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'), JSON({{'a': [1]}}),"
        f" Javascript('1'), Image(base64.b64decode('{png}')), Audio(b'RIFF', rate=8000, embed=True, normalize=False),"
        " IFrame('about:blank', 10, 10), Code('x = 1'), ProgressBar(3), Pretty('p'), GeoJSON({'type': 'Point'}))"
    )
    assert result.status == "ok", result.content
    assert [sorted(set(d) - {"text/plain"}) for d in result.displays] == [
        ["text/html"],
        ["text/markdown"],
        ["text/latex"],
        ["text/latex"],
        ["image/svg+xml"],
        ["application/json"],
        ["application/javascript"],
        ["image/png"],
        ["text/html"],
        ["text/html"],
        ["text/html", "text/latex"],
        ["text/html"],
        [],
        ["application/geo+json"],
    ]
    assert result.displays[7]["image/png"].strip() == png


def test_a_display_is_updated_in_later_cells(kernel: Notebook) -> None:
    shown = kernel.run("handle = display('one', display_id=True)\nhandle.display_id")
    (first,) = shown.contents("display_data")
    display_id = first["transient"]["display_id"]
    assert shown.text == repr(display_id)
    result = kernel.run(
        "handle.update('two')\nupdate_display(HTML('<i>three</i>'), display_id=handle.display_id)"
    )
    updates = result.contents("update_display_data")
    assert [u["transient"] for u in updates] == [{"display_id": display_id}] * 2
    assert [u["data"].get("text/html", u["data"]["text/plain"]) for u in updates] == ["'two'", "<i>three</i>"]


def test_clear_output_waits_for_the_next_output(kernel: Notebook) -> None:
    result = kernel.run("print('a')\nclear_output(wait=True)\nprint('b')\nclear_output()")
    assert result.kinds == ["execute_input", "stream", "clear_output", "stream", "clear_output"]
    assert result.contents("clear_output") == [{"wait": True}, {"wait": False}]
