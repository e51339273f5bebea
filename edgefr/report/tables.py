"""These tables on the terminal say what a run gave, what it cost, what its privacy is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from edgefr.config.sheet import Sheet, count
from edgefr.metrics.cutoffs import main_first
from edgefr.report.attack import attacked
from edgefr.report.blocks import block_table, blocks_over_seeds
from edgefr.report.fairness import fairness_table
from edgefr.report.fleet import fleet_table, from_to, short
from edgefr.report.over_seeds import over_seeds
from edgefr.report.pages import number
from edgefr.report.verdict import named, ranking_of
from privacy.sentence import clip_warning


def of_run(summary: dict[str, Any]) -> Iterator[RenderableType]:
    """Yield all tables and lines of one run."""
    if "continual" in summary:
        yield block_table(summary)
    else:
        for split in summary["stages"]:
            yield metric_table(summary, split)
            if (of_lists := list_table(summary, split)) is not None:
                yield of_lists
        if "sessions" in summary:
            yield group_table(summary)
        if summary["transfer"]:
            yield transfer_table(summary["transfer"], ranking_of(summary))
    for split, lines in summary["verdicts"].items():
        for line in lines:
            yield Text(f"  {split}: {line}", style="green" if "learning helped:" in line else "yellow")
    yield Text(f"protocol: {summary['protocol']}", style="dim")
    if "central" in summary:
        yield Text(_central_line(summary), style="bold")
    else:
        yield fleet_table(summary["fleet"])
        if (by_class := fairness_table(summary["fleet"], ranking_of(summary))) is not None:
            yield by_class
        yield privacy_table(summary["privacy"])
        if (attack := attacked(summary)) is not None:
            yield Text(f"attacked: {attack}", style="bold")
    if summary["bundles"]:
        yield from bundle_tables(summary["bundles"])
    yield Text(engine_line(summary))
    yield from (Text(line, style="bold yellow") for line in warnings(summary))


def of_seeds(summaries: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    """Yield mean and standard deviation over seeds, references included."""
    summary = over_seeds(summaries)
    yield from seed_tables(summary)
    yield Text(f"protocol: {summary['protocol']}", style="dim")


def list_table(summary: dict[str, Any], split: str) -> Sheet | None:
    """Show the metrics of recommended lists on a split; None where none was measured."""
    full = {name: found for name, found in summary["full_ranking"].get(split, {}).items() if isinstance(found, dict)}
    sampled = {metric for found in summary["stages"][split].values() for metric in found}
    names = list(dict.fromkeys(metric for found in full.values() for metric in found if metric not in sampled))
    if not names:
        return None
    rows = [
        {"recommended": name} | {metric: number(found.get(metric)) for metric in names} for name, found in full.items()
    ]
    return Sheet(f"recommended lists on {split}, with or without the target", rows, ["recommended"])


def _central_line(summary: dict[str, Any]) -> str:
    """Say what a central reference is, which of its epochs were kept, and where it can say nothing."""
    found = summary["central"]
    kept = ", then ".join(f"epoch {turn['best_epoch']} of {turn['epochs']}" for turn in found["turns"])
    unseen = "".join(f"; it knows no item of {name}, so all of them tie" for name in found["unseen"])
    return f"{found['note']} ({kept}, the best on validation items){unseen}"


def metric_table(summary: dict[str, Any], split: str) -> Sheet:
    """Show stages of the model and references: on the whole catalogue, the last stage's gain, sampled candidates."""
    stages, references = summary["stages"][split], summary["references"][split]
    full = summary["full_ranking"].get(split, {})
    names, last = _shown(stages), summary["stage"]
    learned = summary["learning"][split].get(last, {"against": {}, "metric": ""})
    gains = learned["against"] | learned.get("ceilings", {})
    rows, sampled = [], ranking_of(summary).replace(" + ", "+").replace(" ", "\n")
    for stage, values in (stages | references).items():
        row = {"test items": named(stage)}
        if full:
            row |= {f"{n}\nfull": f"{full[stage][n]:.4f}" if stage in full else "-" for n in names}
        row[f"gain of {last}\n{learned['metric']}, 95 %"] = gain(gains.get(stage))
        rows.append(row | {f"{n}\n{sampled}": f"{values[n]:.4f}" for n in names})
    title = f"{summary['method']} on {summary['data']}"
    users = summary["full_ranking"]["users"]
    return Sheet(
        title if split == "main" else f"{title}: {split}",
        rows,
        words=["test items"],
        caption="lower part: baselines without training; central: trained on pooled data"
        + (f"; full ranking on {count(users, 'user')}" if full else ""),
        rules=[len(stages) - 1],
        bold=[at for at, stage in enumerate(stages) if stage == last],
    )


