"""`edgefr distill` and `edgefr pretrain`: text encoders on their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgefr.cli.progress import shown
from edgefr.cli.simulate import check_data
from privacy.errors import InputError


def distill(
    out: Annotated[Path, typer.Option(help="Folder for the student; must be new.")],
    texts: Annotated[
        Path | None, typer.Option(help="Text file, one text per line. Default: a data set's items.")
    ] = None,
    data: Annotated[str, typer.Option(help="Data set whose item texts are used without --texts.")] = "demo",
    data_dir: Annotated[Path | None, typer.Option(envvar="EDGEFR_DATA", help="Folder with the archives.")] = None,
    experiment: Annotated[Path | None, typer.Option(help="Experiment whose encoder.distill is used.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="e.g. encoder.distill.layers=2")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Distil a BERT into a small text encoder (TransFR Eq. 1-3) and say what was kept of it.

    Example: `edgefr distill --out student`

    Example: `edgefr distill --out small --data demo --set encoder.distill.layers=1`
    """
    if texts is None:
        check_data(data)
    from cloud.distill import distill as learn
    from edgefr.data.datasets import load
    from edgefr.engine.device import torch_device
    from edgefr.experiment.experiment import load_experiment
    from edgefr.experiment.text_encoder import ENCODERS
    from edgefr.report.tables import key_values, print_path
    from privacy.files import cache_dir

    chosen = load_experiment(experiment, set_ or [])
    if not ENCODERS[chosen.encoder.kind].language_model:
        raise InputError(f"encoder.kind={chosen.encoder.kind} distils nothing; set encoder.kind=student")
    if chosen.encoder.distill is None:
        raise InputError("this experiment reads with the teacher itself (encoder.distill is empty); set its fields")
    if out.exists():
        raise InputError(f"{out} exists; choose another --out (nothing was changed)")
    lines = read_lines(texts) if texts is not None else load(data, data_dir).catalogue.text
    with shown() as progress:
        student = learn(lines, chosen.encoder.distill, cache_dir(), str(torch_device(device)), progress)
    copy_folder(student.path, out)
    console = Console()
    console.print(key_values("student", student.report))
    print_path("student", out, console)


def pretrain(
    texts: Annotated[Path, typer.Option(help="Text file, one text per line.")],
    out: Annotated[Path, typer.Option(help="Folder for the model; continued if it was interrupted.")],
    layers: Annotated[int, typer.Option(help="Transformer layers.")] = 4,
    hidden: Annotated[int, typer.Option(help="Width of the model.")] = 312,
    heads: Annotated[int, typer.Option(help="Attention heads.")] = 12,
    vocabulary: Annotated[int, typer.Option(help="Largest vocabulary, in tokens.")] = 8000,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 10_000,
    max_tokens: Annotated[int, typer.Option(help="Longest text, in tokens.")] = 128,
    seed: Annotated[int, typer.Option(help="Seed of weights, masks and order.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Train a BERT from scratch on any text (masked language model); the result can be a teacher.

    Example: `edgefr pretrain --texts texts.txt --out teacher`

    Example: `edgefr pretrain --texts texts.txt --out tiny --layers 2 --hidden 128 --heads 2`
    """
    from pydantic import ValidationError

    from cloud.pretrain import pretrain as learn
    from cloud.settings import PretrainSettings
    from edgefr.config.validation import describe
    from edgefr.engine.device import torch_device
    from edgefr.report.tables import print_path

    try:
        settings = PretrainSettings(
            layers=layers,
            hidden=hidden,
            heads=heads,
            vocabulary=vocabulary,
            steps=steps,
            warmup=min(500, steps // 10),
            max_tokens=max_tokens,
            seed=seed,
        )
    except ValidationError as error:
        raise InputError(describe(error, PretrainSettings)) from None
    with shown() as progress:
        folder = learn(read_lines(texts), settings, out, str(torch_device(device)), progress)
    print_path("model", folder, Console())


def copy_folder(source: Path, out: Path) -> None:
    """Copy a folder so that the copy is there whole or not at all. Raises `InputError` when it cannot be written."""
    import shutil

    part = out.with_name(f".{out.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part)
        part.rename(out)
    except OSError as error:
        reason = error.strerror or (error.args[0][0][2] if isinstance(error, shutil.Error) else error)
        raise InputError(f"cannot write {out}: {reason}; nothing was changed") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file. Raises `InputError` if it cannot be read as UTF-8."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; save the file as plain UTF-8 text") from None
    if not any(line.strip() for line in lines):
        raise InputError(f"{path} holds no text; expected one text per line")
    return lines
