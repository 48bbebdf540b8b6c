"""What users do with E2B's code interpreter; says "as told" if all was as the documentation has it."""

from e2b import NotFoundException, TimeoutException
from e2b_code_interpreter import Sandbox

sandbox = Sandbox.create(lifecycle={"on_timeout": "pause", "auto_resume": True})

sandbox.run_code("x = 1")
sandbox.pause()
execution = sandbox.run_code("x += 1; x")
assert execution.text == "2", execution
assert execution.execution_count == 2, execution

lines = []
execution = sandbox.run_code(
    "import sys; print('hello'); print('oh', file=sys.stderr); 'value'", on_stdout=lambda out: lines.append(out.line)
)
assert (execution.logs.stdout, execution.logs.stderr) == (["hello\n"], ["oh\n"]), execution
assert lines == ["hello\n"] and execution.text == "value", execution

execution = sandbox.run_code("1 / 0")
assert (execution.error.name, execution.error.value) == ("ZeroDivisionError", "division by zero"), execution
assert "1 / 0" in execution.error.traceback or "ZeroDivisionError" in execution.error.traceback, execution

execution = sandbox.run_code("from IPython.display import HTML, display; display(HTML('<b>bold</b>')); x")
assert [result.html for result in execution.results] == ["<b>bold</b>", None], execution
assert [result.is_main_result for result in execution.results] == [False, True], execution

assert sandbox.run_code("import os; os.environ['WHO']", envs={"WHO": "me"}).text == "me"

context = sandbox.create_code_context(cwd="/home/user")
assert (context.language, context.cwd) == ("python", "/home/user"), context
assert sandbox.run_code("x", context=context).error.name == "NameError"
assert context.id in [known.id for known in sandbox.list_code_contexts()]
sandbox.run_code("y = 1", context=context)
sandbox.restart_code_context(context)
assert sandbox.run_code("y", context=context).error.name == "NameError"
sandbox.remove_code_context(context)
try:
    sandbox.run_code("1", context=context)
    raise AssertionError("a removed context runs code")
except NotFoundException:
    pass

try:
    sandbox.run_code("n = 0\nwhile True: n += 1", timeout=1)
    raise AssertionError("no timeout")
except TimeoutException:
    pass
# The code was interrupted; its variables are there.
assert int(sandbox.run_code("n").text) > 0

try:
    sandbox.run_code("1", language="r")
    raise AssertionError("it speaks R")
except NotFoundException as error:
    assert "python" in str(error), error

sandbox.kill()
print("as told")
