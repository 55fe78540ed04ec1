"""Statements with `:name` parameters, as psycopg gets them."""

import pytest

from holdfast.runtime.checkpoint.postgres.transaction import to_postgres


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE t SET a = :a WHERE b=:b_2", "UPDATE t SET a = %(a)s WHERE b=%(b_2)s"),
        ("SELECT :a::text, now()::date", "SELECT %(a)s::text, now()::date"),
        ("SELECT 'at :time', 'it''s :x', :y", "SELECT 'at :time', 'it''s :x', %(y)s"),
        (r"SELECT E'\':x', :y", r"SELECT E'\':x', %(y)s"),
        ('SELECT ":col" FROM t WHERE x = :x', 'SELECT ":col" FROM t WHERE x = %(x)s'),
        ("SELECT $$:a$$, $q$ :b $q$, :c", "SELECT $$:a$$, $q$ :b $q$, %(c)s"),
        ("SELECT 1 -- :no\n, /* :no */ :yes", "SELECT 1 -- :no\n, /* :no */ %(yes)s"),
        ("SELECT 5 % 2, '100 %' LIKE '%:x%'", "SELECT 5 %% 2, '100 %%' LIKE '%%:x%%'"),
        ("SELECT :ä", "SELECT :ä"),
    ],
)
def test_names_become_parameters_and_nothing_else_changes(statement: str, expected: str) -> None:
    assert to_postgres(statement) == expected.encode()
