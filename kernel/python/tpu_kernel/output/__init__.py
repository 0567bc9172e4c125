"""What a notebook is shown, and for which cell it is shown.

stdio         `sys.stdout`, `sys.stderr`, `input`, `getpass`
displayhook   the last expression of a cell
publisher     `display`, `update_display`, `clear_output`
formatting    a tensor is read once, however many forms are made
tensors       tensors on the device, read for people
standing      an output that is brought up to date
jsontext      Python values as JSON text
comms         channels of widgets
comm_objects  the comm and the manager of comms
ownership     whose output it is: threads, pools, child processes
children      the same, inside a child that a server forked
"""