def gain(against: dict[str, float | None] | None) -> str:
    """Write how much better a learned model is, with its interval; a dash where that was not asked."""
    if against is None or None in against.values():
        return "-"
    return "{difference:+.4f} [{low:+.4f}, {high:+.4f}]".format_map(against)


def _shown(stages: dict[str, dict[str, Any]]) -> list[str]:
    return main_first(name for name in next(iter(stages.values())) if not name.startswith("Recall"))


def transfer_table(transfer: dict[str, dict[str, float]], how: str) -> Sheet:
    """Show TransFR Tables 5 and 6 as ranked: source, target, delta; of several targets each has the two of its own."""
    rows = [
        {"metric": metric} | {name: f"{v:.1%}" if name.startswith("delta") else f"{v:.4f}" for name, v in row.items()}
        for metric, row in transfer.items()
    ]
    return Sheet(f"transfer after local training, {how} (TransFR Tables 5 and 6)", rows, words=["metric"])


def group_table(summary: dict[str, Any]) -> Sheet:
    """Return repeats and new items apart: a mean over both hides which of them was found."""
    found = summary["sessions"]["groups"]
    either = {name: None for values in next(iter(found.values())).values() for name in values}
    names = [name for name in either if name.startswith(("HR", "NDCG"))]
    rows = [
        {"targets": stage}
        | {
            f"{name}\n{group}": f"{values[name]:.4f}" if name in values else values["users"] or "-"
            for group, values in groups.items()
            for name in names
        }
        for stage, groups in found.items()
    ]
    counts = {group: values["users"] for group, values in next(iter(found.values())).items()}
    return Sheet(
        f"repeats and new items, best round {summary['sessions']['best_round']}",
        rows,
        words=["targets"],
        caption=f"repeat targets: {counts['seen']}; new targets: {counts['new']}; ranked among sampled negatives",
        rules=[0],
        bold=[0],
    )


def privacy_table(report: dict[str, Any]) -> Table:
    """Show the privacy report: four epsilons, never mixed."""
    from privacy.example_plan import render_examples
    from privacy.report_rows import render

    return pairs("privacy", [*render(report), *render_examples(report.get("examples"))])


