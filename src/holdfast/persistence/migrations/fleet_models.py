"""The rows of a fleet: its workers, and what they found that could not drive a run. Written by `persistence.fleet`."""

from typing import Any

from sqlalchemy import BigInteger, Float
from sqlalchemy.orm import Mapped, mapped_column

from holdfast.persistence.models import Base, JsonText, PlainText


class WorkerRow(Base):
    """A process that drives runs; times are seconds since 1970 by the database's clock."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(PlainText, primary_key=True)
    process: Mapped[str] = mapped_column(PlainText, default="", server_default="")
    """Which process it is, as `process_owner` writes it: names are used again."""
    machine: Mapped[str] = mapped_column(PlainText, default="", server_default="")
    version: Mapped[str] = mapped_column(PlainText, default="", server_default="")
    queues: Mapped[Any] = mapped_column(JsonText, default="[]", server_default="[]")
    flows: Mapped[Any] = mapped_column(JsonText, default="[]", server_default="[]")
    slots: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    driven: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    is_draining: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    since: Mapped[float] = mapped_column(Float(53), default=0.0, server_default="0")
    seen_at: Mapped[float] = mapped_column(Float(53), default=0.0, server_default="0")
    steady_since: Mapped[float] = mapped_column(Float(53), default=0.0, server_default="0")
    """Since when its signs of life have come without a gap: the database was there for all of that time."""
    sweeps_until: Mapped[float] = mapped_column(Float(53), default=0.0, server_default="0")
    """Until then it is the one that looks for what is due."""
    clock_off_s: Mapped[float] = mapped_column(Float(53), default=0.0, server_default="0")
    """How far its clock is ahead of the database's, as it found itself."""


class RunLookRow(Base):
    """A worker looked at a run and could not drive it: why, and when it tries again."""

    __tablename__ = "run_looks"

    run_id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    worker: Mapped[str] = mapped_column(PlainText, primary_key=True)
    missing: Mapped[str] = mapped_column(PlainText, default="", server_default="")
    """The key or program that it lacks, if that is why."""
    reason: Mapped[str] = mapped_column(PlainText, default="", server_default="")
    again_at: Mapped[float] = mapped_column(Float(53), default=0.0, server_default="0")
