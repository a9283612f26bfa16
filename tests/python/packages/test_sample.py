"""Tests for pytest itself to run: fixtures, parameters, an error that is expected, captured output."""

import pytest

cache = {}


def remember(number):
    cache[number] = bytearray(40_000 + number)  # the leak


@pytest.fixture
def values(tmp_path):
    file = tmp_path / "values.txt"
    file.write_text("\n".join(map(str, range(100))))
    return [int(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("number", range(120))
def test_sum(values, number):
    remember(number)
    assert sum(values) + number == 4950 + number


def test_error(capsys):
    print("seen")
    with pytest.raises(ZeroDivisionError):
        1 / 0
    assert capsys.readouterr().out == "seen\n"
