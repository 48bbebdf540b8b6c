"""Walks through what E2B's documentation says of pause and resume, and says line by line what came of it.

The argument is the walk. Every SDK of every generation is to say the same.
"""

import sys
import uuid

from e2b import Sandbox, SandboxQuery, SandboxState

from shared import ASLEEP_AND_BACK, attempt, create, lifetime, say, state, tells, until


def read(sandbox):
    return attempt(lambda: sandbox.files.read("a.txt"))


def life():
    mark = uuid.uuid4().hex
    sandbox = create(timeout=60, lifecycle=ASLEEP_AND_BACK, metadata={"mark": f"{mark} & more"})
    sandbox.files.write("a.txt", "kept")
    info = sandbox.get_info()
    say("created", info.state.value, info.lifecycle["on_timeout"].value, info.lifecycle["auto_resume"], lifetime(sandbox))
    for cycle in range(1, 4):
        say("cycle", cycle, "pause", sandbox.pause(), sandbox.pause(), state(sandbox))
        say("cycle", cycle, "read", read(sandbox), state(sandbox), lifetime(sandbox))
        sandbox.set_timeout(20)
    say("policy", sandbox.get_info().lifecycle["on_timeout"].value, sandbox.get_info().lifecycle["auto_resume"])
    sandbox.pause()
    say("is_running", sandbox.is_running(), state(sandbox))
    sandbox.pause()
    say("connect", read(Sandbox.connect(sandbox.sandbox_id, timeout=77)), lifetime(sandbox))
    query = SandboxQuery(metadata={"mark": f"{mark} & more"}, state=[SandboxState.RUNNING])
    say("listed", [one.sandbox_id for one in Sandbox.list(query=query).next_items()] == [sandbox.sandbox_id])
    say("metrics", len(sandbox.get_metrics()))
    sandbox.pause(keep_memory=False)
    say("files only", sandbox.is_running(), read(sandbox), state(sandbox))
    say("connect", read(Sandbox.connect(sandbox.sandbox_id)), lifetime(sandbox))
    say("kill", sandbox.kill(), sandbox.kill(), sandbox.is_running())
    say("gone", read(sandbox), attempt(lambda: sandbox.get_info()), attempt(lambda: sandbox.connect()))

    slept = create(timeout=2, lifecycle=ASLEEP_AND_BACK)
    slept.files.write("a.txt", "kept")
    until(lambda: state(slept) == "paused")
    say("by timeout", state(slept), read(slept), state(slept), lifetime(slept))
    slept.kill()

    longer = create(timeout=600, lifecycle=ASLEEP_AND_BACK)
    longer.pause()
    say("longer", longer.files.exists("a.txt"), lifetime(longer))
    longer.kill()

    still = create(lifecycle={"on_timeout": "pause", "auto_resume": False})
    still.files.write("a.txt", "kept")
    still.pause()
    say("auto_resume off", still.is_running(), read(still), state(still))
    say("connect", read(still.connect()), state(still))
    still.kill()

    killed = create(timeout=1)
    until(lambda: attempt(lambda: state(killed)) == "error: not found")
    say("by default", "killed")


def deny():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    sandbox.files.write("a.txt", "kept")
    sandbox.pause()
    say("denied", read(sandbox), state(sandbox))
    say("why", tells(lambda: sandbox.files.read("a.txt"), "account is not allow-listed"))
    say("connect", read(sandbox.connect()))


def limit():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    say("create", attempt(lambda: create()))
    sandbox.pause()
    other = create()
    say("wake", read(sandbox), attempt(lambda: sandbox.connect()))
    other.kill()
    say("connect", state(sandbox.connect()))
    sandbox.kill()


def retention():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    sandbox.pause()
    until(lambda: attempt(lambda: state(sandbox)) == "error: not found")
    say("expired", read(sandbox), attempt(lambda: sandbox.connect()))
    say("why", tells(lambda: sandbox.files.read("a.txt"), "its snapshot has expired"))
    # Whatever the API says, these are the SDK's words.
    say("connect", tells(lambda: sandbox.connect(), "not found"))


{"life": life, "deny": deny, "limit": limit, "retention": retention}[sys.argv[1]]()
