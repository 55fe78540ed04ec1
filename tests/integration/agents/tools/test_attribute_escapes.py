"""Attempts to change modes, owners, times and other attributes of files outside, under each kind of sandbox.

Landlock has no rule on attributes: there the runner makes such changes in the command's place, where they are allowed.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.tools import test_shell_escapes
from tests.integration.agents.tools.test_shell_escapes import RAN, Surroundings, _python

cage = test_shell_escapes.cage

_NETRC = 'import ctypes,os; l=ctypes.CDLL(None); p=b"{home}/.netrc"; '
_CHANGES = {
    "by commands": (
        "chmod 777 {home}/.netrc",
        "chmod 0 {home}/.ssh {home} {data} {repo}",
        "chmod -R 0 {home}",
        "chmod 0 {data}/holdfast.db; chmod 777 {data}",
        "touch -t 200001010000 {home}/.netrc; touch {home}/.netrc {data}/holdfast.db",
        "chgrp 1 {home}/.netrc",
    ),
    "by links and folders": (
        "ln -sfn {home} out; chmod 777 out/.netrc; ln -sf {home}/.netrc link; chmod 777 link; touch link",
        "chmod 777 ../../../home/.netrc; cd ..; chmod 777 ../../home/.netrc",
        "cd {home} && touch -h .netrc",
        _python(
            'import os; f=os.open("{root}",0); n=os.path.relpath("{home}/.netrc","{root}"); os.chmod(n,0o777,dir_fd=f)'
        ),
        _python('import os; f=os.open("{home}",os.O_PATH); os.chmod(".netrc",0o777,dir_fd=f)'),
        _python('import os; f=os.open("{home}/.netrc",os.O_PATH); os.chmod("/proc/self/fd/%d" % f,0o777)'),
    ),
    "by calls": (
        _python(_NETRC + "l.chmod(p,0o777); l.syscall(90,p,0o777)"),
        _python(_NETRC + "l.syscall(452,-100,p,0o777,0)"),
        _python(_NETRC + 'f=os.open(p,os.O_PATH); l.syscall(452,f,b"",0o777,0x1000)'),
        _python(_NETRC + "l.chown(p,-1,1); l.lchown(p,1,1); l.syscall(260,-100,p,1,1,0)"),
        _python(_NETRC + "t=(ctypes.c_long*4)(1,0,1,0); l.utime(p,t); l.utimes(p,t); l.utimensat(-100,p,t,0)"),
        _python('import os; os.setxattr("{home}/.netrc","user.evil",b"x",follow_symlinks=False)'),
    ),
    "with words that are exchanged": (
        _python(
            "import ctypes,os,threading\n"
            'l=ctypes.CDLL(None); b=ctypes.create_string_buffer(512); one=b"{root}/a.txt\\0"; two=b"{home}/.netrc\\0"\n'
            "go=True\n"
            "def swap():\n"
            "  while go: ctypes.memmove(b,one,len(one)); ctypes.memmove(b,two,len(two))\n"
            "t=threading.Thread(target=swap); t.start()\n"
            "for _ in range(300): l.chmod(b,0o777)\n"
            'go=False; t.join(); os.chmod("{root}/a.txt",0o644)'
        ),
    ),
}


def _look(cage: Surroundings) -> dict[str, Any]:
    """Return the attributes of all that lies around the worktree."""
    folders = (cage.home, cage.repo.path, cage.data_dir)
    paths = [*folders, cage.data_dir / "holdfast.db", *cage.home.rglob("*"), *cage.repo.path.glob("*")]
    return {str(path): _find_attributes(path) for path in paths}


def _find_attributes(path: Path) -> tuple[Any, ...]:
    found = path.lstat()
    names = os.listxattr(path, follow_symlinks=False)
    return found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, names


@pytest.mark.parametrize("kind", _CHANGES)
def test_attributes_of_files_outside_stay(cage: Surroundings, kind: str) -> None:
    before = _look(cage)

    outcome = cage.run_inside("\n".join(f"( {cage.fill(line)} )" for line in _CHANGES[kind]))

    assert RAN in outcome.output
    assert _look(cage) == before
    cage.tidy()


def test_tools_that_can_only_be_read_keep_their_mode(cage: Surroundings, tmp_path: Path) -> None:
    """Whoever may read a file can open it, and what is open can be changed by the number of its descriptor."""
    tool = tmp_path / "tool"
    tool.write_text("a tool\n")
    before = _find_attributes(tool)
    sandbox = cage.shell().sandbox
    assert sandbox is not None
    opened = f'import os; f=os.open("{tool}",0); print(os.read(f,6)); '
    lines = (_python(f"{opened}os.fchmod(f,0o777)"), _python(f"{opened}os.utime(f,(1,1))"), f"chmod 777 {tool}")

    outcome = cage.run_inside("\n".join(lines), sandbox=replace(sandbox, read_only=(*sandbox.read_only, tmp_path)))

    assert outcome.output.count("b'a tool'") == 2
    assert _find_attributes(tool) == before


_WORKS = {
    "chmod +x a.txt && test -x a.txt && chmod -x a.txt && test ! -x a.txt; echo $?": "0",
    "mkdir -m 700 d && stat -c %a d && chmod 755 d && rmdir d": "700",
    "touch -d 2001-02-03T04:05:06Z src/t && stat -c %Y src/t && rm src/t": "981173106",
    "cd src && touch -d 2001-02-03T04:05:07Z b.py && cp -p b.py c.py && stat -c %Y c.py && rm c.py": "981173107",
    "install -m 750 a.txt src/i && stat -c %a src/i && rm src/i": "750",
    "ln -s nowhere l && touch -h -d 2001-02-03T04:05:08Z l && stat -c %Y l && rm l": "981173108",
    "tar cf $TMPDIR/a.tar src && tar xpf $TMPDIR/a.tar -C ~ && stat -c %a ~/src/b.py": "644",
    "cp -a src src2 && stat -c %a src2/b.py && rm -r src2": "644",
    "chmod 700 missing 2>/dev/null; echo $?": "1",
    "chmod 600 $TMPDIR && stat -c %a $TMPDIR && chmod 700 $TMPDIR": "600",
    _python('import os; os.utime("a.txt",(5,7)); print(int(os.stat("a.txt").st_mtime))'): "7",
    _python('import os; f=os.open("a.txt",0); os.utime(f,ns=(1,9*10**9)); print(int(os.fstat(f).st_mtime))'): "9",
    _python('import os; f=os.open("a.txt",0); os.fchmod(f,0o640); print(oct(os.fstat(f).st_mode))'): "0o100640",
    _python('import os; d=os.open("src",0); os.chmod("../a.txt",0o644,dir_fd=d); print(2)'): "2",
    _python('import os; os.chown("a.txt",-1,-1); os.chown("a.txt",os.getuid(),os.getgid()); print(3)'): "3",
}


def test_attributes_of_its_own_files_can_be_changed(cage: Surroundings) -> None:
    outcome = cage.run_inside("\n".join(f"( {line} )" for line in _WORKS))

    assert outcome.output.split() == [*_WORKS.values(), RAN]
    cage.tidy()
