"""What a profile of a cell is made of. Imports no torch.

sampling    where Python is, looked at now and then by a thread
timeline    what the device did, from the events of tpu-core, and what follows from both
trace_file  the timeline as a file for Perfetto and chrome://tracing
xprof       TorchTPU's own trace, for XProf and TensorBoard
"""
