"""Does with the E2B SDK what each line of stdin says, and tells on stdout what came of it.

A line is [proxy's URL, sandbox, operation]. The answer to it is {"value": ...}, or {"error": [class, bases...],
"message": ...}.
"""

import json
import sys

from e2b import Sandbox

OPERATIONS = {
    "read": lambda sandbox: sandbox.files.read("/a"),
    "write": lambda sandbox: sandbox.files.write("/a", "hello").path,
    "list": lambda sandbox: [entry.name for entry in sandbox.files.list("/")],
    "make_dir": lambda sandbox: sandbox.files.make_dir("/a"),
    "exists": lambda sandbox: sandbox.files.exists("/a"),
    "run": lambda sandbox: sandbox.commands.run("echo hello").stdout,
    "kill": lambda sandbox: sandbox.commands.kill(5),
    "is_running": lambda sandbox: sandbox.is_running(),
}

sandboxes = {}


def sandbox_at(url, name):
    if (url, name) not in sandboxes:
        sandboxes[url, name] = Sandbox.connect(name, sandbox_url=url)
    return sandboxes[url, name]


for line in sys.stdin:
    url, name, operation = json.loads(line)
    try:
        answer = {"value": OPERATIONS[operation](sandbox_at(url, name))}
    except Exception as error:
        classes = [kind.__name__ for kind in type(error).__mro__[:-3]]
        answer = {"error": classes or [type(error).__name__], "message": str(error)}
    print(json.dumps(answer), flush=True)
