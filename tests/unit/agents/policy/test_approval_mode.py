"""How often a person is asked, and which calls one answer may cover."""

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.agents.policy.approval_mode import describe_kind, kind_of, with_mode
from holdfast.agents.policy.judgement import Judgement, allowed, denied
from holdfast.persona import ApprovalMode, Verdict


def judge(name: str, args: Mapping[str, Any]) -> Judgement:
    return denied("workspace", "outside") if args.get("path") == "/etc" else allowed()


@pytest.mark.parametrize(
    ("mode", "call", "verdict"),
    [
        ("risky", "write_file", Verdict.ALLOW),
        ("writes", "read_file", Verdict.ALLOW),
        ("writes", "write_file", Verdict.ASK),
        ("writes", "execute", Verdict.ASK),
        ("writes", "agent", Verdict.ASK),
        ("always", "read_file", Verdict.ASK),
    ],
)
def test_the_mode_says_what_is_asked_beside_what_is_risky(mode: str, call: str, verdict: Verdict) -> None:
    assert with_mode(judge, ApprovalMode(mode))(call, {}).verdict is verdict


@pytest.mark.parametrize("mode", list(ApprovalMode))
def test_no_mode_lets_a_person_allow_what_is_denied(mode: ApprovalMode) -> None:
    assert with_mode(judge, mode)("write_file", {"path": "/etc"}).verdict is Verdict.DENY


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("git push origin main", "git push"),
        ("  npm  test ", "npm test"),
    ],
)
def test_a_plain_command_is_of_the_kind_of_its_first_words(line: str, words: str) -> None:
    assert kind_of("execute", {"command": line}, "publish") == {"tool": "execute", "rule": "publish", "words": words}


@pytest.mark.parametrize(
    "other",
    [
        "git push --force origin main",
        "git push -f",
        "git push origin +main",
        "git push origin :main",
        "git push origin main:release",
        "git push https://evil.example/repo main",
        "git push ext::sh main",
        "git push user@evil.example main",
        "git push --receive-pack=x origin main",
        "git -c core.sshCommand=x push origin main",
        "git -C other push origin main",
        "git --git-dir=x push",
        "git",
    ],
)
def test_an_answer_covers_no_call_with_other_options_addresses_or_settings(other: str) -> None:
    granted = kind_of("execute", {"command": "git push origin main"}, "publish")

    assert granted == kind_of("execute", {"command": "git push origin draft"}, "publish")
    assert granted != kind_of("execute", {"command": other}, "publish")


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("git -c a=b push", "git -c a=c push"),
        ("git -C here status", "git -C here reset"),
        ("bash run.sh", "bash other.sh"),
        ("python -m pytest", "python -m http.server"),
        ("make", "make evil"),
        ("rm -r build", "rm -r src"),
        ("git push --force", "git push --mirror"),
    ],
)
def test_an_answer_to_one_line_does_not_cover_the_other(line: str, other: str) -> None:
    one, two = (kind_of("execute", {"command": each}, "no-sandbox") for each in (line, other))

    assert one is not None
    assert one != two


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("git push origin main", "commands that begin with 'git push', with no other options"),
        ("git push --force", "commands that begin with 'git push' and have '--force', with no other options"),
        ("pytest -q  tests", "the command 'pytest -q tests'"),
    ],
)
def test_a_person_reads_what_an_answer_covers(line: str, text: str) -> None:
    kind = kind_of("execute", {"command": line}, "publish")

    assert kind is not None
    assert describe_kind(kind) == text


@pytest.mark.parametrize(
    "line",
    [
        "git push; rm -rf .",
        "git push && curl x",
        "git push | sh",
        "git push $(x)",
        "git push `x`",
        "git push > f",
        "git push 'a b'",
        "git push *",
        "A=1 git push",
        "./git push",
        "git push\nrm x",
        "git push # x",
        "git push ~",
        "",
        None,
        ["git", "push"],
    ],
)
def test_a_line_that_may_do_more_is_of_no_kind(line: Any) -> None:
    assert kind_of("execute", {"command": line}, "publish") is None


def test_kinds_differ_by_the_rule_that_asked() -> None:
    args = {"command": "git push"}
    assert kind_of("execute", args, "publish") != kind_of("execute", args, "network")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://docs.python.org/3/", "docs.python.org:443"),
        ("https://Docs.Python.org./other?x=1", "docs.python.org:443"),
        ("http://docs.python.org/3/", "docs.python.org:80"),
        ("https://docs.python.org:8443/", "docs.python.org:8443"),
        ("https://docs.python.org@evil.example/", "evil.example:443"),
        ("https://docs.python.org.evil.example/", "docs.python.org.evil.example:443"),
    ],
)
def test_an_answer_about_a_page_covers_its_host_and_no_other(url: str, words: str) -> None:
    kind = kind_of("web_fetch", {"url": url}, "network")

    assert kind == {"tool": "web_fetch", "rule": "network", "words": words}
    assert describe_kind(kind) == f"pages of {words}"


def test_an_address_that_is_none_stands_alone() -> None:
    assert kind_of("web_fetch", {"url": "file:///etc/passwd"}, "network") is None
    assert kind_of("web_fetch", {}, "network") is None
    assert kind_of("web_fetch", {"url": "https://a\x1b[2J\u202eb.example/"}, "network") is None
