"""Reads a command line as /bin/sh would and says which commands it runs, those in substitutions and subshells too.

It decides nothing and runs nothing. What it does not know it refuses: a guess could let pass what nobody has read.

A recursive descent over characters, in the shell's own order: lists (`;`, `&&`, `|`, brackets) hold simple commands,
which hold words, which hold quotes and expansions; an expansion such as `$(…)` holds a list again. Where shells differ
(`/bin/sh` may be dash or bash) the line is refused, so that what was judged is what runs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


class NotUnderstood(Exception):
    """The line holds something that is not read here; the text says what."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the command gets it. If it is not `is_fixed`, parts of it come from somewhere else at run time."""

    text: str
    is_fixed: bool = True
    has_glob: bool = False
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Redirect:
    operator: str
    target: Word

    @property
    def is_write(self) -> bool:
        is_copy = self.operator in (">&", "<&") and self.target.is_fixed and re.fullmatch(r"\d+|-", self.target.text)
        return ">" in self.operator and not is_copy


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One program call. `scope` tells which subshell it runs in: a longer one is inside a shorter one."""

    words: tuple[Word, ...]
    assignments: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    scope: tuple[int, ...] = ()
    is_fed: bool = False
    """Its standard input comes from another command or from the line itself."""


MAX_CHARS = 20_000
_MAX_DEPTH = 12
_ENDS_WORD = frozenset(" \t\n;&|<>()")
_OPENERS = frozenset({"{", "!", "if", "then", "else", "elif", "while", "until", "do"})
_CLOSERS = frozenset({"}", "fi", "done"})
_NOT_READ = frozenset({"case", "esac", "select", "function", "coproc"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_REDIRECT = re.compile(r"[0-9]*(<<-|<<<|<<|<>|<&|>>|>&|>\||<|>)")
_ARITHMETIC = re.compile(r"[\w\s+*/%<>=!&|?:().,$-]*")


def read_line(line: str, variables: Mapping[str, str]) -> list[SimpleCommand]:
    """Read the commands of a line in the order they are written. `variables` are those whose value is known for sure.

    Raises `NotUnderstood`.
    """
    if len(line) > MAX_CHARS:
        raise NotUnderstood("it is too long to be read")
    if any(char < " " and char not in "\t\n" for char in line):
        raise NotUnderstood("it holds control characters")
    reader = _Reader(line, {name: value for name, value in variables.items() if _is_only_read(line, name)})
    reader.read_list(closing="")
    return reader.commands


def _is_only_read(line: str, name: str) -> bool:
    # `HOME=/x`, `read HOME` or `unset HOME` anywhere in the line makes the value unknown; so does anything that merely
    # looks like it, for every mention that is no plain use counts.
    return len(re.findall(name, line)) == len(re.findall(r"\$\{?" + name + r"\b", line))


class _Reader:
    def __init__(self, text: str, variables: Mapping[str, str], scope: tuple[int, ...] = ()) -> None:
        self._text = text
        self._at = 0
        self._variables = variables
        self._scope = scope
        self._scopes = 0
        self._heredocs: list[tuple[str, Word]] = []
        self.commands: list[SimpleCommand] = []

    # -- lists --------------------------------------------------------------------------------------------------------

    def read_list(self, *, closing: str) -> None:
        """Read commands up to the closing bracket, or to the end of the text."""
        is_fed = False
        while True:
            self._skip_blanks()
            char = self._peek()
            if not char or char == ")":
                if char != closing or self._heredocs:
                    raise NotUnderstood("its brackets or here-documents do not end")
                self._at += 1
                return
            if char == "\n":
                self._at += 1
                self._read_heredocs()
            elif char in ";&|":
                is_fed = self._read_operator()
            elif char == "(":
                self._read_subshell()
            elif char == "#":
                self._skip_comment()
            else:
                self._read_simple(is_fed=is_fed)
                is_fed = False

    def _read_operator(self) -> bool:
        """Skip what stands between two commands; whether the next one is fed by the one before."""
        for operator in ("&&", "||", ";;", "&>", "|&", ";", "&", "|"):
            if self._text.startswith(operator, self._at):
                if operator in (";;", "&>", "|&"):
                    raise NotUnderstood(f"{operator} means different things in different shells")
                self._at += len(operator)
                return operator == "|"
        raise AssertionError(self._peek())

    def _read_subshell(self) -> None:
        if self._text.startswith("((", self._at):
            raise NotUnderstood("it holds arithmetic in double brackets")
        self._at += 1
        self._nested()

    def _nested(self) -> None:
        # A subshell has a number of its own: a `cd` in it changes the folder for it and for what is inside, no longer.
        outer = self._scope
        self._scopes += 1
        self._scope = (*outer, self._scopes)
        if len(self._scope) > _MAX_DEPTH:
            raise NotUnderstood("it is nested too deeply")
        self.read_list(closing=")")
        self._scope = outer

    # -- one command --------------------------------------------------------------------------------------------------

    def _read_simple(self, *, is_fed: bool) -> None:
        words: list[Word] = []
        assignments: list[str] = []
        redirects: list[Redirect] = []
        is_closed = False
        while True:
            self._skip_blanks()
            char = self._peek()
            if not char or char in ";&|\n)" or (char == "#"):
                break
            if char == "(":
                raise NotUnderstood("it defines a function")
            if found := _REDIRECT.match(self._text, self._at):
                redirects.append(self._read_redirect(found))
                is_fed = is_fed or redirects[-1].operator.startswith("<<")
                continue
            # An assignment and a reserved word count as such only before the program's name, and unquoted: `echo if`
            # and `"if" x` are plain words. What follows `fi`, `done` or `}` can only be a redirection.
            is_name = not words and _ASSIGNMENT.match(self._text, self._at)
            word = self._read_word()
            if is_name and not is_closed:
                assignments.append(word.text.partition("=")[0].rstrip("+"))
            elif not words and not assignments and not word.is_quoted and word.text in _OPENERS:
                if is_closed:
                    raise NotUnderstood("its parts do not fit together")
            elif not words and not assignments and not word.is_quoted and word.text in _CLOSERS:
                is_closed = True
            elif not words and not word.is_quoted and word.text in _NOT_READ:
                raise NotUnderstood(f"it uses {word.text!r}")
            elif not words and not word.is_quoted and word.text == "for":
                self._read_for()
            elif is_closed:
                raise NotUnderstood("its parts do not fit together")
            else:
                words.append(word)
        if words or assignments or redirects:
            self.commands.append(
                SimpleCommand(tuple(words), tuple(assignments), tuple(redirects), self._scope, is_fed=is_fed)
            )

    def _read_for(self) -> None:
        """Skip the head of a loop. What it loops over is data; where it is used, the word is not fixed."""
        while True:
            self._skip_blanks()
            if not self._peek() or self._peek() in ";\n":
                return
            if self._peek() in "&|<>()":
                raise NotUnderstood("the head of its loop is odd")
            self._read_word()

    def _read_redirect(self, found: "re.Match[str]") -> Redirect:
        self._at = found.end()
        if self._peek() == "(":
            raise NotUnderstood("it uses process substitution")
        self._skip_blanks()
        word = self._read_word()
        if not word.text and word.is_fixed and not word.is_quoted:
            raise NotUnderstood("a redirection leads nowhere")
        if found[1] in ("<<", "<<-"):
            self._heredocs.append((found[1], word))
        return Redirect(found[1], word)

    def _read_heredocs(self) -> None:
        # Their texts follow the line on which they are announced, in that order. An unquoted mark lets the shell expand
        # them, so they must not hold commands; a quoted one makes them data.
        for operator, mark in self._heredocs:
            body: list[str] = []
            while (line := self._read_text_line()) != mark.text:
                if operator == "<<-" and line.lstrip("\t") == mark.text:
                    break
                body.append(line)
            if not mark.is_quoted and any("$(" in line or "`" in line or line.endswith("\\") for line in body):
                raise NotUnderstood("a here-document is more than text")
        self._heredocs = []

    def _read_text_line(self) -> str:
        if self._at >= len(self._text):
            raise NotUnderstood("a here-document does not end")
        line, _, _ = self._text[self._at :].partition("\n")
        self._at += len(line) + 1
        return line

    # -- words --------------------------------------------------------------------------------------------------------

    def _read_word(self) -> Word:
        parts: list[str] = []
        is_fixed, has_glob, is_quoted = True, False, False
        bare: list[str] = []  # what stands outside quotes
        is_home = self._peek() == "~"
        while (char := self._peek()) and char not in _ENDS_WORD:
            self._at += 1
            if char == "\\":
                parts.append(self._take().replace("\n", ""))
                is_quoted = True
            elif char == "'":
                parts.append(self._until("'"))
                is_quoted = True
            elif char == '"':
                text, fixed = self._read_double_quoted()
                parts.append(text)
                is_fixed, is_quoted = is_fixed and fixed, True
            elif char in "$`":
                text, fixed = self._read_expansion(char, is_in_quotes=False)
                parts.append(text)
                is_fixed = is_fixed and fixed
            else:
                has_glob = has_glob or char in "*?["
                parts.append(char)
                bare.append(char)
        if re.search(r"\{.*(,|\.\.).*\}", "".join(bare)):
            is_fixed = False  # some shells make several words of it
        text = "".join(parts)
        if is_home:
            text, is_fixed = self._expand_home(text, is_fixed=is_fixed)
        return Word(text, is_fixed, has_glob, is_quoted)

    def _expand_home(self, text: str, *, is_fixed: bool) -> tuple[str, bool]:
        home = self._variables.get("HOME")
        is_own = text == "~" or text.startswith("~/")
        return (home + text[1:], is_fixed) if home and is_own else (text, False)

    def _read_double_quoted(self) -> tuple[str, bool]:
        parts: list[str] = []
        is_fixed = True
        while (char := self._take()) != '"':
            if char == "\\" and self._peek() in ("$", "`", '"', "\\", "\n"):
                following = self._take()
                parts.append("" if following == "\n" else following)
            elif char in "$`":
                text, fixed = self._read_expansion(char, is_in_quotes=True)
                parts.append(text)
                is_fixed = is_fixed and fixed
            else:
                parts.append(char)
        return "".join(parts), is_fixed

    def _read_expansion(self, char: str, *, is_in_quotes: bool) -> tuple[str, bool]:
        """Read what follows a dollar sign or a backquote: its text, and whether that is known now."""
        if char == "`":
            # Within backquotes a backslash hides only these three, and what is left is a line by itself.
            inner = re.sub(r"\\([`\\$])", r"\1", self._until("`", can_escape=True))
            self._scopes += 1
            reader = _Reader(inner, self._variables, (*self._scope, self._scopes))
            if len(self._scope) >= _MAX_DEPTH:
                raise NotUnderstood("it is nested too deeply")
            reader.read_list(closing="")
            self.commands += reader.commands
            return "", False  # what the command prints is known only when it runs
        if self._text.startswith("((", self._at):
            return self._read_arithmetic()
        if self._peek() == "(":
            self._at += 1
            self._nested()
            return "", False
        if self._peek() == "{":
            return self._read_braced()
        if self._peek() in ("'", '"') and not is_in_quotes:
            raise NotUnderstood("a quote after a dollar sign means different things in different shells")
        name = _NAME.match(self._text, self._at)
        if name is None:
            return "$", True  # a dollar sign before anything else stands for itself
        self._at = name.end()
        return self._value_of(name[0], is_in_quotes=is_in_quotes)

    def _read_arithmetic(self) -> tuple[str, bool]:
        end = self._text.find("))", self._at)
        inner = self._text[self._at + 2 : end] if end > 0 else "`"
        if "$(" in inner or not _ARITHMETIC.fullmatch(inner):
            raise NotUnderstood("it holds arithmetic that is not simple")
        self._at = end + 2
        return "", False

    def _read_braced(self) -> tuple[str, bool]:
        self._at += 1
        inner = self._until("}")
        if any(mark in inner for mark in "`$'\"\\{"):
            raise NotUnderstood("an expansion in braces is not simple")
        return self._value_of(inner, is_in_quotes=True) if _NAME.fullmatch(inner) else ("", False)

    def _value_of(self, name: str, *, is_in_quotes: bool) -> tuple[str, bool]:
        value = self._variables.get(name)
        # Without quotes a value with blanks would be several words.
        return ("", False) if value is None or (not is_in_quotes and " " in value) else (value, True)

    # -- characters ---------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise NotUnderstood("a quote or a line does not end")
        self._at += 1
        return char

    def _until(self, mark: str, *, can_escape: bool = False) -> str:
        start = self._at
        while (char := self._take()) != mark:
            if can_escape and char == "\\":
                self._take()
        return self._text[start : self._at - 1]

    def _skip_blanks(self) -> None:
        while self._peek() in (" ", "\t") or self._text.startswith("\\\n", self._at):
            self._at += 2 if self._peek() == "\\" else 1

    def _skip_comment(self) -> None:
        while self._peek() not in ("", "\n"):
            self._at += 1
