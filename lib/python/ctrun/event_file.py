"""TensorBoard event files: protobuf `Event` messages in TFRecord frames, as lib/train/event_file.h describes them."""
from __future__ import annotations

import struct

_MASK = 0xffffffff


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE = _make_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of the bytes."""
    crc = _MASK
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xff]
    return crc ^ _MASK


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17 & _MASK) + 0xa282ead8) & _MASK)


def _varint(value: int) -> bytes:
    data = bytearray()
    while True:
        data.append(value & 0x7f | (0x80 if value > 0x7f else 0))
        value >>= 7
        if value == 0:
            return bytes(data)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _event(wall_s: float, step: int, body: bytes) -> bytes:
    message = struct.pack("<Bd", 1 << 3 | 1, wall_s)
    if step:
        message += _varint(2 << 3) + _varint(step)
    message += body
    head = struct.pack("<Q", len(message))
    return head + _masked(head) + message + _masked(message)


def version(wall_s: float) -> bytes:
    """Return the first event of a file."""
    return _event(wall_s, 0, _bytes(3, b"brain.Event:2"))


def start(wall_s: float, step: int) -> bytes:
    """Return the start of a session: TensorBoard drops records of `step` and later ones of the folder's older files."""
    return _event(wall_s, step, _bytes(7, b"\x08\x01"))


def scalars(wall_s: float, step: int, values: dict[str, float]) -> bytes:
    """Return the scalars of one step, by their tags."""
    summary = b""
    for tag, value in values.items():
        try:
            number = struct.pack("<f", value)
        except OverflowError:  # too large for a float
            number = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
        summary += _bytes(1, _bytes(1, tag.encode()) + bytes([2 << 3 | 5]) + number)
    return _event(wall_s, step, _bytes(5, summary))
