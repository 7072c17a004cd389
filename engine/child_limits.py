"""Limits on what a child process may take, on each system with that system's own means.

Linux:   memory, CPU time, and no more files, by limits that the child sets itself
macOS:   the same without memory, which it does not limit: `over_memory` is for the parent to ask
Windows: a job object, made by the parent, that limits memory and ends the child together with the parent;
         CPU time is not limited, so the parent must watch the clock
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
from typing import Any

if sys.platform != "win32":
    import resource


def limit_this_process(memory: int) -> None:
    """Called by the child once everything it needs is imported: from here on it can open no file and start no process.

    memory: bytes of address space, what is in use already included
    """
    if sys.platform == "win32":
        return
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 0)]
    limits.append((resource.RLIMIT_NPROC, 0))
    if sys.platform == "linux":
        limits.append((resource.RLIMIT_AS, memory))
    for kind, most in limits:
        # A limit that is lower already, set by whoever started us, stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def allow_cpu(seconds: float) -> None:
    """The system ends this process (SIGPROF) when it has worked this many seconds more; 0 takes the limit away."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def over_memory(process: subprocess.Popen[bytes], memory: int) -> bool:
    """Whether a child holds more than it may, where nothing else stops it (macOS)."""
    if sys.platform != "darwin":
        return False
    import psutil

    try:
        return bool(psutil.Process(process.pid).memory_info().rss > memory)
    except psutil.Error:
        return False


class Job:
    """A Windows job object around one child: it has a memory limit, starts no other, and ends when this object does.

    Does nothing on other systems. Tested under Wine, which does not enforce the memory limit; not yet on Windows.
    """

    def __init__(self, process: subprocess.Popen[bytes], memory: int) -> None:
        self._handle: Any = None
        if sys.platform == "win32":
            self._handle = _job_for(int(process._handle), memory)  # type: ignore[attr-defined]

    def close(self) -> None:
        if self._handle and sys.platform == "win32":
            ctypes.windll.kernel32.CloseHandle(self._handle)
        self._handle = None


class _BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("most_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
    )


class _ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("basic", _BasicLimits),
        ("io", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


_EXTENDED_LIMIT_INFORMATION = 9
_ACTIVE_PROCESS, _PROCESS_MEMORY, _DIE_ON_EXCEPTION, _KILL_ON_CLOSE = 0x8, 0x100, 0x400, 0x2000


def _job_for(process: int, memory: int) -> Any:
    """Handle of a new job that the process is in, None where Windows does not allow it."""
    if sys.platform != "win32":
        return None
    kernel = ctypes.windll.kernel32
    kernel.CreateJobObjectW.restype = ctypes.c_void_p
    job = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
    limits = _ExtendedLimits()
    limits.basic.flags = _ACTIVE_PROCESS | _PROCESS_MEMORY | _DIE_ON_EXCEPTION | _KILL_ON_CLOSE
    limits.basic.most_processes = 1
    limits.process_memory = memory
    size = ctypes.sizeof(limits)
    if kernel.SetInformationJobObject(job, _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), size) and (
        kernel.AssignProcessToJobObject(job, ctypes.c_void_p(process))
    ):
        return job
    kernel.CloseHandle(job)
    return None
