"""A sandbox that sleeps when its time is up, and goes on when somebody asks it something.

    pip install e2b
    python examples/pause_and_resume.py     # with the environment that `client-proxy dev` says is to be exported
"""

import time

from e2b import Sandbox, SandboxState

# After two seconds it is paused instead of killed, and from then on whatever is asked of it wakes it.
sandbox = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause", "auto_resume": True})
sandbox.files.write("notes.txt", "remember me")
print(f"{sandbox.sandbox_id} works")

# The control API tells of it without waking it.
while sandbox.get_info().state != SandboxState.PAUSED:
    time.sleep(0.1)
print("it sleeps")

# This is held until the sandbox runs again.
print("it says:", sandbox.files.read("notes.txt"))
assert sandbox.get_info().state == SandboxState.RUNNING

# Its owner can have it sleep at once, and wake it with a time of its own.
sandbox.pause()
same = Sandbox.connect(sandbox.sandbox_id, timeout=60)
print("it still says:", same.files.read("notes.txt"))

# A command wakes it as well, and what it was running goes on where it was.
waiting = same.commands.run("until [ -e go.txt ]; do sleep 0.1; done; echo went on", background=True)
waiting.disconnect()
same.pause()
print("it runs:", same.commands.run("cat notes.txt").stdout)
waiting = same.commands.connect(waiting.pid)
same.files.write("go.txt", "")
assert waiting.wait().stdout == "went on\n"

assert same.kill()
assert not same.is_running()
print("and is gone")
