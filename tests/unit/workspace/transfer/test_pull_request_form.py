"""The form of a repository's host that asks for the merge of a run's result."""

import pytest

from holdfast.workspace.transfer.pull_request_form import find_pull_request_form

BRANCH = "run-1a2b3c4d-pay-in-instalments"


@pytest.mark.parametrize(
    ("repository", "form"),
    [
        ("https://github.com/team/shop.git", f"https://github.com/team/shop/compare/main...{BRANCH}?expand=1"),
        ("git@github.com:team/shop.git", f"https://github.com/team/shop/compare/main...{BRANCH}?expand=1"),
        ("ssh://git@github.example.org/team/shop", "https://github.example.org/team/shop/compare/main..."),
        ("https://gitlab.com/a/b/shop", "https://gitlab.com/a/b/shop/-/merge_requests/new?merge_request%5Bsource_"),
        ("https://bitbucket.org/team/shop", "https://bitbucket.org/team/shop/pull-requests/new?source=run-1a2b3c4d"),
        ("https://codeberg.org/team/shop", f"https://codeberg.org/team/shop/compare/main...{BRANCH}"),
    ],
)
def test_the_form_is_known_by_the_repository(repository: str, form: str) -> None:
    found = find_pull_request_form(repository, base="main", title="Pay in instalments!", run_id="1a2b3c4d-ffff")

    assert found is not None
    assert found.branch == BRANCH
    assert found.url.startswith(form)


@pytest.mark.parametrize(
    "repository",
    ["/srv/shop", "file:///srv/team/shop", "https://github.com/shop", "https://example.org/team/shop", "https://["],
)
def test_what_has_no_known_form_offers_none(repository: str) -> None:
    assert find_pull_request_form(repository, base="main", title="T", run_id="1a2b3c4d") is None


def test_names_cannot_lead_elsewhere() -> None:
    found = find_pull_request_form("https://github.com/a%2f/b?x#y", base="a/b?c#d&e", title="</a>", run_id="1a2b3c4d")

    assert found is not None
    assert found.url == "https://github.com/a%252f/b/compare/a%2Fb%3Fc%23d%26e...run-1a2b3c4d-a?expand=1"
