"""Parses one TensorFlow event: its time, its step, its scalars, and the kinds of what else it holds.

Reads the few protocol buffer fields that matter, of every writer: TF1's and PyTorch's ``simple_value``, TF2's and
Keras's scalar tensors. ``scalars`` reads whole files with templates, and calls this where none fits.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_WALL_TIME, _STEP, _GRAPH, _SUMMARY, _META_GRAPH = 1, 2, 4, 5, 9
_VALUE = 1
_TAG, _SIMPLE, _OLD_HISTOGRAM, _IMAGE, _HISTOGRAM, _AUDIO, _TENSOR, _METADATA = 1, 2, 3, 4, 5, 6, 8, 9
_PLUGIN, _PLUGIN_NAME = 1, 1
_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
_SHAPE_DIM, _DIM_SIZE = 2, 1

_KINDS = {_OLD_HISTOGRAM: "histograms", _IMAGE: "images", _HISTOGRAM: "histograms", _AUDIO: "audio clips"}
_PLUGIN_KINDS = {
    "text": "texts",
    "audio": "audio clips",
    "pr_curves": "PR curves",
    "custom_scalars": "layouts",
}

_DTYPES: Dict[int, Tuple[str, int, int]] = {
    # dtype: layout of an element in tensor_content, and field and wire type of elements elsewhere
    1: ("<f", 5, _FIXED32),
    2: ("<d", 6, _FIXED64),
    3: ("<i", 7, _VARINT),
    4: ("<B", 7, _VARINT),
    6: ("<b", 7, _VARINT),
    9: ("<q", 10, _VARINT),
    10: ("<?", 11, _VARINT),
    14: ("bfloat16", 13, _VARINT),
    19: ("<e", 13, _VARINT),
}
_HALF, _BFLOAT16 = 19, 14


class Malformed(Exception):
    """The bytes are not an event."""


class ScalarValue(NamedTuple):
    """A scalar in an event."""

    tag: str
    value: float
    at: int
    """The offset of the value's bytes in the payload; -1 if it has no fixed layout there."""
    layout: str
    """The layout of the value's bytes, for ``struct``."""


class Event(NamedTuple):
    """What matters of an event."""

    wall_time: float
    step: int
    scalars: List[ScalarValue]
    others: List[Tuple[str, str]]
    """Kind and tag of what is not a scalar."""


class ProtoField(NamedTuple):
    """One field of a protocol buffer."""

    number: int
    wire: int
    value: int
    """The number itself, or where the bytes begin."""
    size: int


def parse(data: bytes) -> Event:
    """Read an event.

    Raises:
        Malformed: it is none.
    """
    wall_time, step = 0.0, 0
    scalars: List[ScalarValue] = []
    others: List[Tuple[str, str]] = []
    try:
        for field in proto_fields(data, 0, len(data)):
            if field.number == _WALL_TIME and field.wire == _FIXED64:
                (wall_time,) = struct.unpack_from("<d", data, field.value)
            elif field.number == _STEP and field.wire == _VARINT:
                step = field.value - (1 << 64) if field.value >> 63 else field.value
            elif field.number == _SUMMARY and field.wire == _BYTES:
                for value in proto_fields(data, field.value, field.value + field.size):
                    if value.number == _VALUE and value.wire == _BYTES:
                        _read_value(data, value, scalars, others)
            elif field.number in (_GRAPH, _META_GRAPH):
                others.append(("graphs", ""))
    except (IndexError, struct.error) as error:
        raise Malformed(str(error)) from error
    return Event(wall_time, step, scalars, others)


def proto_fields(data: bytes, at: int, end: int) -> Iterator[ProtoField]:
    """Yield the fields of a protocol buffer between two offsets.

    Raises:
        Malformed: it is none.
    """
    while at < end:
        key, at = _varint(data, at, end)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at, end)
            yield ProtoField(number, wire, value, 0)
            continue
        if wire == _BYTES:
            size, at = _varint(data, at, end)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise Malformed("wire type %d" % wire)
        if at + size > end:
            raise Malformed("a field runs over its end")
        yield ProtoField(number, wire, at, size)
        at += size


def _varint(data: bytes, at: int, end: int) -> Tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Malformed("a number without an end")


def _text(data: bytes, field: ProtoField) -> str:
    return data[field.value : field.value + field.size].decode("utf-8", "replace")


