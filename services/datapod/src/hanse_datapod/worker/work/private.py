"""What leaves the worker after private work: of training, which never fails on the data, and of evaluations.

Whether it failed would be an exact answer to a question that a hub can choose by the model that it sends, and that no
noise covers. So where training fails, the site's answer is nothing, with the noise of the round: as of one that learnt
nothing. The site's log says that it failed, and why.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping

import numpy as np

from hanse_datapod.worker.port import WorkOutcome, extra_output
from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.modules import read_kept, received_model
from hanse_datapod.worker.work.written import write_round
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.tensors.file import write_tensors
from hanse_learning.codecs.at_site import OF_CODECS
from hanse_learning.config import check_train
from hanse_learning.site.site_privacy import SitePrivacy, privatize

_log = logging.getLogger(__name__)


def cut_of(work: WorkContext, *, by_code: bool = False) -> Mapping[str, float] | None:
    """What an evaluation cuts each example's metrics to, whose noise hides one example; None: it hides none.

    Args:
        by_code: whether code of the site's own evaluates, or its own pipeline: they tell means, in which nothing of a
            single example is cut.

    Raises:
        HanseError: INVALID_INPUT where the evaluation is of another model than the received one: what a site makes of
            that with its training data changes with any one of these for all test examples at once.
    """
    cut: Mapping[str, float] | None = (work.config.get("privacy") or {}).get("cut")
    if cut is None:
        return None
    wanted = "of the received model, where noise hides one example (privacy.metrics with dp_sgd)"
    if by_code or work.config.get("code"):
        raise invalid("code", "an evaluation by site code", f"one by the built-in evaluation, {wanted}")
    algorithm = check_train(work.config.get("train") or {}).algorithm
    if algorithm.personal():
        raise invalid("train.algorithm", algorithm.name, f"one whose evaluation is {wanted}")
    return cut


def privately(work: WorkContext, private: SitePrivacy, train: Callable[[WorkContext], WorkOutcome]) -> WorkOutcome:
    """Train, or answer with noise alone where training fails on the data.

    Raises:
        HanseError: what does not depend on values: INVALID_INPUT, SCHEMA_MISMATCH, CONFLICT and the like.
    """
    try:
        return train(work)
    except MemoryError:
        raise
    except HanseError as error:
        if error.code is not ErrorCode.TRAINING_FAILED:
            raise
        _log.error("private training failed, and noise alone is answered: %s", error.whole)
    # What a library or site code raises.
    except Exception:
        if private.mechanism == "dp_sgd":
            raise
        _log.error("private training failed, and noise alone is answered:\n%s", traceback.format_exc())
    return _nothing_learnt(work, private)


def _nothing_learnt(work: WorkContext, private: SitePrivacy) -> WorkOutcome:
    layout, received = received_model(work)
    update = {name: np.zeros_like(array) for name, array in received.items()}
    # A step of dp_sgd that leaves the range of numbers is made of sums that have their noise: nothing is to be added.
    if private.mechanism != "dp_sgd":
        update = privatize(update, layout, private)
    begun = read_kept(work)
    kept = {name: group for name, group in begun.groups.items() if name not in OF_CODECS}
    lost = write_round(work, layout, lambda _consume: update, kept, begun)
    extras = {}
    if private.mechanism == "dp_sgd":
        algorithm = check_train(work.config.get("train") or {}).algorithm
        extras = {name: extra_output(work.output, name) for name in algorithm.extras}
    for path in extras.values():
        write_tensors(path, layout, {name: np.zeros_like(array) for name, array in received.items()})
    return WorkOutcome(work.output, len(work.data().train), {}, extras=extras, note=lost)
