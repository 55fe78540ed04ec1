"""What a person has agreed to, by content hash: a persona, or what a repository brings; what changed is asked anew."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from holdfast.config import Config
from holdfast.errors import StoreNewer, StoreUnreadable

FORMAT = 1


class Agreeable(Protocol):
    """Something with a name for people and the identity of its content."""

    @property
    def name(self) -> str: ...

    @property
    def content_hash(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Consent:
    """That a person agreed to one exact persona (or a repository's own definitions), who it was, and when."""

    persona_hash: str
    persona_name: str
    granted_at: str
    granted_by: str = ""


class PersonaConsentStore:
    """A JSON file of consents that several processes may use at once.

    Writers take turns by a lock file beside it and replace the file whole, so a reader needs no lock and never sees
    half of it. A file that cannot be understood is an error: taking it for empty would forget what was agreed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()

    def has_consent(self, persona: Agreeable) -> bool:
        """Return true if this exact content was agreed to."""
        return persona.content_hash in self._read()

    def list_consents(self) -> list[Consent]:
        """List every consent, the oldest first."""
        return sorted(self._read().values(), key=lambda consent: (consent.granted_at, consent.persona_hash))

    def grant(self, persona: Agreeable, *, by: str = "", at: datetime | None = None) -> Consent:
        """Record the consent; on return it survives a power cut. A second time changes nothing."""
        moment = (at or datetime.now(UTC)).astimezone(UTC).isoformat()
        consent = Consent(persona.content_hash, persona.name, moment, by)
        with self._locked():
            consents = self._read()
            if consent.persona_hash in consents:
                return consents[consent.persona_hash]
            self._write({**consents, consent.persona_hash: consent})
        return consent

    def revoke(self, persona_hash: str) -> bool:
        """Take a consent back; whether there was one."""
        with self._locked():
            consents = self._read()
            if consents.pop(persona_hash, None) is None:
                return False
            self._write(consents)
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            target = self.path.resolve()  # one lock for one file, whichever link leads to it
            target.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(target.with_name(f"{target.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnreadable(f"The consents at {self.path} cannot be written: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)  # and with it the lock; the file stays, for deleting it would let two writers in

    def _read(self) -> dict[str, Consent]:
        try:
            content = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreUnreadable(f"The consents at {self.path} cannot be read: {error.strerror}.") from error
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"it is not JSON ({error})") from error
        return self._decode(content)

    def _decode(self, content: Any) -> dict[str, Consent]:
        if isinstance(content, dict) and isinstance(content.get("format"), int) and content["format"] > FORMAT:
            raise StoreNewer(f"The consents at {self.path} were written by a newer holdfast.")
        try:
            if content["format"] != FORMAT:
                raise self._damaged("its format is unknown")
            consents = [Consent(**{name: str(text) for name, text in entry.items()}) for entry in content["consents"]]
        except (TypeError, KeyError, AttributeError) as error:
            raise self._damaged("it has not the shape of a consent file") from error
        return {consent.persona_hash: consent for consent in consents}

    def _damaged(self, reason: str) -> StoreUnreadable:
        hint = "Restore the file, or delete it to be asked for every consent again."
        return StoreUnreadable(f"The consents at {self.path} are damaged: {reason}.", hint=hint, path=str(self.path))

    def _write(self, consents: dict[str, Consent]) -> None:
        target = self.path.resolve()  # a linked file stays linked
        scratch = target.with_name(f"{target.name}.new")  # one name is enough: writers hold the lock
        text = json.dumps({"format": FORMAT, "consents": [asdict(one) for one in consents.values()]}, indent=1)
        try:
            _write_synced(scratch, text.encode())
            # crash: before the replace the old consents are found, after it the new ones; never half a file
            scratch.replace(target)
            _sync_folder(target.parent)
        except OSError as error:
            raise StoreUnreadable(f"The consents at {self.path} cannot be written: {error.strerror}.") from error


def open_consents(config: Config) -> PersonaConsentStore:
    """Open the consents of this machine's user."""
    return PersonaConsentStore(config.data_dir / "consents.json")


class AnyConsent(PersonaConsentStore):
    """Agrees to everything and keeps nothing: for a person who said yes to all of it, this once."""

    def __init__(self) -> None:
        super().__init__(os.devnull)

    def has_consent(self, persona: Agreeable) -> bool:
        return True


def _write_synced(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
