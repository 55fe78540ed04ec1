"""Each route is found by its own word: the file has the name of a part of its path."""

from fastapi.routing import APIRoute

from holdfast.api.app import ROUTE_MODULES

OTHER_WORDS = {
    "control": {"resume", "retry", "pause", "abort", "fork"},
    "events": {"events", "history"},
    "sessions": {"session", "login"},
    "timeline": {"timeline", "model-call"},
    "diff": {"diff", "difference"},
}


def test_each_route_is_in_the_file_of_its_word() -> None:
    elsewhere = []
    for module in ROUTE_MODULES:
        name = module.__name__.rpartition(".")[2]
        for route in module.router.routes:
            assert isinstance(route, APIRoute)
            if not OTHER_WORDS.get(name, {name}) & set(route.path.split("/")):
                elsewhere.append(f"{route.path} is in {name}")

    assert elsewhere == []


def test_what_is_below_a_run_is_in_the_folder_of_a_run() -> None:
    below = {
        module.__name__
        for module in ROUTE_MODULES
        if all(route.path.startswith("/api/runs/") for route in module.router.routes if isinstance(route, APIRoute))
    }

    assert below == {module.__name__ for module in ROUTE_MODULES if ".routes.run." in module.__name__}
