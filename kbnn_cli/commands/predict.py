"""`kbnn predict`: predictions with error bars, one row out for every row in."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

import typer

from kbnn_cli import options
from kbnn_cli.help import Command

EXAMPLES = """\b
Examples:
  kbnn predict model.npz new.csv               rows and predictions, as CSV
  kbnn predict model.npz new.csv -o forecast.parquet    or .arrow, .jsonl
  tail -f log.csv | kbnn predict model.npz -   each row is answered at once
  kbnn predict model.npz new.csv --only-predictions --decompose
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Where to write: .csv, .tsv, .jsonl, .parquet, .arrow, or - for CSV on standard "
        "output.",
        rich_help_panel=options.OUTPUT,
    ),
]
Decompose = Annotated[
    bool,
    typer.Option(
        "--decompose",
        help="Add what sd is made of: function_sd (the model's doubt) and noise_sd.",
        rich_help_panel=options.OUTPUT,
    ),
]
OnlyPredictions = Annotated[
    bool,
    typer.Option(
        "--only-predictions",
        help="Leave out the input columns.",
        rich_help_panel=options.OUTPUT,
    ),
]
OnError = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="skip|stop",
        help="A row that cannot be read: skip its prediction (the row stays), or stop.",
        rich_help_panel=options.READING,
    ),
]


@app.command(cls=Command, epilog=EXAMPLES)
def predict(
    model: options.Model,
    sources: options.Sources,
    output: Output = "-",
    interval: options.Interval = 0.9,
    quantiles: options.Quantiles = None,
    intervals: options.Intervals = None,
    decompose: Decompose = False,
    only_predictions: OnlyPredictions = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    on_error: OnError = "skip",
    bad_rows: options.BadRows = None,
    limit: options.Limit = None,
    format: options.Format = "auto",
    na: options.Na = None,
    delimiter: options.Delimiter = None,
    header: options.Header = None,
) -> None:
    """Predict rows: the input columns, then mean, sd, lower and upper; or class probabilities."""
    from kbnn.errors import UsageError
    from kbnn.model import file as modelfile
    from kbnn.output.fields import check_interval, check_intervals, check_quantile
    from kbnn.output.writers import check_name, open_writer
    from kbnn.run import standing
    from kbnn.run.choices import check_outputs
    from kbnn.run.predicting import predict_stream
    from kbnn.task.base import Wanted
    from kbnn_cli import reading, show

    how = standing.kept(on_error)
    if json and output == "-":
        raise UsageError("--json and the predictions both ask for standard output (add -o FILE)")
    check_outputs(sources, {"--output": output, "--bad-rows": bad_rows}, model=model)
    check_name(output)
    start = perf_counter()
    known = modelfile.load(model)
    known.with_intervals(check_intervals(intervals))
    check_interval(interval)
    wanted = Wanted(interval, options.shares(quantiles), decompose)
    for share in wanted.quantiles:
        check_quantile(share)
    fields = known.task.fields(wanted)
    with (
        standing.opened(
            known,
            sources,
            notice=reading.notice(quiet),
            bad_rows=bad_rows,
            na=na,
            delimiter=delimiter,
            on_error=how,
            limit=limit,
            format=format,
            header=header,
            use_target=False,
            original=not only_predictions,
        ) as (stream, bad),
        open_writer(output, fields, known.schema) as writer,
        show.progress(stream, "predicting", quiet or output == "-") as on_rows,
    ):
        predict_stream(known, stream, writer, on_rows=on_rows)
    reading.say_bad_rows(bad, "no prediction", quiet)
    if json:
        seconds = perf_counter() - start
        show.json_object(
            {
                "model": model,
                "output": output,
                "rows": writer.rows,
                "unreadable": bad.count,
                "intervals": None if known.task.labels else known.intervals,
                "seconds": seconds,
                "rows_per_second": writer.rows / seconds,
            }
        )
