"""`warpboard gpu`: the GPUs that are known, and how one is forgotten."""

from argparse import ArgumentParser, Namespace

from app.cli.output import add_json, note, print_json
from core.config import DataDir
from core.console import word


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "remove"), help="what to do")
    parser.add_argument("gpu", metavar="ID", nargs="?", type=word, help="the GPU to remove")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from core.errors import UserError
    from db.connection import opened
    from db.workers import gpu_records, remove_gpu

    if (options.action == "remove") != (options.gpu is not None):
        raise UserError("gpu: write `gpu list` or `gpu remove ID`")
    with opened(data.db_path) as db:
        if options.action == "remove":
            remove_gpu(db, options.gpu)
            rows = []
        else:
            rows = gpu_records(db)
    if options.json:
        print_json({"removed": options.gpu} if options.gpu else {"gpus": rows})
    elif options.gpu:
        note(f"the GPU {options.gpu} is forgotten; its runs stay")
    for row in rows if not options.json else ():
        print(f"{row['id']}  {row['model']}  {row['worker_id'] or 'from files'}")
    return 0
