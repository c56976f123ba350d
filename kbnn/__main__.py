"""`python -m kbnn` is the program `kbnn`, by whichever Python it is wanted of."""

import runpy

if __name__ == "__main__":
    runpy.run_module("kbnn_cli.startup", run_name="__main__", alter_sys=True)
