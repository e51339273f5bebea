"""The built-in data set has two domains, items whose text tells what they are, and users whose tastes drift.

Every item has a topic and a style, told by its words. Every user has a lasting topic, a topic that fades, one
that grows, and a favourite style, the same in both domains; so text carries taste from one domain to the
other. Activity and popularity have heavy tails. Every number is keyed by (seed, user, draw): generation runs
in parts of bounded memory, and how it is parted changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from edgefr.config import random_streams as purposes
from edgefr.data.interactions import Catalogue, Dataset, item_text
from edgefr.data.sorting import repeats, stable_order
from privacy import keyed
from privacy.progress import Progress

TOPICS: dict[str, list[str]] = {
    line.split(":")[0].strip(): line.split(":")[1].split()
    for line in """
    astronomy: telescope nebula orbit comet galaxy eclipse observatory starlight planet asteroid
    cooking: kitchen spice bread oven recipe harvest soup pastry chef feast
    gardening: orchard rose seed greenhouse soil blossom hedge pruning meadow compost
    sailing: harbour schooner anchor tide lighthouse mast voyage regatta reef captain
    jazz: trumpet saxophone ballad rhythm nightclub improvisation drummer swing melody bandleader
    mountaineering: summit glacier rope avalanche ridge basecamp crevasse ascent sherpa blizzard
    medicine: surgeon hospital fever vaccine ward diagnosis nurse epidemic anatomy scalpel
    chess: grandmaster gambit endgame bishop tournament checkmate opening rook clock stalemate
    crime: detective alibi murder witness suspect fingerprint burglary inspector ransom verdict
    romance: wedding letter sweetheart kiss proposal heartbreak courtship bride reunion longing
    knights: castle sword tournament siege crusade armour squire dragon throne chivalry
    robots: android circuit factory sensor automaton algorithm laboratory cyborg engineer machine
    football: striker goalkeeper stadium penalty league referee dressing-room derby midfield trophy
    painting: canvas portrait fresco easel watercolour gallery pigment sketch studio masterpiece
    money: bank merger stock inflation broker ledger bankruptcy dividend trader auction
    war: trench battalion general ambush armistice bomber soldier frontline treaty bunker
    ghosts: haunting seance cemetery phantom attic curse apparition midnight mansion exorcist
    wildlife: wolf savannah migration eagle elephant rainforest cub predator nest safari
    fashion: couture fabric runway silk tailor wardrobe designer corset perfume atelier
    railways: locomotive station tunnel timetable conductor viaduct sleeper signal junction steam
    politics: election senator parliament scandal ballot coalition speech lobbyist referendum minister
    childhood: school playground holiday grandmother bicycle classroom treehouse puppy summer bedtime
    desert: caravan oasis dune camel mirage nomad bazaar sandstorm well sultan
    weaving: loom wool yarn knitting tapestry needle quilt pattern embroidery thread
    """.strip().splitlines()
}

STYLES: dict[str, tuple[list[str], str]] = {
    "beginner's guide": (["simple", "first", "easy", "practical"], "Clear steps for newcomers, with exercises"),
    "history": (["forgotten", "ancient", "great", "lost"], "A careful history drawn from archives and diaries"),
    "comedy": (["hilarious", "clumsy", "absurd", "cheerful"], "Light, silly and full of jokes"),
    "tragedy": (["bitter", "broken", "last", "lonely"], "A sad and moving story that ends in loss"),
    "adventure": (["daring", "wild", "perilous", "bold"], "Fast, dangerous and told at full speed"),
    "biography": (["remarkable", "private", "restless", "famous"], "The true story of one extraordinary life"),
    "mystery": (["secret", "hidden", "silent", "strange"], "A puzzle with clues, lies and a late surprise"),
    "family tale": (["little", "warm", "gentle", "happy"], "For parents and children to share together"),
}

DOMAINS = ("books", "films")
FORMS = ("book", "film")


Ints = npt.NDArray[np.int64]

_START = 1_672_531_200  # 2023-01-01 00:00 UTC, unix seconds
_SPAN = 2 * 365 * 86_400  # two years
_USERS_AT_ONCE = 1 << 12  # more at once do not fit the cache and take longer
_ATTEMPTS = 6  # draws for an item that the user does not have yet
_COLUMNS = 8  # random numbers per draw
_BOTH, _FIRST_ONLY = (0.7, 0.15)  # shares of users in both domains, in the first only; the rest in the second only
_LASTING, _DRIFTING = 0.45, 0.43  # shares of a user's draws on the lasting and on the fading or growing topic


class DemoOptions(BaseModel):
    """This is the size of the generated data."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    users: int = Field(600, ge=1, le=20_000_000, description="users (count)")
    items: int = Field(800, ge=100, le=5_000_000, description="items in both domains together (count)")
    interactions: float = Field(30.0, ge=1, le=1000, description="mean interactions per user (count)")


