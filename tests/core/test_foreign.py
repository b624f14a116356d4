"""A JSON document of any shape is parsed quickly or refused: nothing else runs meanwhile."""

import time

import pytest

from core.foreign import bounded_json

HEAVY = {
    "empty lists": lambda: b'{"passes":[' + b"[]," * (5 << 20) + b"1]}",
    "numbers": lambda: b'{"passes":[' + b"1," * (7 << 20) + b"1]}",
    "keys": lambda: keys(1_300_000, b'"%d":1'),
    "keys and blanks": lambda: keys(1_100_000, b'"%d" :1'),
    "UTF-16": lambda: '{"gpu":{"a":1}}'.encode("utf-16"),
    "UTF-32": lambda: '{"gpu":{"a":1}}'.encode("utf-32-le"),
    "nested": lambda: b'{"gpu":' + b"[" * 90_000 + b"]" * 90_000 + b"}",
    "digits": lambda: b'{"gpu":' + b"9" * (15 << 20) + b"}",
    "no end": lambda: b'{"gpu":"' + b"\\u" * (7 << 20),
    "nothing": lambda: b"",
    "no text": lambda: b"\xff\xfe\x00",
}
"""What makes each document: every process of the tests reads this, and one runs them."""


def keys(number: int, entry: bytes) -> bytes:
    return b'{"gpu":{' + b",".join(entry % n for n in range(number)) + b"}}"


@pytest.mark.parametrize("kind", HEAVY)
def test_a_document_that_would_take_long_is_refused_at_once(kind: str) -> None:
    body = HEAVY[kind]()
    began_s = time.process_time()
    with pytest.raises(ValueError):
        bounded_json(body)
    assert time.process_time() - began_s < 0.5


def test_the_largest_document_that_is_sent_is_parsed_in_less_than_a_second() -> None:
    body = b'{"passes":[' + b"1234567890," * 1_000_000 + b"1]}"
    began_s = time.process_time()
    assert len(bounded_json(body)["passes"]) == 1_000_001
    assert time.process_time() - began_s < 1
