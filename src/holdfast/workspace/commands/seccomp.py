"""Builds the filter of system calls that every sandboxed command runs under, as a program for the kernel (classic BPF).

What is refused is what no build or test needs and what leads out of a sandbox: other processes, mounts, namespaces,
kernel keys, io_uring (which makes calls past the filter), and sockets of families that were not granted.
"""

# ruff: noqa: PIE800 (rows of a table)
import errno
import platform
import socket
import struct
from collections.abc import Iterable, Sequence

# Numbers by machine: the audit name of the architecture, then calls that are always refused.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
REFUSED = {
    "x86_64": {
        **{"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_getfd": 438},
        **{"keyctl": 250, "add_key": 248, "request_key": 249, "bpf": 321, "perf_event_open": 298},
        **{"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "move_mount": 429, "open_tree": 428},
        **{"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "open_tree_attr": 467},
        **{"unshare": 272, "setns": 308, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427},
        **{"init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320},
        **{"reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163, "quotactl": 179, "quotactl_fd": 443},
        **{"settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159},
        **{"sethostname": 170, "setdomainname": 171, "syslog": 103, "iopl": 172, "ioperm": 173, "vhangup": 153},
        **{"open_by_handle_at": 304, "fanotify_init": 300, "userfaultfd": 323, "lookup_dcookie": 212},
        **{"modify_ldt": 154, "uselib": 134, "ustat": 136, "sysfs": 139, "_sysctl": 156, "nfsservctl": 180},
    },
    "aarch64": {
        **{"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "pidfd_getfd": 438},
        **{"keyctl": 219, "add_key": 217, "request_key": 218, "bpf": 280, "perf_event_open": 241},
        **{"mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "move_mount": 429, "open_tree": 428},
        **{"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "open_tree_attr": 467},
        **{"unshare": 97, "setns": 268, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427},
        **{"init_module": 105, "finit_module": 273, "delete_module": 106, "kexec_load": 104, "kexec_file_load": 294},
        **{"reboot": 142, "swapon": 224, "swapoff": 225, "acct": 89, "quotactl": 60, "quotactl_fd": 443},
        **{"settimeofday": 170, "clock_settime": 112, "clock_adjtime": 266, "adjtimex": 171},
        **{"sethostname": 161, "setdomainname": 162, "syslog": 116, "vhangup": 58},
        **{"open_by_handle_at": 265, "fanotify_init": 262, "userfaultfd": 282, "lookup_dcookie": 18},
    },
}
# Where a command shares the process numbers and the System V objects of its user, it could read and remove the shared
# memory and the queues of other programs, and change their limits and their share of the processor.
REFUSED_UNLESS_APART = {
    "x86_64": {
        **{"shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "semop": 65, "semctl": 66, "semtimedop": 220},
        **{"msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240, "mq_unlink": 241},
        **{"migrate_pages": 256, "move_pages": 279, "process_madvise": 440, "process_mrelease": 448},
    },
    "aarch64": {
        **{"shmget": 194, "shmat": 196, "shmctl": 195, "semget": 190, "semop": 193, "semctl": 191, "semtimedop": 192},
        **{"msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187, "mq_open": 180, "mq_unlink": 181},
        **{"migrate_pages": 238, "move_pages": 239, "process_madvise": 440, "process_mrelease": 448},
    },
}
# Calls that name a process: the argument that does, which has to be 0 then, the caller itself.
OF_A_PROCESS = {
    "x86_64": {
        **{"prlimit64": (302, 0), "setpriority": (141, 1), "ioprio_set": (251, 1), "sched_setaffinity": (203, 0)},
        **{"sched_setparam": (142, 0), "sched_setscheduler": (144, 0), "sched_setattr": (314, 0)},
    },
    "aarch64": {
        **{"prlimit64": (261, 0), "setpriority": (140, 1), "ioprio_set": (30, 1), "sched_setaffinity": (122, 0)},
        **{"sched_setparam": (118, 0), "sched_setscheduler": (119, 0), "sched_setattr": (274, 0)},
    },
}
_OF_A_USER = {"setpriority": 2, "ioprio_set": 3}  # the first argument of these that means all processes of a user
# Landlock has no rule on the attributes of files. Whoever started the command makes these calls in its place, see
# `attribute_guard`; without somebody there the kernel refuses them.
GUARDED = {
    "x86_64": {
        **{"chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452},
        **{"chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260},
        **{"utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280},
    },
    "aarch64": {
        **{"fchmod": 52, "fchmodat": 53, "fchmodat2": 452, "fchownat": 54, "fchown": 55, "utimensat": 88},
    },
}
# Attributes that programs can do without are answered as a disk does that has none.
UNSUPPORTED = {
    "x86_64": {
        **{"setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "setxattrat": 463, "file_setattr": 469},
        **{"removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "removexattrat": 466},
    },
    "aarch64": {
        **{"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "setxattrat": 463, "file_setattr": 469},
        **{"removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, "removexattrat": 466},
    },
}
# Calls that are judged by an argument.
JUDGED = {
    "x86_64": {
        **{"clone": 56, "clone3": 435, "socket": 41, "socketpair": 53, "ioctl": 16, "truncate": 76},
        **{"sendto": 44, "sendmsg": 46, "sendmmsg": 307, "listen": 50},
    },
    "aarch64": {
        **{"clone": 220, "clone3": 435, "socket": 198, "socketpair": 199, "ioctl": 29, "truncate": 45},
        **{"sendto": 206, "sendmsg": 211, "sendmmsg": 269, "listen": 201},
    },
}
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into somebody's terminal
_FILE_FLAGS = (0x40086602, 0x40046602, 0x401C5820)  # FS_IOC_SETFLAGS, its 32-bit twin, FS_IOC_FSSETXATTR
_X32 = 0x40000000
_CONNECT_WITH_DATA = 0x20000000  # MSG_FASTOPEN: opens a connection past the rules on `connect`
_FLAGS_OF_SENDING = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
_TCP = (0, socket.IPPROTO_TCP)

_LOAD, _EQUAL, _AND_BITS, _AT_LEAST, _RETURN, _MASK = 0x20, 0x15, 0x45, 0x35, 0x06, 0x54
_ALLOW, _KILL, _ERRNO, _NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_INTERNET = (socket.AF_INET, socket.AF_INET6, 16)  # the last one, netlink, lists the network's own addresses


def is_supported() -> bool:
    """Tell whether the numbers of this machine's system calls are known here."""
    return platform.machine() in _ARCHITECTURES


def list_guarded() -> dict[str, str]:
    """Return the names of the guarded calls by their numbers on this machine, as they are written down for a runner."""
    return {str(number): name for name, number in GUARDED[platform.machine()].items()}


def build_filter(
    *,
    has_network: bool,
    has_unix_sockets: bool,
    has_truncate: bool = True,
    is_tcp_only: bool = False,
    is_apart: bool = False,
) -> bytes:
    """Return the filter. `has_truncate` is false where Landlock does not know that call (kernels before 6.2).

    `is_apart` is true where the command has mounts, process numbers and System V objects of its own.

    Pairs of connected sockets (`socketpair`) are always there: programs talk to their own children by them. Without
    unix sockets a pair of datagrams is refused, since either end could be sent to another socket later. With
    `is_tcp_only` there is no network but connections that `connect` opens: only those can Landlock tell apart.
    """
    machine = platform.machine()
    judged = JUDGED[machine]
    refuse = _ERRNO | errno.EPERM
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), *_unless(_EQUAL, _ARCHITECTURES[machine], _KILL), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        steps += _if(_AT_LEAST, _X32, _KILL)
    for number in sorted(REFUSED[machine].values()):
        steps += _if(_EQUAL, number, refuse)
    if not is_apart:
        steps += _keep_to_itself(machine, refuse)
        steps += _guard_attributes(machine, refuse)
    if not has_truncate:
        steps += _if(_EQUAL, judged["truncate"], refuse)
    # The flags of clone3 lie in memory, where no filter looks; without it libraries use clone.
    steps += _if(_EQUAL, judged["clone3"], _ERRNO | errno.ENOSYS)
    steps += _if_argument(judged["clone"], 0, _if(_AND_BITS, _NEW_NAMESPACES, refuse))
    steps += _if_argument(judged["ioctl"], 1, [step for call in _TERMINAL_INPUT for step in _if(_EQUAL, call, refuse)])
    if not has_unix_sockets:
        steps += _if_argument(judged["socketpair"], 1, [(_MASK, 0, 0, 0xF), *_if(_EQUAL, socket.SOCK_DGRAM, refuse)])
    if is_tcp_only:
        steps += _if(_EQUAL, judged["listen"], refuse)
        for name, argument in _FLAGS_OF_SENDING.items():
            steps += _if_argument(judged[name], argument, _if(_AND_BITS, _CONNECT_WITH_DATA, refuse))
        steps += _if_argument(judged["socket"], 1, [(_MASK, 0, 0, 0xF), *_unless(_EQUAL, socket.SOCK_STREAM, refuse)])
        steps += _if_argument(judged["socket"], 2, _unless_any(_TCP, refuse))
        steps += _if_argument(judged["socket"], 0, _only(_INTERNET[:2], refuse))
    families: list[int] = []
    families += [socket.AF_UNIX] if has_unix_sockets else []
    families += _INTERNET if has_network else ()
    steps += _if_argument(judged["socket"], 0, _only(families, refuse))
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


_Step = tuple[int, int, int, int]


def _keep_to_itself(machine: str, refuse: int) -> list[_Step]:
    """Refuse what reaches other programs of the user; what a program does to itself names process 0."""
    steps: list[_Step] = []
    for number in sorted(REFUSED_UNLESS_APART[machine].values()):
        steps += _if(_EQUAL, number, refuse)
    for name, (number, argument) in OF_A_PROCESS[machine].items():
        steps += _if_argument(number, argument, _unless(_EQUAL, 0, refuse))
        if name in _OF_A_USER:
            steps += _if_argument(number, 0, _if(_EQUAL, _OF_A_USER[name], refuse))
    return steps


def _guard_attributes(machine: str, refuse: int) -> list[_Step]:
    steps: list[_Step] = []
    for number in sorted(GUARDED[machine].values()):
        steps += _if(_EQUAL, number, _NOTIFY)
    for number in sorted(UNSUPPORTED[machine].values()):
        steps += _if(_EQUAL, number, _ERRNO | errno.EOPNOTSUPP)
    flags = [step for call in _FILE_FLAGS for step in _if(_EQUAL, call, refuse)]
    return [*steps, *_if_argument(JUDGED[machine]["ioctl"], 1, flags)]


def _if(test: int, value: int, answer: int) -> list[_Step]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, answer)]


def _unless(test: int, value: int, answer: int) -> list[_Step]:
    return [(test, 1, 0, value), (_RETURN, 0, 0, answer)]


def _unless_any(values: Sequence[int], answer: int) -> list[_Step]:
    tests = [(_EQUAL, len(values) - number, 0, value) for number, value in enumerate(values)]
    return [*tests, (_RETURN, 0, 0, answer)]


def _only(values: Iterable[int], otherwise: int) -> list[_Step]:
    allowed = [step for value in values for step in _if(_EQUAL, value, _ALLOW)]
    return [*allowed, (_RETURN, 0, 0, otherwise)]


def _if_argument(number: int, argument: int, steps: Sequence[_Step]) -> list[_Step]:
    """Look at the low half of one argument of one call; the number is loaded again for what comes after."""
    body = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *steps, (_LOAD, 0, 0, _NUMBER)]
    return [(_EQUAL, 0, len(body), number), *body]
