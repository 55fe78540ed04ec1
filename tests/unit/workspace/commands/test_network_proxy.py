import pytest

from holdfast.workspace.commands.network_proxy import HostRules, is_public, split_address

RULES = HostRules(["pypi.org", "*.npmjs.org:443", "localhost:8080", "[::1]:9000"])


@pytest.mark.parametrize(
    ("host", "port", "is_allowed"),
    [
        ("pypi.org", 443, True),
        ("pypi.org", 80, True),
        ("pypi.org", 22, False),
        ("evil-pypi.org", 443, False),
        ("pypi.org.evil.net", 443, False),
        ("registry.npmjs.org", 443, True),
        ("a.b.npmjs.org", 443, True),
        ("npmjs.org", 443, False),
        ("evilnpmjs.org", 443, False),
        ("registry.npmjs.org", 80, False),
        ("localhost", 8080, True),
        ("localhost", 80, False),
        ("::1", 9000, True),
        ("", 443, False),
    ],
)
def test_only_what_is_listed_is_allowed(host: str, port: int, is_allowed: bool) -> None:
    assert RULES.allows(host, port) is is_allowed


def test_a_pattern_does_not_name_a_host() -> None:
    assert RULES.names("localhost")
    assert not RULES.names("registry.npmjs.org")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1"),
        *("::ffff:10.0.0.1", "2002:7f00:1::", "ff02::1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "::ffff:0:7f00:1", "::7f00:1", "fec0::1"),
    ],
)
def test_addresses_of_this_machine_and_of_private_networks_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["151.101.0.223", "2a04:4e42::223", "64:ff9b::9765:df"])
def test_others_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("a.org", ("a.org", 0)), ("a.org:81", ("a.org", 81)), ("[::1]:81", ("::1", 81)), ("[::1]", ("::1", 0))],
)
def test_an_address_is_split(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize("text", ["a.org:", "a.org:0", "a.org:65536", "a.org:x", "[::1]:"])
def test_a_port_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no port"):
        split_address(text)
