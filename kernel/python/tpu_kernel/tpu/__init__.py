"""The device as a cell meets it: when it is done, what failed, what it compiles.

device      whether it is used, when it is done, what failed
failures    whose a failure is
cancelling  what a second interrupt cancels
compiles    what the kernel does when programs are compiled
reasons     why one had to be compiled, in words
storms      a loop that compiles at every step
guards      calls that would end the process inside TorchTPU
bad_input   calls it cannot build a program for
entries     where those two look only when they have to
cell_line   the line of %tpu_watch under each cell, kept up to date
feed        what the live feed asks between cells
"""
