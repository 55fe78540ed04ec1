import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.binding import BackendAvailability, bind_personas, find_unfillable, rank_candidates
from holdfast.definitions.base import version_order
from holdfast.enums import Backend, Capability
from holdfast.errors import ConsentRequired, PersonaIneligible
from holdfast.persona import AgentPersona
from holdfast.workflow import WorkflowRole, WorkflowTemplate

EVERYWHERE = BackendAvailability(available_backends=frozenset(Backend))
OPENROUTER_ONLY = BackendAvailability(available_backends=frozenset({Backend.OPENROUTER}))


def persona(name: str, **fields: Any) -> AgentPersona:
    return AgentPersona.model_validate(
        {"name": name, "version": 1, "backend": "openrouter", "model": "m", "capabilities": ["spec_write"], **fields}
    )


def role(**fields: Any) -> dict[str, Any]:
    return {"id": "author", "required_capabilities": ["spec_write"], **fields}


def template(*roles: dict[str, Any]) -> WorkflowTemplate:
    roles = roles or (role(),)
    phase = {"key": "spec", "title": "Spec", "risk": "low", "role": roles[0]["id"], "instructions": "Do it."}
    artifact = {"path": "out/spec.json", "schema": "dev/spec@1"}
    return WorkflowTemplate.model_validate(
        {"name": "w", "version": 1, "roles": list(roles), "phases": [{**phase, "expected_artifact": artifact}]}
    )


def chosen(pool: list[AgentPersona], availability: BackendAvailability = EVERYWHERE, **fields: Any) -> str:
    return bind_personas(template(role(**fields)), pool, availability)["author"].persona.name


class Agreed:
    """A consent store that remembers, without a file."""

    def __init__(self, *personas: AgentPersona) -> None:
        self.hashes = {one.content_hash for one in personas}

    def has_consent(self, one: AgentPersona) -> bool:
        return one.content_hash in self.hashes


def test_a_binding_says_who_and_with_which_hashes() -> None:
    writer = persona("writer")

    binding = bind_personas(template(), [writer], OPENROUTER_ONLY)["author"]

    assert (binding.role_id, binding.persona, binding.backend) == ("author", writer, Backend.OPENROUTER)
    assert binding.persona_hash == writer.content_hash
    assert len(binding.binding_hash) == 64


def test_the_persona_must_cover_every_capability_of_the_role() -> None:
    half, whole = persona("a-half"), persona("whole", capabilities=["spec_write", "debug"])

    assert chosen([half, whole], required_capabilities=["debug", "spec_write"]) == "whole"


def test_the_roles_preferred_backends_come_first_in_their_order() -> None:
    pool = [persona("a"), persona("b", backend="ollama"), persona("c", backend="openai")]

    assert chosen(pool, preferred_backends=["openai", "ollama"]) == "c"
    assert chosen(pool, preferred_backends=["anthropic", "ollama"]) == "b"
    assert chosen(pool) == "a"


def test_then_the_higher_version_then_the_name() -> None:
    assert chosen([persona("a", version="1.9"), persona("b", version="1.10"), persona("c", version="1.10-rc1")]) == "b"
    assert chosen([persona("b"), persona("a")]) == "a"


def test_an_unavailable_backend_is_never_used_and_so_no_simulated_persona_by_accident() -> None:
    pool = [persona("real"), persona("acted", backend="simulated", version=99)]

    assert chosen(pool, OPENROUTER_ONLY, preferred_backends=["simulated"]) == "real"
    with pytest.raises(PersonaIneligible, match="backend simulated is not available"):
        bind_personas(template(), pool[1:], OPENROUTER_ONLY)


@given(st.randoms(use_true_random=False), st.data())
@settings(max_examples=50, deadline=None)
def test_the_same_personas_in_any_order_give_the_same_binding(order: random.Random, data: st.DataObject) -> None:
    pool = data.draw(
        st.lists(
            st.builds(
                persona,
                st.sampled_from(["a", "b", "c"]),
                version=st.sampled_from([1, 2, "1.0", "2.0-rc1"]),
                backend=st.sampled_from(["openrouter", "openai", "ollama"]),
                model=st.sampled_from(["m", "n"]),
            ),
            min_size=1,
            max_size=8,
        )
    )
    shuffled = [*pool, *pool]
    order.shuffle(shuffled)
    preferred = data.draw(st.lists(st.sampled_from(["openai", "ollama"]), unique=True))

    first = bind_personas(template(role(preferred_backends=preferred)), pool, EVERYWHERE)
    second = bind_personas(template(role(preferred_backends=preferred)), shuffled, EVERYWHERE)

    assert first == second


