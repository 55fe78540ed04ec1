"""Images in a request: by hash for replay and prices, with their bytes for the model alone."""

from types import SimpleNamespace
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AnyMessage, HumanMessage

from holdfast.agents.calls.conversion import to_model_call
from holdfast.agents.calls.fingerprints import Fingerprints
from holdfast.agents.image_blocks import IMAGE_TOKENS, find_label, list_references, to_content, with_bytes
from holdfast.images import ImageLabel

SEES = SimpleNamespace(profile={})
BLIND = SimpleNamespace(profile={"image_inputs": False})


def label(number: int, size: int = 100) -> ImageLabel:
    return ImageLabel(f"{number:064x}", "image/png", size, f"{number}.png")


def message(*labels: ImageLabel) -> HumanMessage:
    return HumanMessage(to_content("Look.", labels))


async def read(digest: str) -> bytes:
    return digest.encode()


def estimate(*messages: AnyMessage) -> int:
    request: ModelRequest[Any] = ModelRequest(model=FakeListChatModel(responses=[]), messages=list(messages))
    printed = Fingerprints().of_request(request, "lane")
    return to_model_call("key", "lane", request, printed).max_input_tokens


def test_a_label_survives_the_way_through_a_message() -> None:
    assert find_label(message(label(7, 12)).content[1]) == label(7, 12)
    assert to_content("Look.", ()) == "Look."


async def test_the_model_gets_the_bytes_and_the_message_keeps_its_reference() -> None:
    original = message(label(1))

    (filled,) = await with_bytes([original], read, model=SEES)

    assert filled.content[1] == {"type": "image", "base64": "MDAw" * 20 + "MDAwMQ==", "mime_type": "image/png"}
    assert list_references([original]) == original.content[1:]


async def test_a_model_that_sees_nothing_is_told_what_it_does_not_see() -> None:
    (filled,) = await with_bytes([message(label(1))], read, model=BLIND)

    assert filled.content[1] == {"type": "text", "text": "[image 1.png (PNG, 100 B): it is not shown here]"}


async def test_of_very_many_images_the_last_ones_are_sent() -> None:
    filled = await with_bytes([message(label(number)) for number in range(30)], read, model=SEES)

    assert [each.content[1]["type"] for each in filled] == ["text"] * 10 + ["image"] * 20


def test_an_image_has_one_price_however_many_bytes_it_has() -> None:
    without = estimate(HumanMessage([{"type": "text", "text": "Look."}]))
    inline = {"type": "image", "base64": "A" * 4_000_000, "mime_type": "image/png"}

    for content in (message(label(1, 5_000_000)).content, [{"type": "text", "text": "Look."}, inline]):
        assert IMAGE_TOKENS <= estimate(HumanMessage(content)) - without < IMAGE_TOKENS + 500


def test_another_image_is_another_request() -> None:
    def hashes(*labels: ImageLabel) -> Any:
        request: ModelRequest[Any] = ModelRequest(model=FakeListChatModel(responses=[]), messages=[message(*labels)])
        return Fingerprints().of_request(request, "lane").hashes["messages"]

    assert hashes(label(1)) == hashes(label(1))
    assert hashes(label(1)) != hashes(label(2))
