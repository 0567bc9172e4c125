"""A cell is run: IPython's shell in this kernel, and one answer to each request, whatever the cell does.

shell         IPython's shell
execute       one `execute_request`
turn          what each shell has of its own while it runs a cell
compiler      under which names cells are compiled
catching      exceptions a cell catches itself
interrupts    what SIGINT does
errors        the errors of cells as messages
tracebacks    what is shown of them beyond what IPython shows
nested        a coroutine run from code the event loop runs
system        `!cmd`
history       IPython's history, in a thread of its own
gui           `%gui tk` and `%gui qt`
"""
