"""Benchmarks."""

import typer

commands = typer.Typer(no_args_is_help=True)


@commands.callback()
def bench() -> None:
    """Measure this installation."""
