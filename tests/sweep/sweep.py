"""The emulated chip against the CPU, operator by operator: `make sweep`.

Operators run in worker processes, so that one that aborts or hangs is counted and ends nothing.
`known.tsv` is the fixed list of the operators TorchTPU implements and says what comes out of each;
`causes.toml` says why where that is not what the CPU does. Ends with 1 when anything is not as it
is known to be, or fails for no known reason.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).parent
DTYPES = ("float32", "bfloat16", "int64")
#: In place of a type: wrong arguments; in place of a name: every operator.
WRONG, EVERY = "wrong", "*"
#: A hang, not a slow machine.
SECONDS = 120.0


class Worker:
    """A process that answers one question at a time, started anew when it is lost."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.process: subprocess.Popen[str] | None = None
        self.answers: queue.Queue[str | None] = queue.Queue()
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker

    def start(self) -> list[str]:
        self.log.seek(0)
        self.log.truncate()
        self.answers = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(self.process, self.answers), daemon=True).start()
        first = self.answers.get(timeout=SECONDS)
        if first is None:
            raise SystemExit(f"the worker did not start: {self.last_words()}")
        return json.loads(first)["ready"]

    @staticmethod
    def _read(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
        assert process.stdout
        for line in process.stdout:
            answers.put(line)
        answers.put(None)

    def ask(self, name: str, dtype: str) -> dict[str, str]:
        self._send(f"{name} {dtype}")
        return {"name": name, "dtype": dtype} | self._answer()

    def ask_wrong(self, name: str) -> list[dict[str, Any]]:
        """What came out of each wrong call of an operator; behind one that ends the process it goes on."""
        results: list[dict[str, Any]] = []
        begun: dict[str, Any] = {"name": name, "dtype": "wrong", "case": "", "number": -1}
        while True:
            self._send(f"{name} wrong:{begun['number'] + 1}")
            while (result := begun | self._answer())["outcome"] not in ("all", "aborted", "hung"):
                begun = result
                if result["outcome"] != "begins":
                    results.append(result)
            if result["outcome"] == "all":
                return results
            results.append(result)
            if begun["outcome"] != "begins":
                return results  # the arguments themselves cannot be made

    def _send(self, line: str) -> None:
        if self.process is None or self.process.poll() is not None:
            self.start()
        assert self.process and self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self.process
        try:
            answer = self.answers.get(timeout=SECONDS)
        except queue.Empty:
            self.stop()
            return {"outcome": "hung", "detail": f"no answer in {SECONDS:.0f} s"}
        if answer is None:
            raise SystemExit(f"the worker ended with {self.process.wait()}: {self.last_words()}")
        result = json.loads(answer)
        if result["outcome"] == "aborted":
            result["detail"] += f": {self.last_words()}"
            self.log.seek(0)
            self.log.truncate()
        return result

    def last_words(self) -> str:
        self.log.seek(0)
        lines = self.log.read().splitlines()
        telling = [line for line in lines if line.startswith("F0") or "Error" in line] or lines[-3:]
        return " ".join(" ".join(telling or ["nothing was printed"]).split())[:300]

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TPU_", "TORCH"))}
    kept = {name: value for name, value in os.environ.items() if name.startswith("TPU_KERNEL_")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    # One cache would let one run's programs hide what another cannot compile.
    return env | kept | {"TPU_KERNEL_CACHE": "off"}


def sweep(chosen: list[tuple[str, str]] | None, jobs: int) -> list[dict[str, str]]:
    workers = [Worker(environment()) for _ in range(jobs)]
    names = workers[0].start()
    wanted = chosen if chosen is not None else [(name, dtype) for name in names for dtype in DTYPES]
    wanted = [(name, dtype) for each, dtype in wanted for name in (names if each == EVERY else [each])]
    work: queue.Queue[tuple[str, str]] = queue.Queue()
    for item in wanted:
        work.put(item)
    results: list[dict[str, str]] = []
    started = time.monotonic()

    def drain(worker: Worker) -> None:
        while True:
            try:
                name, dtype = work.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            answers: list[dict[str, Any]] = (
                worker.ask_wrong(name) if dtype == WRONG else [worker.ask(name, dtype)]
            )
            for result in answers:
                result["seconds"] = time.monotonic() - began
            results.extend(answers)
            if len(results) % 200 == 0:
                print(
                    f"{len(results)} of {len(wanted)} in {time.monotonic() - started:.0f} s", file=sys.stderr
                )

    threads = [threading.Thread(target=drain, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for worker in workers:
        worker.stop()
    order = (*DTYPES, WRONG)
    return sorted(results, key=lambda result: (result["name"], order.index(result["dtype"])))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help="operators, NAME or NAME:DTYPE; without any, those of known.tsv"
    )
    parser.add_argument("--all", action="store_true", help="all operators of the database")
    parser.add_argument(
        "--wrong", action="store_true", help="wrong arguments, of all operators or those named"
    )
    parser.add_argument(
        "--write", action="store_true", help="with --all: make known.tsv and docs/OPS.md of the results"
    )
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument(
        "--from", dest="saved", type=Path, help="results of an earlier run, saved with --save"
    )
    parser.add_argument("--save", type=Path, help="keep the results here")
    options = parser.parse_args()
    results = json.loads(options.saved.read_text()) if options.saved else sweep(chosen(options), options.jobs)
    if options.save:
        options.save.write_text(json.dumps(results))
    if options.wrong:
        return ended(results)
    if options.write:
        report.write(results)
    wrong = report.differences(results, report.read()) + report.unexplained(results)
    for line in dict.fromkeys(wrong):
        print(line)
    good = sum(result["outcome"] in report.GOOD for result in results)
    lost = sum(result["outcome"] in ("aborted", "hung") for result in results)
    print(f"{len(results)} run, {good} as on the CPU, {lost} aborted or hung, {len(wrong)} not as known")
    return 1 if wrong else 0


def ended(results: list[dict[str, str]]) -> int:
    """Say which wrong calls ended their process; none may."""
    counts = Counter(result["outcome"] for result in results)
    for result in results:
        if result["outcome"] in ("aborted", "hung"):
            print(f"{result['name']}, {result['case']}: {result['outcome']}: {result['detail']}")
    print(
        f"{len(results) - counts['right']} wrong calls, {counts['error']} an error, "
        f"{counts['value']} a value, {counts['aborted'] + counts['hung']} aborted or hung"
    )
    return 1 if counts["aborted"] + counts["hung"] else 0


def chosen(options: argparse.Namespace) -> list[tuple[str, str]] | None:
    if options.wrong:
        return [(name, WRONG) for name in options.names or [EVERY]]
    if options.all:
        return None
    if not options.names:
        return list(report.read())
    wanted = []
    for name in options.names:
        base, _, dtype = name.partition(":")
        wanted += [(base, dtype)] if dtype else [(base, each) for each in DTYPES]
    return wanted


if __name__ == "__main__":
    sys.exit(main())
