"""What a program is for, by its name and its first words, and what is safe to let it do unasked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from holdfast.agents.policy.judgement import Judgement, allowed, denied, needs_approval
from holdfast.agents.policy.shell_parser import SimpleCommand, Word


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRIVILEGE = _names(
    "sudo su doas pkexec runuser chroot unshare nsenter setpriv capsh setcap bwrap mount umount passwd chpasswd "
    "useradd userdel usermod groupadd visudo"
)
MACHINE = _names(
    "mkfs fdisk sfdisk parted wipefs blkdiscard mkswap swapon swapoff shutdown reboot halt poweroff init telinit "
    "systemctl service launchctl crontab at batch iptables ip6tables nft sysctl insmod rmmod modprobe losetup "
    "cryptsetup hdparm debugfs kexec dmsetup loginctl"
)
PROCESSES = _names("pkill killall killall5 skill")
# They run what they are given in ways that cannot be read from the line.
RUNNERS = _names("parallel script expect screen tmux watch strace ltrace gdb socat entr flock ssh-agent")
CONTAINERS = _names("docker podman nerdctl buildah lxc kubectl helm vagrant")
NETWORK = _names(
    "curl wget aria2c ssh scp sftp rsh rlogin telnet ftp lftp nc ncat netcat socat nmap ping ping6 traceroute dig "
    "nslookup host whois gh glab hub aws gcloud gsutil az doctl heroku fly vercel netlify terraform tofu ansible "
    "npx pnpx bunx uvx pipx apt apt-get aptitude dnf yum apk pacman brew snap flatpak mail sendmail mosh "
    "http https xh rclone s3cmd httpie"
)
# By subcommand: these reach other machines, these publish.
NETWORK_WORDS = {
    "pip": "install download wheel search",
    "pip3": "install download wheel search",
    "uv": "sync add lock install tool",
    "poetry": "install add update lock",
    "pdm": "install add update sync",
    "pipenv": "install sync update",
    "conda": "install create update",
    "mamba": "install create update",
    "npm": "install i ci add update audit login whoami view outdated",
    "pnpm": "install i add update dlx",
    "yarn": "install add up upgrade dlx",
    "bun": "install add update x",
    "cargo": "install fetch search login add update",
    "go": "get install",
    "gem": "install update",
    "bundle": "install update",
    "composer": "install update require",
    "rustup": "update install toolchain",
    "rsync": "",
}
PUBLISH_WORDS = {
    "twine": "upload register",
    "npm": "publish unpublish deprecate dist-tag owner access",
    "pnpm": "publish",
    "yarn": "publish",
    "bun": "publish",
    "cargo": "publish yank owner",
    "gem": "push yank",
    "poetry": "publish",
    "uv": "publish",
    "pdm": "publish",
    "flit": "publish",
    "hatch": "publish",
    "mvn": "deploy release:perform",
    "gradle": "publish",
    "gradlew": "publish",
    "docker": "push",
    "podman": "push",
    "helm": "push",
    "gh": "release",
    "vsce": "publish",
    "setup.py": "upload register",
}
# They give the rest of their words to another program. The number: how many words of their own come first.
WRAPPERS = {
    **dict.fromkeys(
        ("nohup", "time", "nice", "ionice", "stdbuf", "setsid", "exec", "builtin", "chronic", "unbuffer"), 0
    ),
    "timeout": 1,
    "chrt": 1,
    "taskset": 1,
}
WRAPPER_VALUES = frozenset({"-n", "-c", "-k", "-s", "-p", "-o", "-e", "-i", "-u"})
RUN_WORDS = {"uv": "run", "poetry": "run", "pipenv": "run", "pdm": "run", "hatch": "run", "bundle": "exec"}
SHELLS = _names("sh bash dash zsh ksh ash busybox fish csh tcsh")
INLINE_CODE = {
    **dict.fromkeys(("python", "python2", "python3", "pypy3"), ("-c",)),
    **dict.fromkeys(("perl", "ruby", "lua", "Rscript", "osascript"), ("-e", "-E", "-n", "-p", "-i")),
    **dict.fromkeys(("node", "nodejs", "deno", "bun"), ("-e", "--eval", "-p", "--print", "eval")),
    "php": ("-r",),
}
# Their words are paths that they write; of those with `True` only the last one, they read the others.
WRITERS = {
    **dict.fromkeys(
        _names("rm rmdir mv tee touch mkdir chmod chown chgrp truncate shred unlink mkfifo mknod split"), False
    ),
    **dict.fromkeys(("cp", "ln", "install", "rsync"), True),
}
# They show their words or use them as names only.
SPEAKERS = _names("echo printf true false : test [ export unset basename dirname exit return shift wait")
READERS = _names(
    "ls cat head tail grep egrep fgrep rg ag wc sort uniq cut tr diff cmp comm file stat du df tree pwd which type "
    "nl od xxd hexdump strings column fold paste join jq yq less more date uname id whoami hostname nproc sleep seq "
    "md5sum sha1sum sha256sum cksum realpath readlink awk sed find git env printenv cd xargs command expr test [ echo "
    "printf true false : basename dirname"
)
PATTERN_FIRST = _names("grep egrep fgrep zgrep rg ag ack sed gsed awk gawk mawk nawk jq yq")
RISKY_VARIABLES = _names(
    "PATH LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES BASH_ENV ENV IFS SHELLOPTS PS4 PROMPT_COMMAND "
    "PYTHONSTARTUP PERL5OPT RUBYOPT NODE_OPTIONS HOME EDITOR VISUAL PAGER SHELL"
)
GIT_READS = _names(
    "status diff log show blame grep ls-files ls-tree rev-parse describe cat-file shortlog rev-list name-rev "
    "merge-base for-each-ref diff-tree diff-index diff-files check-ignore check-attr version help "
    "annotate whatchanged show-ref "
    "count-objects range-diff cherry archive apply var show-branch stripspace"
)
GIT_COMMITS = _names("commit add rm mv stage am notes stash")
GIT_NETWORK = _names("clone fetch pull ls-remote submodule lfs svn bundle remote-http send-email request-pull")
GIT_LISTS = {
    "branch": frozenset({"-a", "-r", "-v", "-vv", "--list", "--all", "--show-current", "--contains", "--merged"}),
    "tag": frozenset({"-l", "--list", "-n", "--contains", "--points-at"}),
    "remote": frozenset({"-v", "--verbose", "show", "get-url"}),
    "config": frozenset({"--get", "--list", "-l", "--get-all", "--get-regexp", "get", "list"}),
    "worktree": frozenset({"list"}),
    "reflog": frozenset({"show"}),
}


_HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104 - compared, not listened on
_AWK_RUNS = re.compile(r"system\s*\(|\||getline|>")
_SED_RUNS = re.compile(r"(^|[;{}\n0-9$/])\s*[ewWrR](\s|$)|/[gip0-9]*[ew][gip0-9]*(\s|;|$)")


@dataclass(frozen=True)
class ProgramEffect:
    """What is known of one call. `writes`: every path in it may be written."""

    judgement: Judgement = field(default_factory=allowed)
    uses_network: bool = False
    writes: bool = False


def classify(command: SimpleCommand, name: str, *, is_contained: bool) -> ProgramEffect:
    words = command.words[1:]
    texts = [word.text for word in words]
    if name in PRIVILEGE:
        return ProgramEffect(denied("privilege", f"{name} takes rights that the agent does not have"))
    if name in MACHINE or name.startswith("mkfs."):
        return ProgramEffect(denied("machine", f"{name} changes the machine, not the workspace"))
    if name == "dd":
        return ProgramEffect(writes=any(text.startswith("of=") for text in texts))
    if name == "git":
        return _classify_git(words)
    publishes = _has_word(PUBLISH_WORDS, name, words)
    uses_network = _uses_network(name, words) or publishes
    if publishes:
        return ProgramEffect(needs_approval("publish", f"{name} publishes something"), uses_network)
    if name in CONTAINERS:
        return ProgramEffect(
            needs_approval("container", f"{name} starts programs outside the sandbox"), uses_network=True
        )
    if name in RUNNERS:
        return ProgramEffect(needs_approval("runner", f"{name} runs what cannot be read from the line"), uses_network)
    if name == "rm":
        return ProgramEffect(_judge_rm(words), uses_network)
    if name in PROCESSES or (name == "kill" and any(text in ("-1", "0") for text in texts[-1:])):
        return ProgramEffect(
            needs_approval("processes", f"{name} ends processes that are not named one by one"), uses_network
        )
    if name == "ps" and any("e" in text and not text.startswith("-") for text in texts):
        return ProgramEffect(needs_approval("processes", "ps shows the variables of other processes"), uses_network)
    if name in ("trap", "alias", "enable", "hash", "complete", "set") and texts and name != "set":
        return ProgramEffect(needs_approval("shell", f"{name} changes what later words mean"), uses_network)
    if name == "find" and {"-delete", "-fprint", "-fprintf", "-fls", "-fprint0", "-exec", "-execdir"} & set(texts):
        return ProgramEffect(writes=True)
    if name == "sed" and any(re.match(r"-[a-zA-Z]*i|--in-place", text) for text in texts):
        return ProgramEffect(_judge_code(name, texts, is_contained=is_contained), writes=True)
    return ProgramEffect(_judge_code(name, texts, is_contained=is_contained), uses_network)


def _has_word(table: dict[str, str], name: str, words: Sequence[Word]) -> bool:
    verbs = table.get(name, "").split()
    first = [word for word in words if not word.text.startswith("-")][:3]
    return any(word.text in verbs for word in first)


def _uses_network(name: str, words: Sequence[Word]) -> bool:
    if name in ("curl", "wget", "http", "xh"):
        return not _is_local(words)
    if name == "rsync":
        return any(":" in word.text for word in words)
    if name == "go" and [word.text for word in words[:2]] == ["mod", "download"]:
        return True
    return name in NETWORK or _has_word(NETWORK_WORDS, name, words)


def _is_local(words: Sequence[Word]) -> bool:
    """Tell whether every address is this machine's. One that is not known, or hidden in an option, is not."""
    if any(
        not word.is_fixed or word.text.startswith(("-x", "--proxy", "--connect-to", "--resolve", "-K"))
        for word in words
    ):
        return False
    hosts = [_host_of(word.text) for word in words if not word.text.startswith("-")]
    found = [host for host in hosts if host]
    return bool(found) and all(host in _HERE for host in found)


