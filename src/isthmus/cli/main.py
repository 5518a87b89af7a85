"""`isthmus`: parse the command line, run one command, turn user errors into one message."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from isthmus.cli import capture, devices, generate, inspect, run, train
from isthmus.cli.console import error_console
from isthmus.core.config import config
from isthmus.core.errors import InternalError, IsthmusError

__all__ = ["EXIT_INTERNAL", "EXIT_INTERRUPTED", "EXIT_USER_ERROR", "main"]

EXIT_USER_ERROR = 1
EXIT_INTERNAL = 3
EXIT_INTERRUPTED = 130

_COMMANDS = (train, generate, capture, run, inspect, devices)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="isthmus",
        description="Train models through one compiler on whatever hardware is there.",
        epilog="`isthmus COMMAND --help` explains a command. Settings: ISTHMUS_NUM_THREADS, "
        "ISTHMUS_CACHE_DIR, ISTHMUS_STRICT, ISTHMUS_TRACEBACK, ISTHMUS_THREAD_POOL.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in _COMMANDS:
        name = module.__name__.rsplit(".", 1)[-1]
        summary = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)
        command.add_argument(
            "--traceback", action="store_true", help="show the traceback of an error"
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code: 0, 1 (user error), 3 (our fault), 130."""
    options = build_parser().parse_args(arguments)
    try:
        return int(options.execute(options) or 0)
    except KeyboardInterrupt:
        error_console().print("interrupted", style="yellow")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except IsthmusError as error:
        if options.traceback or config().show_traceback:
            traceback.print_exc()
        console = error_console()
        console.print("[bold red]error:[/]", end=" ")
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return EXIT_INTERNAL if isinstance(error, InternalError) else EXIT_USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
