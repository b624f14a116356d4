"""The API alone, without the dashboard: `python -m app.api.server --port N [--data DIR]`."""

import argparse
import sys

from core.config import data_dir


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop."""
    import uvicorn

    from app.api.app import make_api

    parser = argparse.ArgumentParser(prog="python -m app.api.server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", metavar="DIR")
    options = parser.parse_args(argv)
    uvicorn.run(
        make_api(data_dir(options.data)),
        host=options.host,
        port=options.port,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
