"""`kbnn train`: train a model on a stream, row by row."""

from __future__ import annotations

import typer

from kbnn.model.settings import FORMER_FLAGS
from kbnn_cli import errors, options
from kbnn_cli.help_screens import Command

EXAMPLES = """\b
Examples:
  kbnn train data.csv                   learn the last column, save model.npz
  kbnn train data.csv --target price --layers 50 --epochs 10
  kbnn train more.csv                   continue training model.npz
  tail -n +1 -f log.csv | kbnn train - --predictions - | tee out.csv
  kbnn train big.parquet -m big.npz --resume   continue after a crash
  kbnn train readings.csv --key device -m fleet/   one model per device
"""


class TrainCommand(Command):
    """The command with the former spellings of its options, and those that most people use."""

    former_names = FORMER_FLAGS
    common_options = frozenset(
        (
            "model",
            "fresh",
            "resume",
            "target",
            "features",
            "ignore",
            "task",
            "time",
            "lags",
            "epochs",
            "shuffle",
            "test_split",
            "layers",
            "seed",
            "key",
            "limit",
            "on_error",
            "predictions",
            "dry_run",
            "json",
            "quiet",
        )
    )


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=TrainCommand, epilog=EXAMPLES)
@options.with_settings
def train(
    sources: options.Sources,
    model: options.ModelFile = "model.npz",
    fresh: options.Fresh = False,
    resume: options.Resume = False,
    relearn: options.Relearn = False,
    checkpoint_every: options.CheckpointEvery = 30.0,
    key: options.Key = None,
    pooling: options.Pooling = True,
    max_open_models: options.MaxOpenModels = None,
    engine: options.Engine = "local",
    cluster: options.Cluster = "local:2",
    target: options.Target = None,
    features: options.Features = None,
    ignore: options.Ignore = None,
    weight: options.Weight = None,
    input_sd: options.InputSd = False,
    categorical: options.Categorical = None,
    numeric: options.Numeric = None,
    hash: options.Hash = None,
    task: options.Task = "auto",
    time: options.Time = None,
    time_unit: options.TimeUnit = "auto",
    lags: options.Lags = None,
    id: options.Id = None,
    max_pending: options.MaxPending = None,
    epochs: options.Epochs = 1,
    shuffle: options.Shuffle = False,
    test_split: options.TestSplit = 0.0,
    limit: options.Limit = None,
    on_error: options.OnError = "stop",
    bad_rows: options.BadRows = None,
    na: options.Na = None,
    format: options.Format = "auto",
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    header: options.Header = None,
    predictions: options.Predictions = None,
    interval: options.Interval = 0.9,
    quantiles: options.Quantiles = None,
    log: options.Log = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    help_all: options.HelpAll = False,
    **settings: str | None,
) -> None:
    """Train a model on a stream, row by row, or continue training the model in the file."""
    from kbnn.errors import ReaderLeft, UsageError
    from kbnn.workflows import options as workflow_options
    from kbnn.workflows.options import check_outputs
    from kbnn.workflows.run_results import summarize_training
    from kbnn.workflows.signals import Interrupted, InterruptGuard
    from kbnn.workflows.training import Training
    from kbnn_cli import display
    from kbnn_cli.progress import TrainListener

    if json and predictions == "-":
        raise UsageError("--json and --predictions - cannot both go to standard output")
    if key and model == workflow_options.DEFAULT_MODEL:
        model = workflow_options.DEFAULT_FLEET
    outputs = {"--model": model, "--predictions": predictions, "--bad-rows": bad_rows}
    check_outputs(sources, {**outputs, "--log": log})
    chosen = workflow_options.build_train_options(
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
        max_pending=max_pending,
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
        relearn=relearn,
        checkpoint_every=checkpoint_every,
        key=options.parse_names(key),
        pooling=pooling,
        max_open_models=max_open_models,
        engine=engine,
        cluster=cluster,
        **options.select_settings(settings),
    )
    code = errors.EXIT_DONE
    with TrainListener(quiet, log) as listener:
        training = Training(chosen, listener)
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
            code = errors.EXIT_SIGNAL_BASE + interrupted.number
        except ReaderLeft:
            code = errors.EXIT_READER_LEFT
        listener.on_end(training, code)
        if code == errors.EXIT_DONE and listener.log_failed:
            code = errors.EXIT_FAILED
        if json and training.ready:
            display.print_json(summarize_training(training))
    raise typer.Exit(code)
