"""A JSON document of any shape is parsed quickly or refused: nothing else runs meanwhile."""

import time

import pytest

from core.foreign import bounded_json

HEAVY = {
    "empty lists": b'{"passes":[' + b"[]," * (5 << 20) + b"1]}",
    "numbers": b'{"passes":[' + b"1," * (7 << 20) + b"1]}",
    "keys": b'{"gpu":{' + b",".join(b'"%d":1' % n for n in range(1_300_000)) + b"}}",
    "keys and blanks": b'{"gpu":{' + b",".join(b'"%d" :1' % n for n in range(1_100_000)) + b"}}",
    "UTF-16": '{"gpu":{"a":1}}'.encode("utf-16"),
    "UTF-32": '{"gpu":{"a":1}}'.encode("utf-32-le"),
    "nested": b'{"gpu":' + b"[" * 90_000 + b"]" * 90_000 + b"}",
    "digits": b'{"gpu":' + b"9" * (15 << 20) + b"}",
    "no end": b'{"gpu":"' + b"\\u" * (7 << 20),
    "nothing": b"",
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("body", HEAVY.values(), ids=HEAVY)
def test_a_document_that_would_take_long_is_refused_at_once(body: bytes) -> None:
    began_s = time.process_time()
    with pytest.raises(ValueError):
        bounded_json(body)
    assert time.process_time() - began_s < 0.5


def test_the_largest_document_that_is_sent_is_parsed_in_less_than_a_second() -> None:
    body = b'{"passes":[' + b"1234567890," * 1_000_000 + b"1]}"
    began_s = time.process_time()
    assert len(bounded_json(body)["passes"]) == 1_000_001
    assert time.process_time() - began_s < 1
