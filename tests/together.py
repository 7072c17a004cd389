"""Several processes that do the same thing at the same moment, again and again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Everything is imported before the first round; `work` prints one line.
_LOOP = """
import sys
{prepare}
print("ready", flush=True)
for line in sys.stdin:
    place = line[:-1]
    try:
        print(work(place), flush=True)
    except BaseException as error:
        print(type(error).__name__, str(error).replace(chr(10), " "), flush=True)
"""


class Together:
    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def run(self, place: Path) -> list[str]:
        """What each process said about one round."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{place}\n")
            process.stdin.flush()
        return [process.stdout.readline().strip() for process in self._processes if process.stdout is not None]


@contextmanager
def together(count: int, prepare: str) -> Iterator[Together]:
    """prepare: code that defines `work(place: str)`."""
    command = [sys.executable, "-c", _LOOP.format(prepare=prepare)]
    with ExitStack() as stack:
        processes = []
        for _ in range(count):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            stack.enter_context(process)  # closes its pipes
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield Together(processes)
