"""The command line: one module a command, one way for each to fail and to print.

Exit codes: 0 clean, 1 findings, 2 misuse.
"""

import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from dsa_contracts import ContractError
from dsa_cp.cli import bench_command as bench
from dsa_cp.cli import plan_command as plan
from dsa_cp.cli import prove_command as prove
from dsa_cp.cli import review_command as review
from dsa_cp.cli import run_command as run
from dsa_cp.cli.output import print_error

app = typer.Typer(
    name="dsa-cp",
    help="Typed contracts for the DSA context-parallel attention path: run it, plan it, review it.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("bench", help=bench.HELP, epilog=bench.EXAMPLE)(bench.command)
app.command("run", help=run.HELP, epilog=run.EXAMPLE)(run.command)
app.command("prove", help=prove.HELP, epilog=prove.EXAMPLE)(prove.command)
app.command("plan", help=plan.HELP, epilog=plan.EXAMPLE)(plan.command)
app.command("review", help=review.HELP, epilog=review.EXAMPLE)(review.command)


@app.callback()
def _commands() -> None:
    """Keep `run` a command of its own while it is the only one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    Args:
        argv: the arguments; None takes those of the process.
    """
    arguments = (sys.argv[1:] if argv is None else list(argv)) or ["--help"]
    try:
        code = app(arguments, prog_name="dsa-cp", standalone_mode=False)
    except TyperException as error:
        print_error(f"{error.format_message()}; `dsa-cp --help` shows what is allowed")
        return 2
    except ContractError as error:
        print_error(error.headline if error.code.startswith("DSA6") else str(error))
        return 2
    except KeyboardInterrupt:
        print_error("interrupted")
        return 130
    return code if isinstance(code, int) else 0
