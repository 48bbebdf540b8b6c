"""Code that goes on where it was after its sandbox has slept.

    pip install e2b-code-interpreter
    python examples/run_code.py     # with the environment that `client-proxy dev` says is to be exported

The playground runs the code in a Python of this machine: it needs `pip install ipykernel jupyter_client`, too, in the
`python3` on its path or that of `client-proxy dev --python PATH`.
"""

from e2b_code_interpreter import Sandbox

sandbox = Sandbox.create(lifecycle={"on_timeout": "pause", "auto_resume": True})
sandbox.run_code("x = 1")
print("x is", sandbox.run_code("x").text)

sandbox.pause()

# This is held until the sandbox runs again, and its kernel has not forgotten.
print("and now", sandbox.run_code("x += 1; x").text)

sandbox.kill()
