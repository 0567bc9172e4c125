"""When a cell that compiles much is told that it compiles at every step, and in which words."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tpu_kernel.tpu.reasons import reason, short_batch
from tpu_kernel.tpu.storms import Spot, Storm

LOOP = Spot("In[1], line 3", "In[1], loop in line 2")
COMPILED = Spot("In[1], line 3", "In[1], loop in line 2", exact=True, compiled=True)


def size(was: int, now: int, dimension: int = 0, index: int = 0) -> dict[str, Any]:
    shape = [str(now), "128"] if dimension == 0 else ["64", str(now)]
    return {
        "differs": "size",
        "part": "argument",
        "index": index,
        "dimension": dimension,
        "was": was,
        "is": now,
        "tensor": f"float32[{', '.join(shape)}]",
    }


def program(number: int, *differences: dict[str, Any], family: str = "mm", runs: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = {"number": number, "family": family, "why": "first", "runs": runs}
    if differences:
        found |= {"why": "differs", "nearest": number - 1, "differences": list(differences)}
    return found


def batches(storm: Storm, sizes: range, spot: Spot, synchronised: bool) -> None:
    for number, rows in enumerate(sizes):
        differences = [size(rows - 1, rows)] if number else []
        storm.see(program(number, *differences), number if synchronised else 0, spot)


def test_a_loop_that_reads_a_result_each_step_is_told_at_the_third_size() -> None:
    storm = Storm("strict")
    batches(storm, range(60, 62), LOOP, True)
    assert storm.cause is None
    storm.see(program(2, size(61, 62)), 2, LOOP)
    assert storm.cause is not None
    assert storm.cause.words == "dimension 0 of `float32[62, 128]` was 60, 61, 62"
    assert storm.cause.advice == (
        "Pad to one size, and leave out a short last batch (`DataLoader(…, drop_last=True)`)."
    )
    assert storm.cause.place == "In[1], loop in line 2"


def test_compiled_code_is_told_at_the_third_size_with_its_line() -> None:
    storm = Storm("strict")
    batches(storm, range(60, 63), COMPILED, False)
    assert storm.cause is not None and storm.cause.place == "In[1], line 3"


def test_the_first_step_of_a_model_is_no_storm() -> None:
    storm = Storm("strict")
    widths = [784, 512, 256, 128, 64, 32, 10]
    storm.see(program(0, family="relu"), 0, LOOP)
    for number, (was, now) in enumerate(pairwise(widths), 1):
        storm.see(program(number, size(was, now, dimension=1), family="relu"), 0, LOOP)
    assert storm.cause is None


def test_three_results_read_one_after_the_other_are_no_loop() -> None:
    storm = Storm("strict")
    batches(storm, range(60, 70), Spot("In[1], line 3"), True)
    assert storm.cause is not None  # eight sizes of the same are enough
    storm = Storm("strict")
    batches(storm, range(60, 65), Spot("In[1], line 3"), True)
    assert storm.cause is None


def test_many_values_are_told_by_the_first_and_the_last() -> None:
    storm = Storm("strict")
    batches(storm, range(60, 80), LOOP, True)
    assert storm.cause is not None
    assert storm.cause.words == "dimension 0 of `float32[79, 128]` was 60, 61, 62, …, 79"


def test_a_number_that_changes_is_told_with_what_to_do_in_this_mode() -> None:
    def told(mode: str) -> tuple[str, str]:
        storm = Storm(mode)
        for number in range(3):
            changed = {"differs": "number", "was": str(number - 1), "is": str(number)}
            storm.see(program(number, *([changed] if number else [])), number, COMPILED)
        assert storm.cause is not None
        return storm.cause.words, storm.cause.advice

    assert told("strict") == (
        "a number in the program was 0, 1, 2",
        "Keep the number in a tensor on the device.",
    )
    assert told("fused")[1] == (
        "Keep the number in a tensor on the device; or run operation by operation "
        "(`%tpu_mode strict`), where fewer programs are made."
    )


def test_steps_that_each_make_something_new_are_told_too() -> None:
    storm = Storm("fused")
    for number in range(11):
        storm.see(program(number, family=f"family {number}"), number, LOOP)
    assert storm.cause is None
    storm.see(program(11, family="family 11"), 11, LOOP)
    assert storm.cause is not None
    assert storm.cause.words == "each of 12 steps made programs unlike those before"
    assert storm.cause.advice.startswith("Run operation by operation (`%tpu_mode strict`)")


def test_a_reason_says_the_first_difference_and_how_many_more() -> None:
    assert reason(program(1)) == "the first of its kind"
    assert reason(program(1, size(64, 48))) == "dimension 0 of `float32[48, 128]` was 64"
    assert reason(program(1, size(64, 48), size(64, 48, index=1))) == (
        "dimension 0 of `float32[48, 128]` was 64"
    )
    assert reason(program(1, size(64, 48), size(9, 7, dimension=1))) == (
        "dimension 0 of `float32[48, 128]` was 64, and 1 more"
    )
    other = {"differs": "type", "part": "argument", "index": 0, "was": "float32[2]", "is": "bfloat16[2]"}
    assert reason(program(1, other)) == "`bfloat16[2]` was `float32[2]`"
    assert reason(program(1, {"differs": "options"})) == "other options of the compiler"


def test_only_a_shorter_batch_after_full_ones_is_a_last_short_batch() -> None:
    usual = program(0, runs=3)
    short = program(1, size(64, 48), size(64, 48, index=1))
    assert short_batch(short, {0: usual}) == (
        "a last short batch: 48 in `float32[48, 128]` instead of 64. "
        "Drop it (`DataLoader(…, drop_last=True)`) or pad it"
    )
    assert short_batch(program(1, size(48, 64)), {0: usual}) is None
    assert short_batch(program(1, size(64, 48, dimension=1)), {0: usual}) is None
    assert short_batch(short, {0: program(0, runs=1)}) is None
    assert short_batch(program(1, size(64, 48), runs=3), {0: usual}) is None
