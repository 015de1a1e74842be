import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costada.evaluators.sandbox.codec import LENGTH_BYTES, MAX_HEADER_BYTES, decode, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner), max_leaves=20
)


def message(header: object, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(LENGTH_BYTES, "big") + text + body


def array_message(dtype: object, shape: object, body: bytes) -> bytes:
    spec = {"dtype": dtype, "shape": shape}
    return message({"value": {"array": 0}, "arrays": [spec]}, body)


@given(values)
def test_plain_values_arrive_as_they_were(value):
    assert decode(encode(value)) == value


@given(st.lists(st.floats(), min_size=1), st.sampled_from([np.float32, np.float64]))
def test_float_arrays_arrive_bit_by_bit_as_float64(numbers, dtype):
    with np.errstate(over="ignore"):
        array = np.array(numbers).astype(dtype)
    arrived = decode(encode({"a": [array, 1]}))["a"][0]
    assert arrived.dtype == np.float64
    np.testing.assert_array_equal(arrived, array.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.bool_])
def test_integer_arrays_arrive_as_int64(dtype):
    arrived = decode(encode(np.array([[0, 1], [1, 0]], dtype)))
    assert arrived.dtype == np.int64
    assert arrived.tolist() == [[0, 1], [1, 0]]


def test_tuples_arrive_as_lists_and_numpy_scalars_as_numbers():
    arrived = decode(encode((np.float32(0.5), np.int16(3), np.array(2.5), np.True_, np.str_("a"))))
    assert arrived == [0.5, 3, 2.5, 1, "a"]


def test_numbers_that_are_not_finite_arrive():
    nan, inf = decode(encode([math.nan, math.inf]))
    assert math.isnan(nan)
    assert inf == math.inf


def test_arrays_in_any_memory_order_arrive():
    array = np.arange(6.0).reshape(2, 3).T
    assert decode(encode(array)).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_an_empty_array_keeps_its_shape():
    assert decode(encode(np.zeros((0, 3)))).shape == (0, 3)


class Lazy:
    def __array__(self, dtype=None, copy=None):
        return np.array([1.0, 2.0])


def test_an_object_that_makes_an_array_is_sent_as_that_array():
    assert decode(encode(Lazy())).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1j, "a value of type complex cannot be returned"),
        ({1, 2}, "a value of type set cannot be returned"),
        (object(), "a value of type object cannot be returned"),
        (np.array([1j]), "an array of complex128 values cannot be returned"),
        (np.array(["a"]), "an array of <U1 values cannot be returned"),
        (np.array([None]), "an array of object values cannot be returned"),
        (np.array([2**63], np.uint64), "an array of uint64 values cannot be returned"),
        (np.ma.array([1.0], mask=[True]), "a masked array cannot be returned"),
        ({1: 2}, "a dict key of type int cannot be returned"),
        (2**63, "an integer of more than 64 bits cannot be returned"),
        ("x" * MAX_HEADER_BYTES, "expected at most 4194304"),
    ],
)
def test_what_is_not_plain_data_is_refused_by_type(value, expected):
    with pytest.raises(ValueError, match=expected):
        encode(value)


def test_a_list_that_holds_itself_is_refused():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        encode(endless)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "0 arrived"),
        (bytes(8), "malformed header"),
        (b"\xff" * 20, "message announces"),
        (message({"value": 1, "arrays": []})[:-1], "message announces"),
        (message({"value": 1, "arrays": []}, b"x"), "1 bytes too many"),
        (message([]), "malformed header"),
        (message({"value": 1}), "malformed header"),
        (message({"value": 1, "arrays": 5}), "malformed header"),
        (message({"value": 1, "arrays": "ab"}), "array of unknown type"),
        (message({"value": {"array": 0}, "arrays": []}), "value of unknown form"),
        (message({"value": {"array": -1}, "arrays": []}), "value of unknown form"),
        (message({"value": {"dict": {}, "more": 1}, "arrays": []}), "value of unknown form"),
        (message({"value": 10**30, "arrays": []}), "more than 64 bits"),
        (array_message("object", [1], b"12345678"), "array of unknown type"),
        (array_message(["float64"], [1], b"12345678"), "array of unknown type"),
        (array_message("float64", [2], b"12345678"), "too few bytes"),
        (array_message("float64", [-1], b""), "array of shape"),
        (array_message("float64", [True], b"12345678"), "array of shape"),
        (array_message("float64", "1", b"12345678"), "array of shape"),
        (array_message("float64", [0, 10**30], b""), "too few bytes"),
        (array_message("float64", [1] * 100, b"12345678"), "dimension"),
        (array_message("float64", [10**4199] * 900, b""), "dimension"),
        (array_message("float64", [10**4199], b""), "too few bytes"),
        (array_message("float64", [-(10**4199)], b""), "array of shape"),
        (array_message("float64", [1], b"123456789"), "1 bytes too many"),
    ],
)
def test_a_forged_message_is_refused_in_few_words(data, expected):
    with pytest.raises(ValueError, match=expected) as refused:
        decode(data)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000])
def test_a_header_made_to_exhaust_the_reader_is_refused(text):
    header = b'{"arrays": [], "value": ' + text.encode()
    with pytest.raises(ValueError, match="malformed header"):
        decode(len(header).to_bytes(LENGTH_BYTES, "big") + header)


def test_values_nested_too_deep_are_refused():
    deep: list[object] = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        decode(message({"value": deep, "arrays": []}))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise_anything_but_a_value_error(data):
    try:
        decode(data)
    except ValueError:
        return
