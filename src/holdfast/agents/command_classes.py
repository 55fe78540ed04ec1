"""What a program is for, by its name and its first words, and what is safe to let it do unasked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from holdfast.agents.command_tables import (
    CONTAINERS,
    GIT_COMMITS,
    GIT_LISTS,
    GIT_NETWORK,
    GIT_READS,
    INLINE_CODE,
    MACHINE,
    NETWORK,
    NETWORK_WORDS,
    PRIVILEGE,
    PROCESSES,
    PUBLISH_WORDS,
    RUNNERS,
)
from holdfast.agents.judgements import Judgement, allowed, asked, denied
from holdfast.agents.shell_words import SimpleCommand, Word

_HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104 - compared, not listened on
_AWK_RUNS = re.compile(r"system\s*\(|\||getline|>")
_SED_RUNS = re.compile(r"(^|[;{}\n0-9$/])\s*[ewWrR](\s|$)|/[gip0-9]*[ew][gip0-9]*(\s|;|$)")


@dataclass(frozen=True)
class Known:
    """What is known of one call. `writes`: every path in it may be written."""

    judgement: Judgement = field(default_factory=allowed)
    uses_network: bool = False
    writes: bool = False


def classify(command: SimpleCommand, name: str, *, is_contained: bool) -> Known:
    words = command.words[1:]
    texts = [word.text for word in words]
    if name in PRIVILEGE:
        return Known(denied("privilege", f"{name} takes rights that the agent does not have"))
    if name in MACHINE or name.startswith("mkfs."):
        return Known(denied("machine", f"{name} changes the machine, not the workspace"))
    if name == "dd":
        return Known(writes=any(text.startswith("of=") for text in texts))
    if name == "git":
        return _classify_git(words)
    publishes = _has_word(PUBLISH_WORDS, name, words)
    uses_network = _uses_network(name, words) or publishes
    if publishes:
        return Known(asked("publish", f"{name} publishes something"), uses_network)
    if name in CONTAINERS:
        return Known(asked("container", f"{name} starts programs outside the sandbox"), uses_network=True)
    if name in RUNNERS:
        return Known(asked("runner", f"{name} runs what cannot be read from the line"), uses_network)
    if name == "rm":
        return Known(_judge_rm(words), uses_network)
    if name in PROCESSES or (name == "kill" and any(text in ("-1", "0") for text in texts[-1:])):
        return Known(asked("processes", f"{name} ends processes that are not named one by one"), uses_network)
    if name == "ps" and any("e" in text and not text.startswith("-") for text in texts):
        return Known(asked("processes", "ps shows the variables of other processes"), uses_network)
    if name in ("trap", "alias", "enable", "hash", "complete", "set") and texts and name != "set":
        return Known(asked("shell", f"{name} changes what later words mean"), uses_network)
    if name == "find" and {"-delete", "-fprint", "-fprintf", "-fls", "-fprint0", "-exec", "-execdir"} & set(texts):
        return Known(writes=True)
    if name == "sed" and any(re.match(r"-[a-zA-Z]*i|--in-place", text) for text in texts):
        return Known(_judge_code(name, texts, is_contained=is_contained), writes=True)
    return Known(_judge_code(name, texts, is_contained=is_contained), uses_network)


def _has_word(table: dict[str, str], name: str, words: Sequence[Word]) -> bool:
    wanted = table.get(name, "").split()
    first = [word for word in words if not word.text.startswith("-")][:3]
    return any(word.text in wanted for word in first)


def _uses_network(name: str, words: Sequence[Word]) -> bool:
    if name in ("curl", "wget", "http", "xh"):
        return not _is_local(words)
    if name == "rsync":
        return any(":" in word.text for word in words)
    if name == "go" and [word.text for word in words[:2]] == ["mod", "download"]:
        return True
    return name in NETWORK or _has_word(NETWORK_WORDS, name, words)


def _is_local(words: Sequence[Word]) -> bool:
    """Whether every address is this machine's. One that is not known, or hidden in an option, is not."""
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
        return asked("delete", "what it deletes with all below it is only known when it runs")
    if any(word.text.rstrip("/") in (".", "*", "./*", ".*") for word in targets):
        return asked("delete", "it deletes the whole workspace")
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
        return asked("code", f"the line holds a program for {name}, and there is no sandbox")
    is_awk = name in ("awk", "gawk", "mawk", "nawk")
    if is_awk and any(_AWK_RUNS.search(text) for text in texts):
        return asked("code", f"{name} may run or write something, and there is no sandbox")
    if name in ("sed", "gsed") and any(_SED_RUNS.search(text) for text in texts):
        return asked("code", f"{name} may run or write something, and there is no sandbox")
    if name in ("vi", "vim", "ed", "ex", "emacs", "nano"):
        return asked("code", f"{name} can run anything")
    return allowed()


def _classify_git(words: Sequence[Word]) -> Known:
    index = 0
    while index < len(words) and words[index].text.startswith("-"):
        option = words[index].text
        if option in ("-c", "--git-dir", "--work-tree", "--exec-path", "--config-env") or "=" in option:
            return Known(asked("git-option", f"git {option} changes what git does or where"))
        index += 2 if option == "-C" else 1
    if index >= len(words):
        return Known()
    if not words[index].is_fixed:
        return Known(asked("git", "which git command it is is only known when it runs"))
    return _classify_git_command(words[index].text, [word.text for word in words[index + 1 :]])


def _classify_git_command(verb: str, options: Sequence[str]) -> Known:
    if verb == "push":
        is_forced = any(option.startswith(("-f", "--force", "+", "--mirror", "--delete", "-d")) for option in options)
        told = "git push rewrites what others have" if is_forced else "git push publishes commits"
        return Known(asked("history" if is_forced else "publish", told), uses_network=True)
    if verb in GIT_NETWORK or (verb == "remote" and options[:1] == ["update"]):
        return Known(uses_network=True)
    if any(
        option.startswith(("--output", "--ext-diff", "--open-files-in-pager", "-O", "--upload-pack"))
        for option in options
    ):
        return Known(asked("git-option", f"git {verb} is to run or write something else"))
    if verb in GIT_READS:
        return Known()
    if verb in GIT_LISTS and (not options or GIT_LISTS[verb] & set(options)):
        return Known()
    if verb == "restore" or (verb == "checkout" and "--" in options):
        return Known()
    if verb in GIT_COMMITS:
        return Known(denied("git-commit", "the engine commits; leave the changes in the files"))
    if verb == "clean" and ("-n" in options or "--dry-run" in options):
        return Known()
    return Known(asked("history", f"git {verb} changes the repository, not just files"))
