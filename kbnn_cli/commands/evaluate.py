"""`kbnn evaluate`: how good a model is on rows it has not learned."""

from __future__ import annotations

from typing import Annotated

import typer

from kbnn_cli import exits, options, view_options
from kbnn_cli.help import Command

EXAMPLES = """\b
Examples:
  kbnn evaluate model.npz test.csv
  kbnn evaluate model.npz test.csv --report report.html --plot picture.png
  kbnn evaluate model.npz test.parquet --json
  kbnn evaluate model.npz test.csv --fail-if 'rmse>3' --fail-if 'r2<0.5'
  kbnn evaluate model.npz test.csv --horizon 24    steps ahead, one by one
  kbnn evaluate model.npz later.csv --learn        as if training went on

\b
Exit codes: 0 done, 1 data, model or output error, 2 usage, 3 --fail-if met,
  141 the reader of the output left early.
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="End with exit code 3 if a figure is past a limit: 'rmse>3', 'coverage_90<85%', "
        "'nll>baseline_nll'; may be repeated.",
        rich_help_panel=options.OUTPUT,
    ),
]


Learn = Annotated[
    bool,
    typer.Option(
        "--learn",
        help="Predict each row, then learn it, as train does; nothing is saved.",
    ),
]


@app.command(cls=Command, epilog=EXAMPLES)
def evaluate(
    model: options.Model,
    sources: options.Sources,
    learn: Learn = False,
    horizon: options.Horizon = None,
    fail_if: FailIf = None,
    quantiles: options.Quantiles = None,
    intervals: options.Intervals = None,
    report: view_options.Report = None,
    plot: view_options.Plot = None,
    no_plots: view_options.NoPlots = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    on_error: options.OnError = "stop",
    bad_rows: options.BadRows = None,
    limit: options.Limit = None,
    format: options.Format = "auto",
    na: options.Na = None,
    delimiter: options.Delimiter = None,
    header: options.Header = None,
    engine: options.Engine = "here",
    cluster: options.Cluster = "local:2",
) -> None:
    """Score a model on rows: errors, error bars, the best constant, a verdict.

    The model learns nothing from the rows. With --learn it learns each after predicting it, as in
    training, and the model file stays as it is.
    """
    from kbnn.errors import UsageError
    from kbnn.output.fields import check_interval_mode, check_quantile_level
    from kbnn.run import engines, evaluating, fleets, inspecting, modelreport, origins, standing
    from kbnn.run.choices import check_outputs
    from kbnn.run.trainoptions import LOCAL_ENGINE
    from kbnn.score import failif
    from kbnn.score.figures import flatten_metrics
    from kbnn_cli import reading, show, show_ahead, show_evaluate

    if horizon is not None and (fail_if or report or plot):
        raise UsageError("--horizon judges step by step: no --fail-if, --report or --plot with it")
    if learn and horizon is not None:
        raise UsageError("--learn cannot be combined with --horizon yet: leave one of them out")
    if learn and intervals == "stated":
        raise UsageError("--learn uses the intervals that the model learns: leave out --intervals")
    if learn and engine != LOCAL_ENGINE:
        raise UsageError("--learn works in this process only: leave out --engine")
    how = standing.check_evaluate_on_error(on_error)
    modelreport.check_report_paths(report, plot)
    outputs = {"--bad-rows": bad_rows, "--report": report, "--plot": plot}
    check_outputs(sources, outputs, models=[model])
    shares = options.parse_shares(quantiles)
    for share in shares:
        check_quantile_level(share)
    judged = fleets.load(model)
    fleets.check_single_model(judged, model, {"--horizon": horizon is not None})
    if learn:
        judged = fleets.copy_model(judged)
    judged.set_interval_mode(check_interval_mode(intervals))
    figures = list(flatten_metrics(judged.task.score().metric_values()))
    checks = [failif.parse_check(text, figures, judged.task.targets) for text in fail_if or ()]
    with (
        standing.open_inference_stream(
            judged,
            sources,
            notice=reading.make_notifier(quiet),
            bad_rows=bad_rows,
            na=na,
            delimiter=delimiter,
            on_error=how,
            limit=limit,
            format=format,
            header=header,
            learn=learn,
        ) as (stream, bad),
        show.show_progress(stream, "evaluating", quiet) as on_rows,
        engines.use_engine(judged, engine, cluster),
    ):
        if horizon is not None:
            steps = origins.run_backtest(judged, stream, horizon, reading.make_notifier(quiet))
        else:
            result = evaluating.evaluate(
                judged,
                stream,
                quantiles=shares,
                learn=learn,
                on_rows=on_rows,
                notice=reading.make_notifier(quiet),
            )
    reading.report_bad_rows(bad, "skipped", quiet)
    if horizon is not None:
        if json:
            show.print_json(steps.to_json())
        else:
            show.print_parts(show_ahead.backtest_parts(steps))
        return
    reasons = failif.explain_met_checks(checks, result.figures())
    try:
        if json:
            show.print_json(result.to_json())
        else:
            show.print_parts(
                show_evaluate.evaluation_parts(
                    result, model, sources, plots=show.on_terminal() and not no_plots
                )
            )
    finally:  # whoever reads the figures may leave: the page is written all the same
        for reason in reasons:
            exits.print_message(reason)
        if report is not None or plot is not None:
            names = [modelreport.format_file_name(source) for source in sources]
            title = f"{modelreport.format_file_name(model)} on {show_evaluate.format_source_names(names)}"
            found = inspecting.inspect_model(judged, model)
            shown = modelreport.ReportContext(title, learning=learn, unreadable=result.bad_rows)
            modelreport.write_report_files(
                judged, result.card, found, shown, page=report, picture=plot
            )
    if reasons:
        raise typer.Exit(exits.EXIT_CONDITION)
