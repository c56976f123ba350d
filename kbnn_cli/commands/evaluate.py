"""`kbnn evaluate`: score a model on rows that it has not learned."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
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
  kbnn evaluate model.npz test.csv --metric auc --cost-fn 10 --cost-fp 1
  kbnn evaluate model.npz test.csv --horizon 24    score forecasts by step
  kbnn evaluate model.npz test.csv --horizon 24 --learn    learn between them
  kbnn evaluate model.npz later.csv --learn        learn while scoring
  kbnn evaluate model.npz later.csv --learn --events events.csv

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
    metric: str | None,
    threshold: float | None,
    positive: str | None,
    cost_fn: float | None,
    cost_fp: float | None,
    alerts: str | None,
    alert_rate: Any,
    watch: tuple[str, ...],
    events: str | None,
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
    from kbnn.metrics.decision_figures import DecisionOptions
    from kbnn.metrics.figures import explain_met_checks, parse_check
    from kbnn.workflows import alerts as alerting
    from kbnn.workflows import (
        evaluating,
        forecast,
        inspecting,
        keyed,
        model_report,
        predicting,
    )
    from kbnn.workflows.options import check_outputs
    from kbnn_cli import display, result_screens

    watched = alerts is not None or events is not None
    if horizon is not None and (fail_if or report or watched):
        raise UsageError(
            "--horizon cannot be combined with --fail-if, --report, --alerts or --events"
        )
    if alert_rate is not None and not watched:
        raise UsageError("--alert-rate sets the rate of alerts: add --alerts FILE or --events FILE")
    if watch and not watched:
        raise UsageError("--watch chooses columns for alerts: add --alerts FILE or --events FILE")
    if json and alerts == "-":
        raise UsageError("--json and --alerts - cannot both go to standard output")
    decision = DecisionOptions(threshold, cost_fn, cost_fp, positive)
    if horizon is not None and (metric or any(one is not None for one in decision)):
        raise UsageError(
            "--horizon cannot be combined with --metric, --positive, --threshold or costs"
        )
    if learn and intervals == "stated":
        raise UsageError("--learn uses the intervals that the model learns: leave out --intervals")
    if learn and engine != LOCAL_ENGINE:
        raise UsageError("--learn works in this process only: leave out --engine")
    model_report.check_report_paths(report, plot)
    outputs = {
        **{"--bad-rows": reading["bad_rows"], "--report": report, "--plot": plot},
        "--alerts": alerts,
    }
    check_outputs([*sources, *([events] if events else [])], outputs, models=[model])
    judged = keyed.load(model)
    keyed.check_single_model(judged, model, {"--plot": plot is not None})
    if learn:
        judged = keyed.copy_model(judged)
    judged.set_interval_mode(intervals)
    opened = evaluating.open_evaluation(judged, quantiles, decision, metric)
    figures = evaluating.list_metric_names(opened)
    alerting.check_conditions(fail_if, watched, events is not None)
    known = [*figures, *(alerting.ALERT_FIGURES if watched else ())]
    checks = [parse_check(text, known, judged.task.targets) for text in fail_if]
    on_alerts = [check for check in checks if check.figure not in figures]
    with (
        ExitStack() as stack,
        predicting.open_inference_stream(
            judged,
            sources,
            notice=display.make_notifier(quiet),
            learn=learn,
            **reading,
        ) as (stream, bad),
        display.show_progress(stream, "evaluating", quiet) as on_rows,
        predicting.use_engine(judged, engine, cluster),
    ):
        if horizon is not None:
            steps = forecast.run_backtest(
                judged, stream, horizon, display.make_notifier(quiet), learn=learn
            )
        else:
            scoring = None
            if watched:
                windows = None if events is None else alerting.read_events(events, judged.schema)
                writer = (
                    None
                    if alerts is None
                    else stack.enter_context(
                        alerting.AlertWriter(alerts, judged.schema, has_key=bool(judged.key))
                    )
                )
                scoring = alerting.AlertScoring(
                    judged,
                    learn=learn,
                    rate=alert_rate,
                    watch=watch,
                    events=windows,
                    writer=writer,
                )
            result = evaluating.evaluate(
                judged,
                stream,
                alerts=scoring,
                quantiles=quantiles,
                decision=decision,
                metric=metric,
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
        if plot is not None:
            charts = forecast.build_backtest_charts(keyed.get_overall_model(judged), steps)
            result_screens.show_chart(charts, plot, terminal=False)
        return
    on_metrics = [check for check in checks if check not in on_alerts]
    reasons = explain_met_checks(on_metrics, result.figures())
    if scoring is not None:
        reasons += explain_met_checks(on_alerts, {"alerts": scoring.list_figures()})
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
            found = inspecting.inspect_model(
                judged, model, explain=report is not None, background=result.card
            )
            charts = [] if scoring is None else scoring.trace.build_charts()
            shown = model_report.ReportContext(title, learn, result.bad_rows, charts)
            shown_model = keyed.get_overall_model(judged)
            model_report.write_report_files(
                shown_model, result.card, found, shown, page=report, picture=plot
            )
    if reasons:
        raise typer.Exit(exit_codes.EXIT_CONDITION)
