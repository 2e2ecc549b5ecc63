"""A script cannot tell that ampwatch runs it: what it sees, prints and exits with is the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from running_jobs import plain, run, write

SCRIPTS = {
    "what it sees": """
        '''A docstring.'''
        import os, sys
        print(__name__, __doc__, __file__, __spec__, __package__, __builtins__)
        print(type(__loader__).__name__, __loader__.name, __loader__.path)
        print(sys.argv, sys.path, os.getcwd(), sys.flags, sys.executable)
        print(sorted(globals()))
        print(sys.modules["__main__"].__dict__ is globals())
        print([stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)])
        print(sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors)
        print([type(finder).__name__ for finder in sys.meta_path if "Finder" not in repr(finder)])
    """,
    "a module beside it": "import beside; print(beside.__file__)",
    "the future is not inherited": """
        def f(x: int) -> str: ...
        print(f.__annotations__)
    """,
    "an exception": """
        def f():
            raise ValueError("first line\\nsecond line")
        f()
    """,
    "an exception with a cause": """
        try:
            {}["key"]
        except KeyError as error:
            raise RuntimeError("no key") from error
    """,
    "an exception from a module": "import breaks",
    "a syntax error": "x = (1,\ny = 2\n",
    "a missing module": "import there_is_no_such_module",
    "an excepthook of its own": """
        import sys
        sys.excepthook = lambda kind, error, tb: print("mine:", error, tb.tb_lineno)
        1 / 0
    """,
    "sys.exit()": "import sys; sys.exit()",
    "sys.exit(5)": "import sys; sys.exit(5)",
    "sys.exit(True)": "import sys; sys.exit(True)",
    "sys.exit(256)": "import sys; sys.exit(256)",
    "sys.exit with a sentence": "import sys; sys.exit('that is enough')",
    "raise SystemExit": "raise SystemExit(3)",
    "os._exit": "import os; print('bye', flush=True); os._exit(7)",
    "a segmentation fault": """
        import ctypes
        print("before")
        ctypes.string_at(0)
    """,
    "exit functions": """
        import atexit
        atexit.register(print, "registered first")
        atexit.register(print, "registered last")
        print("end of script")
    """,
    "a thread that outlives the script": """
        import threading, time
        def late():
            time.sleep(0.2)
            print("thread done")
        threading.Thread(target=late).start()
        print("end of script")
    """,
    "asyncio": """
        import asyncio
        async def main():
            await asyncio.sleep(0)
            child = await asyncio.create_subprocess_exec("echo", "from a child")
            print(await child.wait())
        asyncio.run(main())
    """,
    "signals": """
        import os, signal, time
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        print(signal.getsignal(signal.SIGTERM))
        signal.signal(signal.SIGUSR1, lambda number, frame: print("signal", number))
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.signal(signal.SIGALRM, lambda number, frame: print("alarm"))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        time.sleep(0.2)
    """,
    "a bare fork": """
        import os, sys
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        print("child" if child == 0 else "parent")
    """,
    "what its children inherit": """
        import os
        for fd in range(3, 100):
            try:
                print(fd, os.get_inheritable(fd)) if os.get_inheritable(fd) else None
            except OSError:
                pass
    """,
    "faulthandler": """
        import faulthandler, sys
        faulthandler.enable()
        print(faulthandler.is_enabled(), sys.stdout.fileno(), sys.stderr.fileno())
    """,
    "the source in tracebacks and inspect": """
        import inspect, linecache, __main__
        def f():
            return 42
        print(inspect.getsource(f), linecache.getline(__file__, 2))
    """,
    "pickling its own classes": """
        import pickle
        class Point:
            def __init__(self, x): self.x = x
        print(pickle.loads(pickle.dumps(Point(3))).x)
    """,
}
SPAWNING = """
    import multiprocessing, sys

    def square(x):
        print("working on", x)
        return x * x

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        with context.Pool(1) as pool:
            print(pool.map(square, [1, 2, 3]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "pass\n", "beside.py")
    write(tmp_path, "def f():\n    raise KeyError('x')\nf()\n", "breaks.py")
    return tmp_path


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_behaves_as_under_plain_python(folder: Path, name: str) -> None:
    script = write(folder, SCRIPTS[name])
    lines, code = plain(script, "--their", "args")
    ran = run(script, "--their", "args")
    assert ran.lines == lines
    assert ran.job.exit_code == code
    assert ran.job.state == ("failed" if code else "finished")
    assert ran.end.status == ran.job.state


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing_works(folder: Path, method: str) -> None:
    script = write(folder, SPAWNING)
    lines, _ = plain(script, method)
    ran = run(script, method)
    assert sorted(ran.lines) == sorted(lines)
    assert "[1, 4, 9]" in ran.lines
    assert ran.job.state == "finished"


def test_the_workers_of_a_data_loader_work(folder: Path) -> None:
    script = write(
        folder,
        """
        import torch
        from torch.utils.data import DataLoader

        class Squares(torch.utils.data.Dataset):
            def __len__(self): return 6
            def __getitem__(self, index):
                assert torch.utils.data.get_worker_info() is not None
                return index * index

        if __name__ == "__main__":
            for batch in DataLoader(Squares(), batch_size=3, num_workers=1):
                print(batch.tolist())
        """,
    )
    ran = run(script)
    assert ran.lines == ["[0, 1, 4]", "[9, 16, 25]"]
    assert ran.job.state == "finished"


def test_a_relative_path_and_a_link_are_found_as_python_finds_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "import sys, beside; print(sys.argv[0], __file__, sys.path[0])")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "link.py").symlink_to(folder / "script.py")
    monkeypatch.chdir(elsewhere)
    for target in ("../script.py", "link.py"):
        assert run(target).lines == plain(target)[0]


