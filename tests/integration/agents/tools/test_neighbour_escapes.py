"""Attempts of a sandboxed command on other programs of its user past the file system: shared memory, queues, limits,
priorities, terminals, devices and what the starter of the command left open. Under each kind of sandbox.
"""

import ctypes
import os
import platform
import pty
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.policy.test_escapes import CANARY
from tests.integration.agents.tools import test_shell_escapes
from tests.integration.agents.tools.test_shell_escapes import RAN, Surroundings, _python

from holdfast.agents.tools import shell as shell_module
from holdfast.workspace import ResourceLimits, SandboxKind

cage = test_shell_escapes.cage
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.shmat.restype = ctypes.c_void_p
_PRIVATE, _REMOVE, _NO_WAIT = 0, 0, 0o4000
_GET_DISK_PRIORITY, _SET_DISK_PRIORITY = (252, 251) if platform.machine() == "x86_64" else (31, 30)


class _Message(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_long), ("text", ctypes.c_char * 64))


class Neighbour:
    """Another program of the user: a piece of shared memory, a queue, a set of semaphores, and a terminal."""

    def __init__(self) -> None:
        self.memory = _LIBC.shmget(_PRIVATE, 4096, 0o600)
        self.address = _LIBC.shmat(self.memory, None, 0)
        ctypes.memmove(self.address, CANARY.encode() + b"\0", len(CANARY) + 1)
        self.queue = _LIBC.msgget(_PRIVATE, 0o600)
        self.semaphores = _LIBC.semget(_PRIVATE, 1, 0o600)
        self.fill_queue()
        self.terminal, self._slave = pty.openpty()
        os.set_blocking(self.terminal, False)
        self.terminal_path = os.ttyname(self._slave)

    def fill_queue(self) -> None:
        message = _Message(1, CANARY.encode())
        assert _LIBC.msgsnd(self.queue, ctypes.byref(message), 64, _NO_WAIT) == 0

    def is_whole(self) -> bool:
        """Tell whether the memory can still be found, the queue has its message, and the terminal got nothing."""
        again = _LIBC.shmat(self.memory, None, 0)
        _LIBC.shmdt(ctypes.c_void_p(again))
        buffer = _Message()
        size = _LIBC.msgrcv(self.queue, ctypes.byref(buffer), 64, 0, _NO_WAIT)
        self.fill_queue()
        with pytest.raises(BlockingIOError):
            os.read(self.terminal, 99)
        return again != ctypes.c_void_p(-1).value and size == 64 and _LIBC.semctl(self.semaphores, 0, 12, 0) == 0

    def close(self) -> None:
        _LIBC.shmctl(self.memory, _REMOVE, None)
        _LIBC.shmdt(ctypes.c_void_p(self.address))
        _LIBC.msgctl(self.queue, _REMOVE, None)
        _LIBC.semctl(self.semaphores, 0, _REMOVE)
        os.close(self.terminal)
        os.close(self._slave)


@pytest.fixture(scope="module")
def neighbour() -> Iterator[Neighbour]:
    made = Neighbour()
    yield made
    made.close()


_C = "import ctypes,os; l=ctypes.CDLL(None,use_errno=True); l.shmat.restype=ctypes.c_void_p; "
READS = {
    "shared memory": _python(_C + "p=l.shmat(MEMORY,None,0o10000); print(ctypes.string_at(p,40))"),
    "message queue": _python(_C + "b=ctypes.create_string_buffer(99); l.msgrcv(QUEUE,b,64,0,0o4000); print(b.raw)"),
    "root of itself": "cat /proc/self/root{home}/.netrc",
    "root of the first process": "cat /proc/1/root{home}/.netrc {home}/.netrc",
    "root of a thread": "cat /proc/thread-self/root{home}/.netrc",
    "variables of the first process": "cat /proc/1/environ /proc/{pid}/environ",
    "files of the parent": "cat /proc/$PPID/environ /proc/$PPID/root{home}/.netrc",
    "files that were left open": _python(
        "import os\n"
        "for n in range(3,64):\n"
        '  try: print(os.read(os.open("../../../../../../../../../../../..{home}/.netrc",0,dir_fd=n),99))\n'
        "  except OSError: pass\n"
    )
    + "; cat {home}/.netrc",
    "folders that were left open": _python(
        "import os\n"
        "for n in range(3,64):\n"
        '  try: os.fchdir(n); print(open("{home}/.netrc").read())\n'
        "  except OSError: pass\n"
    )
    + "; cat {home}/.netrc",
    "program in memory": _python(
        'import os; f=os.memfd_create("x",0); os.write(f,b"#!/bin/sh\\ncat {home}/.netrc\\n"); '
        'os.execv("/proc/self/fd/%d" % f, ["x"])'
    ),
    "pager of git": "GIT_EXTERNAL_DIFF='cat {home}/.netrc; true' git diff HEAD~1 2>&1",
    "library": _python('import ctypes; ctypes.CDLL("{home}/.netrc")') + "; cat {home}/.netrc",
    "alternates of a new repository": (
        "git init -q $TMPDIR/g; echo {repo}/.git/objects > $TMPDIR/g/.git/objects/info/alternates; "
        "git -C $TMPDIR/g cat-file -p {blob}; rm -rf $TMPDIR/g"
    ),
    "handle of a file": _python(
        _C + 'h=ctypes.create_string_buffer(256); h[0]=b"\\x80"; m=ctypes.c_int(); '
        'l.syscall(303,-100,b"{home}/.netrc",h,ctypes.byref(m),0); r=os.open("/",0); '
        "f=l.syscall(304,r,h,0); print(os.read(f,99))"
    )
    + "; cat {home}/.netrc",
}


