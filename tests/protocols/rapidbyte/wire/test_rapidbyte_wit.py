"""Our WIT against what components built from it import and export (issue 5, part 1). The C guest is
made from the text by this suite's own generator; the Python guest by componentize-py, whose reading
of WIT is the Bytecode Alliance's."""

from typing import Any

import pytest
import rapidbyte_guests
from wasmtime.component import Component
from wit_text import read

from penstock.protocols.rapidbyte.wire import wit
from penstock.runtimes.wasm.clock import clocked

WIT = read()
WORLDS = {
    "rapidbyte-source": (["host"], ["source"]),
    "rapidbyte-destination": (["host"], ["destination"]),
    "rapidbyte-transform": (["host"], ["transform"]),
    "rapidbyte-host": (["host"], []),
}


def test_the_package_and_its_four_worlds():
    assert WIT.package == "rapidbyte:connector@4.0.0"
    assert WIT.worlds == WORLDS


def test_the_host_has_nineteen_functions_and_ours_are_those():
    assert len(WIT.interfaces["host"].functions) == 19
    assert set(WIT.interfaces["host"].functions) == set(wit.FUNCTIONS)
    assert len(wit.FUNCTIONS) == 19


@pytest.mark.parametrize("role", ["source", "destination", "transform"])
def test_each_role_declares_its_functions_in_order(role: str):
    discover = ["discover"] if role == "source" else []
    expected = ["open", *discover, "validate", "run", "close"]
    assert list(WIT.interfaces[role].functions) == expected


def test_functions_are_grouped_by_the_shape_of_their_result():
    shapes: dict[str, str] = {}
    for name, (_, result) in WIT.interfaces["host"].functions.items():
        if result is None:
            shapes[name] = "none"
        elif result[1] is None:
            shapes[name] = "unit"
        elif isinstance(result[1], tuple) and result[1][0] == "option":
            shapes[name] = "option"
        else:
            shapes[name] = "socket" if str(result[1]).startswith("socket-") else "value"
    groups = {"none": wit.NO_RESULT, "unit": wit.UNIT_RESULT, "value": wit.VALUE_RESULT,
              "option": wit.OPTION_RESULT, "socket": wit.SOCKET_RESULT}  # fmt: skip
    for shape, names in groups.items():
        assert {n for n, s in shapes.items() if s == shape} == set(names)


def structure(type_: Any) -> Any:
    """A wasmtime type as ``wit_text`` writes types."""
    if type_ is None:
        return None
    kind = type(type_).__name__
    simple = {"Bool": "bool", "String": "string"}
    if kind in simple or not kind.endswith("Type"):
        return simple.get(kind, kind.lower())
    if kind == "ListType":
        return ("list", structure(type_.element))
    if kind == "OptionType":
        return ("option", structure(type_.payload))
    if kind == "ResultType":
        return ("result", structure(type_.ok), structure(type_.err))
    if kind == "EnumType":
        return ("enum", tuple(type_.names))
    members = type_.fields if kind == "RecordType" else type_.cases
    return (kind[: -len("Type")].lower(), tuple((n, structure(t)) for n, t in members))


def functions_of(instance: Any) -> dict[str, Any]:
    engine = clocked().engine
    out: dict[str, Any] = {}
    for name, extern in instance.ty.exports(engine).items():
        if type(extern.ty).__name__ == "FuncType":
            params = tuple((n, structure(t)) for n, t in extern.ty.params)
            out[name] = (params, structure(extern.ty.result))
    return out


def compare(component: Component, role: str, *, whole: bool) -> None:
    engine = clocked().engine
    host = functions_of(component.type.imports(engine)[wit.HOST])
    assert host
    if whole:
        assert set(host) == set(WIT.interfaces["host"].functions)
    for name, signature in host.items():
        assert signature == WIT.function("host", name), name
    exported = functions_of(component.type.exports(engine)[wit.interface(role)])
    assert set(exported) == set(WIT.interfaces[role].functions)
    for name, signature in exported.items():
        assert signature == WIT.function(role, name), name


@pytest.mark.parametrize("role", ["source", "destination", "transform"])
def test_a_c_component_imports_and_exports_what_the_wit_says(role: str):
    component = Component(clocked().engine, rapidbyte_guests.c_guest(role))
    compare(component, role, whole=True)


@pytest.mark.slow
def test_so_does_one_that_an_independent_tool_built_from_it(cache: Any):
    compare(cache.component(rapidbyte_guests.python_guest()), "source", whole=False)
