"""Libraries that look for ipykernel find what they look for, and only inside the kernel."""

from __future__ import annotations

import json

import pytest
from notebook import Notebook


def value(kernel: Notebook, code: str) -> object:
    """What a cell's last expression is, through JSON."""
    lines = code.splitlines()
    lines[-1] = f"print(__import__('json').dumps({lines[-1]}))"
    result = kernel.run("\n".join(lines))
    assert result.status == "ok", result.content
    return json.loads(result.stdout)


def test_the_import_system_knows_the_facade(kernel: Notebook) -> None:
    assert value(
        kernel,
        "import importlib, importlib.util, pkgutil, ipykernel\n"
        "spec = importlib.util.find_spec('ipykernel')\n"
        "[spec.name, spec.origin == ipykernel.__file__, spec.origin.endswith('tpu_kernel/compat/ipykernel/__init__.py'),"
        " ipykernel.__spec__ == spec, list(ipykernel.__path__) == spec.submodule_search_locations,"
        " importlib.reload(ipykernel) is ipykernel, importlib.util.find_spec('ipykernel.comm').name]",
    ) == ["ipykernel", True, True, True, True, True, "ipykernel.comm"]


def test_every_module_of_the_facade_can_be_imported(kernel: Notebook) -> None:
    assert value(
        kernel,
        "import importlib, pkgutil, ipykernel\n"
        "names = [m.name for m in pkgutil.walk_packages(ipykernel.__path__, 'ipykernel.')]\n"
        "[importlib.import_module(name).__name__ for name in names]",
    ) == [
        f"ipykernel.{name}"
        for name in (
            "_version",
            "comm",
            "comm.comm",
            "comm.manager",
            "connect",
            "displayhook",
            "iostream",
            "ipkernel",
            "jsonutil",
            "kernelapp",
            "kernelbase",
            "pylab",
            "pylab.backend_inline",
            "pylab.config",
            "zmqshell",
        )
    ]


def test_the_installed_ipykernel_is_still_what_the_environment_says(kernel: Notebook) -> None:
    from importlib.metadata import version

    assert value(kernel, "import importlib.metadata as m\nm.version('ipykernel')") == version("ipykernel")


@pytest.mark.parametrize(
    "statement",
    [
        "import ipykernel.debugger",
        "from ipykernel.embed import embed_kernel",
        "__import__('ipykernel.inprocess.client')",
    ],
)
def test_a_module_the_facade_lacks_says_whose_kernel_this_is_and_what_to_do(
    kernel: Notebook, statement: str
) -> None:
    result = kernel.run(statement)
    assert result.content["ename"] == "ModuleNotFoundError"
    assert "the PyTorch (TPU) kernel, which is not ipykernel" in result.content["evalue"]
    assert "`!{sys.executable} ...`" in result.content["evalue"]
    assert kernel.run(
        f"try:\n    {statement}\nexcept ImportError as e:\n    print(e.name)"
    ).stdout.startswith("ipykernel.")


def test_child_processes_get_the_real_ipykernel(kernel: Notebook) -> None:
    import ipykernel

    code = "import ipykernel, ipykernel.debugger, ipykernel.zmqshell; print(ipykernel.__file__)"
    run = f"import subprocess, sys\nsubprocess.run([sys.executable, '-W', 'ignore', '-c', {code!r}], capture_output=True, text=True).stdout"
    assert value(kernel, run) == f"{ipykernel.__file__}\n"
    assert value(
        kernel,
        "import subprocess, sys\n'Install the IPython kernel spec.' in subprocess.run("
        "[sys.executable, '-m', 'ipykernel', 'install', '--help'], capture_output=True, text=True).stdout",
    )
    assert (
        value(
            kernel,
            "import multiprocessing, importlib.util\n"
            "with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
            "    spec = pool.apply(importlib.util.find_spec, ('ipykernel',))\nspec.origin",
        )
        == ipykernel.__file__
    )


def test_names_and_places_of_the_classes_are_what_libraries_compare_with(kernel: Notebook) -> None:
    assert value(
        kernel,
        "import sys, comm\nip = get_ipython()\n"
        "c = comm.create_comm('t')\n"
        "[type(o).__module__ + '.' + type(o).__name__ for o in"
        " (ip, ip.kernel, ip.display_pub, ip.displayhook, sys.stdout, sys.stderr, c, ip.kernel.comm_manager)]",
    ) == [
        "ipykernel.zmqshell.ZMQInteractiveShell",
        "ipykernel.ipkernel.IPythonKernel",
        "ipykernel.zmqshell.ZMQDisplayPublisher",
        "ipykernel.displayhook.ZMQShellDisplayHook",
        "ipykernel.iostream.OutStream",
        "ipykernel.iostream.OutStream",
        "ipykernel.comm.comm.Comm",
        "ipykernel.comm.manager.CommManager",
    ]


