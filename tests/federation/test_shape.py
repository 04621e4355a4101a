import json
from typing import Any

import mcp_types
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from mcp_federator.federation.shape import Annotations, Content, Icon, Resource, Shape, Template, optional

any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
texts = st.none() | st.text() | any_json
audiences = st.lists(st.sampled_from(["user", "assistant", "robot", 5]), max_size=2)
themes = st.sampled_from(["dark", "light", "blue"])
members: dict[str, st.SearchStrategy[Any]] = {
    "uri": st.text() | texts,
    "uriTemplate": st.text() | texts,
    "name": st.text() | texts,
    "src": st.text() | texts,
    "text": texts,
    "blob": texts,
    "title": texts,
    "description": texts,
    "mimeType": texts,
    "size": st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_json,
    "icons": st.lists(st.fixed_dictionaries({"src": st.text()}, optional={"theme": themes | any_json}))
    | any_json,
    "annotations": st.fixed_dictionaries({}, optional={"audience": audiences, "priority": st.floats(-1, 2)})
    | any_json,
    "_meta": st.dictionaries(st.text(max_size=3), any_json, max_size=2) | any_json,
    "audience": audiences | any_json,
    "priority": st.floats(-1, 2) | st.integers(-1, 2) | any_json,
    "lastModified": texts,
    "sizes": st.lists(st.text() | any_json, max_size=2) | any_json,
    "theme": themes | any_json,
    "x": any_json,
}
SHAPES: dict[type[Shape], tuple[type[BaseModel], ...]] = {
    Resource: (mcp_types.Resource,),
    Template: (mcp_types.ResourceTemplate,),
    Icon: (mcp_types.Icon,),
    Annotations: (mcp_types.Annotations,),
    Content: (mcp_types.TextResourceContents, mcp_types.BlobResourceContents),
}
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)


def fits(shape: type[Shape], text: str) -> bool:
    try:
        msgspec.json.decode(text, type=shape)
    except msgspec.ValidationError:
        return False
    return True


def official(shape: type[Shape], text: str, *, strict: bool) -> bool:
    """Whether one of the official types of that name takes the text."""
    for model in SHAPES[shape]:
        try:
            model.model_validate_json(text, strict=strict)
        except ValidationError:
            continue
        return True
    return False


@each_shape
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_H13_a_shape_is_what_the_schema_has(shape: type[Shape], data: st.DataObject) -> None:
    """All that passes satisfies the official types, and nothing that does so strictly is refused."""
    names = {name for model in SHAPES[shape] for name in _names(model)}
    known = {name: members[name] for name in sorted(names)}
    required = {name for name in known if name not in optional(shape) or name == "uri"}
    item = data.draw(
        st.fixed_dictionaries(
            {name: known[name] for name in sorted(required)},
            optional={name: it for name, it in known.items() if name not in required} | {"x": members["x"]},
        )
    )
    text = json.dumps(item)
    if fits(shape, text):
        assert item.get("uri", "") is None or official(shape, text, strict=False)
    elif not (shape is Content and {type(item.get("text")), type(item.get("blob"))} > {str}):
        assert not official(shape, text, strict=True)


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


@each_shape
def test_the_optional_members_are_those_of_the_schema(shape: type[Shape]) -> None:
    """By the names that they have in JSON; contents take even their URI from elsewhere."""
    named = {
        field.alias or name
        for model in SHAPES[shape]
        for name, field in model.model_fields.items()
        if not field.is_required()
    }
    assert optional(shape) == named | ({"uri", "text", "blob"} if shape is Content else set())


@pytest.mark.parametrize(
    ("item", "good"),
    [
        ('{"text":""}', True),
        ('{"blob":""}', True),
        ('{"text":"t","blob":null}', True),
        ('{"text":null,"blob":"t"}', True),
        ('{"text":"t","blob":"t"}', True),
        ('{"text" : "t"}', True),
        ('{"blob":"not base64!"}', True),
        ("{}", False),
        ('{"text":null,"blob":null}', False),
        ('{"text":"t","blob":5}', False),
        ('{"text":[],"blob":"t"}', False),
        ('{"text":true}', False),
    ],
)
def test_contents_are_a_text_or_a_blob(item: str, good: bool) -> None:
    """A string; beside it the other may be null or a string too, but nothing else."""
    assert fits(Content, item) is good