def test_the_explanation_says_why_one_was_chosen_and_why_others_were_not() -> None:
    pool = [
        persona("second", version=1),
        persona("first", version=2),
        persona("unable", capabilities=["debug"]),
        persona("away", backend="ollama"),
    ]

    text = bind_personas(template(), pool, OPENROUTER_ONLY)["author"].explanation

    assert "first chosen because it covers spec_write and backend openrouter is available" in text
    assert "after it: second (version 1 is lower)" in text
    assert "not eligible because" in text
    assert "it lacks spec_write (unable)" in text
    assert "backend ollama is not available (away)" in text


def test_an_override_is_taken_even_if_another_would_be_preferred() -> None:
    pool = [persona("a", version=9), persona("b")]

    binding = bind_personas(template(), pool, EVERYWHERE, overrides={"author": "b"})["author"]

    assert binding.persona.name == "b"
    assert "asked for" in binding.explanation


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"author": "unable"}, "Role author cannot be given to unable: it lacks spec_write"),
        ({"author": "away"}, "Role author cannot be given to away: backend ollama is not available"),
        ({"author": "nobody"}, "there is no persona of that name"),
        ({"painter": "able"}, "has no role painter; its roles are author"),
    ],
)
def test_an_override_that_cannot_be_is_an_error_that_says_why(overrides: dict[str, str], reason: str) -> None:
    pool = [persona("able"), persona("unable", capabilities=["debug"]), persona("away", backend="ollama")]

    with pytest.raises(PersonaIneligible, match=reason) as refused:
        bind_personas(template(), pool, OPENROUTER_ONLY, overrides=overrides)

    assert refused.value.code == "persona_ineligible"


def test_a_role_nobody_can_fill_is_an_error_that_names_role_and_reasons() -> None:
    with pytest.raises(PersonaIneligible, match="role author, which needs spec_write: it lacks spec_write") as refused:
        bind_personas(template(), [persona("unable", capabilities=["debug"])], EVERYWHERE)

    assert refused.value.facts["role_id"] == "author"


def test_an_empty_pool_is_an_error_too() -> None:
    with pytest.raises(PersonaIneligible, match="there are no personas"):
        bind_personas(template(), [], EVERYWHERE)


def test_consent_is_needed_once_per_persona_and_only_where_it_asks_for_it() -> None:
    asking = persona("asking", requires_consent=True)
    both_roles = template(role(), role(id="second"))

    with pytest.raises(ConsentRequired) as refused:
        bind_personas(both_roles, [asking], EVERYWHERE, consent_store=Agreed())  # type: ignore[arg-type]
    agreed = bind_personas(both_roles, [asking], EVERYWHERE, consent_store=Agreed(asking))  # type: ignore[arg-type]

    assert refused.value.code == "consent_required"
    assert refused.value.facts["personas"] == [{"name": "asking", "hash": asking.content_hash}]
    assert {binding.persona for binding in agreed.values()} == {asking}


def test_without_a_store_nobody_can_have_agreed() -> None:
    with pytest.raises(ConsentRequired):
        bind_personas(template(), [persona("asking", requires_consent=True)], EVERYWHERE)


def test_candidates_are_ranked_with_the_unable_ones_last() -> None:
    pool = [persona("unable", capabilities=["debug"], version=9), persona("b"), persona("a")]

    ranked = rank_candidates(
        WorkflowRole(id="author", required_capabilities=(Capability.SPEC_WRITE,)), pool, EVERYWHERE
    )

    assert [(candidate.persona.name, candidate.is_eligible) for candidate in ranked] == [
        ("a", True),
        ("b", True),
        ("unable", False),
    ]


def test_versions_are_compared_by_their_numbers() -> None:
    ordered: list[int | str] = ["1-rc1", 1, "1.0.1", "1.9", "1.10", 2, "10.0"]
    mixed: list[int | str] = [2, "1.10", "1.0.1", "10.0", 1, "1.9", "1-rc1"]

    assert sorted(mixed, key=version_order) == ordered
    assert version_order(1) == version_order("1.0") == version_order("1.0.0+build7")


def test_a_role_that_no_persona_could_fill_is_told_before_a_run() -> None:
    roles = (role(), role(id="doctor", required_capabilities=["debug", "spec_write"]))
    pool = [persona("writer"), persona("finder", capabilities=["debug"], backend="ollama")]

    assert find_unfillable(template(*roles), pool) == [
        "Nobody could fill role doctor: no persona has debug, spec_write.",
    ]
    assert find_unfillable(template(*roles), [persona("both", capabilities=["debug", "spec_write"])]) == []
