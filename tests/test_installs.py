"""Each kind of installation has its demos: a wheel carries them, a checkout reads its own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
DEMOS = sorted(path.stem for path in (REPOSITORY / "demos").glob("[a-z]*.py"))


def python(*args: str, cwd: Path, path: Path) -> str:
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import ampwatch.cli; "
    command = [sys.executable, "-c", code + args[0]]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


def test_a_wheel_carries_the_demos_and_their_data(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    listing = python(
        "ampwatch.cli.main(['demo', '--list'])", cwd=tmp_path, path=installed
    ).splitlines()
    assert sorted(line.split()[0] for line in listing) == DEMOS
    found = python(
        "from ampwatch.cli.demo_files import demo_folder; print(demo_folder())",
        cwd=tmp_path,
        path=installed,
    )
    assert Path(found.strip()) == installed / "ampwatch" / "demos"
    for data in (REPOSITORY / "demos" / "data").iterdir():
        assert (installed / "ampwatch" / "demos" / "data" / data.name).read_bytes() == (
            data.read_bytes()
        )


def test_a_checkout_reads_the_demos_beside_the_package(tmp_path: Path) -> None:
    found = python(
        "from ampwatch.cli.demo_files import demo_folder; print(demo_folder())",
        cwd=tmp_path,
        path=REPOSITORY,
    )
    assert Path(found.strip()) == REPOSITORY / "demos"
