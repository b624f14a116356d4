"""Answers are not held back, on sockets that somebody else opened."""

import os
import socket

from app.api.app import answer_at_once


def test_connections_of_a_socket_that_was_handed_over_answer_at_once() -> None:
    with socket.socket() as listener:  # as Streamlit makes it: protocol 0
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        before = len(os.listdir("/proc/self/fd"))

        assert answer_at_once() >= 1

        assert len(os.listdir("/proc/self/fd")) == before
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            accepted.close()
