"""Does with E2B's SDKs what each line of stdin says, and tells on stdout what came of it.

A line is [URL of sandboxes, sandbox, operation]. The answer to it is {"value": ...}, or {"error": [class, bases...],
"message": ...}.
"""

import json
import sys

from e2b import Sandbox
from e2b_code_interpreter import Sandbox as Interpreter

OPERATIONS = {
    "read": lambda sandbox: sandbox.files.read("/a"),
    "write": lambda sandbox: sandbox.files.write("/a", "hello").path,
    "list": lambda sandbox: [entry.name for entry in sandbox.files.list("/")],
    "make_dir": lambda sandbox: sandbox.files.make_dir("/a"),
    "exists": lambda sandbox: sandbox.files.exists("/a"),
    "run": lambda sandbox: sandbox.commands.run("echo hello").stdout,
    "kill": lambda sandbox: sandbox.commands.kill(5),
    "is_running": lambda sandbox: sandbox.is_running(),
    "run_code": lambda sandbox: sandbox.run_code("1 + 1").text,
}

sandboxes = {}


def sandbox_at(url, name, operation):
    kind = Interpreter if operation == "run_code" else Sandbox
    if (url, name, kind) not in sandboxes:
        sandboxes[url, name, kind] = kind.connect(name, sandbox_url=url)
    return sandboxes[url, name, kind]


for line in sys.stdin:
    url, name, operation = json.loads(line)
    try:
        answer = {"value": OPERATIONS[operation](sandbox_at(url, name, operation))}
    except Exception as error:
        classes = [kind.__name__ for kind in type(error).__mro__[:-3]]
        answer = {"error": classes or [type(error).__name__], "message": str(error)}
    print(json.dumps(answer), flush=True)
