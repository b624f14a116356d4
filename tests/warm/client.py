"""Stand for a program that the server runs: `client.py SOCKET PYTHON_ARGUMENTS...`.

The program gets this process's folder, environment and open files, and this process ends as it
does. If this one is ended first, so is the program.
"""

import array
import json
import os
import signal
import socket
import sys

server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
files = []
for name in os.listdir("/proc/self/fd"):
    try:
        os.fstat(int(name))
    except OSError:
        continue  # that of the list
    if int(name) != server.fileno():
        files.append(int(name))
text = json.dumps(
    {"argv": sys.argv[2:], "folder": os.getcwd(), "env": dict(os.environ), "files": files}
).encode()
rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
server.sendmsg([len(text).to_bytes(4, "big")], [rights])
server.sendall(text)
answer = server.recv(4)
code = int.from_bytes(answer, "big", signed=True) if answer else 70
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
