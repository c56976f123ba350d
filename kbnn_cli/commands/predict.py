"""`kbnn predict`: predict with error bars, one row out for every row in."""

from __future__ import annotations

from contextlib import ExitStack
from time import perf_counter
from typing import Annotated

import typer

from kbnn_cli import command_options
from kbnn_cli.help_screens import Command

EXAMPLES = """\b
Examples:
  kbnn predict model.npz new.csv               rows and predictions, as CSV
  kbnn predict model.npz new.csv -o forecast.parquet    or .arrow, .jsonl
  tail -f log.csv | kbnn predict model.npz -   predict each row as it arrives
  kbnn predict model.npz new.csv --only-predictions --decompose
  kbnn predict model.npz --horizon 48          forecast after the last row learned
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write to .csv, .tsv, .jsonl, .parquet or .arrow; - is CSV on stdout.",
        rich_help_panel=command_options.OUTPUT,
    ),
]
Decompose = Annotated[
    bool,
    typer.Option(
        "--decompose",
        help="Add the parts of sd: function_sd (epistemic) and noise_sd (aleatoric).",
        rich_help_panel=command_options.OUTPUT,
    ),
]
OnlyPredictions = Annotated[
    bool,
    typer.Option(
        "--only-predictions",
        help="Write the predictions without the input columns.",
        rich_help_panel=command_options.OUTPUT,
    ),
]
Plot = Annotated[
    str | None,
    typer.Option(
        "--plot",
        metavar="FILE.png|svg|pdf",
        help="Draw the last values, the forecast and its intervals (--horizon).",
        rich_help_panel=command_options.OUTPUT,
    ),
]
OnError = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="skip|stop",
        autocompletion=command_options.complete_on_error,
        help="Write a row that cannot be read without prediction, or stop there.",
        rich_help_panel=command_options.READING,
    ),
]


@app.command(cls=Command, epilog=EXAMPLES)
def predict(
    model: command_options.Model,
    sources: command_options.MaybeSources = None,
    horizon: command_options.Horizon = None,
    output: Output = "-",
    interval: command_options.Interval = 0.9,
    quantiles: command_options.Quantiles = None,
    intervals: command_options.Intervals = None,
    decompose: Decompose = False,
    only_predictions: OnlyPredictions = False,
    plot: Plot = None,
    json: command_options.Json = False,
    quiet: command_options.Quiet = False,
    on_error: OnError = "skip",
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
    """Predict rows: write mean, sd, lower and upper, or class probabilities.

    With --horizon, forecast steps after the last row learned.
    """
    from kbnn.errors import UsageError
    from kbnn.model.settings import check_interval_mode
    from kbnn.output.writers import (
        check_interval_level,
        check_name,
        check_quantile_level,
        open_writer,
    )
    from kbnn.targets.base import OutputOptions
    from kbnn.workflows import engines, forecast, keyed, model_report, predicting
    from kbnn.workflows.options import check_outputs
    from kbnn.workflows.predicting import predict_stream
    from kbnn_cli import display, result_screens

    how = predicting.check_predict_on_error(on_error)
    if json and output == "-":
        raise UsageError(
            "--json and the predictions cannot both go to standard output (add -o FILE)"
        )
    if horizon is None and not sources:
        raise UsageError(
            "nothing to predict: name a file (or - for standard input), or add --horizon STEPS"
        )
    if horizon is None and plot is not None:
        raise UsageError("--plot needs --horizon: it draws a forecast")
    outputs = {"--output": output, "--bad-rows": bad_rows, "--plot": plot}
    check_outputs(sources or (), outputs, models=[model])
    check_name(output)
    model_report.check_report_paths(None, plot)
    start = perf_counter()
    known = keyed.load(model)
    keyed.check_single_model(known, model, {"--horizon": horizon is not None})
    single = keyed.get_overall_model(known)
    known.set_interval_mode(check_interval_mode(intervals))
    check_interval_level(interval)
    wanted = OutputOptions(interval, command_options.parse_shares(quantiles), decompose)
    for share in wanted.quantiles:
        check_quantile_level(share)
    fields = known.task.output_fields(wanted)
    steps = None
    with ExitStack() as stack:
        stream, bad = None, None
        if sources:
            opened = predicting.open_inference_stream(
                known,
                sources,
                notice=display.make_notifier(quiet),
                bad_rows=bad_rows,
                na=na,
                delimiter=delimiter,
                on_error=how,
                limit=limit,
                format=format,
                header=header,
                use_target=False,
                original=not only_predictions and horizon is None,
            )
            stream, bad = stack.enter_context(opened)
        if horizon is not None:
            steps = forecast.forecast_horizon(single, horizon, stream, display.make_notifier(quiet))
        writer = stack.enter_context(open_writer(output, fields, known.schema))
        if steps is not None:
            writer.write(steps.forecast, forecast.build_step_columns(single, steps))
        elif stream is not None:
            progress = display.show_progress(stream, "predicting", quiet or output == "-")
            on_rows = stack.enter_context(progress)
            stack.enter_context(engines.use_engine(known, engine, cluster))
            predict_stream(
                known,
                stream,
                writer,
                bare=only_predictions,
                on_rows=on_rows,
                notice=display.make_notifier(quiet),
            )
    if steps is not None:
        result_screens.show_forecast(single, steps, plot, terminal=output != "-" and not quiet)
    if bad is not None:
        display.report_bad_rows(bad, "no prediction", quiet)
    if json:
        seconds = perf_counter() - start
        display.print_json(
            {
                "model": model,
                "output": output,
                "rows": writer.rows,
                "unreadable": 0 if bad is None else bad.count,
                "intervals": known.interval_mode,
                "seconds": seconds,
                "rows_per_second": writer.rows / seconds,
            }
        )
