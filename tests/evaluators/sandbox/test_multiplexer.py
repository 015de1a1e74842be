"""Connections over one channel: what is sent on one arrives on it, whole and in order."""

import os
import random
import select
import socket

import pytest

from costada.evaluators.sandbox.inside.multiplexer import HEADER, Multiplexer

MAX_PENDING = 256 * 1024


class Ends:
    """Two multiplexers, and both ends of the connections that the first has opened."""

    def __init__(self, accepts=True):
        ours, theirs = socket.socketpair()
        self.opened, self.far = [], []
        self.near = Multiplexer(ours.detach())
        accept = self._accept if accepts else lambda: None
        self.there = Multiplexer(theirs.detach(), accept, MAX_PENDING)

    def _accept(self):
        kept, end = socket.socketpair()
        kept.setblocking(False)
        self.far.append(kept)
        return end.detach()

    def open(self):
        kept, end = socket.socketpair()
        kept.setblocking(False)
        self.opened.append(kept)
        self.near.add(end.detach())
        return kept

    def settle(self):
        """Carry until nothing is left to do."""
        while ready := [
            each for each in (self.near, self.there) if each.is_open and is_ready(each.fileno())
        ]:
            for each in ready:
                each.process()

    def close(self):
        self.near.close()
        self.there.close()
        for each in (*self.opened, *self.far):
            each.close()


def is_ready(fd):
    return bool(select.select([fd], [], [], 0)[0])


def received(end):
    """What has come, and whether the connection is closed."""
    data = b""
    while True:
        try:
            chunk = end.recv(65536)
        except BlockingIOError:
            return data, False
        if not chunk:
            return data, True
        data += chunk


def sent(end, data):
    """Send what fits; what is left."""
    try:
        return data[end.send(data) :]
    except BlockingIOError:
        return data


@pytest.fixture
def ends():
    made = Ends()
    yield made
    made.close()


def test_connections_carry_their_own_bytes_both_ways(ends):
    first, second = ends.open(), ends.open()
    second.send(b"two")
    ends.settle()
    first.send(b"one")
    ends.settle()
    far_first, far_second = ends.far
    assert received(far_first) == (b"one", False)
    assert received(far_second) == (b"two", False)
    far_first.send(b"1")
    far_second.send(b"2")
    ends.settle()
    assert received(first) == (b"1", False)
    assert received(second) == (b"2", False)


@pytest.mark.parametrize("closes_near", [True, False])
def test_an_end_that_is_closed_closes_the_other_after_its_last_bytes(ends, closes_near):
    near, other = ends.open(), ends.open()
    near.send(b"first")
    other.send(b"stays")
    ends.settle()
    far, far_other = sorted(ends.far, key=lambda end: received(end) != (b"first", False))
    one, rest = (near, far) if closes_near else (far, near)
    one.send(b"last")
    one.close()
    ends.settle()
    assert received(rest) == (b"last", True)
    far_other.send(b"open")
    ends.settle()
    assert received(other) == (b"open", False)
    assert ends.near.num_connections == ends.there.num_connections == 1


@pytest.mark.parametrize("seed", range(5))
def test_megabytes_arrive_in_order_whoever_reads_slowly(ends, seed):
    chance = random.Random(seed)
    texts = {}
    for _ in range(4):
        near = ends.open()
        near.send(b".")
        ends.settle()
        far = ends.far[-1]
        assert received(far) == (b".", False)
        for one, other in ((near, far), (far, near)):
            texts[one] = [other, chance.randbytes(chance.randrange(2_000_000)), b""]
    wanted = {one: data for one, (_, data, _) in texts.items()}
    while any(left or texts[one][2] != wanted[one] for one, (_, left, _) in texts.items()):
        one = chance.choice(list(texts))
        other, left, _ = texts[one]
        if chance.random() < 0.5:
            texts[one][1] = sent(one, left)
        else:
            data, is_closed = received(other)
            assert not is_closed
            texts[one][2] += data
        for each in (ends.near, ends.there):
            each.process()
    assert {one: got for one, (_, _, got) in texts.items()} == wanted


