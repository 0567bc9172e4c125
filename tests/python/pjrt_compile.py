"""What libtpu makes of a program with no TPU there: `python pjrt_compile.py LIBRARY TOPOLOGY PROGRAM` prints JSON.

LIBRARY is libtpu or tpu-core around it; PROGRAM a file. The C API is called by slot, as its header
numbers it.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from pjrt_topology import CLIENT_CREATE, Arguments, Plugin
from tpu_kernel import _kernel

NUM_OUTPUTS, COST_ANALYSIS, OPTIMIZED, COMPILE, MEMORY_STATS = 44, 46, 48, 89, 96
#: CompileOptionsProto: one replica, one partition.
OPTIONS = bytes.fromhex("1a0420012801")
MEMORY = ("code", "arguments", "outputs", "aliases", "temporaries")


def held(data: bytes) -> tuple[ctypes.Array[ctypes.c_char], int]:
    """Bytes at an address, as long as the first of the two lives."""
    memory = ctypes.create_string_buffer(data, len(data))
    return memory, ctypes.addressof(memory)


def compile_for(plugin: Plugin, topology: int, program: Path) -> dict[str, Any]:
    """Compile without a client; what the program costs and needs."""
    code = program.read_bytes()
    kept = [held(code), held(b"mlir"), held(OPTIONS)]
    (_, at), (_, form), (_, options) = kept
    given = Arguments(48, at16=at, at24=len(code), at32=form, at40=4)
    made = plugin.call(
        COMPILE, Arguments(64, at16=topology, at24=given.address, at32=options, at40=len(OPTIONS))
    )
    executable = made[56]
    ask = lambda slot, size: plugin.call(slot, Arguments(size, at16=executable))
    costs, memory = ask(COST_ANALYSIS, 40), ask(MEMORY_STATS, 144)
    return {
        "outputs": ask(NUM_OUTPUTS, 32)[24],
        "costs": floats(costs[32], costs[24]),
        "memory": {name: memory[24 + 8 * number] for number, name in enumerate(MEMORY)},
        "optimized": optimized(plugin, executable),
    }


def optimized(plugin: Plugin, executable: int) -> list[str]:
    """What the compiler made of it: the form it is given in, and the lines of its text."""
    ask = lambda program: plugin.call(OPTIMIZED, Arguments(32, at16=executable, at24=program.address))
    size = Arguments(48)
    ask(size)
    memory, at = held(bytes(size[24]))
    ask(Arguments(48, at16=at, at24=size[24]))
    return [size.text(32), *_kernel.hlo_text(memory.raw, False).splitlines()]


def floats(start: int, count: int) -> dict[str, float]:
    """Named values of 56 bytes each that are numbers."""
    found = {}
    for value in range(start, start + 56 * count, 56):
        word = lambda offset, value=value: ctypes.c_uint64.from_address(value + offset).value
        found[ctypes.string_at(word(16), word(24)).decode()] = ctypes.c_float.from_address(value + 40).value
    return found


def main() -> None:
    library, topology, program = sys.argv[1:]
    plugin = Plugin(library)
    found = compile_for(plugin, plugin.topology(topology), Path(program))
    if Path(library).name != "libtpu.so":
        # Alone, libtpu may end the process here.
        try:
            plugin.call(CLIENT_CREATE, Arguments(88))
        except RuntimeError as error:
            found["client"] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
