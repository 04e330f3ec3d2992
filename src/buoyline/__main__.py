"""Run the command line with ``python -m buoyline``."""

from buoyline.cli import main

if __name__ == "__main__":
    main(prog_name="buoyline")
