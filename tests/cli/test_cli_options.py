"""Options by their present and former spellings, from the environment, and in the help."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import kbnn
from kbnn.data.schema import DEFAULT_MAX_PENDING
from kbnn.errors import UsageError
from kbnn.fleet.fleet import DEFAULT_OPEN_MODELS
from kbnn.model.settings import Settings
from kbnn.option_table import FORMER_FLAGS, LOCAL_ENGINE, list_keywords
from kbnn.workflows.options import build_train_options
from kbnn_cli.app import COMMANDS, load_command
from kbnn_cli.commands.help import list_option_names
from tests.commands import SAMPLES
from tests.commands import kbnn as command

SPELLINGS = [
    (("--units", "off"), ("--standardize", "off")),
    (("--widen=off",), ("--inflate=off",)),
    (("--rehearse", "3"), ("--replay", "3")),
    (("--intervals", "stated"), ("--intervals", "model")),
    (("--intervals", "tracked"), ("--intervals", "calibrated")),
]


def train_settings(folder: Path, *words: str) -> dict[str, object]:
    model = folder / "m.npz"
    data = SAMPLES / "cubic_small.csv"
    ran = command("train", data, "-m", model, "--layers", "3", "--fresh", "-q", *words)
    assert ran.code == 0, ran.err
    return dict(json.loads(command("inspect", model, "--json").out)["settings"])


@pytest.mark.parametrize(("former", "present"), SPELLINGS)
def test_both_spellings_of_a_setting_store_the_same(
    tmp_path: Path, former: tuple[str, ...], present: tuple[str, ...]
) -> None:
    assert train_settings(tmp_path, *former) == train_settings(tmp_path, *present)


def test_stored_settings_keep_their_names_and_values(tmp_path: Path) -> None:
    words = ["--standardize", "off", "--inflate", "off", "--replay", "3", "--intervals", "model"]
    stored = train_settings(tmp_path, *words)
    expected = {"units": False, "widen": False, "rehearse": 3, "intervals": "stated"}
    assert expected.items() <= stored.items()


@pytest.mark.parametrize("former", sorted(FORMER_FLAGS))
def test_a_former_spelling_is_accepted_but_not_listed(former: str) -> None:
    assert FORMER_FLAGS[former] in command("train", "--help-all").out
    assert f"{former} " not in command("train", "--help-all").out
    assert former not in list_option_names("train")


def test_fleets_take_both_spellings(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("k,x,y\n" + "".join(f"{i % 3},{i},{i * i % 17}\n" for i in range(90)))
    made = []
    for at, words in enumerate(
        (
            "--open 2 --no-common --engine here --again",
            "--max-open-models 2 --no-pooling --engine local --relearn",
        )
    ):
        model = tmp_path / f"fleet{at}"
        ran = command("train", source, "--key", "k", "-m", model, "-q", *words.split())
        assert ran.code == 0, ran.err
        made.append(command("predict", model, source, "--engine", "here").out)
    assert made[0] == made[1]
    assert made[0] == command("predict", tmp_path / "fleet0", source, "--engine", "local").out


def test_pending_labels_take_both_spellings(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,x,y\n" + "".join(f"{i},{i % 7},{i * i % 17}\n" for i in range(90)))
    model = tmp_path / "m.npz"
    assert command("train", source, "-m", model, "-q", "--id", "id", "--wait", "50").code == 0
    ran = command("train", source, "-m", model, "-q", "--max-pending", "60", "--relearn")
    assert ran.code == 2
    assert ran.err.startswith("kbnn: --max-pending 60 contradicts")


def test_python_takes_both_spellings() -> None:
    former = build_train_options(
        (), units=False, widen="off", rehearse=3, wait=5, again=True, common=False, open=7
    )
    present = build_train_options(
        (),
        standardize=False,
        inflate="off",
        replay=3,
        max_pending=5,
        relearn=True,
        pooling=False,
        max_open_models=7,
    )
    assert former.settings == present.settings
    assert former.read == present.read
    assert (former.again, former.common, former.open) == (True, False, 7)
    assert (present.again, present.common, present.open) == (True, False, 7)
    assert build_train_options((), engine="here").engine == LOCAL_ENGINE


def test_python_refuses_an_option_given_by_both_spellings() -> None:
    with pytest.raises(UsageError, match="rehearse is the former name of replay"):
        kbnn.train([{"x": 1.0, "y": 2.0}], "y", rehearse=3, replay=3)


def test_a_contradiction_names_the_present_spelling(tmp_path: Path) -> None:
    train_settings(tmp_path, "--intervals", "model")
    data = SAMPLES / "cubic_small.csv"
    ran = command("train", data, "-m", tmp_path / "m.npz", "--intervals", "tracked", "--again")
    assert ran.code == 2
    assert "--intervals calibrated contradicts" in ran.err
    assert "which has model" in ran.err


def list_shown(*words: str) -> set[str]:
    """The options that a help screen lists."""
    lines = command(*words).out.splitlines()
    return {word for line in lines for word in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", line)}


def test_help_of_train_shows_the_common_options_and_help_all_every_one() -> None:
    short, long = list_shown("train", "--help"), list_shown("train", "--help-all")
    assert 18 <= len(short) <= 25
    assert short < long
    assert {"--target", "--layers", "--help-all"} < short
    assert "--replay" not in short
    assert long - {"--help"} == {n for n in list_option_names("train") if n.startswith("--")}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "train"])
def test_other_commands_show_every_option_in_both(name: str) -> None:
    assert command(name, "--help-all") == command(name, "--help")
    assert command(name, "--help-all").code == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_help_texts_are_one_imperative_line_with_the_default_beside_it(name: str) -> None:
    for param in load_command(name).params:
        text = param.help or ""
        assert 0 < len(text) <= 80, text
        assert text[0].isupper(), text
        assert text.endswith("."), text
        assert "if not said" not in text
        first = text.split()[0]
        assert first not in ("Whether", "Of", "What", "Where", "How", "The", "A", "With"), text
    shown = command(name, "--help-all").out
    assert "if not said" not in shown
    assert "default: (" not in shown


def test_help_shows_the_defaults_that_a_new_model_has() -> None:
    shown = " ".join(command("train", "--help-all").out.split())
    for option in list_keywords().values():
        if option.home != "settings":
            continue
        assert f"[default: {option.describe_default()}]" in shown
        if option.name != "group_size":
            value = getattr(Settings(), option.stored_name)
            assert option.parse_value(option.describe_default()) == value
    limits = {"--max-open-models": DEFAULT_OPEN_MODELS, "--max-pending": DEFAULT_MAX_PENDING}
    for param in load_command("train").params:
        if param.opts[0] in limits:
            assert param.show_default == str(limits[param.opts[0]])


def test_an_environment_variable_sets_an_option_and_the_command_line_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = SAMPLES / "cubic_small.csv", tmp_path / "m.npz"
    monkeypatch.setenv("KBNN_TRAIN_LAYERS", "4")
    monkeypatch.setenv("KBNN_TRAIN_QUIET", "1")
    monkeypatch.setenv("KBNN_TRAIN_FRESH", "true")
    monkeypatch.setenv("KBNN_TRAIN_INTERVALS", "model")
    for words, layers in (((), [4]), (("--layers", "3"), [3])):
        ran = command("train", data, "-m", model, *words)
        assert (ran.code, ran.err) == (0, "")
        settings = json.loads(command("inspect", model, "--json").out)["settings"]
        assert settings["hidden"] == layers
        assert settings["intervals"] == "stated"


def test_environment_variables_name_columns_with_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id no,size,n a,price now\n" + "1,2,3,x\n1,2,3,4\n" * 9 + "1,2,3,y\n")
    monkeypatch.setenv("KBNN_TRAIN_TARGET", "price now")
    monkeypatch.setenv("KBNN_TRAIN_IGNORE", "id no,n a")
    monkeypatch.setenv("KBNN_TRAIN_NA", "x\ny")
    ran = command("train", source, "--dry-run", "--json")
    assert ran.code == 0, ran.err
    roles = {c["name"]: c["role"] for c in json.loads(ran.out)["columns"]}
    assert roles == {"id no": "none", "size": "feature", "n a": "none", "price now": "target"}


def test_bad_values_of_the_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBNN_TRAIN_LAYERS", "many")
    ran = command("train", SAMPLES / "cubic_small.csv")
    assert ran.code == 2
    assert "--layers takes sizes" in ran.err
    monkeypatch.setenv("KBNN_TRAIN_QUIET", "perhaps")
    assert command("train", SAMPLES / "cubic_small.csv").code == 2


@pytest.mark.parametrize("name", ["HELP", "HELP_ALL", "VERSION"])
def test_no_environment_variable_asks_for_help(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = command("predict", "no.npz", "no.csv")
    for prefix in ("KBNN", "KBNN_PREDICT"):
        monkeypatch.setenv(f"{prefix}_{name}", "1")
    assert command("predict", "no.npz", "no.csv") == expected


def test_the_kernel_and_the_engine_of_a_fleet_have_variables_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = SAMPLES / "cubic_small.csv"
    monkeypatch.setenv("KBNN_ENGINE", "numpy")
    assert command("train", data, "--dry-run").code == 0
    monkeypatch.setenv("KBNN_TRAIN_ENGINE", "moon")
    ran = command("train", data)
    assert (ran.code, ran.err) == (2, "kbnn: --engine is local or dask, not 'moon'\n")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "help"])
def test_help_names_the_environment_variables(name: str) -> None:
    assert f"KBNN_{name.upper()}_OPTION" in command(name, "--help").out
