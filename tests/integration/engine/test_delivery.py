"""Bringing a result to the user says what is the matter where it cannot."""

import pytest
from tests.engine_world import World, hand_in

from holdfast.config import load_config
from holdfast.engine.delivery import merge_run
from holdfast.errors import HoldfastError


async def test_a_template_that_cannot_be_read_is_a_typed_error(world: World) -> None:
    world.is_damaged = True
    result = await world.run(hand_in)
    await world.sql("UPDATE workflow_templates SET definition = '{}'")

    with pytest.raises(HoldfastError) as error:
        await merge_run(world.db, load_config(data_dir=world.data_dir), str(result.run_id))

    assert error.value.code == "template_load_failed"