def _fill(cage: Surroundings, neighbour: Neighbour, line: str) -> str:
    words = {"MEMORY": neighbour.memory, "QUEUE": neighbour.queue, "SEMAPHORES": neighbour.semaphores}
    for word, value in words.items():
        line = line.replace(word, str(value))
    return cage.fill(line.replace("TERMINAL", neighbour.terminal_path))


@pytest.mark.parametrize("name", READS)
def test_nothing_of_a_neighbour_is_seen(cage: Surroundings, neighbour: Neighbour, name: str) -> None:
    line = _fill(cage, neighbour, READS[name])

    outcome = cage.run_inside(line)

    assert RAN in outcome.output
    assert CANARY not in outcome.output
    assert CANARY in cage.run_outside(f"export TMPDIR={cage.home}; {line}"), "it proves nothing"
    if name == "message queue":
        neighbour.fill_queue()


CHANGES = {
    "memory removed": _python(_C + "print(l.shmctl(MEMORY,0,None))"),
    "memory written": _python(_C + "p=l.shmat(MEMORY,None,0); ctypes.memset(p,88,4)"),
    "queue removed": _python(_C + "print(l.msgctl(QUEUE,0,None))"),
    "queue emptied": _python(_C + "b=ctypes.create_string_buffer(99); print(l.msgrcv(QUEUE,b,64,0,0o4000))"),
    "queue filled": _python(_C + 'b=ctypes.create_string_buffer(b"x"*99); print(l.msgsnd(QUEUE,b,64,0o4000))'),
    "semaphore removed": _python(_C + "print(l.semctl(SEMAPHORES,0,0))"),
    "semaphore raised": _python(_C + 'print(l.semop(SEMAPHORES,ctypes.create_string_buffer(b"\\0\\0\\1\\0\\0\\0"),1))'),
    "limit of open files": _python("import resource; resource.prlimit({pid},resource.RLIMIT_NOFILE,(3,3))"),
    "limit of files": _python("import resource; resource.prlimit({pid},resource.RLIMIT_FSIZE,(0,0))"),
    "priority": _python("import os; os.setpriority(os.PRIO_PROCESS,{pid},19)"),
    "priority of a group": _python("import os; os.setpriority(os.PRIO_PGRP,os.getpgid({pid}),19)"),
    "processors": _python("import os; os.sched_setaffinity({pid},[0])"),
    "schedule": _python("import os; os.sched_setscheduler({pid},os.SCHED_IDLE,os.sched_param(0))"),
    "priority of its disk": _python(_C + f"print(l.syscall({_SET_DISK_PRIORITY},1,{{pid}},3<<13))"),
    "first to be ended": "echo 1000 > /proc/{pid}/oom_score_adj",
    "name": "echo evil > /proc/{pid}/comm",
    "signal by a handle": _python(_C + "p=l.syscall(434,{pid},0); print(l.syscall(424,p,19,None,0))"),
    "signal to a thread": _python(_C + "print(l.syscall(234,{pid},{pid},19), l.syscall(200,{pid},19))"),
    "signal by a file": _python(
        "import fcntl,os,socket; a,b=socket.socketpair(); fcntl.fcntl(a,fcntl.F_SETOWN,{pid}); fcntl.fcntl(a,10,19); "
        'fcntl.fcntl(a,fcntl.F_SETFL,os.O_ASYNC|os.O_NONBLOCK); b.send(b"x")'
    ),
    "terminal": "echo evil > TERMINAL; echo evil > /dev/tty; for f in /dev/pts/*; do echo evil > $f; done",
    "kernel's log": "echo evil > /dev/kmsg",
    "limits of memory groups": "mkdir /sys/fs/cgroup/holdfast-test /sys/fs/cgroup/memory/holdfast-test",
    "program at the end of a group": "echo /bin/true > /sys/fs/cgroup/memory/release_agent",
    "formats of programs": "echo ':x:M::xx::/bin/true:' > /proc/sys/fs/binfmt_misc/register",
}


