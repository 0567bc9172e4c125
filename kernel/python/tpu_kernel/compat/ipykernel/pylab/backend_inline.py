"""The inline backend, where older libraries look for it."""

from matplotlib_inline.backend_inline import *
