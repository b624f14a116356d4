"""`warpboard reclassify`: the present kernel rules, for every stored run."""

from argparse import ArgumentParser, Namespace

from app.cli.output import add_json, print_json
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.reparse import reclassify

    result = reclassify(data)
    if options.json:
        print_json(result)
    else:
        print(
            f"{result['num_names']} kernel names in {result['num_runs']} runs:"
            f" {result['num_changed']} names have another class now"
        )
    return 0
