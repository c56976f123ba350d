"""`kbnn train`: learn from a stream, row by row."""

from __future__ import annotations

import typer

from kbnn_cli import exits, options
from kbnn_cli import train_options as own
from kbnn_cli.help import Command

EXAMPLES = """\b
Examples:
  kbnn train data.csv                   learn the last column, into model.npz
  kbnn train data.csv --target price --layers 50 --epochs 10
  kbnn train more.csv                   go on with model.npz
  tail -n +1 -f log.csv | kbnn train - --predictions - | tee out.csv
  kbnn train big.parquet -m big.npz --resume   go on after a crash
  kbnn train readings.csv --key device -m fleet/   a model for every device
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command, epilog=EXAMPLES)
@own.with_settings
def train(
    sources: options.Sources,
    model: own.ModelFile = "model.npz",
    fresh: own.Fresh = False,
    resume: own.Resume = False,
    again: own.Again = False,
    checkpoint_every: own.CheckpointEvery = 30.0,
    key: own.Key = None,
    common: own.Common = True,
    open: own.Open = None,
    engine: options.Engine = "here",
    cluster: options.Cluster = "local:2",
    target: own.Target = None,
    features: own.Features = None,
    ignore: own.Ignore = None,
    weight: own.Weight = None,
    input_sd: own.InputSd = False,
    categorical: own.Categorical = None,
    numeric: own.Numeric = None,
    hash: own.Hash = None,
    task: own.Task = "auto",
    time: own.Time = None,
    time_unit: own.TimeUnit = "auto",
    lags: own.Lags = None,
    id: own.Id = None,
    wait: own.Wait = None,
    epochs: own.Epochs = 1,
    shuffle: own.Shuffle = False,
    test_split: own.TestSplit = 0.0,
    limit: options.Limit = None,
    on_error: options.OnError = "stop",
    bad_rows: options.BadRows = None,
    na: options.Na = None,
    format: options.Format = "auto",
    delimiter: options.Delimiter = None,
    decimal: own.Decimal = None,
    thousands: own.Thousands = None,
    header: options.Header = None,
    predictions: own.Predictions = None,
    interval: options.Interval = 0.9,
    quantiles: options.Quantiles = None,
    log: own.Log = None,
    dry_run: own.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **stated: str | None,
) -> None:
    """Learn from a stream, row by row, into a model file; go on with the model that is there."""
    from kbnn.errors import ReaderLeft, UsageError
    from kbnn.run import trainoptions
    from kbnn.run.choices import check_outputs
    from kbnn.run.interruption import Interrupted, InterruptGuard
    from kbnn.run.outcome import summarize_training
    from kbnn.run.training import Training
    from kbnn_cli import render, show
    from kbnn_cli.train_listener import TrainListener

    if json and predictions == "-":
        raise UsageError("--json and --predictions - cannot both go to standard output")
    if key and model == trainoptions.DEFAULT_MODEL:
        model = trainoptions.DEFAULT_FLEET
    outputs = {"--model": model, "--predictions": predictions, "--bad-rows": bad_rows}
    check_outputs(sources, {**outputs, "--log": log})
    chosen = trainoptions.build_train_options(
        sources,
        options.parse_names(target),
        model,
        features=options.parse_names(features),
        ignore=options.parse_names(ignore),
        weight=weight,
        input_sd=input_sd,
        categorical=options.parse_names(categorical),
        numeric=options.parse_names(numeric),
        hash=options.parse_names(hash),
        decimal=decimal,
        thousands=thousands,
        task=task,
        time=time,
        time_unit=time_unit,
        lags=lags,
        id=id,
        wait=wait,
        epochs=epochs,
        shuffle=shuffle,
        test_split=test_split,
        limit=limit,
        on_error=on_error,
        bad_rows=bad_rows,
        na=na or (),
        format=format,
        delimiter=delimiter,
        header=header,
        predictions=predictions,
        interval=interval,
        quantiles=options.parse_shares(quantiles),
        fresh=fresh,
        resume=resume,
        again=again,
        checkpoint_every=checkpoint_every,
        key=options.parse_names(key),
        common=common,
        open=open,
        engine=engine,
        cluster=cluster,
        **own.select_settings(stated),
    )
    code = exits.EXIT_DONE
    with TrainListener(quiet, log) as listener:
        training = Training(chosen, listener)
        if dry_run:
            training.find_schema()
            if json:
                show.print_json(training.model.schema.to_json())
            else:
                show.print_parts(render.schema_parts(training.model))
            return
        try:
            with InterruptGuard() as interruption:
                training.run(interruption)
        except Interrupted as interrupted:
            code = exits.EXIT_SIGNAL_BASE + interrupted.number
        except ReaderLeft:
            code = exits.EXIT_READER_LEFT
        listener.on_end(training, code)
        if code == exits.EXIT_DONE and listener.log_failed:
            code = exits.EXIT_FAILED
        if json and training.ready:
            show.print_json(summarize_training(training))
    raise typer.Exit(code)
