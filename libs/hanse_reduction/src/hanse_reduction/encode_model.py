"""Encodes a model that sites are to be sent, and makes what leads to it from an older one.

An encoded model passes through two files, so that memory stays at one entry's; a delta is made block by block.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from hanse_fabric.errors import invalid
from hanse_fabric.messages import ObjectRef, ReduceJob
from hanse_fabric.messages.reduction_jobs import BASE, DELTA, ENCODED
from hanse_fabric.tensors.file import read_tensors
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.deltas import Read, runs_of, write_delta
from hanse_learning.codecs.writing import encode
from hanse_reduction.sources import Input, Inputs
from hanse_reduction.uploads import Uploads
from hanse_reduction.verified import VerifiedReader, raise_it

_READ = 1 << 20


def encoded_model(job: ReduceJob, inputs: Inputs, uploads: Uploads) -> ObjectRef:
    """An ENCODE job: the model's bytes as they travel, with its layout in them.

    What is random in the codecs goes by the model's digest, so that the same model has the same bytes.

    Raises:
        HanseError: INVALID_INPUT where the job names no model or no codec; as for any input.
    """
    if job.model is None or not job.codec:
        raise invalid("codec" if job.model else "model", None, "a model, and how it is to be encoded")
    model = inputs.named("model", job.model)
    model.check_size()
    with tempfile.TemporaryDirectory(prefix="hanse-encode-") as folder:
        plain, made = Path(folder) / "plain", Path(folder) / "encoded"
        _fetch(model, plain)
        layout, arrays = read_tensors(plain)
        with made.open("w+b") as file:
            seed = int(job.model.digest[:15], 16)
            encode(file, layout, arrays, build_chain(job.codec), seed=seed, with_layout=True)
        return uploads.put_file(ENCODED, made)


def delta_of_model(job: ReduceJob, inputs: Inputs, uploads: Uploads) -> ObjectRef:
    """A DELTA job: what makes the model of the base. The same two give the same bytes.

    Raises:
        HanseError: INVALID_INPUT where the job names no model, no base or no codec, or models of two lengths; as for
            any input.
    """
    model, base = job.model, job.state.get(BASE)
    if model is None or base is None or not job.codec:
        raise invalid("state", sorted(job.state), "a model, its base, and how a delta is made")
    if model.size != base.size:
        raise invalid("state.base", base.size, f"of as many bytes as the model, which has {model.size}")
    new, old = inputs.named("model", model), inputs.named("base", base)
    with tempfile.TemporaryFile(prefix="hanse-delta-") as file, ExitStack() as stack:
        read_new, end_new = _from_front(new, "model", stack)
        read_old, end_old = _from_front(old, "base", stack)
        runs = runs_of(new.read, model.size)
        write_delta(file, runs, read_new, read_old, job.codec, base=base.digest, makes=model.digest)
        end_new()
        end_old()
        return uploads.put_open(DELTA, file)


def _from_front(data: Input, name: str, stack: ExitStack) -> tuple[Read, Callable[[], None]]:
    """Reads an object from front to back, verified once it was `finished`."""
    data.check_size()
    reader, at = VerifiedReader(data, name, ((0, data.ref.size),), raise_it, stack), 0

    def read(size: int) -> bytes:
        nonlocal at
        part = bytearray(size)
        reader.read_into(at, memoryview(part))
        at += size
        return bytes(part)

    return read, reader.finish


def _fetch(model: Input, path: Path) -> None:
    """The model's file, verified."""
    size = model.ref.size
    with ExitStack() as stack, path.open("wb") as file:
        reader = VerifiedReader(model, "model", ((0, size),), raise_it, stack)
        buffer = memoryview(bytearray(min(_READ, size)))
        for at in range(0, size, _READ):
            part = buffer[: size - at]
            reader.read_into(at, part)
            file.write(part)
        reader.finish()
