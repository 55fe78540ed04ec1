"""The wire of access: tokens and sessions."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.schemas import ShortText
from holdfast.enums import Role
from holdfast.presentation.status import Note


class CreateToken(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[ShortText, Field(min_length=1, examples=["ci"])]
    role: Role
    expires_in_days: Annotated[float, Field(gt=0, le=3650, allow_inf_nan=False, strict=True)] | None = None


class LogIn(BaseModel):
    """Either a token or the code of a login link."""

    model_config = ConfigDict(extra="forbid")
    token: ShortText | None = None
    code: ShortText | None = None


class TokenItem(BaseModel):
    id: str
    name: str
    role: Role
    created_at: str
    created_by: str
    made_with: str | None = Field(description="The id of the token that it was made with, if it was made with one.")
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None
    revoked_by: str
    is_over: bool = Field(description="Revoked, or past its end.")
    status: Note = Field(description="Whether it works, in words.")


class TokenList(BaseModel):
    items: list[TokenItem] = Field(description="Those that work first, the newest of them on top.")


class CreatedToken(BaseModel):
    id: str
    token: str = Field(description="Shown this once.")
    expires_at: str | None = Field(description="No later than the end of the token that made it.", examples=[None])


class RevokedToken(BaseModel):
    """How many tokens and sessions stopped working; none if all of them had before."""

    id: str
    tokens: int
    sessions: int


class SessionInfo(BaseModel):
    name: str
    role: Role
    expires_at: str | None = None
