"""PyTorch (TPU): a Jupyter kernel. The Python half.

Where things are. Each package lists its files in its `__init__.py` and imports nothing there.

cells          a cell is run: the shell, interrupts, errors
output         what is shown, and whose it is
introspection  completion and inspection, by looking only
debugging      the debugger's Python half, and pdb
tpu            the device around a cell: failures, compiles, guards
memory         who holds device memory, letting go of it, running out of it
lowering       how a cell is compiled
magics         %tpu_… and %%tpu_…, and magics about the kernel
cards          their results, as HTML and as text
explain        errors in plain words
profiling      what a profile is made of
compat         the `ipykernel` libraries look for

__main__   binds the sockets, then starts Python's half
app        configuration and start
loop       the thread of a shell
service    the thread that answers beside a running cell
kernel     `get_ipython().kernel`
parent     which request the current code runs for
threads    the kernel's own threads
imports    hooks on modules that are imported
crash      Python's part of the report of a crash
bootstrap  makes `device="tpu"` work, here and in child processes
caches     where compiled programs stay between kernels
"""
