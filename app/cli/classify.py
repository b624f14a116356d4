"""`warpboard classify [NAME...]`: what a kernel name stands for, and by which rule."""

import sys
from argparse import ArgumentParser, Namespace

from app.cli.output import add_json, print_json, print_table
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="default: stdin, one name per line"
    )
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from analysis.classify import classify
    from app.imports import user_rules

    rules = user_rules(data)
    stdin = (line.rstrip("\r\n") for line in sys.stdin)
    names = options.names or [line for line in stdin if line.strip()]
    rows = []
    for name in names:
        kernel_class = classify(name, user_rules=rules)
        rows.append(
            {
                "name": name,
                "short_name": kernel_class.short_name,
                "category": str(kernel_class.category),
                "origin": str(kernel_class.origin),
                "confidence": kernel_class.confidence,
                "rule": kernel_class.rule,
            }
        )
    if options.json:
        print_json(rows)
    else:
        print_table(rows, ("category", "origin", "confidence", "rule", "short_name"))
    return 0
