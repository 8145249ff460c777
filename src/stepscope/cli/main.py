"""The command line: `stepscope COMMAND PROFILE... [options]`. Failures are one line on stderr, never a traceback."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

import click

from stepscope.cli import streams
from stepscope.cli.complete import COMPLETE
from stepscope.cli.group import Commands
from stepscope.cli.suggest import asked_of, no_option
from stepscope.errors import StepscopeError
from stepscope.model.visible import visible

#: An exit status above this is that of a signal.
SIGNALLED = 128
_Handler = Callable[[int, FrameType | None], object]
#: Set to 1 to see the traceback of an unexpected error.
DEBUG = "STEPSCOPE_DEBUG"
#: Commands that load no tables, and words that make any command say what it does.
_LIGHT, _HELP = {"capture", "skill"}, {"-h", "--help"}
#: What libraries say where memory ran out.
_NO_MEMORY = re.compile(
    r"memory allocation|out of memory|cannot allocate|start new thread|capacity overflow|bad_alloc|realloc", re.I
)

INTRODUCTION = """Where did the training step go? Ask GPU profiles of distributed training.

PROFILE is an nsys SQLite or parquet export, an .nsys-rep report, a torch.profiler trace, or what Nsight Compute
measured (for `memory` also a snapshot of PyTorch's allocator, for `pipeline` a log of timestamps); a directory or a
glob; many files are one profile, the ranks of one job. `stepscope COMMAND --help` lists a command's options and
columns."""

EPILOGUE = """Exit status: 0 answered, 1 a gate failed, 2 bad usage or unreadable input, 3 the profile lacks what the
question needs."""


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        import stepscope

        click.echo(f"stepscope {stepscope.__version__}")
        context.exit()


cli = Commands(
    name="stepscope",
    help=INTRODUCTION,
    epilog=EPILOGUE,
    subcommand_metavar="COMMAND PROFILE... [OPTIONS]",
    options_metavar="",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["-V", "--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_version,
            help="Show the version and exit.",
        )
    ],
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point: run, and exit with the status that docs/cli.md promises."""
    streams.prepare()
    ends: dict[int, _Handler] = {signal.SIGTERM: _end, signal.SIGHUP: _end, signal.SIGINT: signal.default_int_handler}
    for hang_up in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(hang_up) is not signal.SIG_DFL:  # under nohup
            del ends[hang_up]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for what a script starts in the background
        del ends[signal.SIGINT]
    for number, handler in ends.items():
        signal.signal(number, handler)
    try:
        status = run(sys.argv[1:] if arguments is None else arguments)
        for number in ends:  # it is answered: what the interpreter does at its end catches nothing
            signal.signal(number, _leave)
    except (KeyboardInterrupt, Ended) as late:
        status = SIGNALLED + (late.number if isinstance(late, Ended) else signal.SIGINT)
    if status > SIGNALLED:
        _leave(status - SIGNALLED)
    sys.exit(status)


def _leave(number: int, _: FrameType | None = None) -> NoReturn:
    from stepscope.files import leaving

    leaving.leave(SIGNALLED + number)


def _write_cache() -> None:
    """What is still to be written to the cache: here Ctrl-C does what it does elsewhere."""
    if (store := sys.modules.get("stepscope.store")) is not None:
        store.flush()


class Ended(BaseException):
    """A signal asked us to end: what was begun is cleared away, as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def _end(number: int, _: FrameType | None) -> NoReturn:
    for again in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(again, signal.SIG_IGN)  # clearing away is not to be interrupted
    raise Ended(number)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status."""
    if COMPLETE in os.environ:
        return _complete()
    try:
        _need_addresses(arguments)
        # Not click's main(): it would turn a closed pipe into status 1, which says that a gate failed.
        with cli.make_context("stepscope", list(arguments) or ["--help"]) as context:
            cli.invoke(context)
        sys.stdout.flush()
        _write_cache()
        return 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except StepscopeError as error:
        return _fail(str(error), error.exit_status)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else asked_of(cli, arguments)
        what = no_option(error) if isinstance(error, click.NoSuchOption) else error.format_message()
        return _fail(f"{what} See `{where} --help`.", 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        if sys.stderr.isatty():
            print(file=sys.stderr)  # ends the line that shows ^C
        return _fail("interrupted", 130)
    except Ended as ended:
        return _fail(f"ended by {ended}", SIGNALLED + ended.number)
    except BrokenPipeError:  # the reader has seen enough (`| head`)
        streams.silence_stdout()
        return 0
    except (GeneratorExit, SystemExit):
        raise
    except BaseException as error:  # a panic of Polars is not an Exception
        if os.environ.get(DEBUG) == "1":
            raise
        return _unexpected(error)


def _need_addresses(arguments: Sequence[str]) -> None:
    """Where a question follows: it loads libraries that abort where `ulimit -v` leaves too little."""
    if arguments and arguments[0] not in _LIGHT and not arguments[0].startswith("-") and not _HELP & set(arguments):
        from stepscope.files import budget

        budget.need_addresses()


def _unexpected(error: BaseException) -> int:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
        streams.silence_stdout()
        return _fail(f"standard output cannot be written ({error.strerror}); give -o FILE on another disk", 2)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return _fail(f"{error.filename}: {error.strerror}; free some space, or set TMPDIR", 2)
    if isinstance(error, MemoryError) or _NO_MEMORY.search(what):
        return _fail("there is not enough memory for it; give fewer files, some ranks (--rank), or more memory", 2)
    return _fail(f"unexpected {what}; this is a bug: please report it, with {DEBUG}=1 for the traceback", 2)


def _complete() -> int:
    """Print what the shell asked for; whatever is wrong with the line so far is not said while it is being written."""
    try:
        cli.main([], prog_name="stepscope")
    except SystemExit as done:
        return int(done.code or 0)
    except Exception:
        if os.environ.get(DEBUG) == "1":
            raise
    return 1


def _fail(message: str, status: int) -> int:
    streams.complain(visible(" ".join(message.split())))
    return status
