"""Says in one line of JSON what the launcher wants to know of this interpreter.

Runs under any Python, however old, so that an old one can be named.
"""

import json
import os
import sys
import sysconfig


def libpython():
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return None
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    path = os.path.join(folder or "", name or "")
    return path if os.path.isfile(path) else None


def module():
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("tpu_kernel")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = os.path.join(folder, "_kernel.abi3.so")
        if os.path.isfile(path):
            return os.path.abspath(path)
    return None


answer = {"version": list(sys.version_info[:2])}
if sys.version_info >= (3, 11):
    sys.path[:] = [folder for folder in sys.path if folder not in ("", "/")]
    answer["free_threaded"] = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    answer["libpython"] = libpython()
    answer["module"] = module()
print(json.dumps(answer))
