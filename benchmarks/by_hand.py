"""FedMF on MovieLens-100K from its archive to its metrics, by hand in numpy: what `whole_run.py` stands beside.

    python benchmarks/by_hand.py ml-100k.zip [rounds]

What somebody would write for one experiment, for speed: everybody takes part, a client's step is in closed form over
the rows it touches, and the server takes the mean. Leave-one-out by time, NDCG@10 on validation items among 99 sampled
ones after every round, in the end among all items on the best round's model.
"""

import json
import resource
import sys
import time
import zipfile

import numpy as np

np.seterr(over="ignore")  # exp(-score) of a score that is certain
DIM, NEGATIVES, BATCH, RATE, K = 32, 4, 512, np.float32(1.0), 10
SPENT = {"imports": time.process_time()}


def spend(part):
    """Charge the CPU seconds since the last call to a part."""
    SPENT[part] = SPENT.get(part, 0.0) + time.process_time() - sum(SPENT.values())


def read(path):
    """Return who had what, each user's items by time, numbered from 0."""
    with zipfile.ZipFile(path) as archive:
        text = archive.read(next(name for name in archive.namelist() if name.endswith("u.data")))
    rows = np.array(text.split(), np.int64).reshape(-1, 4)
    user, item = (np.unique(column, return_inverse=True)[1] for column in rows.T[:2])
    order = np.lexsort((rows[:, 3], user))
    return user[order], item[order]


def client(table, number, places, user, items, label):
    """Take a client's steps of one epoch; return its rows, their changes and its vector."""
    number[items] = places[: len(items)]
    last = number[items]
    kept = last == places[: len(items)]
    touched, known, row = items[kept], label[kept], (np.cumsum(kept) - 1)[last]
    now, begun, rate = table[touched], table[touched], RATE * np.float32(len(table))
    for at in range(0, len(items), BATCH):
        some = row[at : at + BATCH]
        weight = np.bincount(some, minlength=len(touched)).astype(np.float32) / np.float32(len(some))
        where = slice(None) if len(items) <= BATCH else np.flatnonzero(weight)
        rows, weight = now[where], weight[where]
        g = weight / (1 + np.exp(-(rows @ user))) - weight * known[where]
        change = np.multiply.outer(g * rate, user)
        user = user - RATE * (g @ rows)
        now[where] = rows - change
    return touched, now - begun, user


def ndcg(table, users, asked, candidates, hidden=None):
    """Return NDCG@K of one asked item a user among candidates [users, n], or among all that are not hidden."""
    scores = users @ table.T
    own = np.take_along_axis(scores, asked[:, None], 1)
    if candidates is None:
        scores[hidden] = -np.inf
        rank = (scores >= own).sum(1) - 1
    else:
        rank = (np.take_along_axis(scores, candidates, 1) >= own).sum(1)
    return float(np.where(rank < K, 1 / np.log2(rank + 2), 0).mean())


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    user, item = read(sys.argv[1])
    people, things, rng = user.max() + 1, item.max() + 1, np.random.default_rng(0)
    ends = np.searchsorted(user, np.arange(people), "right")
    test, valid = item[ends - 1], item[ends - 2]
    learned = np.ones(len(user), bool)
    learned[ends - 1] = learned[ends - 2] = False
    had = np.zeros((people, things), bool)
    had[user, item] = True
    unseen = [np.flatnonzero(~row) for row in had]
    candidates = np.stack([rng.choice(some, 99, replace=False) for some in unseen])
    train = np.split(item[learned], np.cumsum(np.bincount(user[learned]))[:-1])
    free = [np.flatnonzero(~np.isin(np.arange(things), some)) for some in train]
    spend("data")
    table = rng.normal(0, 0.01, (things, DIM)).astype(np.float32)
    users = rng.normal(0, 0.01, (people, DIM)).astype(np.float32)
    number, places = np.zeros(things, np.int64), np.arange(things * (1 + NEGATIVES))
    best, kept = -1.0, (table, users)
    for _ in range(rounds):
        total = np.zeros(table.shape)
        for who, items in enumerate(train):
            drawn = free[who][rng.integers(0, len(free[who]), NEGATIVES * len(items))]
            examples, label = np.concatenate([items, drawn]), np.zeros(len(items) + len(drawn), np.float32)
            label[: len(items)] = 1
            if len(examples) > BATCH:
                order = rng.permutation(len(examples))
                examples, label = examples[order], label[order]
            touched, change, users[who] = client(table, number, places, users[who], examples, label)
            total[touched] += change
        table = (table + total / people).astype(np.float32)
        spend("kernel")
        if (found := ndcg(table, users, valid, candidates)) > best:
            best, kept = found, (table.copy(), users.copy())
        spend("evaluation")
    sampled = ndcg(*kept, test, candidates)
    had[np.arange(people), test] = False
    full = ndcg(*kept, test, None, had)
    spend("evaluation")
    told = {
        "all": sum(SPENT.values()),
        "clients": rounds * int(people),
        "rounds": 0.0,
        "sampled": sampled,
        "full": full,
    }
    print(json.dumps(SPENT | told | {"MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


if __name__ == "__main__":
    main()