def _host_of(text: str) -> str:
    address = text if "://" in text else f"http://{text}"
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return "?"
    looks_like_host = "://" in text or "." in host or host in _HERE or ":" in text
    return host if looks_like_host else ""


def _judge_rm(words: Sequence[Word]) -> Judgement:
    options = "".join(word.text for word in words if word.text.startswith("-"))
    targets = [word for word in words if not word.text.startswith("-")]
    if not re.search(r"[rR]", options):
        return allowed()
    if any(not word.is_fixed for word in targets):
        return needs_approval("delete", "what it deletes with all below it is only known when it runs")
    if any(word.text.rstrip("/") in (".", "*", "./*", ".*") for word in targets):
        return needs_approval("delete", "it deletes the whole workspace")
    return allowed()


def _judge_code(name: str, texts: Sequence[str], *, is_contained: bool) -> Judgement:
    """Code in the line itself: harmless in the sandbox, and otherwise for a person to read."""
    if is_contained:
        return allowed()
    base = re.sub(r"[0-9.]+$", "", name)
    flags = INLINE_CODE.get(name) or INLINE_CODE.get(base) or ()
    if any(
        text == flag or (len(flag) == 2 and text.startswith(flag) and flag != "-i") for text in texts for flag in flags
    ):
        return needs_approval("code", f"the line holds a program for {name}, and there is no sandbox")
    is_awk = name in ("awk", "gawk", "mawk", "nawk")
    if is_awk and any(_AWK_RUNS.search(text) for text in texts):
        return needs_approval("code", f"{name} may run or write something, and there is no sandbox")
    if name in ("sed", "gsed") and any(_SED_RUNS.search(text) for text in texts):
        return needs_approval("code", f"{name} may run or write something, and there is no sandbox")
    if name in ("vi", "vim", "ed", "ex", "emacs", "nano"):
        return needs_approval("code", f"{name} can run anything")
    return allowed()


