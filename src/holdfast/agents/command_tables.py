"""What is known of programs by their names: what they are for, and how they take the command that they run."""


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
