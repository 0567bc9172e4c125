"""Executing cells: what a front end sends and gets back."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from notebook import PATIENCE, Notebook


def test_a_cell_is_announced_and_answered_between_busy_and_idle(kernel: Notebook) -> None:
    result = kernel.run("21 * 2")
    states = [c["execution_state"] for c in result.contents("status")]
    assert states == ["busy", "idle"]
    assert [m["msg_type"] for m in result.messages] == ["status", "execute_input", "execute_result", "status"]
    assert result.status == "ok"
    assert result.text == "42"
    count = result.content["execution_count"]
    assert result.contents("execute_input") == [{"code": "21 * 2", "execution_count": count}]
    assert result.contents("execute_result")[0]["execution_count"] == count


def test_the_count_goes_up_by_one_for_each_stored_cell(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    assert [kernel.run("pass").content["execution_count"] for _ in range(3)] == [1, 2, 3]
    kernel.run("pass", store_history=False)
    assert kernel.run("pass").content["execution_count"] == 4


def test_a_silent_cell_shows_nothing_and_is_not_counted(kernel: Notebook) -> None:
    before = kernel.run("pass").content["execution_count"]
    result = kernel.run("quiet_one = 7\nquiet_one", silent=True)
    assert result.types == []
    assert result.status == "ok"
    after = kernel.run("quiet_one")
    assert after.text == "7"
    assert after.content["execution_count"] == before + 1


def test_the_reply_says_when_the_cell_started(kernel: Notebook) -> None:
    before = datetime.now(UTC)
    result = kernel.run("pass")
    metadata = result.reply["metadata"]
    started = metadata["started"]
    if isinstance(started, str):
        started = datetime.fromisoformat(started)
    assert 0 <= (started - before).total_seconds() < 5
    assert metadata["status"] == "ok"
    assert metadata["dependencies_met"] is True
    assert isinstance(metadata["engine"], str) and metadata["engine"]


def test_user_expressions_are_evaluated_after_the_cell(kernel: Notebook) -> None:
    result = kernel.run("n = 3", user_expressions={"twice": "n * 2", "wrong": "1/0"})
    answers = result.content["user_expressions"]
    assert answers["twice"] == {"status": "ok", "data": {"text/plain": "6"}, "metadata": {}}
    assert answers["wrong"]["status"] == "error"
    assert answers["wrong"]["ename"] == "ZeroDivisionError"
    assert kernel.run("1/0", user_expressions={"twice": "n * 2"}).content["user_expressions"] == {}


def test_an_error_is_shown_with_its_line(kernel: Notebook) -> None:
    result = kernel.run("a = 1\nb = 0\na / b\n")
    assert result.status == "error"
    assert result.content["ename"] == "ZeroDivisionError"
    assert result.content["evalue"] == "division by zero"
    shown = result.contents("error")[0]
    assert shown["traceback"] == result.content["traceback"]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(shown["traceback"]))
    assert "----> 3 a / b" in plain
    assert f"Cell In[{result.content['execution_count']}], line 3" in plain
    assert "tpu_kernel" not in plain
    assert "\x1b[" in "\n".join(shown["traceback"])


def test_a_syntax_error_is_shown_with_its_place(kernel: Notebook) -> None:
    result = kernel.run("x = 1\nfor = 2")
    assert result.content["ename"] == "SyntaxError"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
    assert "line 2" in plain
    assert "    for = 2" in plain


def test_what_waits_after_an_error_is_aborted_in_order(kernel: Notebook) -> None:
    first = kernel.send("import time; time.sleep(0.5); 1/0")
    waiting = [kernel.send(f"print({n})") for n in range(5)]
    replies = [kernel.client.get_shell_msg(timeout=PATIENCE) for _ in range(6)]
    assert [m["parent_header"]["msg_id"] for m in replies] == [first, *waiting]
    assert [m["content"]["status"] for m in replies] == ["error"] + 5 * ["aborted"]
    assert kernel.run("'alive'").text == "'alive'"


def test_cells_go_on_after_an_error_when_asked_to(kernel: Notebook) -> None:
    first = kernel.send("import time; time.sleep(0.3); 1/0", stop_on_error=False)
    second = kernel.send("'went on'")
    assert kernel.wait(first, idle=False).status == "error"
    assert kernel.wait(second).text == "'went on'"


def test_a_burst_of_cells_runs_in_order(kernel: Notebook) -> None:
    kernel.run("seen = []")
    ids = [kernel.send(f"seen.append({n})", store_history=False) for n in range(200)]
    for msg_id in ids[:-1]:
        assert kernel.client.get_shell_msg(timeout=PATIENCE)["parent_header"]["msg_id"] == msg_id
    kernel.wait(ids[-1])
    assert kernel.run("seen == list(range(200))").text == "True"


def test_a_cell_with_a_lone_surrogate_is_answered(kernel: Notebook) -> None:
    session = kernel.client.session
    pack, session.pack = session.pack, lambda content: json.dumps(content, default=str).encode()
    try:
        result = kernel.run("len('\ud800')")
    finally:
        session.pack = pack
    assert (result.status, result.text) == ("ok", "1")
    assert kernel.run("print('\\ud800')").status == "ok"
    assert kernel.run("'\\ud800'").status == "ok"


def test_the_question_mark_asks_for_a_page(kernel: Notebook) -> None:
    payload = kernel.run("zip?").content["payload"]
    assert [p["source"] for p in payload] == ["page"]
    assert "The zip object yields n-length tuples" in payload[0]["data"]["text/plain"]
    assert payload[0]["start"] == 0
    assert kernel.run("pass").content["payload"] == []


def test_load_and_set_next_input_fill_the_cell(kernel: Notebook, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text("loaded = 5\n")
    payload = kernel.run(f"%load {tmp_path}/snippet.py").content["payload"]
    assert payload == [
        {"source": "set_next_input", "text": f"# %load {tmp_path}/snippet.py\nloaded = 5\n", "replace": True}
    ]
    payload = kernel.run("get_ipython().set_next_input('later')").content["payload"]
    assert payload == [{"source": "set_next_input", "text": "later", "replace": False}]


def test_edit_asks_the_front_end_to_open_a_file(kernel: Notebook, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("x = 1\n")
    payload = kernel.run(f"%edit {tmp_path}/module.py").content["payload"]
    assert payload == [{"source": "edit_magic", "filename": f"{tmp_path}/module.py", "line_number": None}]


def test_history_gives_the_tail_a_range_and_matches(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel(env={"IPYTHONDIR": str(tmp_path)})
    for code in ("first = 1", "second = 2\nsecond", "%time third = 3", "first + second"):
        kernel.run(code)

    def history(**content) -> list:
        return kernel.ask("history_request", {"output": False, "raw": True, **content}).content["history"]

    tail = history(hist_access_type="tail", n=2)
    assert [entry[2] for entry in tail] == ["%time third = 3", "first + second"]
    assert history(hist_access_type="range", session=0, start=1, stop=3) == [
        [0, 1, "first = 1"],
        [0, 2, "second = 2\nsecond"],
    ]
    with_output = history(hist_access_type="range", session=0, start=2, stop=3, output=True)
    assert with_output == [[0, 2, ["second = 2\nsecond", "2"]]]
    processed = history(hist_access_type="range", session=0, start=3, stop=4, raw=False)
    assert processed[0][2] == "get_ipython().run_line_magic('time', 'third = 3')"
    found = history(hist_access_type="search", pattern="*second*", unique=True, n=10)
    assert [entry[2] for entry in found] == ["second = 2\nsecond", "first + second"]
    assert len(history(hist_access_type="range")) == 4


def test_history_survives_a_restart(new_kernel: Callable[..., Notebook], tmp_path: Path) -> None:
    first = new_kernel(env={"IPYTHONDIR": str(tmp_path)})
    first.run("kept_for_later = 1")
    first.client.shutdown()
    first.manager.finish_shutdown()
    second = new_kernel(env={"IPYTHONDIR": str(tmp_path)})
    content = {"hist_access_type": "search", "pattern": "kept*", "raw": True, "output": False}
    assert [e[2] for e in second.ask("history_request", content).content["history"]] == ["kept_for_later = 1"]


def test_completion_knows_names_attributes_and_magics(kernel: Notebook) -> None:
    kernel.run("import os\nmy_long_name = 1")

    def complete(code: str, cursor: int | None = None) -> dict:
        content = {"code": code, "cursor_pos": len(code) if cursor is None else cursor}
        return kernel.ask("complete_request", content).content

    names = complete("my_long_n")
    assert names["matches"] == ["my_long_name"]
    assert (names["cursor_start"], names["cursor_end"]) == (0, 9)
    attributes = complete("x = 1\nos.pa")
    assert "path" in [m.rsplit(".", 1)[-1] for m in attributes["matches"]]
    types = {
        t["text"].rsplit(".", 1)[-1]: t["type"] for t in attributes["metadata"]["_jupyter_types_experimental"]
    }
    assert types["path"] == "module"
    assert "%timeit" in complete("%timei")["matches"]
    assert complete("os.pa + my_long_n", 5)["cursor_end"] == 5
    assert complete("my_long_n", None)["matches"] == ["my_long_name"]


def test_completion_never_hangs(kernel: Notebook) -> None:
    kernel.run(
        "class Broken:\n    def __dir__(self): raise RuntimeError('no')\nbroken = Broken()\n"
        "class Slow:\n    @property\n    def value(self):\n        import time; time.sleep(600)\nslow = Slow()"
    )
    for code in ("a" * 100_000, "broken.", "slow.va", "((((((((((" * 500, "x." * 3000):
        content = {"code": code, "cursor_pos": len(code)}
        assert kernel.ask("complete_request", content).content["status"] == "ok"


def test_inspection_finds_an_object(kernel: Notebook) -> None:
    kernel.run("def documented(a, b=2):\n    'Says what it does.'\n    return a")
    result = kernel.ask(
        "inspect_request", {"code": "documented(1)", "cursor_pos": 4, "detail_level": 0}
    ).content
    assert result["found"] is True
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result["data"]["text/plain"])
    assert "Signature: documented(a, b=2)" in plain
    assert "Says what it does." in plain
    nothing = kernel.ask(
        "inspect_request", {"code": "no_such_thing", "cursor_pos": 4, "detail_level": 0}
    ).content
    assert nothing == {"status": "ok", "found": False, "data": {}, "metadata": {}}


def test_is_complete_tells_what_needs_another_line(kernel: Notebook) -> None:
    def status(code: str) -> dict:
        return kernel.ask("is_complete_request", {"code": code}).content

    assert status("1 + 1") == {"status": "complete"}
    assert status("for i in range(3):") == {"status": "incomplete", "indent": "    "}
    assert status("x = = 1") == {"status": "invalid"}
    assert status("print('''hello")["status"] == "incomplete"


def test_complete_inspect_and_history_are_answered_while_a_cell_runs(kernel: Notebook) -> None:
    kernel.run("import os, time")
    cell = kernel.send("print('started', flush=True); time.sleep(600)")
    kernel.wait_for_text(cell, "started")
    content = kernel.ask("complete_request", {"code": "os.getcw", "cursor_pos": 8}).content
    assert "getcwd" in [m.rsplit(".", 1)[-1] for m in content["matches"]]
    assert kernel.ask("inspect_request", {"code": "os", "cursor_pos": 2}).content["found"] is True
    assert kernel.ask("is_complete_request", {"code": "1"}).content == {"status": "complete"}
    content = {"hist_access_type": "tail", "n": 1, "raw": True, "output": False}
    assert kernel.ask("history_request", content).content["history"]
    kernel.interrupt()
    assert kernel.wait(cell).content["ename"] == "KeyboardInterrupt"


def test_an_unanswerable_question_gets_an_error_reply(kernel: Notebook) -> None:
    result = kernel.ask("history_request", {"hist_access_type": "sideways"})
    assert result.status == "error"
    assert "sideways" in result.content["evalue"]


def test_a_history_that_cannot_be_locked_does_not_hold_the_kernel(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    profile = tmp_path / "profile_default"
    profile.mkdir()
    with closing(sqlite3.connect(profile / "history.sqlite", isolation_level=None)) as other:
        other.execute("CREATE TABLE held (x)")
        other.execute("BEGIN EXCLUSIVE")
        kernel = new_kernel(env={"IPYTHONDIR": str(tmp_path)})
        assert kernel.run("'ready'").text == "'ready'"
        other.execute("ROLLBACK")
    kernel.client.shutdown()
    kernel.manager.finish_shutdown()
    with closing(sqlite3.connect(profile / "history.sqlite")) as after:
        assert after.execute("SELECT source_raw FROM history").fetchall() == [("'ready'",)]


def saved_cells(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT source_raw FROM history ORDER BY line")]


def test_what_a_killed_kernel_ran_a_while_ago_is_in_the_history(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel(env={"IPYTHONDIR": str(tmp_path)})
    kernel.run("before_the_kill = 1")
    kernel.send("import time; time.sleep(600)")
    ran = ["before_the_kill = 1", "import time; time.sleep(600)"]
    with closing(sqlite3.connect(tmp_path / "profile_default" / "history.sqlite")) as beside:
        deadline = time.monotonic() + PATIENCE
        while saved_cells(beside) != ran and time.monotonic() < deadline:
            time.sleep(0.1)
    kernel.manager.shutdown_kernel(now=True)
    with closing(sqlite3.connect(tmp_path / "profile_default" / "history.sqlite")) as after:
        assert saved_cells(after) == ran


def test_a_request_that_is_no_cell_is_answered_with_an_error(kernel: Notebook) -> None:
    result = kernel.wait(kernel.request("execute_request", {"code": "1", "user_expressions": [1]}))
    assert result.status == "error"
    assert kernel.run("1 + 1").text == "2"


def test_the_cell_id_of_the_front_end_reaches_extensions(kernel: Notebook) -> None:
    kernel.run(
        "seen = []\nget_ipython().events.register('pre_run_cell', lambda info: seen.append(info.cell_id))"
    )
    kernel.run("pass", cell_id="abc-123")
    assert kernel.run("seen").text == "['abc-123', None]"