def _classify_git(words: Sequence[Word]) -> ProgramEffect:
    index = 0
    while index < len(words) and words[index].text.startswith("-"):
        option = words[index].text
        if option in ("-c", "--git-dir", "--work-tree", "--exec-path", "--config-env") or "=" in option:
            return ProgramEffect(needs_approval("git-option", f"git {option} changes what git does or where"))
        index += 2 if option == "-C" else 1
    if index >= len(words):
        return ProgramEffect()
    if not words[index].is_fixed:
        return ProgramEffect(needs_approval("git", "which git command it is is only known when it runs"))
    return _classify_git_command(words[index].text, [word.text for word in words[index + 1 :]])


def _classify_git_command(verb: str, options: Sequence[str]) -> ProgramEffect:
    if verb == "push":
        is_forced = any(option.startswith(("-f", "--force", "+", "--mirror", "--delete", "-d")) for option in options)
        reason = "git push rewrites what others have" if is_forced else "git push publishes commits"
        return ProgramEffect(needs_approval("history" if is_forced else "publish", reason), uses_network=True)
    if verb in GIT_NETWORK or (verb == "remote" and options[:1] == ["update"]):
        return ProgramEffect(uses_network=True)
    if any(
        option.startswith(("--output", "--ext-diff", "--open-files-in-pager", "-O", "--upload-pack"))
        for option in options
    ):
        return ProgramEffect(needs_approval("git-option", f"git {verb} is to run or write something else"))
    if verb in GIT_READS:
        return ProgramEffect()
    if verb in GIT_LISTS and (not options or GIT_LISTS[verb] & set(options)):
        return ProgramEffect()
    if verb == "restore" or (verb == "checkout" and "--" in options):
        return ProgramEffect()
    if verb in GIT_COMMITS:
        return ProgramEffect(denied("git-commit", "the engine commits; leave the changes in the files"))
    if verb == "clean" and ("-n" in options or "--dry-run" in options):
        return ProgramEffect()
    return ProgramEffect(needs_approval("history", f"git {verb} changes the repository, not just files"))
