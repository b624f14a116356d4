"""Run each script that a line of the input holds in a forked child: PyTorch is imported once.

A line is a JSON object: `folder` to run in, `script`, and its `words`. The child writes `output`,
`errors` and the records of its hooks there; its exit status is printed.
"""

import atexit
import json
import os
import sys

import torch._dynamo  # noqa: F401  (an optimizer would import it in each child)
import warpboard_hooks

folder = None
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if not pid:
        folder = job["folder"]
        break
    print(os.waitpid(pid, 0)[1], flush=True)
if folder is not None:
    os.chdir(folder)
    for fd, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), fd)
    warpboard_hooks.current().folder = os.path.join(folder, "records")
    sys.argv = ["-c", *job["words"]]
    exec(compile(job["script"], "<string>", "exec"), globals())
    # Python takes PyTorch apart at its end: as long as a third of the import.
    sys.stdout.flush()
    atexit._run_exitfuncs()
    os._exit(0)
