"""`kbnn predict`: predict with error bars, one row out for every row in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import typer

from kbnn.option_table import LOCAL_ENGINE, MAX_DIGITS
from kbnn_cli.command_options import add_command

EXAMPLES = """\b
Examples:
  kbnn predict model.npz new.csv               rows and predictions, as CSV
  kbnn predict model.npz new.csv -o forecast.parquet    or .arrow, .jsonl
  tail -f log.csv | kbnn predict model.npz -   predict each row as it arrives
  kbnn predict model.npz new.csv --only-predictions --decompose
  kbnn predict model.npz new.csv --explain     what each column contributes
  kbnn predict model.npz pool.csv --ask 20     which 20 rows to label next
  kbnn predict fleet --horizon 48              forecast every key of a fleet
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
    explain: bool,
    explain_text: int | None,
    samples: int | None,
    seed: int,
    ask: int | None,
    surprise: bool,
    only_predictions: bool,
    digits: int | None,
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
    from kbnn.workflows import (
        explaining,
        forecast,
        keyed,
        model_report,
        predicting,
    )
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
    if plot is not None and horizon is None and not (explain or explain_text):
        raise UsageError(
            "--plot needs --horizon or --explain: it draws a forecast, or why the first row has "
            "its prediction"
        )
    number = next((one for one in sources if one.isdigit() and not os.path.exists(one)), None)
    if explain and number is not None:
        raise UsageError(f"--explain takes no number: --explain-text {number} lists the largest")
    asked = {"--explain": explain, "--explain-text": explain_text}
    asked |= {"--samples": samples, "--ask": ask}
    for option in (name for name, value in asked.items() if value):
        if horizon is not None:
            raise UsageError(f"{option} cannot be combined with --horizon: it is for given rows")
        if engine != LOCAL_ENGINE:
            raise UsageError(f"{option} works in this process only: leave out --engine")
    if horizon is not None and surprise:
        raise UsageError("--surprise cannot be combined with --horizon: leave one of them out")
    outputs = {"--output": output, "--bad-rows": reading["bad_rows"], "--plot": plot}
    check_outputs(sources, outputs, models=[model])
    check_name(output)
    model_report.check_report_paths(None, plot)
    start = perf_counter()
    known = keyed.load(model)
    single_only: dict[str, object] = {"--samples": samples, "--ask": ask}
    if horizon is not None:
        single_only["--plot"] = plot
        if known.key and sources:
            raise UsageError(
                "--horizon forecasts every key of a fleet after its last row: leave out "
                f"{sources[0]}, or export the model of a key"
            )
    given = {name: value is not None for name, value in single_only.items()}
    keyed.check_single_model(known, model, given)
    single = keyed.get_overall_model(known)
    known.set_interval_mode(intervals)
    wanted = OutputOptions(interval, quantiles, decompose, surprise=surprise)
    fields = list_output_fields(known.task, wanted)
    parts, explainer = [], None
    if explain or explain_text:
        explainer = explaining.RowExplainer(known)
        text_columns = explain_text or 0
        parts.append(
            explaining.add_explanation(
                explainer, numbers=explain, decompose=decompose, text_columns=text_columns
            )
        )
    if samples is not None:
        parts.append(explaining.add_samples(single, samples, seed))
    if ask is not None:
        explaining.check_independent_rows(single, "--ask")
    ranking = None
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
                surprise=surprise,
                original=not only_predictions and horizon is None,
            )
            stream, bad = stack.enter_context(opened)
        if horizon is not None and not known.key:
            steps = forecast.forecast_horizon(single, horizon, stream, display.make_notifier(quiet))
        batches: Iterable[Any] = () if stream is None else stream
        if ask is not None:
            on_state = display.Heartbeat("choosing rows to label", quiet).report_state
            batches = explaining.collect_batches(batches, on_state)
            ranking = explaining.rank_batches(single, batches, ask, on_state)
            parts.append(explaining.add_ranks(ranking))
        if explainer is not None:
            batches = explaining.split_batches(batches)
        added = predicting.join_added_columns(parts)
        names = [field.name for field in fields] + [field.name for field in added.fields]
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            raise UsageError(f"two output columns would be named '{twice}': rename an input column")
        if explain and digits is None:
            digits = MAX_DIGITS  # contributions add up to the prediction only if nothing is rounded
        writer = stack.enter_context(
            open_writer(output, [*fields, *added.fields], known.schema, digits=digits)
        )
        if steps is not None:
            writer.write(steps.forecast, forecast.build_step_columns(single, steps))
        elif horizon is not None:
            for made, leading in forecast.forecast_fleet(
                keyed.require_fleet(known), horizon, display.make_notifier(quiet)
            ):
                writer.write(made, leading)
        elif stream is not None:
            to_terminal = output == "-" and display.on_terminal()
            progress = display.show_progress(
                stream, "predicting", quiet or to_terminal, bar=output != "-"
            )
            on_rows = stack.enter_context(progress)
            stack.enter_context(predicting.use_engine(known, engine, cluster))
            predict_stream(
                known,
                batches,
                writer,
                bare=only_predictions,
                added=added,
                surprise=surprise,
                on_rows=on_rows,
                notice=display.make_notifier(quiet),
            )
    terminal = output != "-" and not quiet
    if steps is not None:
        chart = forecast.build_forecast_chart(single, steps)
        result_screens.show_chart(chart, plot, terminal=terminal)
    if explainer is not None and (plot is not None or (terminal and display.on_terminal())):
        chart = explaining.build_waterfall(explainer)
        result_screens.show_chart(chart, plot, terminal=terminal)
    if bad is not None:
        display.report_bad_rows(bad, "no prediction", quiet)
    remaining = ranking.remaining[-1] if ranking is not None and len(ranking.rows) else None
    if remaining is not None:
        left = f"{100 * remaining:.0f} % of the variance of the function"
        display.make_notifier(quiet)(f"the labels asked for leave at least {left}")
    if json:
        seconds = perf_counter() - start
        display.print_json(
            {
                "model": model,
                "output": output,
                "rows": writer.rows,
                "unreadable": 0 if bad is None else bad.count,
                "intervals": known.interval_mode,
                **({} if remaining is None else {"ask_remaining": float(remaining)}),
                "seconds": seconds,
                "rows_per_second": writer.rows / seconds,
            }
        )
