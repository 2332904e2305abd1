"""Gives each test of the zoo the statics of its module, and the places of each."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "static" not in metafunc.fixturenames:
        return
    statics = metafunc.module.STATICS
    if "place" in metafunc.fixturenames:
        cases = [(name, place) for name, static in statics.items() for place in static.places]
        values = [(statics[name], place) for name, place in cases]
        metafunc.parametrize(("static", "place"), values, ids=[" in ".join(c) for c in cases])
    else:
        metafunc.parametrize("static", statics.values(), ids=list(statics))
