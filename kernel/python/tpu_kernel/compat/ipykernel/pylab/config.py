"""The settings of inline figures, where older libraries look for them."""

from matplotlib_inline.config import *
