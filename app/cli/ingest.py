"""`warpboard ingest`: the process that reads finished runs, for a dashboard started on its own."""

from argparse import ArgumentParser, Namespace

from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--check", action="store_true", help="exit with 0 if an ingest process answers"
    )


def run(options: Namespace, data: DataDir) -> int:
    from app.ingest_worker import main

    return main(["--data", str(data.root), *(["--check"] if options.check else [])])
