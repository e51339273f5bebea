"""MODEL_CARD.md says in words what is in a bundle."""

from __future__ import annotations

import json

from edge.manifest import Config, Manifest, Promise, Sizes, Words

VECTORS = {"f32": "float32", "f16": "float16", "i8": "int8 with one scale per item", "i32": "token numbers"}

WHERE = {
    "local": "added by each device to what it sends (local trust): the server, and whoever reads along, sees no more.",
    "central": "added once, to a round's sum of at least {cohort} clients (central trust): it hides a client from who "
    "sees the sums, not from the server, which is trusted to add it and to look at nothing else.",
}
WORLDS = {
    "replace-one": "nobody can tell well whether a client's data were others altogether.",
    "zero-out": "nobody can tell well whether a client's update was there, or zeros in its place.",
}


def model_card(manifest: Manifest, config: Config, fits: bool, cosine: float | None) -> str:
    """Write the card's text. `fits`: the memory rule's answer; `cosine`: encoder to torch, mean over titles."""
    sizes, items = manifest.model, manifest.item_count
    tables = ", ".join(f"`{t.name}` ({items:,} x {t.width}, {VECTORS[t.dtype]})" for t in config.tables)
    verdict = "fits" if fits else "DOES NOT FIT"
    lines = [
        f"# {manifest.method} for {manifest.device_class}",
        "",
        f"Made {manifest.created}, {_until(manifest)}. Recommends from {items:,} items with onnxruntime on the CPU.",
        "",
        "## Contents",
        f"- Item vectors: {tables or 'none'}.",
        f"- Scoring graph `{config.score}`: {sizes.shared_parameters:,} shared and "
        f"{sizes.private_parameters:,} private parameters, all of them inputs.",
        _encoder_line(config, sizes, cosine),
        f"- Memory: about {sizes.memory_mb:.0f} MB (estimate). By what was known when it was packed, the bundle "
        f"{verdict} what an app may use and spend on this class.",
        "",
        "## Private state",
        f"A device starts from `{config.init}`, which nobody's data made, learns on its own data and keeps the result. "
        + _carried(config, sizes),
        "",
        _start(config),
        "",
        "## Privacy",
        *_privacy(manifest.privacy),
        "",
        "## Checks",
        "`manifest.json` has the size and sha256 of every file. That finds damage; who made it says the signature in "
        "`manifest.sig.json`, where there is one.",
        "",
        "## Provenance",
        "```json",
        json.dumps(manifest.provenance, indent=2, ensure_ascii=False),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _start(config: Config) -> str:
    if config.start is None:
        return "Without a history there is no ranking yet."
    by = {"popular": "by how many people had them", "mean": "in the model's default order for a new user"}
    return f"Without a history `{config.start.path}` is shown: {config.start.count} items, {by[config.start.basis]}."


def _carried(config: Config, sizes: Sizes) -> str:
    if config.private is None:
        return "Nobody's private state, history or name is in this bundle."
    return (
        f"`{config.private}` holds the tensors, past positives and seen items of {sizes.users:,} SIMULATED users of "
        "this device class, for tests that compare devices with the simulator. It is not meant for a device: do not "
        "publish the folder if the users are real."
    )


def _privacy(promise: Promise | None) -> list[str]:
    if promise is None:
        return ["There is no guarantee for a client's data: the run does not both clip uploads and add noise."]
    p, norm = promise, promise.norm.upper()
    noised = f"{p.mechanism} noise of {p.multiplier:.6g} times what one client can change"
    return [
        f"- Promised (epsilon, delta): ({p.epsilon:.6g}, {p.delta:g}), for a client that takes part in all "
        f"{p.rounds:,} rounds. Every further round costs more.",
        f"- Clip: what a client sends in a round is at most {p.clip:.6g} long ({norm} norm, all tensors together).",
        f"- Noise: {noised}, {WHERE[p.trust].format(cohort=f'{p.cohort:,}')}",
        f"- Adjacency {p.adjacency}: {WORLDS[p.adjacency]}",
        "- The signer of the bundle states this. A device clips, adds noise and counts releases with its own code.",
    ]


def _until(manifest: Manifest) -> str:
    return f"refused by devices from {manifest.expires}" if manifest.expires else "without an expiry date"


def _encoder_line(config: Config, sizes: Sizes, cosine: float | None) -> str:
    if config.encoder is None:
        others = ", ".join(config.encoder_in) or "none"
        return f"- No text encoder: only the cached items. Classes of this export with one: {others}."
    part = config.encoder
    if isinstance(part, Words):
        table = f", a table of {part.table.count:,} words" if part.table else ", which learned nothing"
        return f"- Text encoder: the {'words and pairs of words' if part.pairs else 'words'} of a text{table}."
    close = "" if cosine is None else f", mean cosine {cosine:.4f} to the original on sampled titles"
    return (
        f"- Text encoder `{part.path}`: {part.layers} layers of {part.hidden}, {part.vocabulary:,} pieces, "
        f"{sizes.encoder_parameters:,} parameters, weights {part.dtype}, {part.pooling} pooling, at most "
        f"{part.max_tokens} tokens{close}."
    )
