"""Who holds device memory, how it is let go of, and what is said when there is none left.

holders   who holds it: storages, traced to the names people know
storages  memory as Python objects reach it
roots     where a person's objects hang
walk      from there to the tensors
freeing   letting go, step by step
shortage  out of memory, told in full
demand    what in a cell wanted more than there was
lost      values a failure took, and what was made from them
batches   the batch that would have fitted
"""