@dataclass(frozen=True)
class _Items:
    """These are traits of all items:

    `order` sorts them by (domain, topic), `reach` [items + 2] is the running weight, then infinity.

    `guide` says where a search in `reach` begins, for `per` places per unit of weight.
    """

    domain: Ints
    topic: Ints
    style: Ints
    order: Ints
    reach: npt.NDArray[np.float64]
    edges: Ints
    guide: npt.NDArray[np.int32]
    per: float

    def draw(self, domain: Ints, topic: Ints, chance: npt.NDArray[np.float64]) -> Ints:
        """Draw an item of each (domain, topic), by popularity; `chance` in [0, 1)."""
        cell = domain * len(TOPICS) + topic
        low, high = self.reach[self.edges[cell]], self.reach[self.edges[cell + 1]]
        at = self._last_below(low + chance * (high - low))
        return self.order[np.clip(at, self.edges[cell], self.edges[cell + 1] - 1)]

    def _last_below(self, weight: npt.NDArray[np.float64]) -> Ints:
        """Return the last place of `reach` that is at most `weight`; a binary search would miss the cache."""
        at = self.guide[(weight * self.per).astype(np.int64)].astype(np.int64)
        ahead = np.flatnonzero(self.reach[at + 1] <= weight)
        while len(ahead):
            at[ahead] += 1
            ahead = ahead[self.reach[at[ahead] + 1] <= weight[ahead]]
        return at


def generate(options: DemoOptions, seed: int, progress: Progress | None) -> Dataset:
    """Generate the demo data set: deterministic in options and seed."""
    items = _make_items(options.items, seed)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for start in range(0, options.users, _USERS_AT_ONCE):
        stop = min(start + _USERS_AT_ONCE, options.users)
        parts.append(_interactions(np.arange(start, stop), items, options, seed))
        if progress is not None:
            progress("generate demo data", stop, options.users, "users")
    user, item, time = (np.concatenate(column) for column in zip(*parts, strict=True))
    offsets = np.searchsorted(user, np.arange(options.users + 1)).astype(np.int64)
    ids = np.char.mod("u%07d", np.arange(options.users))
    source = {
        "archive": "generated",
        "url": "",
        "licence": "none needed: made by this program",
        "sha256": "",
        "notes": f"demo generator, seed {seed}, {options.model_dump_json()}",
    }
    return Dataset("demo", ids, _catalogue(items, seed), user, item, time, DOMAINS, True, offsets, source)


