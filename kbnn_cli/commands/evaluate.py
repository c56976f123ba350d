"""`kbnn evaluate`: score a model on rows that it has not learned."""

from __future__ import annotations

from typing import Annotated

import typer

from kbnn_cli import command_options, exit_codes
from kbnn_cli.help_screens import Command

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

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="Exit with code 3 if this holds: 'rmse>3', 'coverage_90<85%' (repeatable).",
        rich_help_panel=command_options.OUTPUT,
    ),
]


Learn = Annotated[
    bool,
    typer.Option(
        "--learn",
        help="Predict each row, then learn it, as train does; save nothing.",
    ),
]


@app.command(cls=Command, epilog=EXAMPLES)
def evaluate(
    model: command_options.Model,
    sources: command_options.Sources,
    learn: Learn = False,
    horizon: command_options.Horizon = None,
    fail_if: FailIf = None,
    quantiles: command_options.Quantiles = None,
    intervals: command_options.Intervals = None,
    report: command_options.Report = None,
    plot: command_options.Plot = None,
    no_plots: command_options.NoPlots = False,
    json: command_options.Json = False,
    quiet: command_options.Quiet = False,
    on_error: command_options.OnError = "stop",
    bad_rows: command_options.BadRows = None,
    limit: command_options.Limit = None,
    format: command_options.Format = "auto",
    na: command_options.Na = None,
    delimiter: command_options.Delimiter = None,
    header: command_options.Header = None,
    engine: command_options.Engine = "local",
    cluster: command_options.Cluster = "local:2",
    help_all: command_options.HelpAll = False,
) -> None:
    """Score a model on rows: errors, calibration, the best constant and a verdict.

    The model does not learn from the rows. With --learn it learns each row after predicting it, as
    in training; the model file does not change.
    """
    from kbnn.errors import UsageError
    from kbnn.metrics import conditions
    from kbnn.metrics.figures import flatten_metrics
    from kbnn.model.settings import check_interval_mode
    from kbnn.output.writers import check_quantile_level
    from kbnn.workflows import (
        backtest,
        engines,
        evaluating,
        inspecting,
        keyed,
        model_report,
        predicting,
    )
    from kbnn.workflows.options import LOCAL_ENGINE, check_outputs
    from kbnn_cli import display, result_screens

    if horizon is not None and (fail_if or report or plot):
        raise UsageError("--horizon cannot be combined with --fail-if, --report or --plot")
    if learn and horizon is not None:
        raise UsageError("--learn cannot be combined with --horizon: leave one of them out")
    mode = check_interval_mode(intervals)
    if learn and mode == "stated":
        raise UsageError("--learn uses the intervals that the model learns: leave out --intervals")
    if learn and engine != LOCAL_ENGINE:
        raise UsageError("--learn works in this process only: leave out --engine")
    how = predicting.check_evaluate_on_error(on_error)
    model_report.check_report_paths(report, plot)
    outputs = {"--bad-rows": bad_rows, "--report": report, "--plot": plot}
    check_outputs(sources, outputs, models=[model])
    shares = command_options.parse_shares(quantiles)
    for share in shares:
        check_quantile_level(share)
    judged = keyed.load(model)
    asked = {"--horizon": horizon is not None, "--plot": plot is not None}
    keyed.check_single_model(judged, model, asked)
    if learn:
        judged = keyed.copy_model(judged)
    judged.set_interval_mode(mode)
    figures = list(flatten_metrics(judged.task.score().metric_values()))
    checks = [conditions.parse_check(text, figures, judged.task.targets) for text in fail_if or ()]
    with (
        predicting.open_inference_stream(
            judged,
            sources,
            notice=display.make_notifier(quiet),
            bad_rows=bad_rows,
            na=na,
            delimiter=delimiter,
            on_error=how,
            limit=limit,
            format=format,
            header=header,
            learn=learn,
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
                quantiles=shares,
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