def pairs(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    """Show names and values as two columns."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def bundle_tables(rows: Sequence[dict[str, Any]]) -> list[Sheet]:
    """Return the variants that were considered, where a run kept them, and the bundle of each class."""
    considered = [row for row in rows if row.get("considered")]
    return [*([_variant_table(considered)] if considered else []), bundle_table(rows)]


def _variant_table(rows: Sequence[dict[str, Any]]) -> Sheet:
    """Make one row per variant: what it takes and keeps, from class to class, and which classes got it."""
    of: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for one in row["considered"]:
            of.setdefault(one["variant"], []).append(one)
    cells, chosen = [], Counter(row["variant"] for row in rows)
    for name, found in of.items():
        seconds = [one["latency_ms"] for one in found if one["latency_ms"] is not None]
        first = found[0]
        cells.append(
            {
                "variant": name,
                "given to\nclasses": str(chosen[name] or ""),
                "MB": short(first["files_mb"]),
                "RAM\nMB": from_to(one["memory_mb"] for one in found),
                "ms": from_to(seconds) if seconds else "-",
                "top-10\noverlap": "-" if first["overlap"] is None else f"{first['overlap']:.3f}",
                "HR@10\nkept": "-" if first["hr_kept"] is None else f"{first['hr_kept']:.3f}",
            }
        )
    bold = [at for at, cell in enumerate(cells) if cell["given to\nclasses"]]
    caption = "\n".join(["the best first; edgefr export --variant NAME asks for another", *_not_used(rows)])
    return Sheet("variants considered", cells, words=["variant"], caption=caption, bold=bold)


def bundle_table(rows: Sequence[dict[str, Any]]) -> Sheet:
    """Make one row per device class: what its bundle holds, costs there, and keeps of the simulated model."""
    cells = [
        {
            "device class": row["class"],
            "variant": row["variant"],
            "MB": short(row["files_mb"]),
            "RAM MB to\nrecommend": f"{row['memory_mb']:.0f}",
            "ms": "-" if row["latency_ms"] is None else short(row["latency_ms"]),
            "top-10\noverlap": "-" if row["overlap"] is None else f"{row['overlap']:.3f}",
            "HR@10\nkept": "-" if row["hr_kept"] is None else f"{row['hr_kept']:.3f}",
            "fits": "yes" if row["fits"] else "NO",
            "users": f"{row['parity_users']}",
            "largest\nscore error": "-" if row["max_score_error"] is None else f"{row['max_score_error']:.1e}",
            "identical\ntop 10": "-" if row["top10_equal"] is None else f"{row['top10_equal']:.1%}",
        }
        for row in rows
    ]
    caption = "\n".join(
        [
            "RAM: needed to recommend, computed from the runtime's figure and file sizes; ms: derived from the "
            "class's figures, for one recommendation and the encoding of one new text",
            "overlap and HR@10 kept: against the fp32 model, on validation items; with an encoder, all items encoded",
            "score error and identical top 10: the bundle without torch against the simulated model, on its users",
        ]
    )
    return Sheet("bundles", cells, words=["device class", "variant"], caption=caption)


def _not_used(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say which variants lose too much, and for which some classes lack room or time."""
    why: dict[str, list[str]] = {}
    for row in rows:
        for other in row["considered"]:
            if other["why"] is not None:
                why.setdefault(f"{other['variant']} {other['why']}", []).append(row["class"])
    return [
        f"not used: {line}" + ("" if len(classes) == len(rows) else f" ({', '.join(classes)})")
        for line, classes in why.items()
    ]


def engine_line(summary: dict[str, Any]) -> str:
    """Write one line: speed, time, memory."""
    e = summary["engine"]
    who = f"{count(e['client_updates'], 'client update')} at {e['clients_per_second']:,.0f}/s"
    how = f"({e['executor']}, {e['device']}, shards of {e['shard_size']})"
    work = "in one place" if "central" in summary else f"{who} {how}"
    return (
        f"engine: {work}, train {e['train_seconds']:.1f} s, evaluation "
        f"{e['eval_seconds']:.1f} s, whole run {e['wall_seconds']:.1f} s, peak {e['peak_rss_mb']:,.0f} MB"
    )


def warnings(summary: Mapping[str, Any]) -> list[str]:
    """List what a user must not overlook: a clip that hides all else, diverged clients, bundles missing or too big."""
    clip = clip_warning((summary.get("privacy") or {}).get("clip") or {})
    out = [] if clip is None else [f"warning: {clip}"]
    dropped, fleet = summary["engine"]["dropped_updates"], summary["fleet"]
    if dropped:
        out.append(f"warning: {count(dropped, 'client update')} dropped for NaN or infinite values; lower model.lr")
    if fleet.get("rounds") and not fleet["contributed"]:
        out.append("warning: no client contributed, so no federated training took place; see the fleet's failures")
    if summary.get("no_bundles"):
        out.append(f"warning: no bundles were written: {summary['no_bundles']}")
    if summary.get("only_recommends"):
        out.append(f"warning: bundles of this run only recommend: {summary['only_recommends']}")
    for row in summary["bundles"]:
        if row["lacks"]:
            out.append(f"warning: the smallest bundle for {row['class']} {row['lacks']}; use a smaller catalogue")
    return out


def seed_tables(summary: dict[str, Any]) -> list[Sheet]:
    """Show mean and standard deviation over seeds."""
    sheets = [blocks_over_seeds(summary)] if "blocks" in summary else []
    seeds, own = count(len(summary["seeds"]), "seed"), ranking_of(summary)
    for split, stages in summary.get("stages", {}).items():
        names, full = _shown(stages), summary.get("full_ranking", {}).get(split, {})
        rows = []
        for stage, values in (stages | summary["references"][split]).items():
            ranked = {"full": full.get(stage, {})} if full else {}
            cells = {f"{n}\n{how}": _spread(of.get(n)) for how, of in (ranked | {own: values}).items() for n in names}
            rows.append({"test items": named(stage)} | cells)
        title = f"{summary['method']} on {summary['data']}, {split}: mean ± sd of {seeds}"
        sheets.append(Sheet(title, rows, words=["test items"], rules=[len(stages) - 1]))
    return sheets


def _spread(of: Mapping[str, float] | None) -> str:
    return "-" if of is None else f"{of['mean']:.4f} ± {of['sd']:.4f}"
