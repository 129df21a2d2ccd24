"""Keeps a router registered at a guide: says where it is, again and again before its lease ends.

A router works as well without its guide. While that is away it is tried again, and nothing else happens.
"""

import logging
import threading

from peregrine.errors import PeregrineError
from peregrine.net.guide_client import GuideClient
from peregrine.plan.nearest import Whereabouts

RENEWALS_PER_LEASE = 3
BACK_OFF_S = (0.1, 2.0)
CALL_S = 5.0
GOODBYE_S = 1.0
log = logging.getLogger(__name__)


class Registrar:
    def __init__(self, guide: str, token: str, router: Whereabouts) -> None:
        self.trouble = ""  # what keeps it from registering
        self._guide = guide
        self._token = token
        self._router = router
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registrar", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Devices need not wait for the end of the lease: they are told to go elsewhere now."""
        self._stopping.set()
        self._thread.join(CALL_S + 1)
        try:
            with GuideClient(self._guide, self._token, GOODBYE_S) as client:
                client.withdraw(self._router.site)
        except PeregrineError:
            return  # then the lease ends by itself

    def _run(self) -> None:
        back_off_s = BACK_OFF_S[0]
        with GuideClient(self._guide, self._token, CALL_S) as client:
            while not self._stopping.is_set():
                try:
                    wait_s = client.register(self._router) / RENEWALS_PER_LEASE
                    back_off_s = BACK_OFF_S[0]
                    self._say("")
                except PeregrineError as error:
                    wait_s, back_off_s = back_off_s, min(2 * back_off_s, BACK_OFF_S[1])
                    self._say(error.what)
                self._stopping.wait(wait_s)

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            log.info("site=%s guide=%s trouble=%r", self._router.site, self._guide, trouble)
        self.trouble = trouble