def test_the_configuration_names_the_connection_file(kernel: Notebook) -> None:
    path = kernel.manager.connection_file
    assert value(
        kernel,
        "import sys, ipykernel, ipykernel.connect\nip = get_ipython()\n"
        "['IPKernelApp' in ip.config, ip.config['IPKernelApp']['connection_file'],"
        " ipykernel.get_connection_file(), ipykernel.connect.get_connection_file(),"
        " sys.argv[0].endswith('ipykernel_launcher.py'), sys.argv[1:]]",
    ) == [True, path, path, path, True, ["-f", path]]
    assert (
        value(kernel, "import ipykernel, json\njson.loads(ipykernel.get_connection_info())['kernel_name']")
        == kernel.manager.kernel_name
    )


def test_members_of_the_kernel_object(kernel: Notebook) -> None:
    cell = kernel.send(
        "import ipykernel.kernelbase, ipykernel.kernelapp\nk = get_ipython().kernel\n"
        "print([k is ipykernel.kernelbase.Kernel.instance(), ipykernel.kernelbase.Kernel.initialized(),"
        " k is ipykernel.kernelapp.IPKernelApp.instance().kernel,"
        " k.shell is get_ipython(), k.user_ns is globals(), k.user_module.__name__, k.implementation,"
        " k.language_info['name'], k.get_parent()['header']['msg_id'], k.get_parent('shell')['msg_type'],"
        " k._parent_header['content']['silent'], list(k._parent_ident),"
        " k.execution_count == get_ipython().execution_count, k.do_is_complete('if x:')['status']])"
    )
    assert kernel.wait(cell).stdout == (
        f"[True, True, True, True, True, '__main__', 'pytorch-tpu', 'python', '{cell}', 'execute_request', "
        "False, ['shell', 'control'], True, 'incomplete']\n"
    )


def test_a_comm_made_the_old_way_works(kernel: Notebook) -> None:
    result = kernel.run(
        "import warnings\nwarnings.simplefilter('error')\nfrom ipykernel.comm import Comm\n"
        "c = Comm('old', {'a': 1}, kernel=get_ipython().kernel, show_warning=True)\n"
        "d = Comm(target_name='named', data={})\nwarnings.resetwarnings()\n"
        "c.kernel is get_ipython().kernel, get_ipython().kernel.comm_manager.get_comm(c.comm_id) is c"
    )
    assert result.text == "(True, True)"
    opened = result.contents("comm_open")
    assert [(c["target_name"], c["data"]) for c in opened] == [("old", {"a": 1}), ("named", {})]


def test_nothing_looks_like_colab(kernel: Notebook) -> None:
    assert value(
        kernel,
        "import importlib.util, os, sys\n"
        "texts = [str(get_ipython()), str(type(get_ipython())), repr(get_ipython().kernel), sys.argv[0], *sys.modules,"
        " *os.environ]\n"
        "[[t for t in texts if 'colab' in t.lower()], importlib.util.find_spec('google') is not None"
        " and importlib.util.find_spec('google.colab') is not None]",
    ) == [[], False]


def test_probes_of_well_known_libraries(kernel: Notebook) -> None:
    """The expressions are those of click, tqdm, plotly, huggingface_hub, wandb and pyviz_comms."""
    assert value(
        kernel,
        "import sys, click, plotly.io\nfrom tqdm.auto import tqdm\nfrom tqdm.notebook import tqdm as notebook_tqdm\n"
        "from click._compat import _is_jupyter_kernel_output\n"
        "shell = get_ipython()\n"
        "[_is_jupyter_kernel_output(sys.stdout), notebook_tqdm in tqdm.__mro__, plotly.io.renderers.default,"
        " any('ZMQInteractiveShell' in str(c) for c in type(shell).__mro__), shell.kernel.shell.user_ns is globals(),"
        " sorted(shell.kernel.language_info)[:2], __import__('rich').get_console().is_jupyter]",
    ) == [True, True, "plotly_mimetype", True, True, ["codemirror_mode", "file_extension"], True]
    result = kernel.run("import click\nclick.secho('red', fg='red')\nclick.echo('plain')")
    assert result.stdout == "\x1b[31mred\x1b[0m\nplain\n"
