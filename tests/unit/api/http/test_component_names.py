"""The components of the OpenAPI document have the names that programs know, whatever the classes are called."""

import json
import re
from pathlib import Path

from holdfast.api.app import create_app
from holdfast.api.http.openapi import COMPONENT_NAMES, restore_component_names
from holdfast.config import load_config


def test_a_component_is_renamed_wherever_it_is_referred_to() -> None:
    reference = {"$ref": "#/components/schemas/StatusLine"}
    document = {"paths": {"/x": reference}, "components": {"schemas": {"StatusLine": {"title": "StatusLine"}}}}

    renamed = restore_component_names(document)

    assert renamed == {
        "paths": {"/x": {"$ref": "#/components/schemas/Telling"}},
        "components": {"schemas": {"Telling": {"title": "Telling"}}},
    }


def test_every_reference_has_its_component_and_no_class_name_is_left(tmp_path: Path) -> None:
    document = create_app(load_config(data_dir=tmp_path)).openapi()

    components = set(document["components"]["schemas"])
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))

    assert references <= components
    assert not components & set(COMPONENT_NAMES)
    assert set(COMPONENT_NAMES.values()) <= components