def _read_value(
    data: bytes, value: ProtoField, scalars: List[ScalarValue], others: List[Tuple[str, str]]
) -> None:
    tag, plugin, kind = "", "", ""
    simple: Optional[ProtoField] = None
    tensor: Optional[ProtoField] = None
    for field in proto_fields(data, value.value, value.value + value.size):
        if field.number == _TAG and field.wire == _BYTES:
            tag = _text(data, field)
        elif field.number == _SIMPLE and field.wire == _FIXED32:
            simple = field
        elif field.number == _TENSOR and field.wire == _BYTES:
            tensor = field
        elif field.number == _METADATA and field.wire == _BYTES:
            plugin = _plugin(data, field)
        elif field.number in _KINDS:
            kind = _KINDS[field.number]
    if simple is not None:
        (number,) = struct.unpack_from("<f", data, simple.value)
        scalars.append(ScalarValue(tag, number, simple.value, "<f"))
        return
    if tensor is not None and plugin in ("", "scalars"):
        found = _scalar_tensor(data, tensor)
        if found is not None:
            scalars.append(ScalarValue(tag, *found))
            return
    if not kind:
        kind = _PLUGIN_KINDS.get(plugin, plugin) or "tensors"
    others.append((kind, tag))


def _plugin(data: bytes, metadata: ProtoField) -> str:
    for field in proto_fields(data, metadata.value, metadata.value + metadata.size):
        if field.number == _PLUGIN and field.wire == _BYTES:
            for inner in proto_fields(data, field.value, field.value + field.size):
                if inner.number == _PLUGIN_NAME and inner.wire == _BYTES:
                    return _text(data, inner)
    return ""


def _scalar_tensor(data: bytes, tensor: ProtoField) -> Optional[Tuple[float, int, str]]:
    """Return value, offset and layout of a tensor that is one number; None for any other."""
    fields = list(proto_fields(data, tensor.value, tensor.value + tensor.size))
    known = _DTYPES.get(next((field.value for field in fields if field.number == _DTYPE), 0))
    if known is None:
        return None
    layout, number, wire = known
    elements: List[Tuple[Any, int, str]] = []
    for field in fields:
        if field.number == _SHAPE and field.wire == _BYTES:
            for dim in proto_fields(data, field.value, field.value + field.size):
                if dim.number == _SHAPE_DIM and dim.wire == _BYTES and not _is_one(data, dim):
                    return None
        elif field.number == _CONTENT and field.wire == _BYTES and field.size:
            elements.append(_content(data, field, layout))
        elif field.number == number:
            elements += _listed(data, field, layout, wire)
    if len(elements) != 1 or elements[0][0] is None:
        return None
    return elements[0]


def _is_one(data: bytes, dim: ProtoField) -> bool:
    for field in proto_fields(data, dim.value, dim.value + dim.size):
        if field.number == _DIM_SIZE:
            return field.value == 1
    return False


def _content(data: bytes, field: ProtoField, layout: str) -> Tuple[Any, int, str]:
    if layout == "bfloat16":
        return (_bfloat16(data[field.value : field.value + 2]) if field.size == 2 else None), -1, layout
    if struct.calcsize(layout) != field.size:
        return None, -1, layout
    (value,) = struct.unpack_from(layout, data, field.value)
    return value, field.value, layout


def _listed(data: bytes, field: ProtoField, layout: str, wire: int) -> List[Tuple[Any, int, str]]:
    """Return the elements in a repeated field, packed or not."""
    if wire != _VARINT:
        size = struct.calcsize(layout)
        offsets = range(field.value, field.value + field.size, size)
        if field.wire not in (wire, _BYTES) or field.size % size:
            return []
        return [(struct.unpack_from(layout, data, offset)[0], offset, layout) for offset in offsets]
    numbers = [field.value] if field.wire == _VARINT else []
    at, end = (0, 0) if field.wire == _VARINT else (field.value, field.value + field.size)
    while at < end:
        value, at = _varint(data, at, end)
        numbers.append(value)
    return [(_from_varint(value, layout), -1, layout) for value in numbers]


def _from_varint(value: int, layout: str) -> float:
    if layout == "bfloat16":
        return _bfloat16(struct.pack("<H", value & 0xFFFF))
    if layout == "<e":
        half: float = struct.unpack("<e", struct.pack("<H", value & 0xFFFF))[0]
        return half
    return value - (1 << 64) if value >> 63 else value


def _bfloat16(data: bytes) -> float:
    value: float = struct.unpack("<f", b"\0\0" + data)[0]
    return value
