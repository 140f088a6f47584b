"""The command tree."""

from __future__ import annotations

import typer

from hanse.cli import audit, config, doctor, gwas, hub, lab, model, new, people, project, run, site
from hanse.cli.demo import demo
from hanse.cli.up import up


def build() -> typer.Typer:
    """The application; errors of the catalogue pass through to `main`."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        help="Federated learning and federated studies over data that may not be pooled.",
    )
    app.command()(demo)
    app.command()(up)
    app.add_typer(hub.app, name="hub")
    app.add_typer(project.app, name="project")
    app.add_typer(site.app, name="site")
    app.add_typer(run.app, name="run")
    app.add_typer(model.app, name="model")
    app.add_typer(people.app, name="people")
    app.add_typer(audit.app, name="audit")
    app.add_typer(lab.app, name="lab")
    app.add_typer(gwas.app, name="gwas")
    app.command("new")(new.new)
    app.command("config")(config.show)
    app.command("doctor")(doctor.doctor)
    return app
