"""What the name of a printed number says: a metric, what counts the steps, or nothing that a person would chart."""

from __future__ import annotations

import re
from typing import Dict, FrozenSet, List

from workbench.learner.texts import expression

EPOCH = "epoch"
STEP = "step"
METRIC = "metric"
OTHER = "other"
"""Nothing is known of the name: it counts where its line holds a metric or a step."""
SKIPPED = "skipped"
"""A time, an id, a size, a count: no series."""

_LIMIT = 4096


def _words(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


_EPOCH_WORDS = _words("epoch epochs")
_STEP_WORDS = _words(
    "step steps iter iters iteration iterations batch batches update updates it round rounds episode episodes tick "
    "minibatch globalstep timestep timesteps"
)
_QUALIFIERS = _words(
    "train training current global total valid val eval test testing at end of optimizer the inner outer local num "
    "validation start starting finished begin after on boosting done summary for completed micro"
)
_METRICS = _words(
    "loss losses acc accuracy error err perplexity ppl mae mse rmse mape rmsle smape wer cer nll bpc bpb fid f1 auc "
    "auroc auprc precision recall score bleu rouge rouge1 rouge2 rougel map iou miou dice reward rewards return "
    "returns "
    "r2 psnr ssim mrr ndcg mcc kappa elbo lr learning norm gnorm entropy kl logloss inertia objective cost metric "
    "fitness mean std variance mfu top1 top5 likelihood perp jaccard hit deviance gini divergence gradient grad "
    "tflops softmax error0 criterion penalty specificity sensitivity regret"
)
_ADJECTIVES = _words(
    "avg avg. average running smoothed total lm policy value actor critic best final macro micro weighted top learn "
    "generator discriminator g d kl reconstruction recon mlm nsp aux box cls dfl obj mask"
)
_SPEEDS = expression(
    r"(?:per_?|/)s(?:ec(?:ond)?s?)?(?:$|_?per_|/)|throughput|^(?:fps|wps|ups|tps|sps)$|per_?sec$|/(?:min|hour)$"
)
_TRAINED = _words("step steps iter iters iteration iterations samples examples images tokens words sequences")
"""What a training goes through: so many in a second are of interest where nothing else in the line is."""
_DURATIONS = _words(
    "time elapsed eta duration remaining runtime seconds secs sec ms millis milliseconds minutes hours date timestamp "
    "day days took wall walltime ns us clock"
)
_SKIPPED_WORDS = _words(
    "id pid tid uid gid rank port worker workers gpu gpus cpu cpus device node nodes host seed version num v "
    "job pod thread threads process line addr address index idx shard file files size sizes bytes kb mb gb mem memory "
    "mib gib params parameters count number n total len length tokens samples examples images instances nnzs t "
    "progress percent percentage flops flos depth leaves trees tree skipped seqlen vocab dim layers heads year month "
    "checkpoint cuda code status exit http attempt retry retries used free available cached allocated reserved "
    "batchsize volume offset slot bucket world column columns row rows best page chunk chunks records record items "
    "bsz wpb data evals sents sentences ts "
    "dataset classes features estimators frames seen seq utilization consumed patience counter left request requests "
    "users user bytes ttl pixels width height weights level priority released build compiled"
)
_PHASES = {
    "train": "train", "training": "train", "val": "val", "valid": "valid", "validation": "val", "validate": "val",
    "validating": "val", "test": "test", "testing": "test", "eval": "eval", "evaluation": "eval",
    "evaluating": "eval", "dev": "dev", "evaluate": "eval",
}  # fmt: skip
_PHASE = expression(
    r"(?<![\w./\-])(train(?:ing)?|val(?:id(?:at(?:ion|e|ing))?)?|test(?:ing)?|eval(?:uat(?:ion|e|ing))?|dev)"
    r"(?![\w./\-])",
    re.IGNORECASE,
)
_CAPITALS = expression(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = expression(r"[^a-z0-9]+")
_known: Dict[str, str] = {}


def words_of(name: str) -> List[str]:
    """Return the words that a name is made of, in small letters."""
    return [word for word in _SEPARATORS.split(_CAPITALS.sub(" ", name).lower()) if word]


def kind_of(name: str) -> str:
    """Return what a number of this name is: one of the words above."""
    found = _known.get(name)
    if found is None:
        if len(_known) >= _LIMIT:
            _known.clear()
        found = _known[name] = _kind(name)
    return found


def _kind(name: str) -> str:
    last = name.rpartition("/")[2] if "/" in name and not _SPEEDS.search(name.lower()) else name
    words = words_of(last)
    plain = set(words) | set(_SEPARATORS.split(last.lower()))
    plain |= {word.rstrip("0123456789") for word in plain}
    plain.discard("")
    if not plain:
        return SKIPPED
    for kind, known in ((EPOCH, _EPOCH_WORDS), (STEP, _STEP_WORDS)):
        if set(words) & known and set(words) <= known | _QUALIFIERS:
            return kind
    if _SPEEDS.search(last.lower()):
        return METRIC if plain & _TRAINED else OTHER
    if plain & {"episode", "ep"} and plain & {"length", "len"}:
        return METRIC
    if plain & _DURATIONS or "since" in plain:
        return SKIPPED
    if plain & _METRICS or any(word.endswith("loss") for word in plain):
        return METRIC
    if words[-1:] and words[-1] in _EPOCH_WORDS | _STEP_WORDS:
        return SKIPPED
    if plain & _SKIPPED_WORDS:
        return SKIPPED
    if set(words) <= set(_PHASES) | {"learn"}:
        return METRIC
    return OTHER


def phase_in(text: str) -> str:
    """Return the part of the training that a text names: train, val, test; empty where it names none."""
    found = _PHASE.search(text)
    return _PHASES[found.group(1).lower()] if found else ""


def is_phase(name: str) -> bool:
    """Say whether a name is nothing but that of a part of the training."""
    return name.lower() in _PHASES


def has_phase(name: str) -> bool:
    """Say whether a name says itself which part of the training it belongs to."""
    return any(word.rstrip("0123456789") in _PHASES for word in words_of(name))


def is_qualifier(word: str) -> bool:
    """Say whether a word before the name of a metric belongs to it: ``train loss``, ``avg loss``."""
    small = word.lower()
    return small in _PHASES or small in _METRICS or small in _ADJECTIVES