def _make_items(count: int, seed: int) -> _Items:
    keys = keyed.fold(keyed.key(seed, purposes.DEMO_ITEMS), np.arange(count))
    domain = (np.arange(count) >= count // 2).astype(np.int64)
    place = np.arange(count) - domain * (count // 2)
    # The first items of a domain take the topics in turn, so that no (domain, topic) is empty.
    topic = np.where(place < len(TOPICS), place, _skewed_topic(keyed.uniform(keys, 0)))
    style = keyed.integers(keys, 1, len(STYLES))
    weight = (1 - keyed.uniform(keys, 2)) ** -0.7  # Pareto: few items are very popular
    cell = domain * len(TOPICS) + topic
    order = np.argsort(cell, kind="stable")
    reach = np.concatenate([[0.0], np.cumsum(weight[order]), [np.inf]])
    edges = np.searchsorted(cell[order], np.arange(len(DOMAINS) * len(TOPICS) + 1))
    per = count / reach[-2]
    begins = np.arange(count + 2) / per * (1 - 1e-9)  # a little early, whichever way weight * per is rounded
    guide = (np.searchsorted(reach, begins, side="right") - 1).astype(np.int32)
    return _Items(domain, topic, style, order, reach, edges, guide, float(per))


def _skewed_topic(chance: npt.NDArray[np.float64]) -> Ints:
    share = np.cumsum((1.0 + np.arange(len(TOPICS))) ** -0.5)
    return np.minimum(np.searchsorted(share / share[-1], chance, side="right"), len(TOPICS) - 1)


@dataclass(frozen=True)
class _Users:
    """These are traits of some users; `first_share` is the chance that a draw is in the first domain."""

    keys: npt.NDArray[np.uint64]
    draws: Ints
    joined: npt.NDArray[np.float64]
    first_share: npt.NDArray[np.float64]
    topics: Ints  # [users, 3]: lasting, fading, growing
    style: Ints


def _make_users(users: Ints, options: DemoOptions, seed: int) -> _Users:
    keys = keyed.fold(keyed.key(seed, purposes.DEMO_USERS), users)
    where, share = keyed.uniform(keys, 0), keyed.uniform(keys, 1)
    first_share = np.where(where < _BOTH, 0.25 + 0.5 * share, np.where(where < _BOTH + _FIRST_ONLY, 1.0, 0.0))
    spread = 0.9  # of the logarithm of activity
    activity = options.interactions * np.exp(spread * keyed.normal(keys, 2) - spread**2 / 2)
    draws = np.clip(np.rint(activity), 1, options.items // 4).astype(np.int64)
    # normal() takes numbers 4 and 5 of a key, so the topics have keys of their own.
    topics = _skewed_topic(
        keyed.uniform(keyed.fold(keyed.key(seed, purposes.DEMO_TASTES), users)[:, None], np.arange(3))
    )
    return _Users(keys, draws, 0.6 * keyed.uniform(keys, 6), first_share, topics, keyed.integers(keys, 7, len(STYLES)))


def _interactions(
    numbers: Ints, items: _Items, options: DemoOptions, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (user, item, time) of these users, sorted by user and time, no (user, item) twice."""
    users = _make_users(numbers, options, seed)
    row = np.repeat(np.arange(len(numbers)), users.draws)  # user of each draw, counted within this part
    draw = np.arange(len(row)) - np.repeat(np.cumsum(users.draws) - users.draws, users.draws)
    keys = keyed.fold(keyed.key(seed, purposes.DEMO_DRAWS), numbers)
    joined = users.joined[row]
    when = joined + (1 - joined) * keyed.uniform(keys[row], draw * _COLUMNS)
    item = np.empty(len(row), np.int64)
    redo = np.arange(len(row))
    for attempt in range(_ATTEMPTS):
        key = keyed.fold(keyed.key(seed, purposes.DEMO_ATTEMPTS, attempt), numbers)[row[redo]]
        item[redo] = _draw_items(key, draw[redo], when[redo], row[redo], users, items, attempt)
        redo = repeats(row * options.items + item, len(numbers) * options.items)
    keep = np.ones(len(row), bool)
    keep[redo] = False
    row, item, when = row[keep], item[keep], when[keep]
    time = (when * _SPAN).astype(np.int64)
    order = stable_order(row * _SPAN + time, len(numbers) * _SPAN)
    return numbers[row[order]].astype(np.int32), item[order].astype(np.int32), _START + time[order]


def _draw_items(
    key: npt.NDArray[np.uint64],
    draw: Ints,
    when: npt.NDArray[np.float64],
    row: Ints,
    users: _Users,
    items: _Items,
    attempt: int,
) -> Ints:
    """Draw items: domain, then topic, then the better of two popular items by style."""

    def chance(column: int) -> npt.NDArray[np.float64]:
        return keyed.uniform(key, draw * _COLUMNS + column)

    domain = (chance(0) >= users.first_share[row]).astype(np.int64)
    which = chance(1)
    turned = 1 / (1 + np.exp(-12 * (when - 0.5)))  # the fading topic gives way to the growing one
    growing = chance(2) < turned
    slot = np.where(which < _LASTING, 0, np.where(growing, 2, 1))
    topic = users.topics[row, slot]
    curious = np.flatnonzero(which >= (_LASTING + _DRIFTING) / (1 + attempt))  # later attempts look further afield
    topic[curious] = _skewed_topic(keyed.uniform(key[curious], draw[curious] * _COLUMNS + 3))
    one, two = items.draw(domain, topic, chance(4)), items.draw(domain, topic, chance(5))
    liked = users.style[row]
    return np.where((items.style[two] == liked) & (items.style[one] != liked), two, one)


def _catalogue(items: _Items, seed: int) -> Catalogue:
    count = len(items.domain)
    keys = keyed.fold(keyed.key(seed, purposes.DEMO_WORDS), np.arange(count))
    words = list(TOPICS.values())
    nouns = np.argsort(keyed.uniform(keys[:, None], np.arange(len(words[0]))), axis=1)[:, :5].tolist()
    adjective = keyed.integers(keys, 20, 4).tolist()
    shape = keyed.integers(keys, 21, len(_TITLES)).tolist()
    topics, styles = list(TOPICS), list(STYLES.items())
    titles, texts, categories = list[str](), list[str](), list[tuple[str, ...]]()
    for i, (d, t, s) in enumerate(zip(items.domain.tolist(), items.topic.tolist(), items.style.tolist(), strict=True)):
        style, (adjectives, about) = styles[s]
        a, b, c, e, f = (words[t][n] for n in nouns[i])
        title = _TITLES[shape[i]].format(adjective=adjectives[adjective[i]], a=a, b=b).title()
        told = f"A {style} {FORMS[d]} about {c}, {e} and {f}. {about}."
        titles.append(title)
        categories.append((topics[t], style))
        texts.append(item_text(f"{DOMAINS[d].title()}, {topics[t]}, {style}", title, told))
    ids = np.char.mod("i%07d", np.arange(count))
    return Catalogue(ids, titles, texts, items.domain.astype(np.uint8), categories)


_TITLES = (
    "the {adjective} {a}",
    "{a} and {b}",
    "the {a} of the {adjective} {b}",
    "{adjective} {a}, {adjective} {b}",
    "a {a} without a {b}",
    "the {b} and the {adjective} {a}",
)
