"""Debuggers: Python's half of the front end's, and Python's own.

debugger   starts pydevd, answers what needs Python's objects
variables  how variables are shown
asking     pdb, which asks below the cell
"""
