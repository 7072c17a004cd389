#!/usr/bin/env python3
"""Set Greenroom up in this folder and start it, with nothing but Python.

    python3 installers/bootstrap.py run      set up, prepare the demo model, open the window
    python3 installers/bootstrap.py test     set up with the test tools, run the whole test suite
    python3 installers/bootstrap.py setup    set up only

This file has to run on any Python 3, however old, to be able to say that it is too old; the work is in environment.py.
"""

import os
import shutil
import subprocess
import sys

OLDEST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.14")


def works(python):
    with open(os.devnull, "w") as nowhere:
        return subprocess.call([python, "-c", "pass"], stdout=nowhere, stderr=nowhere) == 0


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    # Programs are also looked for in the current folder (on Windows), and modules (by -m): no download may slip one in.
    os.chdir(os.path.dirname(here))
    if sys.version_info < OLDEST_PYTHON:
        this = ".".join(str(part) for part in sys.version_info[:3])
        for name in NEWER_PYTHONS:
            newer = shutil.which(name)
            # pyenv's stand-ins are found for versions that are not switched on, and only complain.
            if newer and works(newer):
                print("This Python is %s; going on with %s." % (this, newer))  # noqa: UP031
                sys.stdout.flush()
                os.execv(newer, [newer, os.path.join(here, "bootstrap.py")] + sys.argv[1:])  # noqa: RUF005
        sys.stderr.write(
            "Greenroom cannot be set up: it needs Python 3.11 or newer and this is " + this + ". "
            "Install a newer Python from python.org or your system's packages and start this again with it.\n"
        )
        return 2
    sys.path.insert(0, here)
    import environment

    return environment.main()


if __name__ == "__main__":
    sys.exit(main())