def _describe(pid: int) -> Any:
    """Return what another program could change of a process."""
    limits = [resource.prlimit(pid, kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)]
    schedule = os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), os.sched_getscheduler(pid)
    files = [Path(f"/proc/{pid}/{name}").read_text() for name in ("oom_score_adj", "comm")]
    state = Path(f"/proc/{pid}/stat").read_text().split()[2]
    return limits, schedule, files, state in "TtZX", _LIBC.syscall(_GET_DISK_PRIORITY, 1, pid)


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_of_a_neighbour_is_changed(cage: Surroundings, neighbour: Neighbour, name: str) -> None:
    before = _describe(cage.other.pid)
    count = _LIBC.semctl(neighbour.semaphores, 0, 12, 0)

    outcome = cage.run_inside(_fill(cage, neighbour, CHANGES[name]))

    assert RAN in outcome.output
    assert _describe(cage.other.pid) == before
    assert neighbour.is_whole()
    assert ctypes.string_at(neighbour.address) == CANARY.encode()
    assert _LIBC.semctl(neighbour.semaphores, 0, 12, 0) == count
    assert not Path("/sys/fs/cgroup/holdfast-test").exists()


def test_no_shared_memory_outlives_its_command(cage: Surroundings) -> None:
    """Where it is not taken away with the command, it cannot be made."""
    outcome = cage.run_inside(_python(_C + "print(l.shmget(0,4096,0o600))"))

    number = int(outcome.output.split()[0])
    is_landlock = shell_module.probe_once().kind is SandboxKind.LANDLOCK
    assert (number == -1) == is_landlock
    assert is_landlock or _LIBC.shmctl(number, 2, ctypes.create_string_buffer(256)) == -1


_WAIT = "import time; time.sleep(300)"
SHARED = {
    "in files that no process maps": (
        'import os\nf=[os.memfd_create("m") for _ in range(8)]\n'
        'for x in f:\n for _ in range(50): os.write(x,b"x"*(1<<20))\n' + _WAIT
    ),
    "in pages of several processes": (
        "import mmap,os\nm=mmap.mmap(-1,400<<20)\nfor i in range(0,400<<20,4096): m[i]=1\nos.fork()\n" + _WAIT
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_memory_counts(cage: Surroundings, name: str) -> None:
    sandbox = cage.shell().sandbox
    assert sandbox is not None
    limits = ResourceLimits(memory=300 * 1024**2)

    outcome = cage.run_inside(_python(SHARED[name]), sandbox=replace(sandbox, limits=limits))

    assert "memory" in outcome.limit, outcome


def test_memory_that_is_shared_counts_once(cage: Surroundings) -> None:
    sandbox = cage.shell().sandbox
    assert sandbox is not None
    code = (
        "import mmap,os,time\nm=mmap.mmap(-1,100<<20)\nfor i in range(0,100<<20,4096): m[i]=1\n"
        "for _ in range(7):\n if os.fork()==0: sum(m[i] for i in range(0,100<<20,4096)); time.sleep(1); os._exit(0)\n"
        "for _ in range(7): os.wait()"
    )

    outcome = cage.run_inside(_python(code), sandbox=replace(sandbox, limits=ResourceLimits(memory=500 * 1024**2)))

    assert (outcome.limit, outcome.output.split()) == ("", [RAN])


def test_the_kernel_ends_a_command_before_other_programs(cage: Surroundings) -> None:
    assert cage.run_inside("read -r score < /proc/$$/oom_score_adj; echo $score").output.split() == ["1000", RAN]
