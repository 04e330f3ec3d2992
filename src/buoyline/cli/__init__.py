"""The command line: one module for a command or a family of them, loaded when it is called."""

from buoyline.cli.main import main

__all__ = ["main"]
