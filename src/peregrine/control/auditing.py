"""The audit of a deployment that runs: its routers' journals as they are now, looked at in copies.

Called when everything is drained; a migration that is under way would count as left behind.
"""

import shutil
import tempfile
from pathlib import Path

from peregrine.audit import audit
from peregrine.control.deployment import Deployment
from peregrine.core.placement import Initial
from peregrine.net.store import KEPT


def audit_deployment(deployment: Deployment, initial: Initial = ()) -> list[str]:
    """What is wrong, in words; empty if nothing is."""
    topology = deployment.topology
    configs = {site: router.settings.router_config() for site, router in deployment.routers.items()}
    with tempfile.TemporaryDirectory(prefix="peregrine-audit-") as directory:
        journals = {}
        for site, router in deployment.routers.items():
            journals[site] = Path(directory) / site
            # A router goes on writing: what is half there in the copy is cut off when the copy is opened.
            home = Path(router.settings.directory)
            shutil.copytree(home / "journal", journals[site])
            if (home / KEPT).exists():
                shutil.copytree(home / KEPT, journals[site], dirs_exist_ok=True)
        return audit(configs, journals, topology.main_place(topology.root), initial)
