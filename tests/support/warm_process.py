"""What a process has imported and worked out before others are forked from it: all that a run's first agent costs.

It opens nothing. Without this each fork would spend more time here than on what its test is about.
"""

import importlib

# What holdfast and the framework import only when they use it.
_LIBRARIES = (
    *("openai.resources.chat.chat", "openai.resources.chat.completions.completions", "httpcore2", "h11", "jiter"),
    *("truststore", "bracex", "anyio._backends._asyncio", "anyio.streams.tls", "aiosqlite", "encodings.utf_8_sig"),
    *("langchain_core.tracers.stdout", "langchain_core.tracers.context"),
    "langchain_core.messages.block_translators.langchain_v0",
    *("alembic.command", "alembic.autogenerate", "alembic.config", "keyring.core", "keyring.backends.SecretService"),
    *("rich.markdown", "pygments.formatters", "pygments.lexers", "prompt_toolkit.input.vt100"),
)


def warm_up() -> None:
    from deepagents import create_deep_agent
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from sqlalchemy.orm import configure_mappers

    import holdfast.persistence.models  # noqa: F401

    for name in _LIBRARIES:
        importlib.import_module(name)
    configure_mappers()
    # The first agent of a process reads the metadata of every distribution that is installed.
    create_deep_agent(model=FakeListChatModel(responses=[""]))
