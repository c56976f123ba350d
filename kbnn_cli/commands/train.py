"""`kbnn train`: train a model on a stream, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from kbnn_cli import exit_codes
from kbnn_cli.command_options import add_command

EXAMPLES = """\b
Examples:
  kbnn train data.csv                   learn the last column, save model.npz
  kbnn train data.csv --target price --layers 50 --epochs 10
  kbnn train more.csv                   continue training model.npz
  tail -n +1 -f log.csv | kbnn train - --predictions - | tee out.csv
  kbnn train big.parquet -m big.npz --resume   continue after a crash
  kbnn train readings.csv --key device -m fleet/   one model per device
  kbnn train pump.csv --alerts alerts.csv --alert-rate 1/week

\b
Exit codes: 0 done, 1 data, model or output error, 2 usage, 3 --fail-if met,
  128 + signal when stopped, 141 the reader closed the output early.
"""


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@add_command(app, EXAMPLES)
def train(
    sources: list[str],
    model: str,
    log: str | None,
    plot: str | None,
    dry_run: bool,
    json: bool,
    quiet: bool,
    fail_if: Sequence[str],
    **options: Any,
) -> None:
    """Train a model on a stream, row by row, or continue training the model in the file."""
    from kbnn.errors import ReaderLeft, UsageError
    from kbnn.metrics import figures
    from kbnn.report import write_picture
    from kbnn.workflows import model_report
    from kbnn.workflows.checkpoint import Interrupted, InterruptGuard
    from kbnn.workflows.options import DEFAULT_FLEET, DEFAULT_MODEL, store_train_options
    from kbnn.workflows.run_results import summarize_training
    from kbnn.workflows.training import Training
    from kbnn_cli import display
    from kbnn_cli.display import TrainListener

    for name in ("predictions", "alerts"):
        if json and options[name] == "-":
            raise UsageError(f"--json and --{name} - cannot both go to standard output")
    checks = [figures.parse_check(text, ["alerts"], []) for text in fail_if]
    if options["key"] and model == DEFAULT_MODEL:
        model = DEFAULT_FLEET
    chosen = store_train_options(sources, model, options)
    chosen.check({"--log": log, "--plot": plot})
    if plot is not None and (options["key"] or not chosen.wants_alerts):
        raise UsageError("--plot draws the alerts of a model: add --alerts FILE, without --key")
    model_report.check_report_paths(None, plot)
    if fail_if and not chosen.wants_alerts:
        raise UsageError("--fail-if checks the number of alerts: add --alerts FILE")
    code = exit_codes.EXIT_DONE
    with TrainListener(quiet, log) as listener:
        training = Training(chosen, listener)
        training.draws_alerts = plot is not None
        if dry_run:
            training.find_schema()
            if json:
                display.print_json(training.model.schema.to_json())
            else:
                display.print_parts(display.schema_parts(training.model))
            return
        try:
            with InterruptGuard() as interruption:
                training.run(interruption)
        except Interrupted as interrupted:
            code = exit_codes.EXIT_SIGNAL_BASE + interrupted.number
        except ReaderLeft:
            code = exit_codes.EXIT_READER_LEFT
        listener.on_end(training, code)
        if code == exit_codes.EXIT_DONE and listener.log_failed:
            code = exit_codes.EXIT_FAILED
        if plot is not None and training.trace is not None:
            write_picture(training.trace.build_charts()[0], plot)
        if json and training.ready:
            display.print_json(summarize_training(training))
        found = {"alerts": {"alerts": training.alert_count}}
        for reason in figures.explain_met_checks(checks, found) if training.ready else ():
            exit_codes.print_message(reason)
            code = code or exit_codes.EXIT_CONDITION
    raise typer.Exit(code)
