"""`warpboard demo`: load the example runs (once; again changes nothing)."""

from argparse import ArgumentParser, Namespace

from app.cli.output import add_json, counted, print_json
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.demo.load import OLDER, load_demo

    with counted("example runs loaded") as count:
        loaded = load_demo(data, lambda name: count())
    if options.json:
        print_json({"runs": [r.as_dict() for r in loaded]})
    else:
        new = sum(r.is_new for r in loaded)
        print(f"{len(loaded)} example runs, {new} of them new")
        older = [r.run_id for r in loaded if any(w.code == OLDER for w in r.warnings)]
        if older:
            print(f"{len(older)} stay as an older version had them. To have them as they are now:")
            print(f"warpboard delete {' '.join(older)} && warpboard demo")
    return 0
