"""`kbnn train`: train a model on a stream, row by row."""

from __future__ import annotations

import typer

from kbnn.model.settings import FORMER_FLAGS
from kbnn_cli import command_options, exit_codes
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
@command_options.with_settings
def train(
    sources: command_options.Sources,
    model: command_options.ModelFile = "model.npz",
    fresh: command_options.Fresh = False,
    resume: command_options.Resume = False,
    relearn: command_options.Relearn = False,
    checkpoint_every: command_options.CheckpointEvery = 30.0,
    key: command_options.Key = None,
    pooling: command_options.Pooling = True,
    max_open_models: command_options.MaxOpenModels = None,
    engine: command_options.Engine = "local",
    cluster: command_options.Cluster = "local:2",
    target: command_options.Target = None,
    features: command_options.Features = None,
    ignore: command_options.Ignore = None,
    weight: command_options.Weight = None,
    input_sd: command_options.InputSd = False,
    categorical: command_options.Categorical = None,
    numeric: command_options.Numeric = None,
    hash: command_options.Hash = None,
    task: command_options.Task = "auto",
    time: command_options.Time = None,
    time_unit: command_options.TimeUnit = "auto",
    lags: command_options.Lags = None,
    known_ahead: command_options.KnownAhead = None,
    id: command_options.Id = None,
    max_pending: command_options.MaxPending = None,
    epochs: command_options.Epochs = 1,
    shuffle: command_options.Shuffle = False,
    test_split: command_options.TestSplit = 0.0,
    limit: command_options.Limit = None,
    on_error: command_options.OnError = "stop",
    bad_rows: command_options.BadRows = None,
    na: command_options.Na = None,
    format: command_options.Format = "auto",
    delimiter: command_options.Delimiter = None,
    decimal: command_options.Decimal = None,
    thousands: command_options.Thousands = None,
    header: command_options.Header = None,
    predictions: command_options.Predictions = None,
    interval: command_options.Interval = 0.9,
    quantiles: command_options.Quantiles = None,
    log: command_options.Log = None,
    dry_run: command_options.DryRun = False,
    json: command_options.Json = False,
    quiet: command_options.Quiet = False,
    help_all: command_options.HelpAll = False,
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
        command_options.parse_names(target),
        model,
        features=command_options.parse_names(features),
        ignore=command_options.parse_names(ignore),
        weight=weight,
        input_sd=input_sd,
        categorical=command_options.parse_names(categorical),
        numeric=command_options.parse_names(numeric),
        hash=command_options.parse_names(hash),
        decimal=decimal,
        thousands=thousands,
        task=task,
        time=time,
        time_unit=time_unit,
        lags=lags,
        known_ahead=command_options.parse_names(known_ahead) or None,
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
        quantiles=command_options.parse_shares(quantiles),
        fresh=fresh,
        resume=resume,
        relearn=relearn,
        checkpoint_every=checkpoint_every,
        key=command_options.parse_names(key),
        pooling=pooling,
        max_open_models=max_open_models,
        engine=engine,
        cluster=cluster,
        **command_options.select_settings(settings),
    )
    code = exit_codes.EXIT_DONE
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
            code = exit_codes.EXIT_SIGNAL_BASE + interrupted.number
        except ReaderLeft:
            code = exit_codes.EXIT_READER_LEFT
        listener.on_end(training, code)
        if code == exit_codes.EXIT_DONE and listener.log_failed:
            code = exit_codes.EXIT_FAILED
        if json and training.ready:
            display.print_json(summarize_training(training))
    raise typer.Exit(code)
