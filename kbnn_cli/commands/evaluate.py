"""`kbnn evaluate`: score a model on rows that it has not learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from kbnn.option_table import LOCAL_ENGINE
from kbnn_cli import exit_codes
from kbnn_cli.command_options import add_command

EXAMPLES = """\b
Examples:
  kbnn evaluate model.npz test.csv
  kbnn evaluate model.npz test.csv --report report.html --plot picture.png
  kbnn evaluate model.npz test.parquet --json
  kbnn evaluate model.npz test.csv --fail-if 'rmse>3' --fail-if 'r2<0.5'
  kbnn evaluate model.npz test.csv --horizon 24    score forecasts by step
  kbnn evaluate model.npz later.csv --learn        learn while scoring

\b
Exit codes: 0 done, 1 data, model or output error, 2 usage, 3 --fail-if met,
  141 the reader closed the output early.
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@add_command(app, EXAMPLES)
def evaluate(
    model: str,
    sources: list[str],
    learn: bool,
    horizon: int | None,
    fail_if: Sequence[str],
    quantiles: tuple[float, ...],
    intervals: str | None,
    report: str | None,
    plot: str | None,
    no_plots: bool,
    json: bool,
    quiet: bool,
    engine: str,
    cluster: str,
    **reading: Any,
) -> None:
    """Score a model on rows: errors, calibration, the best constant and a verdict.

    The model does not learn from the rows. With --learn it learns each row after predicting it, as
    in training; the model file does not change.
    """
    from kbnn.errors import UsageError
    from kbnn.metrics import conditions
    from kbnn.metrics.figures import flatten_metrics
    from kbnn.metrics.target_metrics import find_metrics
    from kbnn.workflows import (
        backtest,
        engines,
        evaluating,
        inspecting,
        keyed,
        model_report,
        predicting,
    )
    from kbnn.workflows.options import check_outputs
    from kbnn_cli import display, result_screens

    if horizon is not None and (fail_if or report or plot):
        raise UsageError("--horizon cannot be combined with --fail-if, --report or --plot")
    if learn and horizon is not None:
        raise UsageError("--learn cannot be combined with --horizon: leave one of them out")
    if learn and intervals == "stated":
        raise UsageError("--learn uses the intervals that the model learns: leave out --intervals")
    if learn and engine != LOCAL_ENGINE:
        raise UsageError("--learn works in this process only: leave out --engine")
    model_report.check_report_paths(report, plot)
    outputs = {"--bad-rows": reading["bad_rows"], "--report": report, "--plot": plot}
    check_outputs(sources, outputs, models=[model])
    judged = keyed.load(model)
    asked = {"--horizon": horizon is not None, "--plot": plot is not None}
    keyed.check_single_model(judged, model, asked)
    if learn:
        judged = keyed.copy_model(judged)
    judged.set_interval_mode(intervals)
    figures = list(flatten_metrics(find_metrics(judged.task).score().metric_values()))
    checks = [conditions.parse_check(text, figures, judged.task.targets) for text in fail_if]
    with (
        predicting.open_inference_stream(
            judged,
            sources,
            notice=display.make_notifier(quiet),
            learn=learn,
            **reading,
        ) as (stream, bad),
        display.show_progress(stream, "evaluating", quiet) as on_rows,
        engines.use_engine(judged, engine, cluster),
    ):
        if horizon is not None:
            steps = backtest.run_backtest(
                keyed.get_overall_model(judged), stream, horizon, display.make_notifier(quiet)
            )
        else:
            result = evaluating.evaluate(
                judged,
                stream,
                quantiles=quantiles,
                learn=learn,
                on_rows=on_rows,
                notice=display.make_notifier(quiet),
            )
    display.report_bad_rows(bad, "skipped", quiet)
    if horizon is not None:
        if json:
            display.print_json(steps.to_json())
        else:
            display.print_parts(result_screens.backtest_parts(steps))
        return
    reasons = conditions.explain_met_checks(checks, result.figures())
    try:
        if json:
            display.print_json(result.to_json())
        else:
            display.print_parts(
                result_screens.evaluation_parts(
                    result, model, sources, plots=display.on_terminal() and not no_plots
                )
            )
    finally:  # also if the reader of the output leaves early
        for reason in reasons:
            exit_codes.print_message(reason)
        if report is not None or plot is not None:
            names = [model_report.format_file_name(source) for source in sources]
            source_names = result_screens.format_source_names(names)
            title = f"{model_report.format_file_name(model)} on {source_names}"
            found = inspecting.inspect_model(judged, model)
            shown = model_report.ReportContext(title, learning=learn, unreadable=result.bad_rows)
            shown_model = keyed.get_overall_model(judged)
            model_report.write_report_files(
                shown_model, result.card, found, shown, page=report, picture=plot
            )
    if reasons:
        raise typer.Exit(exit_codes.EXIT_CONDITION)
