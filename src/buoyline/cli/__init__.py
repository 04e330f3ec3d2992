"""The command line: one module for each noun, imported when one of its commands is called.

A command reads options, calls the library, and prints. Rules about workspaces, sessions or summaries belong to the
library.
"""

from buoyline.cli.main import main

__all__ = ["main"]
