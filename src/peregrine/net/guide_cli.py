"""`peregrine guide`: the guide in the foreground."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Positions(StrEnum):
    """As `Geometry`, which costs numpy: --help answers at once."""

    PLANE = "plane"
    EARTH = "earth"


def guide(
    token_file: Annotated[Path, typer.Option(help="The deployment's token, in a file for its owner alone.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen on this machine; 0: any.")] = 0,
    geometry: Annotated[
        Positions, typer.Option(help="What positions are: metres on a plane, or degrees of latitude and longitude.")
    ] = Positions.EARTH,
    margin_m: Annotated[float, typer.Option(min=0, help="By how many metres another router must be nearer.")] = 50.0,
    lease_s: Annotated[float, typer.Option(min=0.1, help="When a router that does not renew is gone.")] = 10.0,
    tls_ca: Annotated[
        str, typer.Option(help="PEM file of the CA. With TLS, give three files.", show_default=False)
    ] = "",
    tls_cert: Annotated[str, typer.Option(help="PEM file of the certificate.", show_default=False)] = "",
    tls_key: Annotated[str, typer.Option(help="PEM file of its key.", show_default=False)] = "",
    tls_verify_clients: Annotated[
        bool, typer.Option("--tls-verify-clients", help="Ask clients for a certificate that the CA has signed.")
    ] = False,
) -> None:
    """Tell devices which router to use: the nearest one that covers them.

    Routers register with their position (`guide` and `position` in their settings). Devices say where they are, and are
    told when another router has become the nearest. Prints its port as a line of JSON, and runs until it is stopped.
    """
    from peregrine.net.guide_process import run
    from peregrine.net.guide_settings import GuideSettings
    from peregrine.plan.nearest import Geometry

    settings = GuideSettings(
        str(token_file),
        port,
        Geometry(geometry),
        margin_m,
        lease_s,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_verify_clients=tls_verify_clients,
    )
    raise typer.Exit(run(lambda: settings))
