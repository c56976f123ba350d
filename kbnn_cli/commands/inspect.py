"""`kbnn inspect`: show the settings, data, weights and scores of a model."""

from __future__ import annotations

import typer

from kbnn_cli.command_options import add_command

EXAMPLES = """\b
Examples:
  kbnn inspect model.npz
  kbnn inspect model.npz --report model.html
  kbnn inspect model.npz --json
  kbnn inspect new.npz --diff old.npz            show what changed
  kbnn inspect fleet/                            show the keys and their scores
  kbnn inspect fleet/ --key d7 --export d7.npz   export one of them
  kbnn inspect model.npz --weights-file w.npz    save means and covariances
  kbnn inspect model.npz --weights > weights.csv
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@add_command(app, EXAMPLES)
def inspect(
    model: str,
    key: str | None,
    export: str | None,
    force: bool,
    weights: bool,
    weights_file: str | None,
    diff: str | None,
    report: str | None,
    plot: str | None,
    no_plots: bool,
    json: bool,
) -> None:
    """Show a model: settings, columns, weights, effects of features and past scores."""
    from kbnn.errors import UsageError
    from kbnn.model import file as modelfile
    from kbnn.workflows import comparing, inspecting, keyed, model_report
    from kbnn.workflows.options import check_outputs
    from kbnn_cli import display, result_screens

    if diff is not None and weights:
        raise UsageError("--diff and --weights cannot be combined")
    model_report.check_report_paths(report, plot)
    if weights_file is not None:
        comparing.check_weights_path(weights_file)
    if force and export is None:
        raise UsageError("--force replaces the file of --export: name it with --export FILE.npz")
    outputs = {"--weights-file": weights_file, "--report": report, "--plot": plot}
    models = [model] if diff is None else [model, diff]
    check_outputs((), outputs, models=models, new_models={"--export": export}, force=force)
    size = None
    loaded = keyed.load(model)
    known = keyed.get_overall_model(loaded)
    if key is not None:
        loaded = known = keyed.select_model(loaded, model, key)
        model, size = f"{model} {key}", keyed.measure_file_size(known)
    if loaded.key:
        asked = {"--weights": weights, "--weights-file": weights_file, "--diff": diff}
        asked |= {"--report": report, "--plot": plot, "--export": export}
        checked = {name: bool(value) for name, value in asked.items()}
        keyed.check_single_model(loaded, model, checked)
        found_keys = keyed.summarize_fleet(loaded, model)
        if json:
            display.print_json(found_keys)
        else:
            display.print_parts(result_screens.overview_parts(loaded, found_keys))
        return
    if export is not None:
        keyed.export_model(known, export)
    if weights_file is not None:
        comparing.save_weights(known, weights_file)
    needed = report is not None or (diff is None and (json or not weights))
    found = inspecting.inspect_model(known, model, size, explain=needed)
    title = f"{model_report.format_file_name(model)}: {found.description}"
    plots = display.on_terminal() and not no_plots
    try:
        if diff is not None:
            made = comparing.compare_models(modelfile.load(diff), diff, known, model)
            if json:
                display.print_json({"first": diff, "second": model, **made.to_json()})
            else:
                display.print_parts(result_screens.comparison_parts(made, diff, model))
        elif json:
            listed = {"weights": [weight._asdict() for weight in comparing.iter_weights(known)]}
            display.print_json({**found.to_json(), **(listed if weights else {})})
        elif weights:
            display.print_csv(comparing.Weight._fields, comparing.iter_weights(known))
        else:
            display.print_parts(result_screens.inspection_parts(found, plots=plots))
    finally:  # also if the reader of the output leaves early
        shown = model_report.ReportContext(title)
        model_report.write_report_files(known, known.card, found, shown, page=report, picture=plot)
