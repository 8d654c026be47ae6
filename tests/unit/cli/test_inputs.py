"""Values of options."""

from __future__ import annotations

import pytest

from clia.cli import inputs
from clia.errors import InvalidInput


@pytest.mark.parametrize("text", ["{", "", "NaN", "[1] x", "[" * 100_000])
def test_invalid_json_is_refused_and_the_option_is_named(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        inputs.json_value(text, "--input")
    assert (caught.value.code, caught.value.fields) == ("invalid-json", {"field": "--input"})
