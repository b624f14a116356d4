"""Only data is loaded; what could run, hang or fill memory is refused before anything is built."""

import os
import pickle

import pytest

from captures.pickle_data import PickleRefusedError, load_data

VALUE = {"a": [1, -2, 3 << 40, 2.5, None, True, "text"], "b": {"t": (0, 7)}, "c": [[], {}]}


@pytest.mark.parametrize("protocol", range(6))
def test_data_of_every_protocol_is_loaded(protocol: int) -> None:
    assert load_data(pickle.dumps(VALUE, protocol)) == VALUE


class _Evil:
    def __reduce__(self):
        return os.mkdir, ("/tmp/warpboard_was_here",)


@pytest.mark.parametrize("protocol", range(6))
def test_code_is_refused_and_not_run(protocol: int) -> None:
    with pytest.raises(PickleRefusedError, match="not a data opcode"):
        load_data(pickle.dumps({"a": _Evil()}, protocol))
    assert not os.path.exists("/tmp/warpboard_was_here")


def _nested_tuples() -> bytes:
    value: tuple = (1, 2)
    for _ in range(60):
        value = (value, value)
    return pickle.dumps([value], 4)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04Nr\xff\xff\xff\x7f.",  # a memo of 2**31 slots
        b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7fabc.",  # a text of 2**63 bytes
        b"\x80\x04\x8b\xff\xff\xff\x7f.",  # an integer of 2**31 bytes
        _nested_tuples(),  # 2**60 hashes, were it a key
        b"\x80\x05\x97.",  # a buffer from outside
        b"Pabc\n.",  # a persistent id
        b"\x80\x04N",  # no end
        b"\x80\x04N.N",  # more after the end
        b"\x80\x04h\x05.",  # an object never stored
        b".",
        b"",
    ],
)
def test_bombs_and_damage_are_refused(data: bytes) -> None:
    with pytest.raises(PickleRefusedError, match="at byte"):
        load_data(data)


def test_deep_lists_do_not_overflow_the_stack() -> None:
    depth = 200_000
    assert isinstance(load_data(b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."), list)


def test_code_behind_much_data_is_found_at_its_byte() -> None:
    data = pickle.dumps({"a": [[1 << 50, i, True, None, "x", 1 << 20] for i in range(300)]}, 4)
    end = len(data) - 1
    with pytest.raises(PickleRefusedError, match=f"GLOBAL is not a data opcode at byte {end}"):
        load_data(data[:end] + b"cos\nmkdir\n.")


@pytest.mark.parametrize("tail", [b"\x8a\x08\0\0", b"J\0", b"\x95\0\0"])
def test_data_cut_off_within_a_value_is_refused(tail: bytes) -> None:
    with pytest.raises(PickleRefusedError, match=r"cut off|past the end"):
        load_data(b"\x80\x04" + b"]\x94h\0" * 50 + tail)
