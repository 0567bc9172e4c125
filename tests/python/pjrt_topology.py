"""What a PJRT plug-in says of its devices: `python pjrt_topology.py LIBRARY [TOPOLOGY ...]` prints JSON.

With names of topologies (libtpu knows `v5e:1x1` and the like) no chip is needed; without any, the
topology of the plug-in's client is described. The C API is called by slot, as its header numbers it.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

TABLE = 40
ERROR_MESSAGE, PLUGIN_INITIALIZE, CLIENT_CREATE = 1, 3, 10
DESCRIPTION_ATTRIBUTES, DESCRIPTION_KIND, DESCRIPTION_DEBUG, DESCRIPTION_TEXT = 25, 26, 27, 28
TOPOLOGY_CREATE, TOPOLOGY_PLATFORM, TOPOLOGY_VERSION, TOPOLOGY_DEVICES, TOPOLOGY_ATTRIBUTES = (
    82,
    84,
    85,
    86,
    88,
)
CLIENT_TOPOLOGY = 95
TEXT, INTEGER, INTEGERS = 0, 1, 2
#: The TPU topology extension: its type, and functions by their place in it.
CHIP_TOPOLOGY = 16
FLAGS, COUNTS, PROCESSES, DEVICES = (1, 4, 5), range(7, 16), 16, 17
PLACES, PROCESS_AT, CHIP_AT, DEVICE_AT, PLACE_OF_DEVICE, BOUNDS = (18, 19), 20, 21, 22, 23, range(24, 27)


class Arguments:
    """An argument struct: eight-byte words by offset."""

    def __init__(self, size: int, **words: int) -> None:
        self.memory = ctypes.create_string_buffer(max(size, 128))
        self.address = ctypes.addressof(self.memory)
        self[0] = size
        for name, value in words.items():
            self[int(name.removeprefix("at"))] = value

    def __getitem__(self, offset: int) -> int:
        return ctypes.c_uint64.from_buffer(self.memory, offset).value

    def __setitem__(self, offset: int, value: int) -> None:
        ctypes.c_uint64.from_buffer(self.memory, offset).value = value

    def text(self, offset: int) -> str:
        """The string whose address and length stand at `offset`."""
        return ctypes.string_at(self[offset], self[offset + 8]).decode()


class Plugin:
    """A loaded plug-in."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        library.GetPjrtApi.restype = ctypes.c_void_p
        self.table: int = library.GetPjrtApi()
        self.call(PLUGIN_INITIALIZE, Arguments(16))

    def version(self) -> list[int]:
        return [ctypes.c_int32.from_address(self.table + offset).value for offset in (32, 36)]

    def call(self, slot: int, arguments: Arguments) -> Arguments:
        address = ctypes.c_uint64.from_address(self.table + TABLE + 8 * slot).value
        error = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)(arguments.address)
        if error:
            message = Arguments(40, at16=error)
            self.call(ERROR_MESSAGE, message)
            raise RuntimeError(message.text(24))
        return arguments

    def extension(self, kind: int) -> int:
        at = ctypes.c_uint64.from_address(self.table + 8).value
        while at and ctypes.c_uint32.from_address(at + 8).value != kind:
            at = ctypes.c_uint64.from_address(at + 16).value
        return at

    def chip(self, topology: int) -> dict[str, Any]:
        """What the TPU topology extension answers."""
        start = self.extension(CHIP_TOPOLOGY) + 24
        numbers = (ctypes.c_int32 * 8)()
        room = {"at16": 8, "at24": ctypes.addressof(numbers)}

        def ask(index: int, size: int, **words: int) -> Arguments:
            address = ctypes.c_uint64.from_address(start + 8 * index).value
            arguments = Arguments(size, at8=topology, **words)
            error = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)(arguments.address)
            assert not error, index
            return arguments

        bounds = [list(numbers[: ask(index, 40, **room)[32]]) for index in BOUNDS]
        number = lambda arguments, offset: ctypes.c_int32.from_buffer(arguments.memory, offset).value
        origin = (ctypes.c_int32 * 3)()
        at = {"at16": ctypes.addressof(origin), "at24": 3}
        device = ask(PLACE_OF_DEVICE, 52, at24=8, at32=ctypes.addressof(numbers))
        return {
            "flags": [ask(index, 17)[16] & 1 for index in FLAGS],
            "counts": [number(ask(index, 20), 16) for index in COUNTS],
            "bounds": bounds,
            "device": [list(numbers[: device[40]]), number(device, 48)],
            "processes": list(numbers[: ask(PROCESSES, 40, **room)[32]]),
            "devices": list(numbers[: ask(DEVICES, 40, at16=8 << 32, at24=room["at24"])[32]]),
            "places": [[number(ask(index, 28), offset) for offset in (20, 24)] for index in PLACES],
            "process": list(numbers[: ask(PROCESS_AT, 48, at24=8, at32=room["at24"])[40]]),
            "chip at": number(ask(CHIP_AT, 36, **at), 32),
            "device at": number(ask(DEVICE_AT, 40, **at), 36),
        }

    def topology(self, name: str | None) -> int:
        if name is None:
            client = self.call(CLIENT_CREATE, Arguments(88))[64]
            return self.call(CLIENT_TOPOLOGY, Arguments(32, at16=client))[24]
        text = ctypes.create_string_buffer(name.encode())
        return self.call(TOPOLOGY_CREATE, Arguments(56, at16=ctypes.addressof(text), at24=len(name)))[48]

    def describe(self, topology: int) -> dict[str, Any]:
        ask = lambda slot: self.call(slot, Arguments(40, at16=topology))
        found, listed = ask(TOPOLOGY_ATTRIBUTES), ask(TOPOLOGY_DEVICES)
        devices = [ctypes.c_uint64.from_address(listed[24] + 8 * n).value for n in range(listed[32])]
        return {
            "platform": ask(TOPOLOGY_PLATFORM).text(24),
            "version": ask(TOPOLOGY_VERSION).text(24),
            "attributes": attributes(found[24], found[32]),
            "chip": self.chip(topology),
            "devices": [self.device(device) for device in devices],
        }

    def device(self, description: int) -> dict[str, Any]:
        ask = lambda slot: self.call(slot, Arguments(40, at16=description))
        found = ask(DESCRIPTION_ATTRIBUTES)
        return {
            "kind": ask(DESCRIPTION_KIND).text(24),
            "debug": ask(DESCRIPTION_DEBUG).text(24),
            "text": ask(DESCRIPTION_TEXT).text(24),
            "attributes": attributes(found[32], found[24]),
        }


def attributes(start: int, count: int) -> dict[str, Any]:
    """Named values of 56 bytes each."""
    values: dict[str, Any] = {}
    for value in range(start, start + 56 * count, 56):
        word = lambda offset, value=value: ctypes.c_uint64.from_address(value + offset).value
        name = ctypes.string_at(word(16), word(24)).decode()
        kind = ctypes.c_uint32.from_address(value + 32).value
        if kind == TEXT:
            values[name] = ctypes.string_at(word(40), word(48)).decode()
        elif kind == INTEGER:
            values[name] = ctypes.c_int64(word(40)).value
        elif kind == INTEGERS:
            values[name] = list((ctypes.c_int64 * word(48)).from_address(word(40)))
    return values


def main() -> None:
    library, *names = sys.argv[1:]
    plugin = Plugin(library)
    found = {name or "client": plugin.describe(plugin.topology(name)) for name in names or [None]}
    print(json.dumps({"version": plugin.version(), "topologies": found}))


if __name__ == "__main__":
    main()
