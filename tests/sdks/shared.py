"""What the walks have in common: E2B's SDK, and one word for what it raises, in whichever generation."""

import os
import time

from e2b import NotFoundException, RateLimitException, Sandbox, SandboxException, TimeoutException

ASLEEP_AND_BACK = {"on_timeout": "pause", "auto_resume": True}


def create(kind=Sandbox, **options):
    sandbox = kind.create(**options)
    hosts = os.environ.get("HOSTS")
    if hosts:
        # Where no resolver knows the domain.
        with open(hosts, "a") as file:
            domain = os.environ["E2B_DOMAIN"].split(":")[0]
            names = [f"{port}-{sandbox.sandbox_id}.{domain}" for port in (49983, 49999, 8000)]
            file.write(f"127.0.0.1 {' '.join(names)}\n")
    return sandbox


def kind(error):
    # In the newer ones a sandbox that is not running is a timeout, too.
    kinds = [
        (RateLimitException, "rate limit"),
        (TimeoutException, "not running"),
        (NotFoundException, "not found"),
        (SandboxException, "sandbox"),
    ]
    return next((name for base, name in kinds if isinstance(error, base)), type(error).__name__)


def attempt(call):
    try:
        return call()
    except Exception as error:
        return f"error: {kind(error)}"


def tells(call, words):
    """Whether what it raises says so."""
    try:
        call()
    except Exception as error:
        return words in str(error)
    return "nothing raised"


def state(sandbox):
    return sandbox.get_info().state.value


def lifetime(sandbox):
    info = sandbox.get_info()
    return round((info.end_at - info.started_at).total_seconds())


def until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def say(*words):
    print(*(str(word).lower() if isinstance(word, bool) else word for word in words), flush=True)
