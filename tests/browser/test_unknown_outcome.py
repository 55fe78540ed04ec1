"""A call that was in flight when everything died: a person says in the browser what became of it, and that happens."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from socket import gethostname

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served
from tests.support.lost_command import CHARGE, count_charges, lose_the_charge
from tests.support.model_server import Asks, ModelServer, Says, asks, own_persona

TITLES = ("To be made again", "Has happened", "Is given up")
CHARGED = {"charged": 5, "of": "<b>card</b>"}


def write(name: str) -> Asks:
    note = {"summary": "What was charged.", "points": ["once", "or twice"]}
    return asks(("write_file", {"file_path": f"/{name}.json", "content": json.dumps(note)}))


@dataclass(frozen=True)
class Lost:
    """A server, started anew after it was killed in the middle of the charges of its runs."""

    served: Served
    model: ModelServer
    run_ids: dict[str, str]

    def count_charges(self, title: str) -> int:
        return count_charges(self.served.folder / "data", self.run_ids[title])


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    folder = tmp_path_factory.mktemp("lost")
    charge = [asks(("execute", {"command": CHARGE})), write("draft"), Says("Done.")]
    script = {"You do phase `draft`": charge, "": [write("final"), Says("Done.")]}
    with ModelServer(script) as model, ExitStack() as ended:
        personas = folder / "config" / "holdfast" / "personas"
        personas.mkdir(parents=True)
        (personas / "mine.yaml").write_text(own_persona(model.address, "spec_write, shell"))
        served = Served(folder).start()
        ended.callback(served.stop)
        options = {"simulate": False, "persona_overrides": {"author": "mine"}}
        run_ids = {title: served.start_run("plain", title=title, **options) for title in TITLES}
        killed = ExitStack()
        killed.callback(served.kill)
        lose_the_charge(killed, folder / "data", runs=len(TITLES))
        served.start()
        for run_id in run_ids.values():
            served.wait_for(run_id, "paused")
        yield Lost(served, model, run_ids)


def open_question(lost: Lost, open_page: OpenPage, title: str) -> Page:
    """From the inbox to the card that asks."""
    page = open_page(lost.served)
    entry = page.locator(".inbox li").filter(has_text=title)
    expect(entry).to_contain_text("What became of a call in “draft”?")
    entry.get_by_role("link", name="Read and decide").click()
    expect(page.locator("h1")).to_have_text(title)
    return page


def check_over(lost: Lost, page: Page, title: str, state: str) -> None:
    expect(page.locator(".approval")).to_have_count(0)
    lost.served.wait_for(lost.run_ids[title], state)
    page.goto(lost.served.url)
    expect(page.locator(".runs tbody tr").filter(has_text=title)).to_be_visible()
    expect(page.locator(".inbox li").filter(has_text=title)).to_have_count(0)


def test_a_call_in_doubt_is_made_again(lost: Lost, open_page: OpenPage) -> None:
    title = "To be made again"
    page = open_question(lost, open_page, title)
    card = page.locator(".approval")
    expect(page.locator(".run-status")).to_contain_text("only a person can say what became of it")
    expect(card.get_by_role("heading")).to_contain_text("What became of a call in “draft”?")
    expect(card.locator("dl.pairs dt")).to_have_text(["Tool"])
    expect(card.locator("header")).to_contain_text(f"its process ended during the call, begun on {gethostname()} at ")
    expect(card.locator("pre")).to_contain_text("$ echo charged >> charges.txt")
    expect(card).to_contain_text("If it had worked, its effect happens twice.")
    expect(card.get_by_label("Comment")).to_have_count(0)
    assert lost.count_charges(title) == 1

    card.get_by_role("button", name="Make the call again").dblclick()

    expect(page.locator(".run-status")).to_contain_text("Completed")
    check_over(lost, page, title, "completed")
    assert lost.count_charges(title) == 2


def test_a_call_that_had_worked_is_given_its_result_and_not_made_again(lost: Lost, open_page: OpenPage) -> None:
    title = "Has happened"
    page = open_question(lost, open_page, title)

    page.locator(".approval").get_by_role("button", name="Give the result…").click()
    result = page.get_by_role("dialog").get_by_label("Result")
    expect(result).to_be_focused()
    result.fill(json.dumps(CHARGED))
    page.get_by_role("button", name="Go on with this result").click()

    expect(page.locator(".run-status")).to_contain_text("Completed")
    check_over(lost, page, title, "completed")
    assert lost.count_charges(title) == 1
    answers = [json.loads(text) for text in list_charge_messages(lost.model) if text.startswith("{")]
    assert answers == [CHARGED]


def test_a_call_in_doubt_can_fail_its_phase(lost: Lost, open_page: OpenPage) -> None:
    title = "Is given up"
    page = open_question(lost, open_page, title)

    page.locator(".approval").get_by_role("button", name="Fail the phase…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Phase “draft” fails; the run can be retried.")
    dialog.get_by_role("button", name="Fail the phase").click()

    expect(page.locator(".run-status")).to_contain_text("failed")
    check_over(lost, page, title, "failed")
    assert lost.count_charges(title) == 1


def list_charge_messages(model: ModelServer) -> list[str]:
    """What the model was told of the charges."""
    conversations = [each.body["messages"] for each in model.received if each.place == ("You do phase `draft`", 1)]
    return [messages[-1]["content"] for messages in conversations]
