"""`edgefr distill` and `edgefr pretrain`: text encoders on their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from edgefr.cli.options import Chip, check_data, validated
from edgefr.cli.output import say, show
from edgefr.config.progress import shown
from privacy.errors import InputError


def distill(
    out: Annotated[Path, Option(help="Folder for the student; must be new.")],
    texts: Annotated[Path | None, Option(help="Text file, one text per line. Default: a data set's items.")] = None,
    data: Annotated[str, Option(help="Data set whose item texts are used without --texts.")] = "demo",
    data_dir: Annotated[Path | None, Option(envvar="EDGEFR_DATA", help="Folder with the archives.")] = None,
    experiment: Annotated[Path | None, Option(help="Experiment whose encoder.distill is used.")] = None,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="e.g. encoder.distill.layers=2")
    ] = None,
    device: Chip = "auto",
) -> None:
    """Distil a BERT into a small text encoder (TransFR Eq. 1-3) and report how well it matches.

    Example: `edgefr distill --out student`

    Example: `edgefr distill --out small --data demo --set encoder.distill.layers=1`
    """
    if texts is None:
        check_data(data)
    from cloud.distill import distill as learn
    from edgefr.data.datasets import load
    from edgefr.engine.device import torch_device
    from edgefr.experiment.experiment import load_experiment
    from edgefr.report.tables import pairs
    from edgefr.simulation.encoders.standalone import copy_folder, read_lines, settings_of
    from privacy.files import cache_dir

    settings = settings_of(load_experiment(experiment, set_ or []))
    if out.exists():
        raise InputError(f"{out} exists; choose another --out (nothing was changed)")
    lines = read_lines(texts) if texts is not None else load(data, data_dir).catalogue.text
    with shown() as progress:
        student = learn(lines, settings, cache_dir(), str(torch_device(device)), progress)
    copy_folder(student.path, out)
    kept = student.report.items()
    show(pairs("student", [(name, f"{v:.4g}" if isinstance(v, float) else str(v)) for name, v in kept]))
    say(f"student: {out}")


def pretrain(
    texts: Annotated[Path, Option(help="Text file, one text per line.")],
    out: Annotated[Path, Option(help="Folder for the model; continued if it was interrupted.")],
    layers: Annotated[int, Option(help="Transformer layers.")] = 4,
    hidden: Annotated[int, Option(help="Width of the model.")] = 312,
    heads: Annotated[int, Option(help="Attention heads.")] = 12,
    vocabulary: Annotated[int, Option(help="Largest vocabulary, in tokens.")] = 8000,
    steps: Annotated[int, Option(help="Optimiser steps.")] = 10_000,
    max_tokens: Annotated[int, Option(help="Longest text, in tokens.")] = 128,
    seed: Annotated[int, Option(help="Seed of weights, masks and order.")] = 0,
    device: Chip = "auto",
) -> None:
    """Train a BERT from scratch on any text (masked language model); the result can be a teacher.

    Example: `edgefr pretrain --texts texts.txt --out teacher`

    Example: `edgefr pretrain --texts texts.txt --out tiny --layers 2 --hidden 128 --heads 2`
    """
    from cloud.pretrain import pretrain as learn
    from cloud.settings import PretrainSettings
    from edgefr.engine.device import torch_device
    from edgefr.simulation.encoders.standalone import read_lines

    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "vocabulary": vocabulary, "max_tokens": max_tokens}
    settings = validated(PretrainSettings, **sizes, steps=steps, warmup=min(500, steps // 10), seed=seed)
    with shown() as progress:
        folder = learn(read_lines(texts), settings, out, str(torch_device(device)), progress)
    say(f"model: {folder}")
