"""`warpboard project RUN --gpu NAME`: what the run would take on another GPU, by projection."""

from argparse import ArgumentParser, Namespace

from app.cli.output import add_json, add_run, note, print_json
from core.config import DataDir
from core.numbers import decimal


def arguments(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--gpu", required=True, metavar="NAME", help="the GPU to project to")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.projection import projection_document

    document = projection_document(data, options.id, options.gpu)
    if options.json:
        print_json(document)
        return 0
    latency = document["latency_ms"]
    low, high = latency["low"], latency["high"]
    num_pairs = len(document["pairs"])
    band = f"learned from {num_pairs} jobs" if document["is_band_learned"] else "assumed"
    print(
        f"projected latency on {document['gpu']}: {decimal(latency['median'])} ms"
        f" (error band {decimal(low)} to {decimal(high)} ms, {band})"
    )
    print(
        f"measured on {document['source_gpu'] or 'an unknown GPU'}: "
        f"{decimal(document['measured_ms'])} ms"
    )
    print(f"where its time goes: {document['basis']}")
    for text in document["notes"]:
        note(f"note: {text}")
    return 0