def test_a_slow_reader_holds_back_the_sender_and_no_more_than_the_bound_waits(ends):
    near = ends.open()
    total = 0
    while True:
        before = total
        left = sent(near, bytes(65536))
        total += 65536 - len(left)
        ends.settle()
        if total == before:
            break
    waiting = sum(len(each.pending) for each in ends.there._connections.values())
    assert MAX_PENDING < waiting < MAX_PENDING + 2 * 65536
    data, _ = received(ends.far[0])
    while len(data) < total:
        ends.settle()
        data += received(ends.far[0])[0]
    assert data == bytes(total)


def test_an_end_that_never_reads_is_not_read_from_without_bound():
    channel, theirs = socket.socketpair()
    channel.setblocking(False)
    there = Multiplexer(theirs.detach(), lambda: None, 4096)
    number = refused = 0
    while number == 0 or refused != number:
        refused = number
        for _ in range(10_000):
            try:
                channel.send(HEADER.pack(number + 1, 0))
            except BlockingIOError:
                break
            number += 1
        while is_ready(there.fileno()):
            there.process()
    assert 0 < len(there._channel.pending) < 4096 + 65536
    there.close()
    channel.close()


def test_a_connection_that_is_refused_is_closed():
    ends = Ends(accepts=False)
    near = ends.open()
    near.send(b"hello")
    ends.settle()
    assert received(near) == (b"", True)
    assert ends.there.num_opened == 1
    assert ends.near.num_connections == ends.there.num_connections == 0
    ends.close()


def test_the_end_of_the_channel_closes_all_connections(ends):
    near = ends.open()
    near.send(b"x")
    ends.settle()
    ends.near.close()
    ends.settle()
    assert not ends.there.is_open
    assert received(ends.far[0]) == (b"x", True)
    assert received(near) == (b"", True)


@pytest.mark.parametrize(
    "garbage",
    [
        HEADER.pack(1, 65537),
        HEADER.pack(1, 2**32 - 1) + bytes(70_000),
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\nHost: models\r\n\r\n",
    ],
)
def test_a_malformed_frame_closes_the_channel(garbage):
    channel, theirs = socket.socketpair()
    accepted = []
    there = Multiplexer(theirs.detach(), lambda: accepted.append(1), MAX_PENDING)
    channel.sendall(garbage)
    while there.is_open and is_ready(there.fileno()):
        there.process()
    assert not there.is_open
    assert accepted == []
    channel.close()


@pytest.mark.parametrize(
    "frames",
    [
        HEADER.pack(0, 3) + b"own",  # of the channel itself
        HEADER.pack(7, 0) * 2 + HEADER.pack(7, 1) + b"y",  # after its end
        HEADER.pack(7, 0) + HEADER.pack(3, 1) + b"y",  # a number below
        HEADER.pack(7, 1) + b"y" + HEADER.pack(7, 0),  # bytes ahead of the opening
    ],
)
def test_frames_out_of_turn_reach_no_connection(frames):
    channel, theirs = socket.socketpair()
    ends = []

    def accept():
        kept, end = socket.socketpair()
        ends.append(kept)
        return end.detach()

    there = Multiplexer(theirs.detach(), accept, MAX_PENDING)
    channel.sendall(frames + HEADER.pack(9, 0) + HEADER.pack(9, 2) + b"ok")
    while is_ready(there.fileno()):
        there.process()
    assert there.is_open
    assert len(ends) == 1 + (b"y" in frames)
    assert ends[-1].recv(10) == b"ok"
    there.close()
    assert all(end.recv(10) == b"" for end in ends)
    for each in (*ends, channel):
        each.close()


def test_a_process_that_takes_over_gets_nothing_of_the_one_before(ends):
    before = ends.open()
    before.send(b"question")
    ends.settle()
    ends.far[0].send(b"answer to the first")
    ends.there.process()
    later = Multiplexer(os.dup(ends.near._channel.fd))
    ends.near.close()  # with the answer on its way
    ends.near = later
    later.take_over(10**15)
    now = ends.open()
    now.send(b"hello")
    ends.settle()
    assert received(ends.far[0]) == (b"question", True)
    assert received(ends.far[1]) == (b"hello", False)
    ends.far[1].send(b"answer to the second")
    ends.settle()
    assert received(now) == (b"answer to the second", False)


def test_nothing_is_left_open():
    before = os.listdir("/dev/fd")
    ends = Ends()
    near = ends.open()
    near.send(b"x")
    ends.settle()
    assert len(os.listdir("/dev/fd")) > len(before)
    ends.close()
    assert os.listdir("/dev/fd") == before
