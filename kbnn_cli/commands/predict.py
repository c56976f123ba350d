"""`kbnn predict`: predict with error bars, one row out for every row in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import typer

from kbnn_cli.command_options import add_command

EXAMPLES = """\b
Examples:
  kbnn predict model.npz new.csv               rows and predictions, as CSV
  kbnn predict model.npz new.csv -o forecast.parquet    or .arrow, .jsonl
  tail -f log.csv | kbnn predict model.npz -   predict each row as it arrives
  kbnn predict model.npz new.csv --only-predictions --decompose
  kbnn predict model.npz --horizon 48          forecast after the last row learned
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@add_command(app, EXAMPLES)
def predict(
    model: str,
    sources: Sequence[str],
    horizon: int | None,
    output: str,
    interval: float,
    quantiles: tuple[float, ...],
    intervals: str | None,
    decompose: bool,
    only_predictions: bool,
    plot: str | None,
    json: bool,
    quiet: bool,
    engine: str,
    cluster: str,
    **reading: Any,
) -> None:
    """Predict rows: write mean, sd, lower and upper, or class probabilities.

    With --horizon, forecast steps after the last row learned.
    """
    from kbnn.errors import UsageError
    from kbnn.output.fields import OutputOptions, list_output_fields
    from kbnn.output.writers import check_name, open_writer
    from kbnn.workflows import engines, forecast, keyed, model_report, predicting
    from kbnn.workflows.options import check_outputs
    from kbnn.workflows.predicting import predict_stream
    from kbnn_cli import display, result_screens

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
    outputs = {"--output": output, "--bad-rows": reading["bad_rows"], "--plot": plot}
    check_outputs(sources, outputs, models=[model])
    check_name(output)
    model_report.check_report_paths(None, plot)
    start = perf_counter()
    known = keyed.load(model)
    keyed.check_single_model(known, model, {"--horizon": horizon is not None})
    single = keyed.get_overall_model(known)
    known.set_interval_mode(intervals)
    fields = list_output_fields(known.task, OutputOptions(interval, quantiles, decompose))
    steps = None
    with ExitStack() as stack:
        stream, bad = None, None
        if sources:
            opened = predicting.open_inference_stream(
                known,
                sources,
                notice=display.make_notifier(quiet),
                **reading,
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