def test_a_file_in_the_working_directory_does_not_hide_the_standard_library(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = folder / "work"
    work.mkdir()
    for name in ("json.py", "random.py", "signal.py", "ampwatch.py"):
        write(work, "raise SystemExit('hidden')", name)
    monkeypatch.chdir(work)
    script = write(folder, "import json, random, ampwatch; print(ampwatch.__version__)")
    assert run(script).job.state == "finished"


def test_output_from_everywhere_arrives(folder: Path) -> None:
    script = write(
        folder,
        """
        import ctypes, logging, os, subprocess, sys, warnings
        print("print")
        print("stderr", file=sys.stderr)
        logging.warning("logging")
        os.write(1, b"os.write\\n")
        os.system("echo system")
        subprocess.run(["echo", "child"], stderr=sys.stderr)
        subprocess.run([sys.executable, "-c", "print('python child')"])
        libc = ctypes.CDLL(None)
        libc.puts(b"C puts")
        sys.stdout.buffer.write(b"buffer\\n")
        sys.stdout.flush()
        warnings.warn("careful")
        """,
    )
    lines = run(script).lines
    assert lines[:9] == [
        "print",
        "stderr",
        "WARNING:root:logging",
        "os.write",
        "system",
        "child",
        "python child",
        "C puts",
        "buffer",
    ]
    assert "UserWarning: careful" in lines[9]


def test_what_c_prints_arrives_even_when_the_script_then_crashes(folder: Path) -> None:
    script = write(
        folder,
        "import ctypes, os; ctypes.CDLL(None).puts(b'last words'); os._exit(1)",
    )
    assert run(script).lines == ["last words"]


def test_input_says_that_there_is_no_keyboard(folder: Path) -> None:
    ran = run(write(folder, "print('before')\nname = input('Name: ')\n"))
    assert ran.lines[1].startswith("Name: Traceback")
    assert "without a keyboard" in ran.lines[-1]
    assert ran.lines[-1].startswith("EOFError: ")
    assert ran.job.error is not None
    assert "without a keyboard" in ran.job.error


def test_input_reads_what_the_script_puts_in_place_of_the_keyboard(folder: Path) -> None:
    script = write(
        folder,
        """
        import io, sys
        sys.stdin = io.StringIO("a line\\n")
        print(input())
        try:
            input()
        except EOFError as error:
            print(error)
        """,
    )
    assert run(script).lines == plain(script)[0]


def test_a_function_of_a_module_is_called(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "package"
    package.mkdir()
    write(
        package,
        """
        import sys
        class Trainer:
            @staticmethod
            def fit():
                print(__name__, sys.argv[1:], sys.path[0], sys.modules["__main__"].__name__)
                return "no exit code"
        """,
        "training.py",
    )
    monkeypatch.chdir(folder)
    ran = run("package.training:Trainer.fit", "--their", "args")
    assert ran.lines == [f"package.training ['--their', 'args'] {os.getcwd()} __main__"]
    assert ran.job.exit_code == 0


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:main", "there is no module 'nowhere'"),
        ("beside.deeper:main", "there is no module 'beside.deeper'"),
        ("beside:main", "the module 'beside' has no 'main'"),
        ("beside:__name__", "cannot be called"),
    ],
)
def test_a_function_that_is_not_there_is_said_in_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, words: str
) -> None:
    monkeypatch.chdir(folder)
    ran = run(target)
    (line,) = ran.lines
    assert words in line
    assert ran.job.exit_code == 2
    assert ran.job.state == "failed"


def test_a_module_that_fails_in_its_imports_shows_its_own_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "import there_is_no_such_module", "needs.py")
    monkeypatch.chdir(folder)
    ran = run("needs:main")
    assert ran.lines == [
        "Traceback (most recent call last):",
        f'  File "{folder / "needs.py"}", line 1, in <module>',
        "    import there_is_no_such_module",
        "ModuleNotFoundError: No module named 'there_is_no_such_module'",
    ]


def test_torch_is_not_imported_for_a_script_that_does_not(folder: Path) -> None:
    script = write(
        folder, "import sys; print([m for m in ('torch', 'numpy', 'textual') if m in sys.modules])"
    )
    assert run(script).lines == ["[]"]


def test_the_seed_reaches_all_three_generators(folder: Path) -> None:
    script = write(
        folder,
        """
        import random, numpy, torch
        print(random.random(), numpy.random.rand(), torch.rand(1).item())
        """,
    )
    same = run(script, seed=7).lines, run(script, seed=7).lines, run(script, seed=8).lines
    assert same[0] == same[1]
    assert not set(same[0][0].split()) & set(same[2][0].split())


def test_the_device_is_torchs_default_before_the_scripts_next_line(folder: Path) -> None:
    script = write(folder, "import torch; print(torch.empty(1).device)")
    assert run(script, device="meta").lines == ["meta"]


def test_a_device_that_is_not_there_is_said_in_one_sentence(folder: Path) -> None:
    ran = run(write(folder, "import torch; print('on')"), device="xla:3")
    assert ran.job.exit_code == 2
    (line,) = ran.lines
    assert line.startswith("ampwatch: --device xla:3 cannot be used here")
